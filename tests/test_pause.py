"""A monitor that is paused learns nothing; one that is told that an alarm was none learns that."""

import numpy as np
import pytest

from onlad import Monitor, load, save


def stream(rows, seed=0):
    rng = np.random.default_rng(seed)
    level = np.sin(np.arange(rows) / 20)[:, None]
    return level * [1.0, 2.0, -1.0, 0.5] + rng.normal(0, 0.1, (rows, 4))


def test_a_paused_monitor_judges_and_learns_nothing():
    X = stream(6000)
    monitor = Monitor()
    monitor.observe_many(X[:1000])
    before = monitor.detector.state
    monitor.paused = True
    # Longer than the gate's patience lasts, and far off: it must not give in by order.
    verdicts = monitor.observe_many(X[1000:] + 5.0)
    assert verdicts.is_anomaly.any()
    assert not verdicts.learned.any()
    assert not verdicts.drift.any()
    for name in ("P", "beta"):
        np.testing.assert_array_equal(getattr(monitor.detector.state, name), getattr(before, name))
    monitor.paused = False
    assert monitor.observe_many(stream(500, seed=1)).learned.any()


def test_one_by_one_is_paused_as_a_block_is():
    X = stream(1100)
    one, many = Monitor(), Monitor()
    for monitor in (one, many):
        monitor.observe_many(X[:1000])
        monitor.paused = True
    assert [one.observe(x).score for x in X[1000:]] == many.observe_many(X[1000:]).score.tolist()
    assert not any(one.observe(x).learned for x in X[:40])


def test_what_is_accepted_scores_lower_and_can_be_saved(tmp_path):
    X = stream(1000)
    odd = np.concatenate([X[-7:], X[-1:] + np.array([0.0, 0.0, 9.0, 0.0])])
    monitor = Monitor()
    monitor.observe_many(X)
    save(monitor, tmp_path / "before.onlad")
    score = load(tmp_path / "before.onlad").observe_many(odd).score[-1]
    held_out = monitor.observe_many(odd)[-1]
    assert not held_out.learned
    monitor.accept(odd)
    save(monitor, tmp_path / "after.onlad")
    assert load(tmp_path / "after.onlad").observe_many(odd).score[-1] < score


def test_accept_needs_a_row_and_a_started_monitor():
    monitor = Monitor()
    monitor.observe_many(stream(10))
    for X in (stream(1), np.empty((0, 4))):
        with pytest.raises(ValueError, match="accept needs a row"):
            monitor.accept(X)
