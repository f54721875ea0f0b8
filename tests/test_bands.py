"""What is expected of each sensor, the band around it, and how severe an alarm is."""

import math
from types import SimpleNamespace

import numpy as np

import onlad
from onlad import Monitor, _kernel
from onlad.severity import LATELY, severity
from onlad.verdict import Verdicts
from onlad.watching import TICK
from plants import smooth

NAMES = ("flow", "power", "heat", "level")


def watched(X, block=None):
    monitor, parts = Monitor(), []
    for first in range(0, len(X), block or len(X)):
        parts.append(monitor.observe_many(X[first : first + (block or len(X))]))
    return monitor, parts


def test_bands_hold_95_percent_of_normal_values_whatever_their_distribution_is():
    rng = np.random.default_rng(0)
    rows = 8000
    X = smooth(rows, 4, seed=1)
    X += np.column_stack([
        rng.normal(size=rows), rng.standard_t(3, rows), rng.exponential(size=rows),
        np.linspace(1, 3, rows) * rng.normal(size=rows),  # it gets louder
    ])  # fmt: skip
    verdicts = Monitor().observe_many(X)
    inside = (verdicts.low <= X) & (verdicts.high >= X)
    # A binomial share of 7,744 has a deviation of 0.0025; a band that follows is late by the rest.
    assert np.all(np.abs(inside[verdicts.ready].mean(axis=0) - 0.95) < 0.02)


def test_a_sensor_far_from_what_the_others_say_has_a_direction_and_an_expected_value():
    X = smooth(2000, 4, seed=2)
    truth = X[-1].copy()
    X[-1, 1] += 50
    monitor = Monitor()
    monitor.observe_many([dict(zip(NAMES, x, strict=True)) for x in X[:-1].tolist()])
    verdict = monitor.observe(dict(zip(NAMES, X[-1].tolist(), strict=True)))
    assert verdict.direction["power"] == "above"
    assert verdict.low["power"] < verdict.expected["power"] < verdict.high["power"]
    assert abs(verdict.expected["power"] - truth[1]) < 5
    assert list(verdict.expected) == list(verdict.low) == list(verdict.high) == list(NAMES)


def test_a_sensor_below_its_band_is_below_and_one_inside_has_no_direction():
    X = smooth(2000, 4, seed=2)
    X[-1, 1] -= 50
    verdict = Monitor().observe_many(X)[-1]
    assert verdict.direction[1] == "below"
    inside = [j for j in range(4) if verdict.low[j] <= X[-1, j] <= verdict.high[j]]
    assert not set(inside) & set(verdict.direction)


def test_blocks_of_any_size_have_the_same_bands_and_severities():
    X = smooth(1000, 4, seed=3)
    X[700:720, 2] += 30
    X[800, 1] = np.nan
    _, whole = watched(X)
    monitor = Monitor()
    each = [monitor.observe(x) for x in X]
    _, parts = watched(X, 37)
    for name in ("expected", "low", "high"):
        column = getattr(whole[0], name)
        np.testing.assert_array_equal(column, np.concatenate([getattr(p, name) for p in parts]))
        for t in (300, 699, 705, 800, 999):
            said = getattr(each[t], name)
            assert said == getattr(whole[0][t], name)
            assert [said[j] for j in range(4)] == column[t].tolist()
    severities = [v.severity for v in each]
    assert severities == whole[0].severity.tolist()
    assert severities == np.concatenate([part.severity for part in parts]).tolist()


def test_nothing_is_expected_before_there_is_a_model_or_of_a_sample_without_values():
    monitor = Monitor()
    first = monitor.observe([1.0, 2.0])
    assert first.expected == first.low == first.high == first.direction == {}
    assert first.severity == 0.0
    monitor.observe_many(smooth(1000, 2))
    assert monitor.observe([np.nan, np.nan]).expected == {}
    assert Verdicts(("a",), 2).severity.tolist() == [0.0, 0.0]


def test_a_missing_value_has_an_expected_one():
    monitor = Monitor()
    X = smooth(1000, 4)
    monitor.observe_many(X[:-1])
    X[-1, 2] = np.nan
    verdict = monitor.observe(X[-1])
    assert 2 in verdict.expected
    assert 2 not in verdict.direction


def test_a_machine_that_changed_for_good_has_bands_again():
    """The alarm lasts, nothing is learned, and yet the band follows."""
    X = smooth(6000, 4, seed=4)
    X[1000:] = X[1000:] * [1, -4, 1, 9] + np.linspace(0, 3000, 5000)[:, None]
    verdicts = Monitor().observe_many(X)
    inside = (verdicts.low <= X) & (verdicts.high >= X)
    assert inside[1100:1200].mean() < 0.5
    assert inside[4000:].mean() > 0.9


def test_severity_is_ten_points_for_each_factor_of_ten():
    assert severity(1.0001, 1e-3, 1, 1e-4) == 40  # as rare as the budget
    assert severity(10.0, 1e-3, 1, 1e-4) == 50
    assert severity(10.0, 1e-3, 1, 1e-3) == 40
    assert severity(10.0, 1e-3, 10, 1e-4) == 55
    assert severity(1e9, 1e-3, 1, 1e-4) == 100
    assert severity(0.5, 0.01, 1, 1e-4) == 20
    assert severity(0.5, 0.01, 33, 1e-4) == 3  # half of the last samples were unusual too
    assert severity(1.0, 1e-9, 1, 1e-4) == 40  # not above the threshold: no alarm
    assert severity(0.0, 1.0, 1, 1e-4) == 0


def test_unusual_samples_are_counted_among_as_many_as_a_tick_has():
    assert LATELY == TICK


def test_a_sample_is_not_severe_where_most_samples_are_unusual():
    """A level that wanders: many samples are not learned, and few are anomalies."""
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(0, 0.05, (20_000, 2)), axis=0)
    X = walk @ rng.normal(size=(2, 5)) + rng.normal(0, 0.5, (20_000, 5))
    verdicts = Monitor().observe_many(X)
    ready = verdicts.ready
    rare = 10 * np.log10(1 / np.maximum(verdicts.p_value, 1e-4))  # by the p-value alone
    calm = ready & ~verdicts.is_anomaly
    assert np.mean(rare[calm] >= 20) > 0.02  # 0.01 if the p-value meant what it says
    # By the definition one of 10 samples reaches 10, and one of 100 reaches 20; levels that wander
    # make neighbours alike, so few stretches count.
    assert np.mean(verdicts.severity[calm] >= 10) < 0.15
    assert np.mean(verdicts.severity[calm] >= 20) < 0.03


def test_severity_grows_while_a_fault_lasts():
    X = smooth(2000, 4, seed=5)
    X[1500:, 0] += 8
    verdicts = Monitor().observe_many(X)
    at = np.flatnonzero(verdicts.is_anomaly[1500:1564]) + 1500
    assert verdicts.unusual[at[0]] < verdicts.unusual[at[-1]]
    shown = verdicts.severity.copy()
    verdicts.unusual[:] = 1
    assert np.all(shown[at] >= verdicts.severity[at])
    assert shown[at[-1]] > verdicts.severity[at[-1]]


def test_the_kernel_rounds_severities_as_python_does():
    rng = np.random.default_rng(0)
    rows = 20_000
    ratio = 10 ** rng.uniform(-2, 4, rows)
    ratio[:1000] = np.exp(np.arange(1000) / 97)
    p_value, rate = 10 ** rng.uniform(-4, 0, rows), 10 ** rng.uniform(-6, -1, rows)
    unusual = rng.integers(0, 65, rows).astype(float)
    found = np.zeros(rows)
    _kernel.severities(
        ratio=ratio, p_value=p_value, unusual=unusual, rate=rate,
        constants=onlad.severity, out=found,
    )  # fmt: skip
    columns = (each.tolist() for each in (ratio, p_value, unusual, rate))
    expected = [severity(r, p, int(u), f) for r, p, u, f in zip(*columns, strict=True)]
    assert found.tolist() == expected
    # Ties: points of 1 give log10 itself, and the tenth that Python's round gives.
    ties = np.array([0.25, 0.35, 0.45, 2.25, 2.35, 99.95, 12.05, 0.05])
    raised, one = 10.0**ties, np.ones(len(ties))
    out = np.zeros(len(ties))
    logarithms = SimpleNamespace(POINTS=1.0, LATELY=1.0, HIGHEST=100.0)
    _kernel.severities(
        ratio=raised, p_value=one, unusual=one, rate=one, constants=logarithms, out=out
    )
    assert out.tolist() == [round(math.log10(r), 1) for r in raised.tolist()]
