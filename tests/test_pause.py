"""A monitor that is paused learns nothing; a person can make it learn a false alarm."""

import copy
import pickle

import numpy as np
import pytest

from onlad import Monitor, load, save
from onlad.watching import TICK


def stream(rows, seed=0):
    rng = np.random.default_rng(seed)
    level = np.sin(np.arange(rows) / 20)[:, None]
    return level * [1.0, 2.0, -1.0, 0.5] + rng.normal(0, 0.1, (rows, 4))


def model(monitor):
    """Return what a monitor has learned of the machine."""
    now = monitor.learned().watching
    return now.modes, now.anchors, now.candidate


def test_a_paused_monitor_judges_and_learns_nothing():
    X = stream(8000)
    monitor = Monitor()
    monitor.observe_many(X[:1000])
    monitor.paused = True
    monitor.observe_many(X[1000 : 1000 + 2 * TICK])  # rows from before the pause are learned here
    before = pickle.dumps(model(monitor))
    # Longer than any quarantine lasts, and far off: it must not become a mode by order.
    verdicts = monitor.observe_many(X[1000 + 2 * TICK :] + 5.0)
    assert verdicts.is_anomaly.mean() > 0.9
    assert not verdicts.learned.any()
    assert not verdicts.drift.any()
    assert pickle.dumps(model(monitor)) == before
    assert monitor.describe()["quarantine"] == 0
    monitor.paused = False
    learned = monitor.describe()["learned"]
    assert monitor.observe_many(stream(500, seed=1)).learned.any()
    assert monitor.describe()["learned"] > learned


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
    refused = monitor.observe_many(odd)[-1]
    assert not refused.learned
    monitor.accept(odd)
    save(monitor, tmp_path / "after.onlad")
    assert load(tmp_path / "after.onlad").observe_many(odd).score[-1] < score


def test_accept_needs_a_row_and_a_started_monitor():
    monitor = Monitor()
    monitor.observe_many(stream(10))
    for X in (stream(1), np.empty((0, 4))):
        with pytest.raises(ValueError, match="accept needs a row"):
            monitor.accept(X)


def test_accepting_an_alarm_makes_it_usual():
    X = stream(2000)
    odd = np.concatenate([X[-7:], X[-1:] + np.array([0.0, 0.0, 2.0, 0.0])])
    monitor = Monitor().fit(X)
    assert copy.deepcopy(monitor).observe_many(odd)[-1].is_anomaly
    seen = monitor.n_seen
    monitor.accept(odd)
    assert monitor.n_seen == seen  # the rows are of the past
    assert not copy.deepcopy(monitor).observe_many(odd)[-1].is_anomaly


def test_accept_takes_rows_with_missing_values():
    monitor = Monitor().fit(stream(1000))
    odd = np.array([[5.0, np.nan, 5.0, np.nan]])
    before = copy.deepcopy(monitor).observe_many(odd).score[0]
    monitor.accept(odd)
    assert copy.deepcopy(monitor).observe_many(odd).score[0] < before
