"""A real broker on a free port: mosquitto, or amqtt where that is not installed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("uvicorn") is None:  # a wheel is tried without its extras
    collect_ignore_glob = ["test_*.py"]
else:
    from serving import Broker, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
if os.environ.get("ONLAD_BROKER") == "amqtt":
    MOSQUITTO = None

AMQTT = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


@contextlib.contextmanager
def running(command, port):
    """Run a broker until the block is left."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{command} does not listen"
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.fixture
def start_broker(tmp_path):
    """Return a function that starts a broker, with more lines of mosquitto's configuration."""
    with contextlib.ExitStack() as stack:

        def start(port=None, more="", first=""):
            port = port or free_port()
            if MOSQUITTO is None:
                if more:
                    pytest.skip("amqtt has no such settings; install mosquitto")
                path = tmp_path / f"amqtt-{port}.yaml"
                path.write_text(AMQTT.format(port=port))
                amqtt = Path(sys.executable).with_name("amqtt")
                command = [str(amqtt), "-c", str(path)]
            else:
                text = (DEPLOY / "mosquitto.conf").read_text()
                store = tmp_path / "mosquitto"
                store.mkdir(exist_ok=True)
                text = text.replace("/var/lib/mosquitto/", f"{store}/")
                if os.geteuid() == 0:
                    text += "user root\n"  # it would become a user who may not write here
                text = text.replace("listener 1883 127.0.0.1", f"listener {port} 127.0.0.1")
                path = tmp_path / f"mosquitto-{port}.conf"
                path.write_text(first + text + more)
                command = [MOSQUITTO, "-c", str(path)]
            own = contextlib.ExitStack()
            process = own.enter_context(running(command, port))
            stack.push(own)
            return Broker(port, process, own.close)

        yield start


@pytest.fixture
def broker(start_broker):
    return start_broker()


@pytest.fixture
def keeping_broker(start_broker):
    """A broker that keeps what it was given for a client that is away."""
    if MOSQUITTO is None:
        pytest.skip("amqtt keeps nothing for a client that is away; install mosquitto")
    return start_broker()


def versions():
    return ["3.1.1", "5"] if MOSQUITTO else ["3.1.1"]  # amqtt speaks the older one only


def pytest_generate_tests(metafunc):
    if "version" in metafunc.fixturenames:
        metafunc.parametrize("version", versions())


@pytest.fixture
def receiver():
    """A webhook's other end, which refuses the first `fail` requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.tries += 1
            if server.redirect and self.path == "/alarm":
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{server.port}/elsewhere")
                self.end_headers()
                return
            if server.tries <= server.fail:
                self.send_error(503)
                return
            server.got.append((body, self.headers["Authorization"]))
            self.send_response(204)
            self.end_headers()

        def do_GET(self):
            server.astray.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.tries, server.fail, server.got, server.port = 0, 0, [], server.server_port
    server.redirect, server.astray = False, []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
