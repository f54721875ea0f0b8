"""A detector that runs for years: a million samples, and the faults of real machines."""

import numpy as np
import pytest

from onlad import reference
from onlad.detector import Detector
from oracle import assert_near, assert_positive_definite, auc, solve, tolerance

FACTORS = [0.9, 0.95, 0.99, 0.999, 1.0]
DTYPES = ["float64", "float32"]
PERIODS = 20  # of the drift, in one life; a checkpoint after each
YOUNG, OLD = slice(2, 6), slice(16, 20)  # periods that are compared

# How far two mean AUCs may lie apart. Where few sensors drive many units, a life depends on
# rounding: from seed to seed float32 moves against float64 by a standard deviation of up to 0.016
# (experiments/results/precision.jsonl), old against young by up to 0.02. Their means over sixteen
# seeds move by 0.004 and 0.005, and the bound is five and four of these. One dead model of sixteen
# moves the mean by 0.025. With sixteen sensors the deviation is 0.001, and four seeds are enough.
APART = 0.02
SEEDS = {2: 16, 16: 4}


def drifting(n, rows, first, period, seed=0):
    """Return the rows from `first` of a stream whose sensors follow circles, and its anomalies.

    Two hidden causes (one, for two sensors) drive all sensors, with phases that go round once a
    period. An anomaly of one row in fifty adds noise that the causes do not explain.
    """
    rng = np.random.default_rng([n, first, seed])
    mix = np.random.default_rng([n, seed]).normal(0, 1, (min(2, n - 1), n))
    phase = 2 * np.pi * np.arange(first, first + rows)[:, None] / period + np.arange(n)
    X = 0.5 + 0.3 * np.sin(rng.uniform(-1, 1, (rows, len(mix))) @ mix + phase)
    X += rng.normal(0, 0.02, X.shape)
    odd = rng.uniform(0, 1, rows) < 0.02
    X[odd] += rng.normal(0, 0.3 / n**0.25, (odd.sum(), n))
    return X, odd


def live(n, a, rows, seed, dtype):
    """Check the default detector through one life; return its AUC when young and when old.

    The old see what the young saw, so that age alone tells the two.
    """
    detector = Detector(forgetting=a, dtype=dtype, seed=seed)
    scores, labels = [], []
    period, energy = rows // PERIODS, 0.0
    for number in range(PERIODS):
        X, odd = drifting(n, period, number % (OLD.start - YOUNG.start) * period, period, seed)
        energy += np.sum(X * X)
        labels.append(odd)
        scores.append(detector.update_many(X))
        state = detector.state
        assert np.isfinite(scores[-1]).all()
        assert all(np.isfinite(array).all() for array in state)
        assert_positive_definite(state.P)
        # beta solves least squares with weights of at most 1: beta = P^1/2 (P^1/2 H'W^1/2)
        # W^1/2 X, the parenthesis has norm 1 at most, and the trace bounds the norm of P.
        assert np.abs(state.beta).max() <= np.sqrt(np.trace(state.P) * energy)
        assert detector.n_skipped == 0
    return [auc(np.concatenate(scores[age]), np.concatenate(labels[age])) for age in (YOUNG, OLD)]


def live_well(n, a, rows, seeds):
    """Check float64 and float32 through a life for each seed, and their mean AUCs."""
    lives = {dtype: [live(n, a, rows, seed, dtype) for seed in range(seeds)] for dtype in DTYPES}
    (young, old), (_, single) = (np.mean(lives[dtype], axis=0) for dtype in DTYPES)
    assert single == pytest.approx(old, abs=APART)
    assert old > young - APART
    assert old > 0.6


@pytest.mark.parametrize("a", FACTORS)
@pytest.mark.parametrize("n", [2, 16])
def test_twenty_thousand_drifting_samples_do_no_harm(n, a):
    live_well(n, a, 20_000, SEEDS[n])


# Here and in a million samples one AUC moves by less than 0.002 from seed to seed.
@pytest.mark.parametrize(("n", "a"), [(128, 0.9), (128, 0.95), (512, 0.99), (512, 1.0)])
def test_ten_thousand_drifting_samples_do_no_harm_to_a_large_model(n, a):
    live_well(n, a, 10_000, seeds=2)


@pytest.mark.slow
@pytest.mark.parametrize("a", FACTORS)
@pytest.mark.parametrize("n", [2, 16, 128, 512])
def test_a_million_drifting_samples_do_no_harm(n, a):
    live_well(n, a, 1_000_000, seeds=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_forgetting_a_long_life_is_still_the_closed_form(dtype):
    X = np.vstack([drifting(4, 10_000, first, 10_000)[0] for first in range(0, 50_000, 10_000)])
    X = X.astype(dtype).astype("float64")
    detector = Detector(n_hidden=6, ridge=1.0, forgetting=1.0, dtype=dtype)
    detector.learn_many(X)
    beta, P, gram = solve(reference.hidden(detector.state, X), X, 1.0, 1.0)
    assert_near(detector.state.beta, beta, tolerance(gram, dtype))
    assert_near(detector.state.P, P, tolerance(gram, dtype))


def normal(rows, seed, n=8):
    """Return a machine in normal operation: three causes, eight sensors, noise."""
    rng, mix = np.random.default_rng(seed), np.random.default_rng(99).normal(0, 1, (3, n))
    X = 0.5 + 0.3 * np.sin(rng.uniform(-1, 1, (rows, 3)) @ mix + np.arange(n))
    return X + rng.normal(0, 0.05, X.shape)


def stuck(X):
    return np.repeat(X[:1], len(X), axis=0)


def at_rest(X):
    return stuck(X) + np.random.default_rng(5).normal(0, 1e-9, X.shape)


def dead_feature(X):
    return np.where(np.arange(X.shape[1]) == 2, 0.0, X)


def duplicated_feature(X):
    return X[:, [0, 1, 3, 3, 4, 5, 6, 7]]


def jump(X):
    return X + np.where(np.arange(X.shape[1]) == 2, 1e6, 0.0)


FAULTS = [stuck, at_rest, dead_feature, duplicated_feature, jump]


def after(fault, rows, **settings):
    """Return the scores from 500 samples after a fault, those of a twin without it, and both."""
    pair = [Detector(forgetting=0.95, **settings) for _ in range(2)]
    for detector in pair:
        detector.learn_many(normal(2000, seed=1))
    assert np.isfinite(pair[0].update_many(fault(normal(rows, seed=2)))).all()
    for detector in pair:
        assert np.isfinite(detector.update_many(normal(500, seed=3))).all()
    scores = [detector.update_many(normal(2000, seed=4)) for detector in pair]
    assert pair[0].n_skipped == 0
    return *scores, pair


@pytest.mark.parametrize("score", reference.SCORES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_each_score_is_that_of_a_twin_without_it(fault, dtype, score):
    found, expected, (_, twin) = after(fault, 100_000, n_hidden=8, dtype=dtype, score=score)
    # 0.95^1000 is below any rounding: where normal operation excites every hidden unit, all
    # that 500 samples leave of the fault is rounding, times the condition number.
    bound = min(0.1, tolerance(twin.state.P, dtype))
    np.testing.assert_allclose(found, expected, rtol=bound)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_a_wide_model_scores_as_a_twin_without_it(fault, dtype, activation):
    # 64 hidden units and a memory of ten samples: P is large along many directions, but the
    # normal stream alone keeps it within the limit, so the guard has no say in either of the two.
    wrong = []
    for seed in range(4):
        found, expected, (_, twin) = after(
            fault, 20_000, dtype=dtype, activation=activation, seed=seed
        )
        wrong.append(np.abs(found / expected - 1) > 0.1)
        assert twin.n_paused == 0
    # P's condition number is 1e13 here. In float32 rounding alone is 3 % of a score, seldom more.
    # At three instruction levels 21 of 180,000 scores of sigmoid units were off by a tenth, 15 of
    # them at one level: that is 2 of the 8,000 scores here. 16 lie ten standard deviations of a
    # count from there.
    assert np.mean(wrong) <= (0.002 if dtype == "float32" else 0.0)


@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_a_model_with_dead_directions_is_as_good_as_a_twin(fault, dtype, activation):
    # More units than the stream can excite: there the guard acts all the time, in the twin too,
    # and what it does depends on rounding. Two such models agree in their level, not in each score.
    # With relu the logarithm of their ratio moves by about 1 from seed to seed, and the median of
    # eight by 1.25 / sqrt(8) = 0.44: a factor of 4 is three of these.
    levels = []
    for seed in range(8):
        found, expected, _ = after(fault, 5_000, dtype=dtype, activation=activation, seed=seed)
        levels.append(np.median(found) / np.median(expected))
    assert 0.25 < np.median(levels) < 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stuck_sensor_does_not_wind_P_up_for_ever(dtype):
    detector = Detector(forgetting=0.95, dtype=dtype)
    detector.learn_many(normal(500, seed=1))
    for _ in range(10):
        detector.learn_many(stuck(normal(1000, seed=2)))
        # One step divides by a^2 at most after the limit was passed, and one unit is restored.
        limit = reference.trace_limit(detector.learned().trace_start, 64, 0.95, "sigmoid")
        assert np.trace(detector.state.P) < 2 * limit
