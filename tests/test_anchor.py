import numpy as np
import pytest

from onlad.anchor import MEAN, MEASURED, OUTSIDE, SETTLED, SLACK, Anchor
from onlad.fields import values
from onlad.mode import Mode
from plants import smooth, windows

GROUP = 64


def settled(X, width=1):
    """Return a mode that learned enough rows for an anchor."""
    mode = Mode(X.shape[1], width, True, 0)
    mode.start(windows(X, width), ~np.isnan(X))
    return mode


def follow(anchor, mode, X):
    """Let an anchor follow rows; return what it says after each group."""
    said = []
    rows = windows(X, mode.width)
    for first in range(0, len(X) - GROUP + 1, GROUP):
        anchor.follow(mode, rows[first : first + GROUP])
        said.append(anchor.drifting())
    return np.array(said)


def measured(seed=0, n=5, width=1):
    X = smooth(SETTLED + MEASURED, n, seed)
    mode = settled(X[:SETTLED], width)
    anchor = Anchor(mode)
    follow(anchor, mode, X[SETTLED:])
    return mode, anchor


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sensor", [0, 3])
@pytest.mark.parametrize("width", [1, 3])
def test_a_ramp_of_one_sensor_is_noticed_and_named(sensor, seed, width):
    mode, anchor = measured(seed, width=width)
    X = smooth(12_000, 5, seed + 10)
    X[:, sensor] += np.linspace(0, 3, 12_000)
    said = follow(anchor, mode, X)
    assert said[-1] == sensor
    first = np.argmax(said >= 0)
    assert (said[first:] == sensor).mean() > 0.9
    assert first * GROUP > 500  # it takes some hundred rows: it is a mean


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_stays_where_it_was_is_never_reported(seed):
    mode, anchor = measured(seed)
    assert (follow(anchor, mode, smooth(30_000, 5, seed + 10)) == -1).all()


@pytest.mark.parametrize("seed", range(4))
def test_what_all_sensors_do_together_is_no_drift_of_one(seed):
    mode, anchor = measured(seed)
    weights = np.random.default_rng(97).uniform(0.5, 1.5, 5)  # those of the common cause
    X = smooth(12_000, 5, seed + 10) + np.linspace(0, 1, 12_000)[:, None] * weights
    assert (follow(anchor, mode, X) >= 0).mean() < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_a_random_walk_is_never_reported(seed):
    rng = np.random.default_rng(seed)
    X = smooth(SETTLED + MEASURED + 20_000, 3, seed)
    X[:, 1] = 0.05 * rng.normal(size=len(X)).cumsum()
    X[:, 2] = np.arange(len(X)) * 0.01  # nor is a counter
    mode = settled(X[:SETTLED])
    anchor = Anchor(mode)
    said = follow(anchor, mode, X[SETTLED:])
    assert not (said == 2).any()
    assert (said == 1).mean() < 0.05


def test_nothing_is_said_before_the_lean_was_measured():
    X = smooth(SETTLED, 5)
    mode = settled(X)
    anchor = Anchor(mode)
    Y = smooth(MEASURED - GROUP, 5, seed=1)
    Y[:, 2] += 5
    assert (follow(anchor, mode, Y) == -1).all()


def test_the_lean_is_a_mean_of_the_errors_of_a_frozen_model():
    mode, anchor = measured()
    beta, lean = anchor.beta.copy(), anchor.lean.copy()
    X = smooth(GROUP, 5, seed=8)
    V = mode.scaled(X).mean(axis=0, keepdims=True)
    error = (V[:, :5] - mode.instances[1].hidden(V) @ beta)[0]
    follow(anchor, mode, X)
    # The mean of errors is the error of the mean where nothing is clipped: rounding apart.
    np.testing.assert_allclose(anchor.lean, lean + GROUP / MEAN * (error - lean), atol=1e-12)
    mode.learn(X * 3, np.ones(X.shape, bool))
    np.testing.assert_array_equal(anchor.beta, beta)


def test_what_leans_farthest_outside_of_what_was_measured_is_named():
    mode, anchor = measured()
    bound = OUTSIDE * anchor.halves.max(axis=0) + SLACK * anchor.deviation
    anchor.lean = bound * [0.9, 1.1, -1.2, 0.5, 0.0]
    assert anchor.drifting() == 2
    anchor.lean = bound * 0.99
    assert anchor.drifting() == -1
    assert mode.features == 5


def test_a_still_sensor_and_one_that_is_never_there_do_not_drift():
    X = smooth(SETTLED + MEASURED + 5000, 4)
    X[:, 1], X[:, 2] = 7.0, np.nan
    X[-4000:, 1] = 9.0
    mode = settled(X[:SETTLED])
    anchor = Anchor(mode)
    assert not np.isin(follow(anchor, mode, X[SETTLED:]), [1, 2]).any()
    assert np.isfinite(anchor.lean).all()


def test_what_was_learned_makes_an_equal_anchor():
    mode, anchor = measured()
    learned = anchor.learned()
    twin = Anchor(mode).resume(learned)
    X = smooth(6000, 5, seed=3)
    X[:, 1] += np.linspace(0, 4, 6000)
    np.testing.assert_array_equal(follow(twin, mode, X), follow(anchor, mode, X))
    np.testing.assert_equal(values(twin.learned()), values(anchor.learned()))
    assert not np.array_equal(anchor.learned().lean, learned.lean)  # it gave copies
