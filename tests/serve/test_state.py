"""The state folder: resumed to the last sample, never from nothing, never from half a file."""

import asyncio
import gzip
import hashlib
import json
import random
import shutil
import threading
import time

import numpy as np
import pytest
from serving import machine, models, resumed, sample

from onlad import Detector, ModelFileError, Monitor, persist
from onlad.serve import replay
from onlad.serve.checkpoint import FORMAT, SNAPSHOTS, StateError
from onlad.serve.config import load
from onlad.serve.frames import Mark
from onlad.serve.intake import Item
from onlad.serve.journal import JournalError
from onlad.serve.run import run

CONFIG = """
[service]
state = "state"
[http]
[[streams]]
name = "pump"
"""


def config(folder, text=CONFIG):
    path = folder / "onlad.toml"
    path.write_text(text)
    return load(path)


def feed(service, rows, device="", mark=None, stream="pump"):
    data = json.dumps([sample(row) for row in rows]).encode()
    item = Item(service.streams[stream], device, data, time.perf_counter(), mark)
    assert service.submit(item)
    asyncio.run(drained(service))


async def drained(service):
    await service.drain()


def started(folder, text=CONFIG):
    async def make():
        return resumed(config(folder, text))

    return asyncio.run(make())


def crash(service):
    """End without a checkpoint, as a kill would."""
    service.close()


def test_a_crash_before_the_first_checkpoint_loses_nothing(tmp_path):
    X = machine(700, faults=[500])
    service = started(tmp_path)
    feed(service, X[:300])
    feed(service, X[300:])
    alarms = list(service.watchers["pump", ""].alarms)
    crash(service)
    again = started(tmp_path)
    watcher = again.watchers["pump", ""]
    assert watcher.monitor.n_seen == 700
    twin = again.streams["pump"].monitor()
    twin.observe_many([sample(x) for x in X])
    assert persist.to_bytes(watcher.monitor) == persist.to_bytes(twin)
    assert list(watcher.alarms) == alarms
    assert [alarm.row for alarm in alarms] == [500]
    again.close()


def test_what_comes_after_a_checkpoint_is_replayed_once(tmp_path):
    X = machine(700)
    service = started(tmp_path)
    feed(service, X[:300], mark=Mark(5, 55))
    asyncio.run(service.disk.checkpoint())
    feed(service, X[300:], mark=Mark(6, 66))
    crash(service)
    again = started(tmp_path)
    assert again.watchers["pump", ""].monitor.n_seen == 700
    # Messages that the broker may send again are known from both sides of the checkpoint.
    assert Mark(5, 55) in again.marks
    assert Mark(6, 66) in again.marks
    assert Mark(6, 55) not in again.marks
    again.new_session()
    crash(again)
    third = started(tmp_path)
    assert Mark(6, 66) not in third.marks
    third.close()


def test_a_checkpoint_clears_up_and_an_idle_one_writes_nothing(tmp_path):
    service = started(tmp_path)
    for part in np.array_split(machine(90), 3):
        feed(service, part)
        asyncio.run(service.disk.checkpoint())
    state = tmp_path / "state"
    assert len(list((state / "models").iterdir())) == 1
    assert len(list((state / "journal").glob("*.journal"))) == 1
    before = (state / "state.json").stat().st_mtime_ns
    asyncio.run(service.disk.checkpoint())
    assert (state / "state.json").stat().st_mtime_ns == before
    service.close()
    assert models(state)["pump", ""].n_seen == 90


def test_damaged_state_is_refused_with_the_file_and_the_way_out(tmp_path):
    service = started(tmp_path)
    feed(service, machine(90))
    asyncio.run(service.disk.checkpoint())
    asyncio.run(service.disk.checkpoint())
    feed(service, machine(10))
    service.close()
    state = tmp_path / "state"
    (model,) = (state / "models").iterdir()

    def refused(path, data, error, message):
        whole = path.read_bytes()
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        with pytest.raises(error, match=message):
            started(tmp_path)
        path.write_bytes(whole)

    refused(model, model.read_bytes()[:-9], ModelFileError, "is damaged")
    refused(model, b"PK", ModelFileError, "is damaged: Not a gzipped file")
    short = gzip.compress(gzip.decompress(model.read_bytes())[:-9])
    refused(model, short, ModelFileError, f"{model.name} is damaged")
    refused(model, None, StateError, r"cannot be read: No such file or directory\. Restore it")
    refused(state / "state.json", b'{"sha256": "12", "sta', StateError, "is damaged: its checksum")
    refused(state / "state.json", None, StateError, "state.json is missing. Restore it")
    whole = json.loads((state / "state.json").read_text())["state"]
    for change, error, message in [
        ({"segment": whole["segment"] - 1}, JournalError, "lacks a segment"),
        (
            {"format": FORMAT + 1},
            StateError,
            f"reads {FORMAT}. Use the onlad that wrote it, or move the folder",
        ),
        (
            {"format": 2},
            StateError,
            f"has format 2; this onlad reads {FORMAT}. Use the onlad that wrote",
        ),
    ]:
        refused(state / "state.json", sealed(whole | change), error, message)
    (segment,) = (state / "journal").glob("*.journal")
    refused(segment, None, JournalError, r"lacks a segment: .* onlad repair")
    detector = Detector(n_hidden=4)
    detector.learn_many([[0.1, 0.2], [0.3, 0.4]])
    persist.save(detector, tmp_path / "detector.onlad")
    other = gzip.compress((tmp_path / "detector.onlad").read_bytes())
    refused(model, other, StateError, "holds no monitor")
    started(tmp_path).close()  # and whole again it starts


def sealed(values):
    body = json.dumps(values)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "state": {body}}}\n'.encode()


def test_no_flipped_bit_of_state_json_is_accepted(tmp_path):
    service = started(tmp_path)
    feed(service, machine(300, faults=[290]), mark=Mark(5, 55))
    asyncio.run(service.disk.checkpoint())
    path = tmp_path / "state" / "state.json"
    data = path.read_bytes()
    rng = random.Random(0)
    for where in range(0, len(data), 3):
        broken = bytearray(data)
        broken[where] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(StateError, match=r"is damaged|has format"):
            service.store.read()
    service.close()


def test_two_services_do_not_share_a_folder(tmp_path):
    service = started(tmp_path)
    with pytest.raises(StateError, match="is in use by another onlad serve"):
        started(tmp_path)
    service.close()
    started(tmp_path).close()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StateError, match="cannot be used"):
        started(tmp_path)


def test_a_stream_that_is_taken_out_and_put_back_goes_on(tmp_path):
    both = CONFIG + '[[streams]]\nname = "fan"\n'
    service = started(tmp_path, both)
    feed(service, machine(90))
    asyncio.run(service.disk.checkpoint())
    feed(service, machine(9))
    feed(service, machine(7), device="new")  # in the journal only
    asyncio.run(service.orders.pause(service.watchers["pump", "new"], True))
    service.close()
    for _ in range(2):
        without = started(tmp_path, CONFIG.replace('"pump"', '"fan"'))
        assert not any(stream == "pump" for stream, _ in without.watchers)
        for _ in range(2):
            feed(without, machine(5), stream="fan")
            asyncio.run(without.disk.checkpoint())
        without.close()
    back = started(tmp_path, both)
    seen = {key: w.monitor.n_seen for key, w in back.watchers.items()}
    assert seen == {("pump", ""): 99, ("pump", "new"): 7, ("fan", ""): 20}
    assert [key for key, w in back.watchers.items() if w.paused] == [("pump", "new")]
    back.close()


def test_other_columns_are_refused(tmp_path):
    service = started(tmp_path)
    feed(service, machine(90))
    asyncio.run(service.disk.checkpoint())
    service.close()
    with pytest.raises(StateError, match="Give the stream another name"):
        started(tmp_path, CONFIG + 'columns = ["flow", "power"]\n')
    started(tmp_path, CONFIG + 'columns = ["heat", "valve", "power", "flow"]\n').close()


def test_a_device_may_start_from_a_model(tmp_path):
    monitor = Monitor()
    monitor.observe_many([sample(row) for row in machine(300)])
    persist.save(monitor, tmp_path / "pump.onlad")
    service = started(tmp_path, CONFIG + 'model = "pump.onlad"\n')
    feed(service, machine(10), device="a")
    feed(service, machine(10), device="b")
    assert service.watchers["pump", "b"].monitor.n_seen == 310
    (tmp_path / "pump.onlad").write_text("a file that changes ends nothing")
    feed(service, machine(10), device="c")
    assert service.watchers["pump", "c"].monitor.n_seen == 310
    crash(service)
    persist.save(monitor, tmp_path / "pump.onlad")
    again = started(tmp_path, CONFIG + 'model = "pump.onlad"\n')
    assert again.watchers["pump", "b"].monitor.n_seen == 310
    again.close()


def test_a_disk_that_takes_no_checkpoint_is_told_and_tried_again(tmp_path, monkeypatch):
    service = started(tmp_path)
    feed(service, machine(90))

    def no_space(*_):
        raise OSError(28, "No space left on device")

    for target in ("onlad.serve.checkpoint.modelfile.replace", "onlad.serve.journal.os.open"):
        monkeypatch.setattr(target, no_space)
        asyncio.run(service.disk.checkpoint())
        (problem,) = service.health.problems()
        assert problem == "no checkpoint can be written: No space left on device"
        monkeypatch.undo()
    asyncio.run(service.disk.checkpoint())
    assert service.health.problems() == []
    service.close()
    assert models(tmp_path / "state")["pump", ""].n_seen == 90


def test_with_sync_0_a_sample_is_on_the_disk_before_it_is_acknowledged(tmp_path):
    service = started(tmp_path, CONFIG.replace('"state"', '"state"\nsync = 0'))
    known = []
    data = json.dumps(sample(machine(1)[0])).encode()
    journal = service.store.journal
    done = lambda: known.append((journal.synced, journal.written))  # noqa: E731
    service.submit(Item(service.streams["pump"], "", data, time.perf_counter(), done=done))
    asyncio.run(drained(service))
    ((synced, written),) = known
    assert synced == written > 0
    service.close()


@pytest.mark.parametrize("sync", ["0", "0.01"])
def test_steps_checkpoints_and_syncs_do_not_wait_for_each_other(tmp_path, sync):
    text = CONFIG.replace('"state"', f'"state"\nsync = {sync}\ncheckpoint = 0.01')
    X = machine(300)

    async def work():
        service = resumed(config(tmp_path, text))
        jobs = (service.pump, service.disk.keep_synced, service.disk.keep_checkpoints)
        tasks = [asyncio.ensure_future(job()) for job in jobs]
        done = []
        for row in X:
            data = json.dumps(sample(row)).encode()
            item = Item(service.streams["pump"], "", data, time.perf_counter())
            item.done = lambda: done.append(1)
            service.submit(item)
            await asyncio.sleep(0.001)
        deadline = time.monotonic() + 30
        while len(done) < len(X):
            assert time.monotonic() < deadline, f"stuck after {len(done)}"
            await asyncio.sleep(0.01)
        async with service.disk.lock, service.turn:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await service.disk.checkpoint()
        assert service.health.problems() == []
        service.close()

    asyncio.run(work())
    assert models(tmp_path / "state")["pump", ""].n_seen == 300


def test_a_full_queue_is_refused_and_counted(tmp_path):
    service = started(tmp_path, CONFIG.replace('"state"', '"state"\nqueue = 1'))
    item = Item(service.streams["pump"], "", b"[1]", time.perf_counter())
    assert service.submit(item)
    assert not service.submit(item)
    assert service.health.dropped == {"intake": 1}
    asyncio.run(drained(service))
    assert service.submit(item)
    service.close()


def test_a_step_that_fails_ends_the_service_and_loses_nothing(tmp_path, monkeypatch):
    X = machine(40)

    async def work(service, fail):
        stop = asyncio.Event()
        running = asyncio.ensure_future(run(service, stop))
        for row in X[:20] if fail else X[20:]:
            data = json.dumps(sample(row)).encode()
            service.submit(Item(service.streams["pump"], "", data, time.perf_counter()))
        await asyncio.sleep(0.2)
        stop.set()
        await running

    def broken(*_):
        raise RuntimeError("a bug")

    text = CONFIG.replace("[http]", "[http]\nport = 0\npage = false")
    with monkeypatch.context() as patch:
        patch.setattr("onlad.serve.health.Health.waited", broken)
        with pytest.raises(RuntimeError, match="a bug"):
            asyncio.run(work(started(tmp_path, text), True))
    assert not (tmp_path / "state/state.json").exists()  # no checkpoint of half a step
    service = started(tmp_path, text)
    assert service.watchers["pump", ""].monitor.n_seen == 20
    asyncio.run(work(service, False))
    assert models(tmp_path / "state")["pump", ""].n_seen == 40


def test_messages_that_cannot_be_read_take_no_place_of_a_device(tmp_path, monkeypatch):
    service = started(tmp_path, CONFIG.replace('"state"', '"state"\ndevices = 2'))
    for i in range(10):
        item = Item(service.streams["pump"], f"stray {i}", b"hello", time.perf_counter())
        assert service.submit(item)
    asyncio.run(drained(service))
    assert not service.watchers
    assert service.health.bad["pump"] == 10

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:  # nor does a device of which nothing could be kept
        patch.setattr("onlad.serve.journal.os.write", no_space)
        feed(service, machine(3), device="unlucky")
    assert not service.watchers
    feed(service, machine(3), device="a")
    feed(service, machine(3), device="b")
    assert set(service.watchers) == {("pump", "a"), ("pump", "b")}
    service.close()


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_an_alarm_that_was_marked_as_normal_stays_learned_after_a_crash(tmp_path, when):
    X = machine(700, faults=[500])
    service = started(tmp_path)
    feed(service, X[:600])
    watcher = service.watchers["pump", ""]
    if when == "before":
        asyncio.run(service.disk.checkpoint())
    assert asyncio.run(service.orders.label(watcher, watcher.alarms[-1].id, "normal")) >= 1
    if when == "after":
        asyncio.run(service.disk.checkpoint())
    feed(service, X[600:])
    crash(service)
    again = started(tmp_path).watchers["pump", ""]
    assert again.alarms[0].marked
    assert persist.to_bytes(again.monitor) == persist.to_bytes(watcher.monitor)


@pytest.mark.parametrize("when", ["before", "after", "never"])
@pytest.mark.parametrize("labels", [("fault",), ("normal",), ("normal", ""), ("seen", "normal")])
def test_labels_and_their_undoing_outlive_a_crash(tmp_path, when, labels):
    X = machine(700, faults=[500])
    service = started(tmp_path)
    feed(service, X[:600])
    watcher = service.watchers["pump", ""]
    before = persist.to_bytes(watcher.monitor)
    if when == "before":
        asyncio.run(service.disk.checkpoint())
    for label in labels:
        asyncio.run(service.orders.label(watcher, watcher.alarms[-1].id, label, "a valve"))
    if labels[-1] == "":
        assert persist.to_bytes(watcher.monitor) == before  # what was learned is gone
    if when == "after":
        asyncio.run(service.disk.checkpoint())
    feed(service, X[600:])
    crash(service)
    again = started(tmp_path).watchers["pump", ""]
    for name in ("label", "comment", "marked", "undo"):
        assert getattr(again.alarms[0], name) == getattr(watcher.alarms[0], name)
    assert persist.to_bytes(again.monitor) == persist.to_bytes(watcher.monitor)


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_going_back_to_a_snapshot_outlives_a_crash(tmp_path, when):
    X = machine(900)
    service = started(tmp_path)
    feed(service, X[:500])
    watcher = service.watchers["pump", ""]
    file = asyncio.run(service.orders.snapshot(watcher))
    kept = persist.to_bytes(watcher.monitor)
    feed(service, X[500:700])
    if when == "before":
        asyncio.run(service.disk.checkpoint())
    asyncio.run(service.orders.revert(watcher, file))
    assert watcher.monitor.n_seen == 700  # rows are counted on
    watcher.monitor.n_seen = 500
    assert persist.to_bytes(watcher.monitor) == kept
    watcher.monitor.n_seen = 700
    if when == "after":
        asyncio.run(service.disk.checkpoint())
    feed(service, X[700:])
    crash(service)
    again = started(tmp_path).watchers["pump", ""]
    assert persist.to_bytes(again.monitor) == persist.to_bytes(watcher.monitor)


def test_a_snapshot_that_the_journal_needs_is_kept(tmp_path):
    X = machine(700, faults=[600])
    service = started(tmp_path)
    feed(service, X)
    watcher = service.watchers["pump", ""]
    asyncio.run(service.orders.label(watcher, watcher.alarms[0].id, "normal"))
    marked = asyncio.run(service.orders.snapshot(watcher))  # of the same row
    undo = watcher.alarms[0].undo
    assert undo != marked
    asyncio.run(service.orders.revert(watcher, undo))
    for _ in range(SNAPSHOTS + 5):
        asyncio.run(service.orders.snapshot(watcher))
    names = service.store.snapshots(watcher.number)
    assert undo in names
    assert marked not in names
    assert len(set(names)) == SNAPSHOTS + 1
    crash(service)
    again = started(tmp_path)
    found = again.watchers["pump", ""].monitor
    assert persist.to_bytes(found) == persist.to_bytes(watcher.monitor)
    again.close()


def test_no_flipped_bit_of_a_forgotten_device_is_accepted(tmp_path):
    service = started(tmp_path)
    feed(service, machine(70), device="a")
    file = asyncio.run(service.orders.forget(service.watchers["pump", "a"]))
    path = tmp_path / "state/forgotten" / file
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*range(90), *rng.integers(90, len(whole), 200)]:
        data = bytearray(whole)
        data[at] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        with pytest.raises(StateError, match="is no file of a forgotten device"):
            asyncio.run(service.orders.restore(file))
    path.write_bytes(whole)
    assert asyncio.run(service.orders.restore(file)).monitor.n_seen == 70
    service.close()


@pytest.mark.parametrize("sync", ["0", "1"])
def test_what_the_disk_does_not_take_is_refused_at_once(tmp_path, monkeypatch, sync):
    service = started(tmp_path, CONFIG.replace('"state"', f'"state"\nsync = {sync}'))
    answers = []

    def no_space(*_):
        raise OSError(28, "No space left on device")

    data = json.dumps(sample(machine(1)[0])).encode()
    item = Item(service.streams["pump"], "", data, time.perf_counter(), reply=answers.append)
    with monkeypatch.context() as patch:
        patch.setattr("onlad.serve.journal.os." + ("fsync" if sync == "0" else "write"), no_space)
        service.submit(item)
        asyncio.run(drained(service))
    (answer,) = answers
    assert "No space left on device" in answer.refused
    assert answer.rows == 0
    service.submit(item)
    asyncio.run(drained(service))
    assert (answers[1].refused, answers[1].rows) == ("", 1)
    service.close()


def test_samples_are_replayed_onto_a_snapshot(tmp_path):
    X = machine(900)
    service = started(tmp_path)
    feed(service, X[:500])
    watcher = service.watchers["pump", ""]
    file = asyncio.run(service.orders.snapshot(watcher))
    feed(service, X[500:700])
    asyncio.run(service.disk.checkpoint())  # the first segment goes into the archive
    feed(service, X[700:])
    whole = persist.to_bytes(watcher.monitor)
    asyncio.run(service.orders.revert(watcher, file))
    assert persist.to_bytes(watcher.monitor) != whole
    asyncio.run(service.orders.revert(watcher, file, again=True))
    assert persist.to_bytes(watcher.monitor) == whole  # the very same model
    shutil.rmtree(tmp_path / "state" / "journal" / "archive")
    with pytest.raises(StateError, match="no longer has its sample 500"):
        asyncio.run(service.orders.revert(watcher, file, again=True))
    service.close()


@pytest.mark.parametrize("what", ["revert", "fault"])
def test_others_are_judged_while_samples_are_replayed(tmp_path, what, monkeypatch):
    X = machine(900)
    X[700:760:20, 2] += 20
    service = started(tmp_path)
    feed(service, X[:500])
    watcher = service.watchers["pump", ""]
    file = asyncio.run(service.orders.snapshot(watcher))
    feed(service, X[500:800])
    begun, go, replayed = threading.Event(), threading.Event(), replay.replayed

    def slowly(*rest):
        begun.set()
        assert go.wait(20)
        return replayed(*rest)

    monkeypatch.setattr(replay, "replayed", slowly)

    async def work():
        if what == "revert":
            order = service.orders.revert(watcher, file, again=True)
        else:
            order = service.orders.label(watcher, watcher.alarms[-1].id, "fault")
        ordered = asyncio.ensure_future(order)
        await asyncio.to_thread(begun.wait, 20)
        for device, rows in (("", X[800:]), ("b", X[:5])):
            data = json.dumps([sample(row) for row in rows]).encode()
            service.submit(Item(service.streams["pump"], device, data, time.perf_counter()))
        await asyncio.wait_for(service.drain(), 10)
        seen = service.watchers["pump", "b"].monitor.n_seen
        go.set()
        await ordered
        return seen

    assert asyncio.run(work()) == 5
    twin, pause = Monitor(names=watcher.names), np.zeros(len(X), bool)
    if what == "fault":
        pause[slice(*watcher.rows_of(watcher.alarms[-1]))] = True
    twin.observe_many(X, pause=pause)
    if what == "fault":
        twin.reject()
    assert persist.to_bytes(watcher.monitor) == persist.to_bytes(twin)
    service.close()


def test_a_fault_takes_what_was_learned_during_it_back(tmp_path):
    X = machine(1200)
    X[700:760:20, 2] += 20  # a fault that comes and goes: what is between is learned
    service = started(tmp_path)
    feed(service, X[:600])
    feed(service, X[600:])
    watcher = service.watchers["pump", ""]
    (alarm,) = [a for a in watcher.alarms if a.row == 700]
    learned = persist.to_bytes(watcher.monitor)
    taken = asyncio.run(service.orders.label(watcher, alarm.id, "fault", "a loose wire"))
    rows = slice(alarm.before, alarm.before + alarm.last - alarm.row + 1)
    assert taken == sum(alarm.learned[rows])
    assert persist.to_bytes(watcher.monitor) != learned
    pause = np.zeros(len(X), bool)
    pause[alarm.row : alarm.last + 1] = True
    never = Monitor(names=watcher.names)
    never.observe_many(X, pause=pause)
    never.reject()
    assert persist.to_bytes(watcher.monitor) == persist.to_bytes(never)
    feed(service, X[:50])
    told = persist.to_bytes(watcher.monitor)
    crash(service)
    service = started(tmp_path)
    watcher = service.watchers["pump", ""]
    assert persist.to_bytes(watcher.monitor) == told
    asyncio.run(service.orders.label(watcher, alarm.id, ""))  # it was none
    watcher.monitor.n_seen = len(X)
    assert persist.to_bytes(watcher.monitor) == learned
    service.close()


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_maintenance_by_order_outlives_a_crash(tmp_path, when):
    service = started(tmp_path)
    feed(service, machine(300))
    watcher = service.watchers["pump", ""]
    if when == "before":
        asyncio.run(service.disk.checkpoint())
    asyncio.run(service.orders.maintain(watcher, ("2001-01-01T00:00/2100-01-01T00:00",)))
    if when == "after":
        asyncio.run(service.disk.checkpoint())
    feed(service, machine(300, seed=1, faults=[50]))
    assert watcher.status()["maintenance"]
    assert not watcher.alarms
    crash(service)
    service = started(tmp_path)
    again = service.watchers["pump", ""]
    assert again.windows == watcher.windows
    assert persist.to_bytes(again.monitor) == persist.to_bytes(watcher.monitor)
    with pytest.raises(StateError, match="is not a maintenance period"):
        asyncio.run(service.orders.maintain(again, ("now and then",)))
    asyncio.run(service.orders.maintain(again, ()))
    feed(service, machine(40, seed=2))
    assert not again.status()["maintenance"]
    service.close()


def test_a_clock_that_jumps_makes_nothing_late(tmp_path, monkeypatch):
    service = started(tmp_path)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e9)
    assert service.health.problems() == []
    service.close()


@pytest.mark.parametrize("patterns", [False, True])
def test_patterns_of_a_day_are_learned_where_they_are_asked_for(tmp_path, patterns):
    service = started(tmp_path, f"{CONFIG}patterns = {str(patterns).lower()}\n")
    feed(service, machine(300))
    crash(service)
    again = started(tmp_path, f"{CONFIG}patterns = {str(patterns).lower()}\n")
    assert again.watchers["pump", ""].monitor.timed is patterns
    assert again.watchers["pump", ""].monitor.n_seen == 300
    again.close()


def test_a_device_is_put_back_only_if_the_configuration_takes_it(tmp_path):
    service = started(tmp_path)
    feed(service, machine(300), device="a")
    file = asyncio.run(service.orders.forget(service.watchers["pump", "a"]))
    asyncio.run(service.disk.checkpoint())
    service.close()
    for text, match in (
        (CONFIG + 'columns = ["flow"]\n', "has learned the columns"),
        (CONFIG.replace("[http]", "devices = 1\n[http]"), "at most 1 devices"),
    ):
        service = started(tmp_path, text)
        if "devices" in text:
            feed(service, machine(1), device="b")
        with pytest.raises(StateError, match=match):
            asyncio.run(service.orders.restore(file))
        crash(service)
        crash(started(tmp_path, text))  # nothing of it is in the journal
    service = started(tmp_path, CONFIG + "false_alarms = 0.01\nwindow = 2\n")
    watcher = asyncio.run(service.orders.restore(file))
    assert watcher.monitor.false_alarms == 0.01
    assert watcher.kept == ["window stays the default, not 2"]
    crash(service)
    service = started(tmp_path, CONFIG + "false_alarms = 0.01\n")
    assert service.watchers["pump", "a"].monitor.false_alarms == 0.01
    service.close()
