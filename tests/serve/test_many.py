"""Many devices: models are written in turn, the journal has the rest, and a start tells its way."""

import asyncio
import json
import threading
import time

import httpx
import pytest
from serving import free_port, machine, resumed, sample
from test_state import CONFIG, config, crash, feed, started

from onlad import ModelFileError, modelfile, persist
from onlad.serve import disk
from onlad.serve.audit import verify
from onlad.serve.quarantine import REPLAYING
from onlad.serve.run import run
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher

DEVICES = [f"d{i}" for i in range(12)]


def checkpoint(service, **settings):
    asyncio.run(service.disk.checkpoint(**settings))


def same_as_alone(service, X, device):
    """Whether a device's model is that of a monitor which saw all rows at once."""
    twin = service.streams["pump"].monitor()
    twin.observe_many([sample(x) for x in X])
    model = service.watchers["pump", device].monitor
    return persist.to_bytes(model) == persist.to_bytes(twin)


@pytest.fixture
def few(monkeypatch):
    """A checkpoint writes three models."""
    monkeypatch.setattr(disk, "FEWEST", 3)
    monkeypatch.setattr(disk, "RATE", 1)


@pytest.mark.usefixtures("few")
def test_models_are_written_in_turn_and_a_crash_at_any_time_loses_nothing(tmp_path):
    X = machine(600, faults=[410, 560])
    service, models = started(tmp_path), tmp_path / "state/models"
    for turn in range(6):
        part = X[100 * turn : 100 * turn + 100]
        for device in DEVICES:
            feed(service, part, device=device)
        before = {path.name for path in models.glob("*.onlad.gz")}
        checkpoint(service)
        after = {path.name for path in models.glob("*.onlad.gz")}
        assert len(after - before) == 3
        crash(service)
        service = started(tmp_path)
        assert {w.monitor.n_seen for w in service.watchers.values()} == {100 * turn + 100}
    assert all(same_as_alone(service, X, device) for device in DEVICES)
    alarms = {device: service.watchers["pump", device].alarms for device in DEVICES}
    assert all([alarm.row for alarm in kept] == [410, 560] for kept in alarms.values())
    rows = {json.dumps([alarm.rows for alarm in kept]) for kept in alarms.values()}
    assert len(rows) == 1  # whether they come from a file or from the journal
    service.close()


@pytest.mark.usefixtures("few")
def test_snapshots_take_no_bytes_and_are_taken_in_turn(tmp_path, monkeypatch):
    service, state = started(tmp_path), tmp_path / "state"
    for device in DEVICES:
        feed(service, machine(40), device=device)
    for turn in range(1, 5):
        checkpoint(service)
        assert len(list((state / "snapshots").iterdir())) == 3 * turn
        for watcher in service.watchers.values():
            names = service.store.snapshots(watcher.number)
            assert len(names) == (watcher.number <= 3 * turn)
            for name in names:  # a second name of the file of the model
                assert (state / "snapshots" / name).stat().st_nlink == 2
    watcher = service.watchers["pump", DEVICES[0]]
    (first,) = service.store.snapshots(watcher.number)
    feed(service, machine(10), device=DEVICES[0])
    checkpoint(service)
    assert service.store.snapshots(watcher.number) == [first]  # the next one is due tomorrow
    service.close()
    again = started(tmp_path)  # and it is so after a start
    feed(again, machine(10), device=DEVICES[0])
    checkpoint(again)
    assert again.store.snapshots(watcher.number) == [first]
    monkeypatch.setattr(disk.time, "monotonic", lambda now=disk.time.monotonic: now() + 86_401)
    feed(again, machine(10), device=DEVICES[0])
    checkpoint(again)
    second = again.store.snapshots(watcher.number)[1]
    assert again.store.snapped(watcher.number, second).n_seen == 70
    asyncio.run(again.orders.revert(again.watchers["pump", DEVICES[0]], first))
    assert "snapshot" in {said["kind"] for _, said in verify(state)}
    again.close()


def test_no_checkpoint_writes_more_than_it_may_though_models_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "FEWEST", 1)
    service = started(tmp_path)
    X = machine(1200)
    for device in DEVICES:
        feed(service, X[:300], device=device)
    checkpoint(service)  # the size of each is known, and will be many times as large
    for device in DEVICES:
        feed(service, X[300:], device=device)
    was = next(watcher.on_disk.size for watcher in service.watchers.values())
    monkeypatch.setattr(disk, "RATE", 2 * was / service.config.service.checkpoint)
    before = {path.name for path in (tmp_path / "state/models").glob("*.gz")}
    checkpoint(service)
    new = [p for p in (tmp_path / "state/models").glob("*.gz") if p.name not in before]
    assert len(new) == 1
    assert new[0].stat().st_size > 2 * was
    service.close()


@pytest.mark.usefixtures("few")
def test_segments_go_when_the_last_model_that_needs_them_is_written(tmp_path):
    service = started(tmp_path)
    for device in DEVICES:
        feed(service, machine(90), device=device)
    counts = []
    for _ in range(6):
        checkpoint(service)
        counts.append(len(service.store.journal.segments()))
    assert counts == [2, 3, 4, 1, 1, 1]  # twelve models are four turns; then all is written
    assert len(list((tmp_path / "state/models").iterdir())) == len(DEVICES)
    before = (tmp_path / "state/state.json").stat().st_mtime_ns
    checkpoint(service)
    assert (tmp_path / "state/state.json").stat().st_mtime_ns == before
    service.close()


@pytest.mark.usefixtures("few")
def test_the_journal_does_not_grow_when_each_checkpoint_is_followed_by_a_crash(tmp_path):
    service, counts = started(tmp_path), []
    for _ in range(10):
        for device in DEVICES:
            feed(service, machine(10), device=device)
        checkpoint(service)
        counts.append(len(service.store.journal.segments()))
        crash(service)
        service = started(tmp_path)
    assert max(counts) <= 5, counts  # twelve models are four turns
    assert {w.monitor.n_seen for w in service.watchers.values()} == {100}
    service.close()


@pytest.mark.usefixtures("few")
def test_what_a_person_did_between_two_turns_is_done_once(tmp_path):
    X = machine(600, faults=[410])
    service = started(tmp_path)
    for device in DEVICES:
        feed(service, X[:500], device=device)
    checkpoint(service)
    orders, watchers = service.orders, service.watchers
    last = watchers["pump", DEVICES[-1]]  # its model is not written yet
    learned = asyncio.run(orders.label(last, last.alarms[-1].id, "normal"))
    assert learned > 0
    asyncio.run(orders.pause(watchers["pump", "d5"], True))
    asyncio.run(orders.forget(watchers["pump", "d6"]))
    feed(service, X[:40], device="d6")  # a new one of the same name
    file = asyncio.run(orders.forget(watchers["pump", "d7"]))
    asyncio.run(orders.restore(file))
    for device in DEVICES[7:]:
        feed(service, X[500:], device=device)
    expected = {key: persist.to_bytes(w.monitor) for key, w in watchers.items()}
    for _ in range(8):
        crash(service)
        service = started(tmp_path)
        found = {key: persist.to_bytes(w.monitor) for key, w in service.watchers.items()}
        assert found == expected
        assert [w.device for w in service.watchers.values() if w.paused] == ["d5"]
        assert service.watchers["pump", DEVICES[-1]].alarms[-1].marked
        assert service.watchers["pump", "d6"].monitor.n_seen == 40
        checkpoint(service)
    service.close()


def test_a_stop_takes_no_longer_than_it_may_and_the_journal_has_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "SURELY", 3)
    service = started(tmp_path)
    for device in DEVICES:
        feed(service, machine(90), device=device)
    checkpoint(service, until=time.monotonic())
    assert len(list((tmp_path / "state/models").iterdir())) == 3
    service.close()
    again = started(tmp_path)
    assert {w.monitor.n_seen for w in again.watchers.values()} == {90}
    checkpoint(again, until=time.monotonic() + 60)  # with time for all
    assert len(list((tmp_path / "state/models").iterdir())) == 12
    again.close()


def test_a_damaged_file_of_alarms_is_refused_and_repaired(tmp_path, capsys):
    from onlad.cli import main
    from onlad.serve.checkpoint import StateError

    service = started(tmp_path)
    feed(service, machine(700, faults=[500]))
    checkpoint(service)
    service.close()
    (file,) = (tmp_path / "state/models").glob("*.json")
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    with pytest.raises(StateError, match="is damaged: its checksum"):
        started(tmp_path)
    assert main(["repair", str(tmp_path / "state")]) == 0
    assert "what was damaged is in" in capsys.readouterr().out
    again = started(tmp_path)
    assert (again.watchers["pump", ""].monitor.n_seen, len(again.watchers["pump", ""].alarms)) == (
        700,
        0,
    )
    again.close()


def test_a_block_of_the_journal_that_ended_a_start_is_replayed_record_by_record(
    tmp_path, monkeypatch
):
    X = machine(90)
    service = started(tmp_path)
    for row in X:
        feed(service, row[None])
    service.quarantine.hold(REPLAYING, 1, 0)
    (tmp_path / "state/fault").write_text("Segmentation fault")
    crash(service)
    sizes, observe = [], Watcher.observe

    def watched(self, rows, times):
        sizes.append(len(rows))
        return observe(self, rows, times)

    monkeypatch.setattr(Watcher, "observe", watched)
    careful = started(tmp_path)
    assert set(sizes) == {1}
    assert same_as_alone(careful, X, "")
    crash(careful)
    sizes.clear()
    started(tmp_path).close()  # the next one is as fast as before
    assert sizes == [64, 26]


def test_health_is_answered_while_the_journal_is_replayed(tmp_path, monkeypatch):
    port = free_port()
    text = CONFIG.replace("[http]", f"[http]\nport = {port}\npage = false")
    service = started(tmp_path, text)
    for device in DEVICES:
        feed(service, machine(300), device=device)
    crash(service)
    slow, observe = threading.Event(), Watcher.observe

    def slowly(self, rows, times):
        slow.wait(0.05)
        return observe(self, rows, times)

    monkeypatch.setattr(Watcher, "observe", slowly)
    stop = []

    async def work():
        again = Service(config(tmp_path, text))
        stop.extend([asyncio.get_running_loop(), asyncio.Event(), again])
        await run(again, stop[1])

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    said = []
    deadline = time.monotonic() + 30
    while ("ready\n", 200) not in said and time.monotonic() < deadline:
        try:
            alive = httpx.get(f"http://127.0.0.1:{port}/healthz")
            ready = httpx.get(f"http://127.0.0.1:{port}/readyz")
            streams = httpx.get(f"http://127.0.0.1:{port}/streams")
        except httpx.TransportError:
            continue
        assert alive.status_code == 200
        if not stop[2].resumed:
            assert (streams.status_code, "Retry-After" in streams.headers) == (503, True)
        said.append((ready.text, ready.status_code))
    stop[0].call_soon_threadsafe(stop[1].set)
    thread.join(30)
    replaying = [text for text, status in said if status == 503 and "journal is replayed" in text]
    assert replaying
    assert said[-1] == ("ready\n", 200)


def test_a_stop_during_a_start_leaves_all_as_it_was(tmp_path, monkeypatch):
    text = CONFIG.replace("[http]", "[http]\nport = 0\npage = false")
    service = started(tmp_path, text)
    for device in DEVICES:
        feed(service, machine(300), device=device)
    crash(service)
    observe = Watcher.observe

    def slowly(self, rows, times):
        time.sleep(0.02)
        return observe(self, rows, times)

    async def work():
        again, stop = Service(config(tmp_path, text)), asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, stop.set)
        await run(again, stop)
        assert not again.resumed

    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "observe", slowly)
        asyncio.run(work())

    async def look():
        return resumed(config(tmp_path, text))

    last = asyncio.run(look())
    assert {w.monitor.n_seen for w in last.watchers.values()} == {300}
    last.close()


def test_marked_as_normal_every_sample_of_an_alarm_is_learned_and_counted(tmp_path):
    X = machine(700, faults=range(500, 560))
    service = started(tmp_path)
    feed(service, X)
    watcher = service.watchers["pump", ""]
    alarm = watcher.alarms[0]
    new = [i for i in range(alarm.before, alarm.before + alarm.last - alarm.row + 1)]
    left = [i for i in new if not alarm.learned[i]]
    assert len(left) > 16
    accepted, accept = [], watcher.monitor.accept
    watcher.monitor.accept = lambda rows, times: (accepted.append(len(rows)), accept(rows))
    assert asyncio.run(service.orders.label(watcher, alarm.id, "normal")) == len(left)
    assert len(accepted) == len(left)
    assert all(alarm.learned[i] for i in new)
    assert asyncio.run(service.orders.label(watcher, alarm.id, "normal")) == 0  # there is no more
    service.close()


def test_the_birth_of_a_forgotten_device_does_not_replace_the_new_one(tmp_path, monkeypatch):
    service = started(tmp_path)
    for device in DEVICES:
        feed(service, machine(90), device=device)
    asyncio.run(service.orders.forget(service.watchers["pump", "d0"]))
    feed(service, machine(40), device="d0")
    new = service.watchers["pump", "d0"]
    with monkeypatch.context() as patch:  # its model is written, and the journal kept for others
        patch.setattr(disk.Disk, "_chosen", lambda *_, **__: [new])
        checkpoint(service)
    for _ in range(2):
        crash(service)
        service = started(tmp_path)
        seen = {w.device: w.monitor.n_seen for w in service.watchers.values()}
        assert seen == dict.fromkeys(DEVICES, 90) | {"d0": 40}
    service.close()


def test_a_model_that_cannot_be_saved_keeps_no_other_from_being_saved(tmp_path, monkeypatch):
    service = started(tmp_path)
    for device in "abc":
        feed(service, machine(90), device=device)
    replace = modelfile.replace

    def picky(path, data):
        if path.name.startswith("000001-"):
            raise ModelFileError("it holds NaN")
        replace(path, data)

    monkeypatch.setattr("onlad.serve.checkpoint.modelfile.replace", picky)
    for _ in range(2):
        checkpoint(service)
        assert len(service.store.journal.segments()) == 1
        (problem,) = service.health.problems()
        assert problem == "set aside until a restart, because the monitor failed: pump/a"
        feed(service, machine(10), device="b")
    assert len(list((tmp_path / "state/models").iterdir())) == 2
    crash(service)
    monkeypatch.undo()
    again = started(tmp_path)
    assert {w.device: w.monitor.n_seen for w in again.watchers.values()} == {
        "a": 90,
        "b": 110,
        "c": 90,
    }
    again.close()
