import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import assert_same_state, stream
from onlad.detector import Detector
from onlad.forgetting import Adaptive, Constant, OnDrift, log_score

POLICIES = [
    Adaptive(),
    Adaptive(high=0.9, low=0.5, recent=1, long=2),
    OnDrift(),
    OnDrift(high=1.0, low=0.5, duration=1, slack=0.0, limit=0.1),
]
SCORES = st.floats(min_value=0, allow_nan=False)  # with 0 and infinity


def run(policy, scores):
    """Return the factors after each score."""
    memory, factors = policy.start, []
    for score in scores:
        memory = policy.step(memory, score)
        factors.append(memory[0])
    return np.array(factors)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@given(scores=st.lists(SCORES, max_size=60))
def test_any_scores_keep_the_factor_in_its_range_and_the_memory_finite(policy, scores):
    memory = policy.start
    assert memory[0] == policy.high
    for score in scores:
        memory = policy.step(memory, score)
        assert policy.low <= memory[0] <= policy.high
        assert np.isfinite(memory).all()
        assert len(memory) == len(policy.start)


@given(SCORES)
def test_the_log_of_any_score_is_finite(score):
    assert -700 < log_score(score) < 700


@given(st.floats(0, 1, exclude_min=True), st.lists(SCORES, max_size=5))
def test_a_constant_never_moves(a, scores):
    assert (run(Constant(a), scores) == a).all()
    assert Constant(a).start == (a,)


def test_a_step_changes_nothing_but_what_it_returns():
    for policy in POLICIES:
        memory = policy.step(policy.start, 3.0)
        assert policy.step(memory, 5.0) == policy.step(memory, 5.0)


def test_adaptive_keeps_high_while_scores_are_level():
    np.testing.assert_allclose(run(Adaptive(), [2.0] * 200), 0.999, rtol=1e-12)


def test_adaptive_forgets_more_after_errors_rise_and_returns():
    policy = Adaptive(recent=8, long=64)
    factors = run(policy, [1.0] * 200 + [3.0] * 16 + [1.0] * 300)
    assert (np.diff(factors[200:208]) < 0).all()  # more with each of the risen errors
    assert factors[207] < policy.high**1.5
    np.testing.assert_allclose(factors[-1], policy.high, rtol=1e-12)


def test_adaptive_halves_its_memory_at_twice_the_usual_error():
    # The long level hardly moves in one step, so the ratio is 2: high to the power of 2.
    factors = run(Adaptive(recent=1, long=10**9), [1.0] * 100_000 + [2.0])
    assert factors[-1] == pytest.approx(0.999**2, rel=1e-7)


def test_adaptive_does_not_remember_less_when_errors_fall():
    factors = run(Adaptive(), [10.0] * 200 + [1.0] * 10)
    np.testing.assert_allclose(factors, 0.999, rtol=1e-12)


def test_on_drift_forgets_fast_for_its_duration_and_then_returns():
    policy = OnDrift(duration=30)
    factors = run(policy, [1.0] * 200 + [9.0] * 200)
    fast = np.flatnonzero(factors == policy.low)
    assert len(fast) == policy.duration
    assert (np.diff(fast) == 1).all()
    # log 9 less the slack adds about 1.9 per sample until the sum passes the limit of 25.
    assert 200 + 25 / np.log(9) < fast[0] < 200 + 25 / (np.log(9) / 2)
    assert (np.delete(factors, fast) == policy.high).all()


def test_on_drift_sees_each_new_rise():
    policy = OnDrift(duration=5)
    factors = run(policy, [1.0] * 100 + [9.0] * 100 + [81.0] * 100)
    assert (np.diff((factors == policy.low).astype(int)) == 1).sum() == 2


def test_on_drift_ignores_one_spike():
    factors = run(OnDrift(), [1.0] * 100 + [1e6] + [1.0] * 100)
    assert (factors == 0.999).all()


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_update_many_is_the_loop_to_the_last_bit(policy):
    X = np.vstack([stream(80), stream(80, seed=1) * 3])
    one, many, halves = (Detector(n_hidden=8, forgetting=policy) for _ in range(3))
    expected = np.array([one.update_one(x) for x in X])
    np.testing.assert_array_equal(many.update_many(X), expected)
    split = [halves.update_many(rows) for rows in np.split(X, [33, 34, 120])]
    np.testing.assert_array_equal(np.concatenate(split), expected)
    assert_same_state(one, many)
    assert_same_state(one, halves)


def test_a_policy_follows_the_scores_of_its_detector():
    policy = Adaptive(low=0.5, recent=4)
    X = np.vstack([stream(300), stream(40, seed=1) * 3])
    detector, memory = Detector(n_hidden=8, forgetting=policy), policy.start
    for x in X:
        memory = policy.step(memory, detector.update_one(x))
        np.testing.assert_array_equal(detector.learned().memory, memory)
    assert memory[0] < policy.high


def test_scoring_does_not_move_the_policy():
    detector = Detector(n_hidden=8, forgetting=Adaptive())
    detector.learn_many(stream(50))
    before = detector.learned().memory
    detector.score_many(stream(50) * 9)
    detector.score_one(stream(1)[0] * 9)
    np.testing.assert_array_equal(detector.learned().memory, before)


def test_fit_starts_the_policy_anew():
    detector = Detector(n_hidden=8, forgetting=Adaptive())
    detector.learn_many(np.vstack([stream(50), stream(9) * 9]))
    detector.fit(stream(50))
    np.testing.assert_array_equal(detector.learned().memory, Adaptive().start)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Constant, {"a": 0.0}, "forgetting must be in (0, 1], got 0.0"),
        (Constant, {"a": "1"}, "forgetting must be in (0, 1], got '1'"),
        (Adaptive, {"high": 1.5}, "high must be in (0, 1], got 1.5"),
        (Adaptive, {"low": -1.0}, "low must be in (0, 1], got -1.0"),
        (Adaptive, {"low": 0.9, "high": 0.8}, "low must not be above high, got 0.9 > 0.8"),
        (Adaptive, {"recent": 0}, "need 1 <= recent < long, got 0 and 512"),
        (Adaptive, {"recent": 9, "long": 9}, "need 1 <= recent < long, got 9 and 9"),
        (OnDrift, {"high": 0}, "high must be in (0, 1], got 0"),
        (OnDrift, {"low": float("nan")}, "low must be in (0, 1], got nan"),
        (OnDrift, {"low": 0.9, "high": 0.8}, "low must not be above high, got 0.9 > 0.8"),
        (OnDrift, {"duration": 0}, "duration must be at least 1, got 0"),
        (OnDrift, {"slack": -0.1}, "need slack >= 0 and limit > 0, got -0.1 and 25.0"),
        (OnDrift, {"limit": 0}, "need slack >= 0 and limit > 0, got 0.25 and 0"),
    ],
)
def test_a_wrong_policy_is_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**arguments)
