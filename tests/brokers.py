"""A real broker for tests: mosquitto, or amqtt where that is not installed."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def broker(folder, port, configuration):
    """Run a broker until the block is left; the configuration is mosquitto's."""
    path = folder / f"broker-{port}.conf"
    path.write_text(configuration if MOSQUITTO else AMQTT.format(port=port))
    command = [MOSQUITTO or str(Path(sys.executable).with_name("amqtt")), "-c", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{command} does not listen"
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
