"""Counters are watched by their rate, in the definition and in the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from onlad import Monitor
from onlad.counter import Counters, rising
from onlad.fleet import MonitorBank

ROWS = 6_000


def stream(seed: int = 0) -> np.ndarray:
    """Two analog sensors, the energy of the first, and pieces counted anew each 1,000 rows."""
    rng = np.random.default_rng(seed)
    load = 5 + np.convolve(rng.normal(size=ROWS + 19), np.ones(20) / 20, "valid")
    analog = np.column_stack((load, 2 * load)) + rng.normal(0, 0.1, (ROWS, 2))
    pieces = np.cumsum(rng.binomial(1, 0.3, ROWS))
    return np.column_stack(
        (analog, np.cumsum(load), pieces - pieces[np.arange(ROWS) // 1000 * 1000])
    )


def test_what_rises_is_a_counter_and_what_seldom_changes_is_not() -> None:
    X = stream()
    valve = (np.arange(ROWS) > 100).astype(float)
    assert rising(np.column_stack((X[:256], valve[:256]))).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]
    falls = X[:256, 2].copy()
    falls[50:53] = falls[40:43]
    falls[90:93] = falls[80:83]
    falls[120:123] = falls[110:113]
    assert not rising(falls[:, None]).any()


def test_a_rate_is_the_rise_per_row_over_missing_values_and_missing_at_a_reset() -> None:
    counters = Counters(np.array([[10.0], [0.0]]))
    X = np.array([[12.0], [np.nan], [np.nan], [18.0], [1.0], [0.8]])
    rates, base, gap = counters.rates(X)
    np.testing.assert_allclose(rates[:, 0], [2.0, np.nan, np.nan, 2.0, np.nan, -0.2])
    np.testing.assert_array_equal(base[:, 0], [10.0, 12.0, 12.0, 12.0, 18.0, 1.0])
    np.testing.assert_array_equal(gap[:, 0], [1.0, 1.0, 2.0, 3.0, 1.0, 1.0])


def test_a_counter_of_the_day_beside_one_of_all_days_raises_no_alarm_at_its_reset() -> None:
    rng = np.random.default_rng(0)
    pieces = np.cumsum(rng.binomial(1, 0.4, 20_000)).astype(float)
    today = (
        pieces - pieces[np.arange(20_000) // 1_000 * 1_000]
    )  # a piece in the row of a reset is lost
    load = rng.normal(size=20_000)
    X = np.column_stack((pieces, today, load + 0.1 * rng.normal(size=20_000), load))
    assert Monitor().fit(X[:4_000]).observe_many(X[4_000:]).is_anomaly.sum() <= 1


@pytest.mark.parametrize("fit", [False, True])
def test_counters_raise_no_alarm_however_far_they_count(fit: bool) -> None:
    alarms = 0
    for seed in range(3):
        X = stream(seed)
        monitor = Monitor().fit(X[:2_000]) if fit else Monitor()
        alarms += int(monitor.observe_many(X[2_000 if fit else 0 :]).is_anomaly.sum())
        assert monitor.describe()["counters"] == [2, 3]
        assert len(monitor.describe()["modes"]) == 1
    assert alarms <= 6  # the budget allows 1e-4 of 18,000 rows: 1.8 on average


def test_a_counter_that_stops_is_an_anomaly_and_the_cause() -> None:
    X = stream()
    X[4_000:, 2] -= np.maximum(X[4_000:, 2] - X[4_000, 2], 0)
    verdicts = Monitor().fit(X[:3_000]).observe_many(X[3_000:4_100])
    assert not verdicts.is_anomaly[:1_000].any()
    assert verdicts.is_anomaly[1_000:1_020].any()
    first = int(np.argmax(verdicts.is_anomaly))
    assert int(np.argmax(verdicts.shares[first])) == 2


def test_what_is_expected_of_a_counter_is_a_value_not_a_rate() -> None:
    X = stream()
    verdicts = Monitor().fit(X[:3_000]).observe_many(X[3_000:])
    # A row adds about 5; the band around what is expected holds most rows.
    assert np.abs(verdicts.expected[:, 2] - X[3_000:, 2]).max() < 5
    inside = (verdicts.low[:, 2] <= X[3_000:, 2]) & (X[3_000:, 2] <= verdicts.high[:, 2])
    assert inside.mean() > 0.9


def test_what_only_seemed_to_be_a_counter_is_none_once_it_falls() -> None:
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(4_000) / 400)  # without noise, and it rises for 600 rows
    monitor = Monitor()
    monitor.observe_many(np.column_stack((wave, rng.normal(size=4_000)))[:600])
    assert monitor.describe()["counters"] == [0]
    monitor.observe_many(np.column_stack((wave, rng.normal(size=4_000)))[600:1_200])
    assert monitor.describe()["counters"] == []


def test_an_accepted_row_of_a_counter_is_learned_as_a_rate() -> None:
    X = stream()
    monitor = Monitor().fit(X[:3_000])
    odd = X[3_000:3_008].copy()
    odd[-1, :2] += 3.0
    before = monitor.observe_many(odd)[7].score
    monitor.accept(odd)
    monitor.observe_many(X[3_008:3_010])
    after = monitor.observe_many(odd + np.array([0, 0, X[3_009, 2] - odd[0, 2], 0]))[7].score
    assert after < before


def test_a_bank_watches_counters_as_a_loop_does_also_after_its_file() -> None:
    X = np.stack([stream(0), stream(1)])[:, :5_000]
    bank = MonitorBank(Monitor(), 2, names=range(4))
    first = bank.observe_many(X[:, :4_500])
    second = MonitorBank.from_bytes(bank.to_bytes()).observe_many(X[:, 4_500:])
    for k, rows in enumerate(X):
        alone = Monitor().observe_many(rows)
        np.testing.assert_array_equal(first.score.reshape(2, -1)[k], alone.score[:4_500])
        np.testing.assert_array_equal(second.score.reshape(2, -1)[k], alone.score[4_500:])
