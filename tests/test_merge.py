import re

import numpy as np
import pytest

from checks import stream
from onlad import reference
from onlad.detector import Detector, merge
from onlad.fields import values
from oracle import assert_near, assert_positive_definite, solve, tolerance

RIDGE = 0.1


def trained(X, fitted=False, **settings):
    detector = Detector(**{"n_hidden": 5, "ridge": RIDGE, "forgetting": 1.0} | settings)
    if fitted:
        return detector.fit(X)
    detector.learn_many(X)
    return detector


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fitted", [(False, False), (True, False), (True, True)])
def test_merge_is_seeing_both_streams(fitted, dtype):
    X, Y = stream(40).astype(dtype), stream(25, seed=5).astype(dtype)
    one, other = (trained(Z, f, dtype=dtype) for Z, f in zip((X, Y), fitted, strict=True))
    merged = merge(one, other)
    both = np.vstack([X, Y]).astype(float)
    beta, P, gram = solve(reference.hidden(merged.state, both), both, 1.0, RIDGE)
    assert_near(merged.state.beta, beta, tolerance(gram, dtype))
    assert_near(merged.state.P, P, tolerance(gram, dtype))
    assert_positive_definite(merged.state.P)
    assert merged.n_seen == 65


def test_merge_without_ridge_is_seeing_both_streams():
    X, Y = stream(40), stream(25, seed=5)
    merged = merge(trained(X, True, ridge=0), trained(Y, True, ridge=0))
    both = np.vstack([X, Y])
    beta, _, gram = solve(reference.hidden(merged.state, both), both)
    assert_near(merged.state.beta, beta, tolerance(gram))


def test_a_chain_of_merges_counts_the_ridge_once():
    parts = [stream(30, seed=seed) for seed in range(4)]
    merged = trained(parts[0])
    for part in parts[1:]:
        merged = merge(merged, trained(part))
    everything = np.vstack(parts)
    _, P, gram = solve(reference.hidden(merged.state, everything), everything, 1.0, RIDGE)
    assert_near(merged.state.P, P, tolerance(gram))
    assert merged.n_seen == 120


def test_with_forgetting_each_sample_keeps_its_weight():
    a, X, Y = 0.97, stream(40), stream(25, seed=5)
    merged = merge(trained(X, forgetting=a), trained(Y, forgetting=a))
    grams = [
        solve(reference.hidden(merged.state, Z), Z, a, ridge)[2]
        for Z, ridge in ((X, 0.0), (Y, RIDGE))  # the ridge of the stream that kept more of it
    ]
    gram = sum(grams)
    assert_near(merged.state.P, np.linalg.inv(gram), tolerance(gram))


def test_a_merged_detector_continues_as_the_one_that_saw_both():
    X, Y, Z = stream(40), stream(25, seed=5), stream(30, seed=6)
    merged, whole = merge(trained(X), trained(Y)), trained(np.vstack([X, Y]))
    expected = whole.update_many(Z)
    bound = tolerance(whole.state.P)
    assert_near(merged.update_many(Z), expected, bound)
    assert_near(merge(merged, trained(X)).state.P, merge(whole, trained(X)).state.P, bound)


def test_merge_changes_neither_and_takes_the_settings_of_the_first():
    one, other = trained(stream(40), loss="absolute"), trained(stream(25, seed=5))
    before = [detector.learned() for detector in (one, other)]
    assert merge(one, other).settings() == one.settings()
    for detector, then in zip((one, other), before, strict=True):
        np.testing.assert_equal(values(detector.learned()), values(then))


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"n_hidden": 6}, {"activation": "tanh"}, {"weights": "normal"}], ids=str
)
def test_merge_refuses_another_random_layer(other):
    one, two = trained(stream(20)), trained(stream(20), **other)
    message = (
        "only detectors with one random layer can be merged: equal features, n_hidden, "
        f"activation, weights and seed. Got {one!r} on 3 features and {two!r} on 3"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        merge(one, two)


def test_merge_refuses_another_number_of_features():
    with pytest.raises(ValueError, match=r"on 3 features and .* on 2"):
        merge(trained(stream(20)), trained(stream(20)[:, :2]))


def test_merge_refuses_a_detector_that_has_seen_nothing():
    for pair in [(trained(stream(9)), Detector()), (Detector(), trained(stream(9)))]:
        with pytest.raises(ValueError, match="a detector that has learned nothing"):
            merge(*pair)
