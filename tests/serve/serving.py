"""What the tests of the service share: a broker's handle, a client, a service as a process."""

import asyncio
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho

from brokers import free_port  # noqa: F401  (for the tests)
from onlad import persist
from onlad.serve.config import load
from onlad.serve.run import run
from onlad.serve.service import Service

ONLAD = str(Path(sys.executable).with_name("onlad"))


@dataclass
class Broker:
    port: int
    process: subprocess.Popen
    stop: Callable[[], None]


def until(holds, what, timeout=30.0):
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.01)
    return found


def resumed(config):
    """Return a service that has gone on where the last one was."""
    service = Service(config)
    try:
        for _ in service.resume():
            pass
    except BaseException:
        service.close()
        raise
    return service


class Client:
    """A sensor and a listener: publishes, and keeps what it hears."""

    def __init__(self, port, topics=("onlad/#",), **settings):
        self.heard = []
        self._there = threading.Event()
        version = paho.CallbackAPIVersion.VERSION2
        self.paho = paho.Client(version, **settings)
        self.paho.max_inflight_messages_set(1000)
        self.paho.on_message = lambda c, u, m: self.heard.append((m.topic, m.payload, m.retain))
        self.paho.on_subscribe = lambda *_: self._there.set()
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        self.paho.subscribe([(topic, 1) for topic in topics])
        assert self._there.wait(10)

    def send(self, topic, payload, qos=1, retain=False):
        if not isinstance(payload, (bytes, str)):
            payload = json.dumps(payload)
        return self.paho.publish(topic, payload, qos, retain)

    def on(self, pattern):
        """Return what was heard on the topics that match."""
        return [json.loads(p) for t, p, _ in list(self.heard) if re.fullmatch(pattern, t)]

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()
        self.paho._reset_sockets()  # of its loop; a garbage collector may come to them before it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def write_config(folder, port, text):
    """Write a configuration with a broker's port and return its path."""
    path = folder / "onlad.toml"
    path.write_text(text.replace("PORT", str(port)))
    return path


class Process:
    """`onlad serve` as people run it."""

    def __init__(self, config, cwd=None):
        self.log = Path(config).with_suffix(".log")
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [ONLAD, "serve", "--config", str(config)], stderr=log, stdout=log, cwd=cwd
            )
        self.pid = self.popen.pid

    def wait_for(self, text, timeout=30.0):
        def found():
            assert self.popen.poll() is None, self.log.read_text()
            return text in self.log.read_text()

        until(found, f"{text!r} in the log", timeout)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.popen.wait(10)

    def stop(self):
        self.popen.terminate()
        return self.popen.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(10)


class Served:
    """A service in a thread of this process, with its event loop at hand."""

    def __init__(self, config):
        self._config, self._ready = config, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.error = None

    async def _main(self):
        try:
            self.stop_event, self.loop = asyncio.Event(), asyncio.get_running_loop()
            self.service = Service(load(self._config))
            self._look()
            await run(self.service, self.stop_event)
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    def _look(self):
        if self.service.resumed:
            self._ready.set()
        else:
            self.loop.call_later(0.01, self._look)

    def do(self, coroutine):
        """Run a coroutine on the service's loop and return what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def samples(self):
        return sum(w.monitor.n_seen for w in list(self.service.watchers.values()))

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(30)
        if self.error is not None:
            self._thread.join()
            raise self.error
        return self

    def end(self):
        """Stop it, and wait for its end."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.stop_event.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def __exit__(self, *_):
        self.end()
        if self.error is not None:
            raise self.error


def unpacked(path):
    """Return the model in a file of the service."""
    return persist.from_bytes(gzip.decompress(path.read_bytes()))


def models(state):
    """Return the monitors in a state folder's checkpoint, by stream and device."""
    values = json.loads((Path(state) / "state.json").read_text())["state"]
    return {
        (entry["stream"], entry["device"]): unpacked(Path(state) / "models" / entry["file"])
        for entry in values["watchers"]
    }


def machine(rows, seed=0, faults=()):
    """Return samples of a small machine; a row in `faults` has a sensor gone wrong."""
    rng = np.random.default_rng(seed)
    level = np.sin(np.arange(rows) / 20)[:, None]
    X = level * [1.0, 2.0, -1.0, 0.5] + rng.normal(0, 0.1, (rows, 4))
    for row in faults:
        X[row, 2] += 20.0
    return X


def sample(row):
    return dict(zip(("flow", "power", "valve", "heat"), row.tolist(), strict=True))
