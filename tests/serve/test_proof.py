"""`onlad audit --replay`: the log leads to the models on the disk, and to no others."""

import gzip
import json
import re
import time
from unittest import mock

import httpx
import pytest
from serving import Served, free_port, machine, sample, unpacked

from onlad import Monitor, persist
from onlad.cli import main
from onlad.serve.config import load
from onlad.serve.frames import Fact
from onlad.serve.journal import Journal
from onlad.serve.proof import prove

CONFIG = """
[service]
state = "state"
checkpoint = 0.3
snapshots = SNAPSHOTS
archive = ARCHIVE
[http]
port = PORT
page = false
[[streams]]
name = "pump"
warmup = 128
maintenance = ["daily 03:00-03:10"]
patterns = PATTERNS
"""


@pytest.fixture
def history(tmp_path):
    """Return a function that lets a service see and do a lot, and returns its configuration."""

    def make(snapshots=1e6, archive=256, patterns="false"):
        port, path = free_port(), tmp_path / "onlad.toml"
        text = CONFIG.replace("PORT", str(port)).replace("PATTERNS", patterns)
        text = text.replace("SNAPSHOTS", str(snapshots)).replace("ARCHIVE", str(archive))
        path.write_text(text)
        url = f"http://127.0.0.1:{port}/streams/pump"
        row = 0

        def send(X, **more):
            nonlocal row
            rows = [sample(x) | {"time": 60.0 * (row + i)} | more for i, x in enumerate(X)]
            assert httpx.post(f"{url}/samples?device=a", json=rows, timeout=30).status_code == 200
            row += len(X)

        def do(what, body):
            answer = httpx.request(*what.split(), json=body, params={"device": "a"}, timeout=30)
            assert answer.status_code == 200, answer.text
            return answer.json()

        def alarm():
            (device,) = httpx.get(url.removesuffix("/pump")).json()
            return device["alarms"][-1]["id"]

        with Served(path):
            send(machine(600))
            send(machine(40, seed=3, faults=range(30, 35)))
            do(f"POST {url}/label", {"alarm": alarm(), "label": "normal", "comment": "cleaning"})
            send(machine(300, seed=1))
            do(f"POST {url}/label", {"alarm": alarm(), "label": ""})  # and back again
            time.sleep(0.7)
            send(machine(100, seed=5), oil=3.0)
            do(f"POST {url}/learning", False)
            send(machine(50, seed=6), oil=3.0)
            do(f"POST {url}/learning", True)
        with Served(path):  # it goes on after a restart
            send(machine(200, seed=7), oil=3.0)
            kept = do(f"POST {url}/snapshots", None)["file"]
            do(f"PUT {url}/maintenance", ["1970-01-01T20:00/1970-01-01T20:30"])
            send(machine(200, seed=8), oil=3.0)
            do(f"POST {url}/revert", {"file": kept})
            send(machine(200, seed=9), oil=3.0)
        return path

    return make


def audited(path, capsys):
    status = main(["audit", str(path.parent / "state"), "--replay", str(path)])
    said = capsys.readouterr().err.splitlines()
    return status, [line for line in said if line.startswith("onlad:")]  # without the service's log


@pytest.mark.parametrize("patterns", ["false", "true"])
def test_the_log_leads_to_the_model_and_to_each_snapshot(history, capsys, patterns):
    path = history(patterns=patterns)
    status, lines = audited(path, capsys)
    assert status == 0, lines
    snapshots = len(list((path.parent / "state" / "snapshots").iterdir()))
    assert lines[-1] == f"onlad: pump/a: rows 0 to 1,690 replayed, {snapshots + 1} files proved"
    assert snapshots >= 3


def test_a_walk_may_begin_with_a_snapshot(history, capsys):
    """The archive has not all samples: what is older is not proved, and nothing is accused."""
    path, began = history(), []
    for segment in sorted((path.parent / "state" / "journal" / "archive").iterdir()):
        segment.unlink()
        status, lines = audited(path, capsys)
        assert status == 0, lines
        found = re.search(r"rows ([\d,]+) to 1,690 replayed, (\d+) files proved", lines[-1])
        if found:
            began.append(int(found[1].replace(",", "")))
            assert int(found[2]) >= 1
    assert began == sorted(began)
    assert began[-1] > 0


def test_without_samples_nothing_is_proved_and_nobody_is_accused(history, capsys):
    path = history(archive=0)
    assert audited(path, capsys) == (
        0,
        [mock.ANY, "onlad: pump/a: the journal has none of its samples"],
    )


def tampered(path, change):
    """Change a model on the disk as somebody would who can write there."""
    model = unpacked(path)
    state = model.learned()
    monitor = change(Monitor.resumed(model.settings(), state))
    path.write_bytes(gzip.compress(persist.to_bytes(monitor), 1, mtime=0))


def taught(monitor):
    """Teach a model a fault, without a trace in the log."""
    seen = monitor.n_seen
    X = [*machine(3, seed=4).tolist()]
    monitor.accept([[*x[:2], 20.0, *x[3:], 3.0] for x in X])
    monitor.n_seen = seen
    return monitor


def test_a_model_that_was_tampered_with_is_found(history, capsys):
    path = history()
    (model,) = (path.parent / "state" / "models").glob("*.onlad.gz")
    tampered(model, taught)
    status, lines = audited(path, capsys)
    assert status == 1
    assert f"models/{model.name} is not what the log leads to" in lines[-2]
    assert lines[-1] == "onlad: 1 devices are not what the log leads to"


def test_a_model_that_was_tampered_with_and_then_went_on_is_found(history, capsys):
    """The service has learned more since, and taken a snapshot whose digest is in the trail."""
    path = history()
    (model,) = (path.parent / "state" / "models").glob("*.onlad.gz")
    tampered(model, taught)
    port = load(path).http.port
    with Served(path):
        url = f"http://127.0.0.1:{port}/streams/pump"
        rows = [sample(x) | {"time": 1e6 + i, "oil": 3.0} for i, x in enumerate(machine(200))]
        httpx.post(f"{url}/samples?device=a", json=rows[:150], timeout=30)
        file = httpx.post(f"{url}/snapshots?device=a").json()["file"]
        httpx.post(f"{url}/samples?device=a", json=rows[150:], timeout=30)
    status, lines = audited(path, capsys)
    assert status == 1
    assert f"snapshots/{file} is not what the log leads to" in lines[-2]
    assert "models/" not in lines[-2]  # it follows from that snapshot


def test_a_deed_that_is_in_the_journal_alone_is_found(history):
    path = history()
    journal = Journal(path.parent / "state" / "journal")
    journal.open(journal.segments()[-1])
    windows = {"number": 1, "row": 1690, "windows": ["daily 00:00-23:59"]}
    journal.append([Fact("maintenance", windows)])
    journal.close()
    (proved,) = prove(path.parent / "state", load(path))
    assert proved.wrong
    assert "the journal has a 'maintenance' that the trail lacks" in proved.text


def test_a_file_that_cannot_be_read_and_a_stream_that_is_gone_are_said(history, capsys):
    path = history()
    path.write_text(path.read_text().replace('name = "pump"', 'name = "fan"'))
    assert audited(path, capsys)[1][-1] == "onlad: pump: the configuration has no such stream"
    (model,) = (path.parent / "state" / "models").glob("*.onlad.gz")
    model.write_bytes(model.read_bytes()[:1000])
    status, lines = audited(path, capsys)
    assert (status, "is damaged" in lines[-1]) == (1, True)
    model.unlink()
    assert "a model of the last checkpoint is missing" in audited(path, capsys)[1][-1]
    assert json.loads((path.parent / "state" / "state.json").read_text())
