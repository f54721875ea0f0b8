"""`onlad repair`: a damaged state folder goes on with what can be read, and says what cannot."""

import asyncio

import pytest
from serving import machine, sample
from test_state import crash, feed, started

from onlad import persist
from onlad.cli import main
from onlad.serve.checkpoint import StateError
from onlad.serve.frames import frames
from onlad.serve.journal import JournalError


def repaired(folder, capsys):
    assert main(["repair", str(folder / "state")]) == 0
    return capsys.readouterr().out


def damaged(path, number):
    """Flip a bit in a frame of a segment."""
    data = bytearray(path.read_bytes())
    start = list(frames(bytes(data)))[number][0]
    data[start + 40] ^= 1
    path.write_bytes(data)


def test_rows_behind_damage_are_salvaged_and_the_lost_ones_counted(tmp_path, capsys):
    X = machine(500)
    service = started(tmp_path)
    feed(service, X[:300], device="a")
    asyncio.run(service.disk.checkpoint())
    for i in range(300, 400, 20):
        feed(service, X[i : i + 20], device="a")
        feed(service, X[i : i + 10], device="b")
    crash(service)
    (path,) = (tmp_path / "state" / "journal").glob("*.journal")
    damaged(path, 4)  # the third batch of a
    with pytest.raises(JournalError, match=r"is damaged at byte .* onlad repair "):
        started(tmp_path)
    said = repaired(tmp_path, capsys)
    assert "cannot be read" in said
    assert "pump/a: 80 rows of the journal are kept, 20 are lost" in said
    assert "pump/b: 50 rows of the journal are kept, 0 are lost" in said
    assert repaired(tmp_path, capsys) == "nothing is damaged\n"
    again = started(tmp_path)
    a, b = (again.watchers["pump", device] for device in "ab")
    assert (a.monitor.n_seen, a.journaled, b.monitor.n_seen) == (380, 400, 50)
    feed(again, X[400:], device="a")
    crash(again)
    last = started(tmp_path)
    assert last.watchers["pump", "a"].monitor.n_seen == 480
    last.close()


@pytest.mark.parametrize("end", [True, False])
def test_rows_that_nothing_follows_are_counted_too(tmp_path, capsys, end):
    X = machine(400)
    service = started(tmp_path)
    for device in "ab":
        feed(service, X[:300], device=device)
    asyncio.run(service.disk.checkpoint())
    for part in (X[300:320], X[320:350]):
        feed(service, part, device="a")
    feed(service, X[300:310], device="b")
    crash(service)
    (path,) = (tmp_path / "state" / "journal").glob("*.journal")
    data = bytearray(path.read_bytes())
    start, stop, _ = list(frames(bytes(data)))[1]
    at = stop - 9 if end else start + 50  # in the values, or in what says whose they are
    data[at] ^= 1
    path.write_bytes(data)
    said = repaired(tmp_path, capsys)
    if end:
        assert "pump/a: 20 rows of the journal are kept, 30 are lost" in said
    assert ("more may be lost" in said) == (not end)
    again = started(tmp_path)
    assert [w.monitor.n_seen for w in again.watchers.values()] == [320, 310]
    again.close()


def test_a_device_whose_birth_is_lost_and_segments_that_are_missing(tmp_path, capsys, monkeypatch):
    X = machine(90)
    service = started(tmp_path)
    feed(service, X[:10], device="a")
    feed(service, X[10:30], device="a")
    feed(service, X, device="b")

    def no_space(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:  # so that there are two segments
        patch.setattr("onlad.serve.checkpoint.modelfile.replace", no_space)
        asyncio.run(service.disk.checkpoint())
    feed(service, X, device="b")
    crash(service)
    first, second = sorted((tmp_path / "state" / "journal").glob("*.journal"))
    damaged(first, 0)
    second.unlink()
    with pytest.raises(JournalError, match="damaged"):
        started(tmp_path)
    said = repaired(tmp_path, capsys)
    assert "device 1, whose name is lost: 0 rows of the journal are kept, 30 are lost" in said
    assert "pump/b: 90 rows of the journal are kept, 0 are lost" in said
    assert "0000000002.journal is missing" in said
    assert "more may be lost" in said
    again = started(tmp_path)
    assert {key: w.monitor.n_seen for key, w in again.watchers.items()} == {("pump", "b"): 90}
    again.close()


def test_what_a_person_did_is_left_out_if_its_file_is_gone(tmp_path, capsys):
    X = machine(500)
    service = started(tmp_path)
    for device in "ab":
        feed(service, X[:300], device=device)
    asyncio.run(service.disk.checkpoint())
    a, b = (service.watchers["pump", device] for device in "ab")
    snapshot = asyncio.run(service.orders.snapshot(a))
    feed(service, X[300:400], device="a")
    asyncio.run(service.orders.revert(a, snapshot))
    feed(service, X[400:], device="a")
    asyncio.run(service.orders.restore(asyncio.run(service.orders.forget(b))))
    feed(service, X[300:350], device="b")
    crash(service)
    (path,) = (tmp_path / "state/journal").glob("*.journal")
    with path.open("ab") as file:  # a write that was torn is no damage
        file.write(b"torn")
    file = tmp_path / "state/snapshots" / snapshot
    file.write_bytes(file.read_bytes()[:-1])
    match = r"pump/a went back to a snapshot in .* the snapshot cannot be read: .* onlad repair "
    with pytest.raises(StateError, match=match):
        started(tmp_path)
    said = repaired(tmp_path, capsys)
    assert "pump/a stays what it was before it went back to a snapshot: the snapshot" in said
    assert "pump/a: 200 rows of the journal are kept, 0 are lost" in said
    assert "pump/b: 50 rows of the journal are kept, 0 are lost" in said
    again = started(tmp_path)
    twin = again.streams["pump"].monitor()
    twin.observe_many([sample(row) for row in X])
    found = {device: again.watchers["pump", device].monitor for device in "ab"}
    assert persist.to_bytes(found["a"]) == persist.to_bytes(twin)
    assert found["b"].n_seen == 350
    again.close()


def test_a_damaged_model_and_state_json(tmp_path, capsys):
    service = started(tmp_path)
    feed(service, machine(90), device="a")
    feed(service, machine(90), device="b")
    asyncio.run(service.disk.checkpoint())
    feed(service, machine(10), device="b")
    crash(service)
    state = tmp_path / "state"
    model = next((state / "models").glob("000001*"))
    model.write_bytes(model.read_bytes()[:-1])
    text = (state / "state.json").read_text()
    (state / "state.json").write_text(text.replace('"sha256": "', '"sha256": "0'))
    said = repaired(tmp_path, capsys)
    assert "state.json: its checksum is wrong; it was taken as it can be read" in said
    assert "pump/a: " in said
    assert "is damaged" in said
    assert "The device starts from nothing" in said
    again = started(tmp_path)
    assert {key: w.monitor.n_seen for key, w in again.watchers.items()} == {("pump", "b"): 100}
    again.close()
    (state / "state.json").write_text("{")
    assert main(["repair", str(state)]) == 1
    assert "state.json cannot be read. Restore it from a copy" in capsys.readouterr().err
    assert main(["repair", str(tmp_path)]) == 1
    assert "is no state folder" in capsys.readouterr().err


def test_a_journal_that_is_missing_is_said_and_begun_again(tmp_path, capsys):
    service = started(tmp_path)
    feed(service, machine(90))
    asyncio.run(service.disk.checkpoint())
    service.close()
    (segment,) = (tmp_path / "state/journal").glob("*.journal")
    segment.unlink()
    with pytest.raises(JournalError, match="lacks a segment"):
        started(tmp_path)
    assert main(["repair", str(tmp_path / "state")]) == 0
    assert capsys.readouterr().out == f"{segment.name} is missing; there is an empty one now\n"
    again = started(tmp_path)
    assert again.watchers["pump", ""].monitor.n_seen == 90
    again.close()
