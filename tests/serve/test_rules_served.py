"""The service follows the rules of a stream, and keeps what people say of alarms."""

import time
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from serving import machine

from onlad.serve import config
from onlad.serve.watcher import Watcher

FAULTS = [30, 31, 32, 33, 34]


def watcher(**rules):
    columns = ("flow", "power", "valve", "heat")
    stream = config.StreamTable(name="pump", warmup=128, columns=columns, **rules)
    return Watcher(1, stream, "", stream.monitor(), 600)


def give(own, rows, start=0.0, faults=(), seed=1):
    X = machine(rows, seed=seed, faults=faults)
    return own.observe(X, start + np.arange(rows, dtype=float))


def test_an_alarm_says_what_was_expected_of_its_causes():
    own = watcher()
    give(own, 900)
    _, (alarm,) = give(own, 40, 900.0, FAULTS, seed=3)
    cause = next(iter(alarm.causes))
    sensor = alarm.sensors[cause]
    assert not sensor["low"] <= sensor["value"] <= sensor["high"]
    assert sensor["direction"] == ("above" if sensor["value"] > sensor["high"] else "below")
    assert alarm.severity == own.status()["severity"] >= 40
    assert f"severity {alarm.severity:.0f}" in alarm.message()["text"]
    assert f"{sensor['direction']} (" in alarm.message()["text"]


def test_maintenance_neither_tells_nor_learns():
    own = watcher(maintenance=("1970-01-01T00:15/1970-01-01T00:16",))  # seconds 900 to 959
    give(own, 900)
    verdicts, began = give(own, 40, 900.0, FAULTS, seed=3)
    assert (began, own.alarm, own.status()["maintenance"]) == ([], None, True)
    assert not verdicts.learned.any()
    give(own, 300, 960.0, seed=4)
    _, began = give(own, 40, 1260.0, FAULTS, seed=3)
    assert len(began) == 1


def test_a_machine_that_is_off_for_maintenance_is_not_silent():
    now = datetime.now(timezone.utc)
    hours = [(now + timedelta(hours=h)).isoformat() for h in (-1, 1, 2)]
    for begin, end, silent in ((0, 1, False), (1, 2, True)):
        own = watcher(silent_after=0.1, maintenance=(f"{hours[begin]}/{hours[end]}",))
        give(own, 10)
        time.sleep(0.2)
        assert own.falls_silent() is silent


def test_alarms_beyond_the_budget_of_a_day_are_kept_and_not_told():
    own = watcher(alarms_per_day=1)
    give(own, 900)
    told = 0
    for k in range(3):
        _, began = give(own, 40, 1000.0 * k, FAULTS, seed=3)
        told += len(began)
        give(own, 200, 1000.0 * k + 40, seed=k)
    assert (told, len(own.alarms), own.suppressed, own.status()["suppressed"]) == (1, 3, 2, 2)
    _, began = give(own, 40, 86_400.0, FAULTS, seed=3)
    assert len(began) == 1


def test_a_sensor_that_only_explains_begins_no_alarm():
    own = watcher()
    give(own, 900)
    _, (alarm,) = give(own, 40, 900.0, FAULTS, seed=3)
    cause = next(iter(alarm.causes))
    muted = watcher(sensors=(config.SensorTable(name=cause, role="explain"),))
    give(muted, 900)
    verdicts, _ = give(muted, 40, 900.0, FAULTS, seed=3)
    assert verdicts.is_anomaly.sum() < 5


def test_a_fault_never_becomes_a_mode():
    own = watcher()
    give(own, 900)
    own.observe(machine(300, seed=3) * -3, 900.0 + np.arange(300))
    assert own.monitor.describe()["quarantine"] > 0 or own.monitor.describe()["candidate"]
    own.put_label(own.alarms[-1], "fault", "")
    said = own.monitor.describe()
    assert (said["quarantine"], said["candidate"]) == (0, False)


def test_labels_are_of_the_list_and_can_be_taken_back_until_something_was_learned():
    own = watcher()
    give(own, 900)
    _, (alarm,) = give(own, 40, 900.0, FAULTS, seed=3)
    assert own.put_label(alarm, "seen", "") == 0
    assert own.put_label(alarm, "", "") == 0
    with pytest.raises(ValueError, match="label must be one of seen, normal, fault, maintenance"):
        own.put_label(alarm, "what", "")
    assert own.put_label(alarm, "normal", "cleaning") > 0
    with pytest.raises(ValueError, match="were learned as normal"):
        own.put_label(alarm, "fault", "")
