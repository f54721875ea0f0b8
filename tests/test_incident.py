"""Alarms that are close in time are one incident."""

import numpy as np
import pytest

from onlad import Monitor
from onlad.incident import QUIET, Incidents, together
from onlad.verdict import Verdicts
from plants import smooth

NAMES = ("flow", "power", "heat")


def verdicts(rows, alarms, cause=0):
    """Return verdicts with these anomalies; `alarms` maps rows to scores in thresholds."""
    found = Verdicts(NAMES, rows)
    found.ready[:], found.threshold[:], found.rate[:] = True, 1.0, 1e-4
    found.values[:], found.expected[:], found.reach[:] = 0.0, 0.0, 0.0
    for row, score in alarms.items():
        found.score[row], found.is_anomaly[row] = score, True
        found.shares[row] = 0.05
        found.shares[row, cause] = 0.9
        found.values[row, cause] = score
    return found


def test_what_is_less_than_quiet_apart_is_one_incident():
    incidents = Incidents()
    found = incidents.add(verdicts(1000, {10: 2.0, 10 + QUIET: 3.0, 12 + 2 * QUIET: 2.0}))
    assert [(each.begin, each.end, each.anomalies) for each in found] == [
        (10, 10 + QUIET, 2),
        (12 + 2 * QUIET, 12 + 2 * QUIET, 1),
    ]
    assert [each.number for each in found] == [1, 2]
    assert incidents.open is None


def test_the_peak_says_what_was_expected():
    (found,) = Incidents().add(
        verdicts(500, {100: 2.0, 110: 9.0, 120: 3.0}), times=range(500, 1000)
    )
    assert (found.peak, found.times) == (110, (600, 620, 610))
    assert (found.score, found.severity) == (9.0, 49.5)
    assert next(iter(found.causes)) == "flow"
    assert found.direction == {"flow": "above"}
    assert (found.value["flow"], found.expected["flow"]) == (9.0, 0.0)


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_of_any_size_give_the_same_incidents(block):
    X = smooth(3000, 3, seed=1)
    X[1000:1030, 1] += 30
    X[1500:1504, 0] -= 30
    X[2900:, 1] += 30
    whole, parts, monitor = Incidents(), Incidents(), Monitor()
    expected = whole.add(Monitor().observe_many(X)) + whole.finish()
    found = []
    for first in range(0, 3000, block):
        found += parts.add(monitor.observe_many(X[first : first + block]))
    found += parts.finish()
    assert [(e.begin, e.end, e.peak, e.anomalies, e.severity, e.similar) for e in found] == [
        (e.begin, e.end, e.peak, e.anomalies, e.severity, e.similar) for e in expected
    ]
    for one, other in zip(found, expected, strict=True):
        # Sums of shares, added in another order.
        assert one.causes == pytest.approx(other.causes, rel=1e-12)
    assert len(found) >= 3


def test_an_incident_that_is_like_one_of_the_past_says_so_and_has_its_label():
    incidents = Incidents()
    incidents.add(verdicts(200, {50: 5.0}, cause=0))
    incidents.add(verdicts(200, {50: 5.0}, cause=1))
    incidents.label(1, "blocked filter")
    (third,) = incidents.add(verdicts(200, {50: 9.0}, cause=0))
    assert (third.similar, third.label) == ((1,), "blocked filter")
    (fourth,) = incidents.add(verdicts(200, {50: 9.0}, cause=2))
    assert (fourth.similar, fourth.label) == ((), None)


def test_a_label_given_while_an_incident_is_open_stays():
    incidents = Incidents()
    incidents.add(verdicts(20, {15: 5.0}))
    incidents.label(1, "valve")
    incidents.add(verdicts(20, {5: 50.0}))
    (found,) = incidents.finish()
    assert (found.label, found.begin, found.peak) == ("valve", 15, 25)


def test_what_began_within_a_minute_of_the_first_is_together():
    begins = [0.0, 30.0, 60.0, 61.0, 120.0, 500.0]
    assert [begins[part] for part in together(begins)] == [[0, 30, 60], [61, 120], [500]]
    assert together([]) == []


def test_what_a_sample_is_called_does_not_say_how_far_it_is_from_the_next():
    """In a file of many series each has every hundredth line or so."""
    incidents, found = Incidents(), []
    for first, alarms in ((0, {10: 2.0}), (50, {QUIET - 40: 3.0}), (100, {}), (150, {40: 2.0})):
        found += incidents.add(verdicts(50, alarms), 100 * np.arange(first, first + 50))
    found += incidents.finish()
    last = 100 * (QUIET + 10)
    assert [(each.begin, each.end) for each in found] == [(1000, last), (19_000, 19_000)]


def test_an_incident_goes_on_when_a_sensor_comes_later():
    X = np.random.default_rng(0).normal(size=(2000, 3))
    X[1490:1510] += 20
    monitor, incidents = Monitor(names=["flow", "power"]), Incidents()
    assert incidents.add(monitor.observe_many(X[:1500, :2])) == []
    monitor.widen(["heat"])
    (found,) = incidents.add(monitor.observe_many(X[1500:]))
    assert (found.begin, found.end >= 1509) == (1490, True)
