"""No message ends the service: what cannot be read is answered, what ended it once is set aside."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import Client, Served, free_port, machine, sample, until, write_config
from test_state import CONFIG as STATE_CONFIG
from test_state import crash, drained, feed, started

from onlad import persist
from onlad.serve import payload
from onlad.serve.frames import Mark, digest
from onlad.serve.intake import Item
from onlad.serve.listener import Listener
from onlad.serve.tables import StreamTable
from onlad.serve.watcher import Monitor

DEEP = b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}"  # 2 kB
CONFIG = """
[service]
state = "state"
[mqtt]
port = PORT
version = "VERSION"
[http]
port = HTTP
page = false
[[streams]]
name = "pump"
topic = "plant/{device}"
"""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@settings(max_examples=300)
@given(
    value=json_values,
    depth=st.integers(0, 1100),
    wrap=st.sampled_from([b"[", b'{"a":', b'{"t":', b'[1,{"a":']),
    names=st.sampled_from([(), ("a",), (0, 1)]),
    columns=st.sampled_from([(), ("a", "b")]),
)
def test_whatever_json_can_be_is_samples_or_refused(value, depth, wrap, names, columns):
    ends = {b"[": b"]", b'{"a":': b"}", b'{"t":': b"}", b'[1,{"a":': b"}]"}
    data = wrap * depth + json.dumps(value).encode() + ends[wrap] * depth
    for kind in ("json", "plain"):
        stream = StreamTable(name="s", payload=kind, time="t", columns=columns)
        found = payload.read(stream, data, names, 5.0)
        assert len(found.rows) or found.bad
        assert len(found.rows) == len(found.times)
        assert all(len(why) < 1000 and isinstance(why, str) for _, why in found.bad)


def test_a_message_of_many_levels_ends_nothing(tmp_path, broker, version):
    http = free_port()
    text = CONFIG.replace("VERSION", version).replace("HTTP", str(http))
    path = write_config(tmp_path, broker.port, text)
    with Client(broker.port) as client, Served(path) as served:
        until(lambda: "mqtt" not in served.service.health.trouble, "a connection")
        client.send("plant/a", DEEP)
        until(lambda: served.service.health.bad["pump"] == 1, "the message")
        url = f"http://127.0.0.1:{http}/streams/pump/samples?device=a"
        answer = httpx.post(url, content=DEEP)
        assert answer.status_code == 422
        assert "holds an array, which is not a number" in answer.json()["bad"][0]["why"]
        client.send("plant/a", sample(machine(1)[0]))
        until(lambda: served.samples() == 1, "life after it")


@pytest.mark.parametrize(
    "where",
    [
        "onlad.serve.payload.read",
        "onlad.serve.devices.Devices.begin",
        "onlad.serve.intake.Batch.add",
        "onlad.serve.marks.Marks.has_timed",
        "onlad.serve.quarantine.Quarantine.read",
        "onlad.serve.watcher.Watcher.name",
        "onlad.serve.watcher.Watcher.take",
    ],
)
def test_whatever_is_raised_while_a_message_is_read_belongs_to_it(tmp_path, where, monkeypatch):
    service = started(tmp_path, STATE_CONFIG + 'time = "t"\n')
    feed(service, machine(3), device="a")
    with monkeypatch.context() as patch:
        patch.setattr(where, Mock(side_effect=[RuntimeError("a bug"), RecursionError()]))
        device = "b" if where.endswith(("begin", "name")) else "a"
        for k in range(2):  # with a time, and a name that comes later
            said = json.dumps(sample(machine(1)[0]) | {"t": 5.0 + k, "late": 1.0}).encode()
            mark = Mark(7 + k, digest(b"x", said))
            item = Item(service.streams["pump"], device, said, time.perf_counter(), mark)
            assert service.submit(item)
        asyncio.run(drained(service))
    assert service.health.bad["pump"] == 2
    assert ("pump", "b") not in service.watchers  # not half of a device
    feed(service, machine(3), device="a")
    feed(service, machine(3), device="b")
    crash(service)
    again = started(tmp_path, STATE_CONFIG + 'time = "t"\n')
    assert [w.monitor.n_seen for w in again.watchers.values()] == [6, 3]
    again.close()


def test_a_listener_that_fails_ends_nothing(tmp_path):
    class Fails(Listener):
        def judged(self, *_):
            raise RuntimeError("a bug")

        stepped = judged

    service = started(tmp_path)
    service.listen(Fails())
    feed(service, machine(5))
    assert (service.watchers["pump", ""].monitor.n_seen, service.broken) == (5, False)
    service.close()


@contextlib.contextmanager
def faulty(path):
    script = Path(__file__).with_name("faulty.py")
    with path.with_suffix(".log").open("ab") as log:
        popen = subprocess.Popen([sys.executable, str(script), str(path)], stderr=log)
    try:
        yield popen
    finally:
        popen.terminate()
        popen.wait(20)


def test_a_message_that_ended_a_process_by_a_fault_is_set_aside(tmp_path, keeping_broker):
    text = CONFIG.replace("VERSION", "3.1.1").replace("HTTP", "0")
    path = write_config(tmp_path, keeping_broker.port, text)
    folder = tmp_path / "state" / "quarantine"
    with Client(keeping_broker.port) as client:
        with faulty(path) as process:
            until(lambda: b"online" in [p for _, p, _ in client.heard], "the start")
            client.send("plant/a", '{"a": "boom"}')
            process.wait(20)
        assert process.returncode == -11
        with faulty(path) as process:  # the broker sends it again
            client.send("plant/a", {"a": 1.0})
            until(lambda: client.on("onlad/pump/a/state"), "the state of the device")
        assert process.returncode == 0
    (file,) = folder.iterdir()
    said = json.loads(file.read_text())
    assert "Segmentation fault" in said["why"]
    assert (said["stream"], said["device"]) == ("pump", "a")
    log = path.with_suffix(".log").read_text()
    assert "a message ended the last process" in log
    assert f"quarantine/{file.name}" in log


@pytest.mark.parametrize("text", ["", "[]", '{"time": '])
def test_files_in_quarantine_that_cannot_be_read_end_nothing(tmp_path, text):
    folder = tmp_path / "state/quarantine"
    folder.mkdir(parents=True)
    bad = json.dumps([sample(machine(1)[0])]).encode()
    file = folder / f"message-{digest(b'pump/', bad):016x}.json"
    for path in (file, folder / "message-of-monday.json", folder / "rows-.json"):
        path.write_text(text)
    service = started(tmp_path)
    feed(service, machine(1))
    assert service.health.bad["pump"] == 1
    assert json.loads(file.read_text())["stream"] == "pump"
    feed(service, machine(2))
    assert service.watchers["pump", ""].monitor.n_seen == 2
    service.close()


@pytest.fixture
def picky(monkeypatch):
    """A monitor that raises on a value, after it has learned it."""

    def picky(real):
        def observe(self, rows, *rest, **options):
            verdicts = real(self, rows, *rest, **options)
            if (np.asarray(rows) == 7777.0).any():
                raise RuntimeError("a bug")
            return verdicts

        return observe

    for name in ("observe_many", "judged"):  # by itself, and beside others
        monkeypatch.setattr(Monitor, name, picky(getattr(Monitor, name)))


@pytest.mark.usefixtures("picky")
def test_a_device_whose_monitor_raises_is_set_aside_and_the_others_go_on(tmp_path):
    X = machine(400)
    X[340, 0] = 7777.0
    service = started(tmp_path)
    told = Couriers()
    service.listen(told)
    for device in "abc":
        feed(service, X[:300], device=device)
    asyncio.run(service.disk.checkpoint())
    feed(service, X[300:330], device="a")
    feed(service, X[330:350], device="a")
    feed(service, X[300:330], device="b")
    a, b = (service.watchers["pump", device] for device in "ab")
    assert (a.state, b.state, b.monitor.n_seen) == ("failed", "normal", 330)
    (alarm,) = told.alarms
    assert (alarm["kind"], alarm["device"]) == ("failed", "a")
    assert "its monitor failed with RuntimeError('a bug')" in alarm["text"]
    (problem,) = service.health.problems()
    assert problem == "set aside until a restart, because the monitor failed: pump/a"
    assert service.health.totals()["pump"]["failed"] == 1
    feed(service, X[350:], device="a")  # skipped, and told so
    assert service.health.bad["pump"] == 1
    for _ in range(3):  # its rows do not keep the journal from being cleared up
        feed(service, X[:10], device="b")
        asyncio.run(service.disk.checkpoint())
        assert len(service.store.journal.segments()) == 1
    crash(service)
    again = started(tmp_path)
    a, b = (again.watchers["pump", device] for device in "ab")
    assert (a.monitor.n_seen, a.lost, a.failed, b.monitor.n_seen) == (349, 1, "", 360)
    twin = again.streams["pump"].monitor()
    twin.observe_many([sample(x) for x in np.delete(X[:350], 340, 0)])
    assert persist.to_bytes(a.monitor) == persist.to_bytes(twin)
    assert again.health.problems() == []
    again.close()


class Couriers(Listener):
    courier = "test"

    def __init__(self):
        self.alarms = []

    def alarmed(self, message):
        self.alarms.append(message)


@pytest.mark.usefixtures("picky")
def test_a_row_that_the_monitor_raises_on_is_set_aside_at_the_next_start(tmp_path):
    X = machine(90)
    X[40, 0] = 7777.0
    service = started(tmp_path)
    feed(service, X[:30], device="a")
    feed(service, X[:30], device="b")
    feed(service, X[30:60], device="a")
    crash(service)
    for _ in range(2):  # also when it crashes before the next checkpoint
        again = started(tmp_path)
        a, b = (again.watchers["pump", device] for device in "ab")
        assert (a.monitor.n_seen, b.monitor.n_seen) == (59, 30)
        assert (a.journaled, again.quarantine.count) == (60, 1)
        crash(again)
    (file,) = (tmp_path / "state" / "quarantine").iterdir()
    said = json.loads(file.read_text())
    assert (said["device"], said["row"], said["rows"]) == ("pump/a", 40, [X[40].tolist()])
    again = started(tmp_path)
    feed(again, X[60:], device="a")
    asyncio.run(again.disk.checkpoint())
    feed(again, X[:10], device="a")
    crash(again)
    last = started(tmp_path)
    watcher = last.watchers["pump", "a"]
    assert (watcher.monitor.n_seen, watcher.lost) == (99, 1)
    twin = last.streams["pump"].monitor()
    twin.observe_many([sample(x) for x in np.delete(X, 40, 0)])
    twin.observe_many([sample(x) for x in X[:10]])
    assert persist.to_bytes(watcher.monitor) == persist.to_bytes(twin)
    last.close()
