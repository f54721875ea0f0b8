"""A real broker on a free port: mosquitto, or amqtt where that is not installed."""

import contextlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from brokers import MOSQUITTO, free_port
from brokers import broker as run_broker

if find_spec("uvicorn") is None:  # a wheel is tried without its extras
    collect_ignore_glob = ["test_*.py"]
else:
    from serving import Broker

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def start_broker(tmp_path):
    """Return a function that starts a broker, with more lines of mosquitto's configuration."""
    with contextlib.ExitStack() as stack:

        def start(port=None, more="", first=""):
            port = port or free_port()
            if MOSQUITTO is None and more:
                pytest.skip("amqtt has no such settings; install mosquitto")
            store = tmp_path / "mosquitto"
            store.mkdir(exist_ok=True)
            text = (DEPLOY / "mosquitto.conf").read_text()
            text = text.replace("/var/lib/mosquitto/", f"{store}/")
            if os.geteuid() == 0:
                text += "user root\n"  # it would become a user who may not write here
            text = text.replace("listener 1883 127.0.0.1", f"listener {port} 127.0.0.1")
            own = contextlib.ExitStack()
            process = own.enter_context(run_broker(tmp_path, port, first + text + more))
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
