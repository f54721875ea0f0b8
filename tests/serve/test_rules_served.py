"""The service follows the rules of a stream, and keeps what people say of alarms."""

import time
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from serving import machine

from onlad.serve import tables
from onlad.serve.across import peers
from onlad.serve.alarm import KEPT
from onlad.serve.watcher import Watcher

FAULTS = [30, 31, 32, 33, 34]


def watcher(**rules):
    columns = ("flow", "power", "valve", "heat")
    stream = tables.StreamTable(name="pump", warmup=128, columns=columns, **rules)
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
    where = f"{sensor['value']:.4g}, {sensor['direction']} the expected {sensor['low']:.4g} to "
    assert f"{next(iter(alarm.causes))} " in alarm.message()["text"]
    assert where in alarm.message()["text"]


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


def test_the_day_of_the_budget_is_that_of_the_zone():
    own = watcher(alarms_per_day=1, zone="Europe/Berlin")
    give(own, 900)
    for start, told in ((21, 1), (22.5, 0), (23.5, 1)):  # hours in UTC; the last is the next day
        _, began = give(own, 40, 3600.0 * start, FAULTS, seed=3)
        assert len(began) == told
        give(own, 200, 3600.0 * start + 40, seed=4)


def test_a_sensor_that_only_explains_begins_no_alarm():
    own = watcher()
    give(own, 900)
    _, (alarm,) = give(own, 40, 900.0, FAULTS, seed=3)
    cause = next(iter(alarm.causes))
    muted = watcher(sensors=(tables.SensorTable(name=cause, role="explain"),))
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


def test_a_named_fault_is_known_however_many_alarms_follow():
    own = watcher()
    give(own, 900)
    _, (first,) = give(own, 40, 900.0, FAULTS, seed=3)
    own.put_label(first, "fault", "a worn valve")
    for k in range(KEPT + 5):
        other = machine(40, seed=3) + 9.0 * (np.arange(40) == 30)[:, None] * [1, 0, 0, 0]
        own.observe(other, 1000.0 * k + 1000 + np.arange(40.0))
        give(own, 100, 1000.0 * k + 1100, seed=k)
    assert len(own.alarms) == KEPT
    _, (again,) = give(own, 40, 1e6, FAULTS, seed=3)
    assert again.like == "a worn valve"


def test_a_fault_that_was_named_on_one_device_is_recognised_on_another():
    north, south = watcher(), watcher()
    south.peers = lambda: [north, south]
    for own in (north, south):
        give(own, 900)
    _, (alarm,) = give(north, 40, 900.0, FAULTS, seed=3)
    north.put_label(alarm, "fault", "a worn valve")
    _, (alarm,) = give(south, 40, 900.0, FAULTS, seed=3)
    assert alarm.like == "a worn valve"


def test_an_alarm_says_when_it_was_worst_and_when_it_was_seen_last():
    own = watcher()
    give(own, 900)
    X = machine(40, seed=3)
    X[30:35, 2] += [8.0, 9.0, 60.0, 9.0, 8.0]
    _, (alarm,) = own.observe(X, 900.0 + np.arange(40.0))
    said = alarm.message()
    assert said["time"] <= 930.0 < said["peak"] <= 933.0 < said["end"] == 900.0 + alarm.last - 900


def test_a_device_is_unusual_for_itself_among_its_like_or_both():
    group = [watcher() for _ in range(6)]
    for k, own in enumerate(group):
        own.device = f"pump{k}"
        X = machine(900, seed=k) + 5.0 * (k in (1, 2))
        own.observe(X, np.arange(900.0))
    for k in (0, 1):
        X = machine(40, seed=3, faults=FAULTS) + 5.0 * (k == 1)
        group[k].observe(X, 900.0 + np.arange(40.0))
    found = {peer.device: (peer.itself, peer.among) for peer in peers(group)}
    assert [found[f"pump{k}"] for k in range(4)] == [
        (True, False), (True, True), (False, True), (False, False),
    ]  # fmt: skip


def test_a_device_that_sent_nothing_since_a_restart_has_no_peers_yet():
    group = [watcher() for _ in range(5)]
    for k, own in enumerate(group):
        give(own, 900, seed=k)
    last = group[4].last
    group[4] = watcher()
    give(group[4], 900)
    again = Watcher(2, group[4].stream, "", group[4].monitor, 600)
    again.last = last
    assert len(peers([*group[:4], again])) == 4
    assert peers([again] * 5) == []
