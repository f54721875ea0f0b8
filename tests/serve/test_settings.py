"""A changed configuration and devices that have learned: what takes effect, and what is said."""

import asyncio
import logging

import numpy as np
import pytest
from serving import machine, unpacked
from test_state import CONFIG, crash, feed, started

from onlad import Monitor, persist
from onlad.cli import main
from onlad.serve.watcher import Watcher


def test_changed_false_alarms_take_effect_at_the_next_start(tmp_path, monkeypatch):
    X = machine(900)
    service = started(tmp_path)
    feed(service, X[:600])
    asyncio.run(service.disk.checkpoint())
    feed(service, X[600:700])
    crash(service)
    text = CONFIG + "false_alarms = 0.01\n"
    again = started(tmp_path, text)
    monitor = again.watchers["pump", ""].monitor
    assert monitor.false_alarms == 0.01
    feed(again, X[700:])
    crash(again)
    # What is replayed is judged as it was: the journal says from which row on the rate is new.
    replayed, observe = [], Watcher.observe

    def watched(self, X, times):
        replayed.append((len(X), self.monitor.false_alarms))
        return observe(self, X, times)

    monkeypatch.setattr(Watcher, "observe", watched)
    last = started(tmp_path, text)
    rows = {rate: sum(n for n, r in replayed if r == rate) for _, rate in replayed}
    assert list(rows.items()) == [(1e-4, 100), (0.01, 200)]
    same = last.watchers["pump", ""].monitor
    assert persist.to_bytes(same) == persist.to_bytes(monitor)
    asyncio.run(last.disk.checkpoint())
    last.close()
    del replayed[:]
    final = started(tmp_path, text)
    assert not replayed
    assert final.watchers["pump", ""].monitor.false_alarms == 0.01
    final.close()


def test_changed_false_alarms_are_kept_by_a_checkpoint_without_samples(tmp_path):
    service = started(tmp_path)
    feed(service, machine(300))
    asyncio.run(service.disk.checkpoint())
    service.close()
    again = started(tmp_path, CONFIG + "false_alarms = 0.01\n")
    asyncio.run(again.disk.checkpoint())
    again.close()
    (file,) = (tmp_path / "state" / "models").iterdir()
    assert unpacked(file).false_alarms == 0.01


def test_what_a_device_cannot_change_is_said_at_the_start_and_by_check(tmp_path, capsys, caplog):
    service = started(tmp_path)
    for device in "abcdefg":
        feed(service, machine(3), device=device)
    asyncio.run(service.disk.checkpoint())
    service.close()
    text = CONFIG + "window = 2\nseed = 0\nfalse_alarms = 0.01\n"
    path = tmp_path / "onlad.toml"
    path.write_text(text)
    said = (
        "stream pump: window stays the default, not 2, for devices that have learned: pump/a, "
        "pump/b, pump/c, pump/d, pump/e and 2 more. To let a device start again: onlad forget"
    )
    assert main(["serve", "--config", str(path), "--check"]) == 0
    assert capsys.readouterr().err == f"onlad: {said}\n"
    with caplog.at_level(logging.WARNING):
        again = started(tmp_path, text)
    assert said in caplog.text
    assert main(["serve", "--config", str(path), "--check"]) == 0  # also while it runs
    assert said in capsys.readouterr().err
    again.close()


@pytest.mark.parametrize("patterns", [True, False])
def test_patterns_are_what_a_device_began_with_and_that_is_said(tmp_path, patterns, capsys):
    texts = [CONFIG, CONFIG + "patterns = true\n"]
    before, after = texts[patterns], texts[not patterns]
    service = started(tmp_path, before)
    feed(service, machine(300))
    asyncio.run(service.disk.checkpoint())
    service.close()
    words = ("true", "false") if patterns else ("false", "true")
    again = started(tmp_path, after)
    assert again.watchers["pump", ""].kept == ["patterns stays {}, not {}".format(*words)]
    assert main(["serve", "--config", str(tmp_path / "onlad.toml"), "--check"]) == 0
    assert "patterns stays {}, not {}, for devices".format(*words) in capsys.readouterr().err
    feed(again, machine(10))
    assert again.watchers["pump", ""].monitor.n_seen == 310
    again.close()


def test_columns_that_no_start_would_take_are_refused_by_check(tmp_path, capsys):
    service = started(tmp_path)
    feed(service, machine(300))
    asyncio.run(service.disk.checkpoint())
    service.close()
    path = tmp_path / "onlad.toml"
    path.write_text(CONFIG + 'columns = ["flow"]\n')
    assert main(["serve", "--config", str(path), "--check"]) == 1
    assert "stream pump has learned the columns" in capsys.readouterr().err


def test_a_slow_drift_is_a_notice(tmp_path):
    service = started(tmp_path)
    feed(service, machine(3))
    watcher = service.watchers["pump", ""]
    verdicts = Monitor().observe_many(machine(2))
    verdicts.names, verdicts.drifting[:] = watcher.names, 1

    class Drifts(Monitor):
        def observe_many(self, X, pause=None, times=None):
            return verdicts

    stream = service.streams["pump"]
    drifts = Watcher(9, stream, "", Drifts(names=watcher.names), 10)
    drifts.observe(machine(2), np.zeros(2))
    assert (drifts.status()["drifting"], watcher.status()["drifting"]) == ("power", None)
    assert drifts.state != "alarm"
    service.close()
