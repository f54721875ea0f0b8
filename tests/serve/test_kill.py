"""The service is killed at random moments under load, and nothing is lost and nothing twice."""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from serving import (
    Client,
    Process,
    free_port,
    machine,
    models,
    sample,
    until,
    write_config,
)

from onlad import persist
from onlad.serve import config

CONFIG = """
[service]
state = "state"
checkpoint = 0.05
[mqtt]
port = PORT
version = "VERSION"
state_every = 0.5
[[streams]]
name = "pump"
topic = "plant/{device}/sensors"
"""
DEVICES = ("a", "b")


class Forker:
    def __init__(self, path):
        script = Path(__file__).with_name("forker.py")
        self.pid = 0
        self.log = path.with_suffix(".log").open("ab")
        self.popen = subprocess.Popen(
            [sys.executable, str(script), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def start(self):
        self.pid = self._ask("start")

    def end(self, number):
        """Send a signal, and return the exit status."""
        os.kill(self.pid, number)
        status, self.pid = self._ask("wait"), 0
        return status

    def _ask(self, word):
        self.popen.stdin.write(word + "\n")
        self.popen.stdin.flush()
        return int(self.popen.stdout.readline())

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.popen.stdin.close()
        self.popen.stdout.close()
        self.popen.wait(10)
        self.log.close()


def feed(client, X, stop, allowed):
    """Publish rows, each once, as fast as allowed, until told to stop; return how many."""
    for count, row in enumerate(X):
        while count >= allowed[0] and not stop.is_set():
            time.sleep(0.001)
        if stop.is_set():
            return count
        client.send(f"plant/{DEVICES[count % len(DEVICES)]}/sensors", sample(row))
        time.sleep(0.0005)  # so that some are on their way at any moment
    return len(X)


def survive(folder, broker, version, kills, rows=200):
    path = write_config(folder, broker.port, CONFIG.replace("VERSION", version))
    most = rows * (kills + 1)
    X = machine(most, faults=range(1200, most, 501))
    # This number of samples is sent for each kill: a slow machine gets no backlog that stays.
    rng, stop, sent, allowed = random.Random(0), threading.Event(), [], [rows]
    with Client(broker.port) as client, closing(Forker(path)) as forker:

        def starts():
            return sum(payload == b"online" for _, payload, _ in list(client.heard))

        # The first start subscribes. What is sent before is sent to nobody.
        forker.start()
        until(starts, "the first start")
        feeder = threading.Thread(target=lambda: sent.append(feed(client, X, stop, allowed)))
        feeder.start()
        before = 0
        for _ in range(kills):
            if rng.random() < 0.8:  # at work, and not while it starts
                until(lambda n=before: starts() > n, "a connection", 60)
            time.sleep(rng.uniform(0.0, 0.15))
            assert forker.end(signal.SIGKILL) == -signal.SIGKILL, "it ended before it was killed"
            before = starts()
            forker.start()
            allowed[0] += rows
        feeder.join(60)
        stop.set()
        feeder.join()

        def all_seen():
            newest = [client.on(f"onlad/pump/{device}/state")[-1:] for device in DEVICES]
            return sum(state["samples"] for states in newest for state in states) >= sent[0]

        until(all_seen, f"{sent[0]} samples", 120)
        assert forker.end(signal.SIGTERM) == 0
        alarms = {alarm["id"] for alarm in client.on("onlad/pump/./alarm")}
    resumed = [int(n) for n in re.findall(r"replayed=(\d+)", path.with_suffix(".log").read_text())]
    assert sum(n > 0 for n in resumed) > kills / 4, "hardly a kill hit samples that were not saved"
    return X[: sent[0]], models(folder / "state"), alarms, config.load(path).streams[0]


def check(X, found, alarms, stream):
    for k, device in enumerate(DEVICES):
        rows = X[k :: len(DEVICES)]
        twin = stream.monitor()
        verdicts = twin.observe_many([sample(row) for row in rows])
        model = found["pump", device]
        assert model.n_seen == len(rows)
        assert model.names == twin.names
        # The same samples in the same order: a block of any size gives what single ones give.
        assert persist.to_bytes(model) == persist.to_bytes(twin)
        anomalies = np.flatnonzero(verdicts.is_anomaly)
        began = [
            r for i, r in enumerate(anomalies) if i == 0 or r - anomalies[i - 1] > stream.quiet
        ]
        assert len(began) >= 3
        assert {f"pump/{device}/{row}" for row in began} == {
            alarm for alarm in alarms if alarm.startswith(f"pump/{device}/")
        }


def test_200_kills_under_load_lose_nothing(tmp_path, keeping_broker):
    check(*survive(tmp_path, keeping_broker, "3.1.1", 200))


def test_20_kills_in_the_other_version(tmp_path, keeping_broker, version):
    if version == "3.1.1":
        pytest.skip("200 are above")
    check(*survive(tmp_path, keeping_broker, version, 20))


@pytest.mark.slow
def test_1000_kills_and_many_samples(tmp_path, keeping_broker, version):
    check(*survive(tmp_path, keeping_broker, version, 1000, rows=500))


def test_what_http_has_answered_survives_kills_of_the_command(tmp_path):
    port = free_port()
    path = tmp_path / "onlad.toml"
    path.write_text(
        f'[service]\nstate = "state"\ncheckpoint = 0.05\n[http]\nport = {port}\npage = false\n'
        'rate = 1e6\n[[streams]]\nname = "pump"\n'
    )
    X, rng, answered, tried = machine(100_000), random.Random(1), 0, 0
    url = f"http://127.0.0.1:{port}/streams/pump/samples"
    for _ in range(3):
        with Process(path) as process, httpx.Client() as client:
            until(lambda: _answers(port), "the server")
            killer = threading.Timer(rng.uniform(0.2, 1.0), process.kill)
            killer.start()
            with contextlib.suppress(httpx.TransportError):
                while True:
                    tried += 1
                    rows = client.post(url, json=sample(X[tried - 1])).raise_for_status().json()
                    answered += rows["accepted"]
            killer.join()
    with Process(path) as process:
        until(lambda: _answers(port), "the server")
        assert process.stop() == 0
    # A request that was cut off may have been taken or not; one that was answered was taken.
    seen = models(tmp_path / "state")["pump", ""].n_seen
    assert 3 < answered <= seen <= tried


def _answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False
