"""Deadbands, sides, roles, maintenance and a budget of incidents."""

from datetime import datetime, timezone

import numpy as np
import pytest

from onlad import Monitor
from onlad.rules import Budget, Calendar, Rules, Sensor
from plants import smooth

NAMES = ("flow", "power", "heat", "level")


def watched(step=30.0, feature=1, rows=2000):
    X = smooth(rows, 4, seed=3)
    X[1500:1510, feature] += step
    verdicts = Monitor(names=NAMES).observe_many(X)
    assert verdicts.is_anomaly[1500:1510].all()
    verdicts.is_anomaly[1510:] = False  # what follows is reported with it
    verdicts.is_anomaly[:1500] = False
    return verdicts


def told(verdicts, **rules):
    return Rules(sensors=(Sensor(**rules),)).mute(verdicts), verdicts.is_anomaly.sum()


def test_without_rules_nothing_is_muted():
    verdicts = watched()
    assert Rules().mute(verdicts) == 0
    assert verdicts.is_anomaly.sum() == 10


def test_deviations_within_the_deadband_are_ignored():
    assert told(watched(30.0), name="power", ignore_below=20.0) == (0, 10)
    muted, left = told(watched(30.0), name="power", ignore_below=45.0)
    assert (muted + left, muted > 5) == (10, True)


def test_only_one_side_matters():
    assert told(watched(30.0), name="power", only="above") == (0, 10)
    assert told(watched(-30.0), name="power", only="above")[0] > 5
    assert told(watched(-30.0), name="pow*", only="below") == (0, 10)


def test_a_sensor_that_explains_is_a_cause_and_raises_no_alarm():
    verdicts = watched(30.0)
    before = verdicts.shares[1503, 1]
    muted, _ = told(verdicts, name="power", role="explain")
    assert muted > 5
    assert verdicts.shares[1503, 1] == before > 0.5


def test_a_sensor_that_is_watched_only_is_not_a_cause():
    verdicts = watched(30.0)
    told(verdicts, name="power", role="watch")
    assert verdicts.shares[1503, 1] == 0
    assert verdicts.shares[1503].sum() == pytest.approx(1)


def test_a_fault_of_another_sensor_is_told():
    assert told(watched(60.0, feature=2), name="power", role="explain")[1] == 10


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("Mon 08:00-09:00", "2026-11-16T08:30", "2026-11-17T08:30"),
        ("Mon-Fri 22:00-06:00", "2026-11-21T05:59", "2026-11-22T05:00"),
        ("Sun 23:00-01:00", "2026-11-16T00:30", "2026-11-16T01:00"),
        ("daily 02:00-02:15", "2026-11-18T02:14", "2026-11-18T02:15"),
        ("Sat-Sun 00:00-24:00", "2026-11-22T23:59", "2026-11-23T00:00"),
        ("2026-11-20T08:00/2026-11-20T12:00", "2026-11-20T08:00", "2026-11-20T12:00"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_of_maintenance_are_those_of_the_zone(text, inside, outside, zone):
    from zoneinfo import ZoneInfo

    at = [datetime.fromisoformat(when).replace(tzinfo=ZoneInfo(zone)).timestamp()
          for when in (inside, outside)]  # fmt: skip
    assert Calendar([text], zone).during(at).tolist() == [True, False]


def test_summer_time_moves_maintenance():
    calendar = Calendar(["daily 08:00-09:00"], "Europe/Berlin")
    at = [datetime(2026, month, 1, 6, 30, tzinfo=timezone.utc).timestamp() for month in (1, 7)]
    assert calendar.during(at).tolist() == [False, True]


@pytest.mark.parametrize(
    "text", ["", "soon", "Mon 8:00-9:00", "Foo 08:00-09:00", "Mon 08:00-08:00", "Mon 08:00-25:00",
             "2026-11-20T08:00/2026-11-20T07:00", "2026-11-20/never"]
)  # fmt: skip
def test_a_time_that_is_none_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a maintenance period\. Write 'Sat 22:00-23:30'"):
        Rules(maintenance=(text,))


def test_wrong_rules_say_what_is_right():
    with pytest.raises(ValueError, match="there is no time zone 'Mars'"):
        Rules(zone="Mars")
    with pytest.raises(ValueError, match="power: must be one of both, above, below, got 'up'"):
        Sensor(name="power", only="up")
    with pytest.raises(ValueError, match="power: must be one of alarm, explain, watch, got 'x'"):
        Sensor(name="power", role="x")
    with pytest.raises(ValueError, match="power: ignore_below must be at least 0"):
        Sensor(name="power", ignore_below=-1)
    with pytest.raises(ValueError, match="incidents_per_day must be at least 1"):
        Rules(incidents_per_day=0)
    with pytest.raises(ValueError, match="maintenance needs samples with a time"):
        Rules(maintenance=("daily 02:00-03:00",)).observe(Monitor(), np.zeros((3, 2)), None)
    with pytest.raises(ValueError, match=r"pause must have 3 entries, got shape \(2,\)"):
        Monitor().observe_many(np.zeros((3, 2)), pause=np.zeros(2, bool))


def test_during_maintenance_nothing_is_learned_and_nothing_told():
    X = smooth(3000, 4, seed=6)
    X[1500:2000] *= -5  # the machine is taken apart
    minutes = 60.0 * np.arange(3000)
    calendar = ("1970-01-02T01:00/1970-01-02T09:20",)  # rows 1500 to 1999
    serviced, plain = Monitor(), Monitor()
    verdicts = Rules(maintenance=calendar).observe(serviced, X, minutes)
    told = Rules().observe(plain, X, None)
    assert told.is_anomaly[1500:2000].any()
    assert not verdicts.is_anomaly[1500:2000].any()
    assert not verdicts.learned[1500:2000].any()
    assert verdicts.score[1500:2000].max() > verdicts.threshold[1500]  # it is judged
    assert len(serviced.describe()["modes"]) == 1


@pytest.mark.parametrize("block", [1, 50, 700])
def test_maintenance_is_the_same_in_blocks_of_any_size(block):
    X, pause = smooth(1500, 3, seed=7), np.zeros(1500, bool)
    pause[100:300] = pause[900:931] = True
    whole, parts = Monitor(), Monitor()
    expected = whole.observe_many(X, pause=pause)
    found = [
        parts.observe_many(X[i : i + block], pause=pause[i : i + block])
        for i in range(0, 1500, block)
    ]
    np.testing.assert_array_equal(np.concatenate([part.score for part in found]), expected.score)
    np.testing.assert_array_equal(np.concatenate([p.learned for p in found]), expected.learned)
    assert expected.ready.sum() == 1500 - 256 - 200


def test_a_monitor_that_is_paused_before_its_start_does_not_start():
    monitor = Monitor()
    monitor.paused = True
    assert not monitor.observe_many(smooth(500, 2)).ready.any()
    monitor.paused = False
    assert monitor.observe_many(smooth(500, 2)).ready.sum() == 500 - 256


def test_a_budget_counts_by_day():
    budget = Budget(per_day=2)
    assert [budget.allows(0) for _ in range(3)] == [True, True, False]
    assert [budget.allows(1, before) for before in (1, 0)] == [True, False]  # one was before
    assert all(Budget().allows(0) for _ in range(100))
