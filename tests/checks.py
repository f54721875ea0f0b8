"""The contract that every detector passes, in software, in fixed point or behind an adapter.

Each check takes a factory of equal, fresh detectors for samples of three features in [0, 1]. A
test module runs them all on its own factories::

    @pytest.mark.parametrize("check", CHECKS)
    def test_contract(check):
        check(lambda: Detector(n_hidden=8))
"""

import numpy as np
import pytest

from oracle import tolerance

N_FEATURES = 3


def stream(rows, seed=0):
    """Return samples of three sensors of which the third follows the other two."""
    X = np.random.default_rng(seed).uniform(0, 1, (rows, N_FEATURES))
    X[:, 2] = (X[:, 0] + X[:, 1]) / 2
    return X


def assert_same_state(one, other):
    """Assert that two detectors have learned the same to the last bit."""
    for mine, theirs in zip(one.state, other.state, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def rounding(detector):
    """Return the tolerance of two ways to compute one model, at the detector's own precision."""
    return tolerance(detector.state.P, detector.state.beta.dtype)


def it_works_from_the_first_sample(make):
    detector, x = make(), stream(1)[0]
    first = detector.update_one(x)
    assert 0 <= detector.score_one(x) < first < np.inf


def scoring_does_not_learn(make):
    detector, X = make(), stream(40)
    untouched = make().score_one(X[0])
    assert detector.score_one(X[0]) == detector.score_one(X[0]) == untouched
    detector.learn_many(X)
    before = [np.array(array) for array in detector.state]
    assert detector.score_one(X[0]) == detector.score_one(X[0])
    detector.score_many(X)
    for now, then in zip(detector.state, before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert detector.n_seen == len(X)


def update_one_is_score_one_then_learn_one(make):
    one, other = make(), make()
    for x in stream(60):
        expected = one.score_one(x)
        one.learn_one(x)
        # The first is a sum in one order, the second in another: rounding, not the last bit.
        assert other.update_one(x) == pytest.approx(expected, rel=rounding(one), abs=1e-30)
    assert_same_state(one, other)


def many_is_the_loop(make):
    one, many, X = make(), make(), stream(150)
    expected = np.array([one.update_one(x) for x in X])
    found = np.concatenate([many.update_many(X[:1]), many.update_many(X[1:])])
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding(one) * expected.max())
    for mine, theirs in zip(many.state, one.state, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=rounding(one) * abs(theirs).max())
    assert many.n_seen == one.n_seen == len(X)


def score_many_is_the_loop(make):
    detector, X = make(), stream(50)
    detector.learn_many(X)
    expected = [detector.score_one(x) for x in X]
    np.testing.assert_allclose(detector.score_many(X), expected, rtol=rounding(detector))


def learning_many_is_updating_many(make):
    one, other, X = make(), make(), stream(50)
    assert one.learn_many(X) is None
    assert one.learn_one(X[0]) is None
    other.update_many(X)
    other.update_one(X[0])
    assert_same_state(one, other)


def equal_detectors_do_the_same_to_the_last_bit(make):
    one, other, X = make(), make(), stream(80)
    np.testing.assert_array_equal(one.update_many(X), other.update_many(X))
    assert_same_state(one, other)


def what_was_learned_scores_low_and_what_was_not_scores_high(make):
    detector = make()
    detector.learn_many(stream(300))
    strange = stream(50, seed=1)
    strange[:, 2] += 0.7
    usual = detector.score_many(stream(50, seed=2))
    assert np.median(detector.score_many(strange)) > 10 * np.median(usual)


def it_counts_what_it_learned(make):
    detector, X = make(), stream(30)
    assert (detector.n_seen, detector.n_features) == (0, None)
    detector.score_one(X[0])
    detector.score_many(X)
    assert (detector.n_seen, detector.n_features) == (0, None)
    detector.fit(X)
    detector.update_many(X[:7])
    detector.learn_one(X[0])
    detector.update_one(X[0])
    assert (detector.n_seen, detector.n_features) == (39, N_FEATURES)
    assert (detector.n_skipped, detector.n_paused) == (0, 0)


def its_state_is_read_only(make):
    detector = make()
    detector.learn_many(stream(20))
    for array in detector.state:
        with pytest.raises(ValueError, match="read-only"):
            array[(0,) * array.ndim] = 1.0


def P_is_exactly_symmetric(make):
    detector = make()
    detector.learn_many(stream(3000))
    P = detector.state.P
    np.testing.assert_array_equal(P, P.T)


def fit_starts_anew(make):
    one, other, X = make(), make(), stream(100)
    one.learn_many(stream(50, seed=3) * 9)
    assert one.fit(X) is one
    assert_same_state(one, other.fit(X))
    assert one.n_seen == len(X)
    np.testing.assert_array_equal(one.update_many(X), other.update_many(X))


def splitting_a_stream_in_two_changes_nothing(make):
    whole, halves, X = make(), make(), stream(100)
    expected = whole.update_many(X)
    found = np.concatenate([halves.update_many(X[:37]), halves.update_many(X[37:])])
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding(whole) * expected.max())


CHECKS = [
    it_works_from_the_first_sample,
    scoring_does_not_learn,
    update_one_is_score_one_then_learn_one,
    many_is_the_loop,
    score_many_is_the_loop,
    learning_many_is_updating_many,
    equal_detectors_do_the_same_to_the_last_bit,
    what_was_learned_scores_low_and_what_was_not_scores_high,
    it_counts_what_it_learned,
    its_state_is_read_only,
    P_is_exactly_symmetric,
    fit_starts_anew,
    splitting_a_stream_in_two_changes_nothing,
]
