import re

import numpy as np
import pytest
from experiments.scaler import Standard, scale
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NAN = np.nan

values = st.one_of(st.floats(-1e100, 1e100), st.just(NAN), st.sampled_from([0.0, 1e100, -1e100]))
rows = hnp.arrays("float64", st.tuples(st.integers(1, 6), st.just(3)), elements=values)


def noise(count, n=3, seed=0):
    return np.random.default_rng(seed).normal(
        [0.0, 5.0, -300.0][:n], [1.0, 0.1, 40.0][:n], (count, n)
    )


def scaled(policy, memory, X):
    return scale(X, policy.unit(memory), policy.clip)


def gone_through(policy, parts):
    memory = policy.start(parts[0])
    for part in parts[1:]:
        memory = policy.update(memory, part)
    return memory


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 5))
def test_standard_in_any_split_is_mean_and_variance_of_all(sizes, gaps):
    X = noise(sum(sizes))
    X[np.random.default_rng(gaps).uniform(0, 1, X.shape) < 0.1 * gaps] = NAN
    X[0] = [0.0, 5.0, -300.0]  # a first row without gaps; then nothing lies out of reach
    if sizes[0] == 1:
        sizes[0] = min(2, len(X))  # one row has no deviation of its own
        sizes[-1] -= len(sizes) > 1
    memory = gone_through(Standard(clip=1e6), np.split(X, np.cumsum(sizes)[:-1]))
    count = (~np.isnan(X)).sum(axis=0)
    np.testing.assert_array_equal(memory[0], count)
    # A mean or a variance of a few hundred numbers: rounding of each, and of their squares.
    bound = 1000 * np.finfo(float).eps
    np.testing.assert_allclose(memory[1], np.nanmean(X, axis=0), rtol=bound, atol=bound)
    np.testing.assert_allclose(memory[2], np.nanvar(X, axis=0), rtol=bound, atol=bound * 1e4)


def by_the_book(policy, memory, X):
    """Return what `Standard.update` says, column by column, in the plainest words."""
    after = memory.copy()
    for j in range(X.shape[1]):
        count, mean, variance = memory[:, j]
        deviation = np.sqrt(variance)
        moved = variance > 0
        known = X[~np.isnan(X[:, j]), j]
        total = min(count + len(known), policy.memory)
        after[0, j] = total
        if len(known) == 0:
            continue
        far = policy.clip * deviation if moved else np.inf
        near = np.clip(known, mean - far, mean + far)
        weight = min(len(known) / total, 1.0)
        shift = near.mean() - mean
        after[1, j] = mean + weight * shift
        after[2, j] = (1 - weight) * (variance + weight * shift**2) + weight * near.var()
    return after


@pytest.mark.parametrize("rows", [1, 5, 8, 32])
@pytest.mark.parametrize("policy", [Standard(), Standard(memory=40, clip=2.0)])
def test_an_update_goes_by_the_book(policy, rows):
    rng = np.random.default_rng(rows)
    memory = policy.start(noise(32, 3))
    for turn in range(60):
        X = noise(rows, 3, seed=turn)
        X[rng.uniform(size=X.shape) < 0.1] = NAN
        X[rng.uniform(size=X.shape) < 0.05] *= 1000
        if turn % 11 == 5:
            X[:, 2] = NAN
        expected = by_the_book(policy, memory, X)
        memory = policy.update(memory, X)
        np.testing.assert_allclose(memory, expected, rtol=1e-12)


def test_standard_remembers_no_more_rows_than_its_memory():
    policy = Standard(memory=100)
    memory = policy.start(noise(100))
    for seed in range(200):
        memory = policy.update(memory, noise(10, seed=seed) + 3)
    assert (memory[0] == 100).all()
    # each update keeps 90 % of the past: of the start, nothing is left
    np.testing.assert_allclose(memory[1], [3, 8, -297], atol=1.0, rtol=0.05)


def test_a_block_larger_than_the_memory_replaces_it():
    policy = Standard(memory=10)
    X = noise(50) + 7
    memory = policy.update(policy.start(noise(5)), X)
    reached = np.clip(
        X, *(policy.start(noise(5))[1] + s * policy.clip * noise(5).std(axis=0) for s in (-1, 1))
    )
    np.testing.assert_allclose(memory[1], reached.mean(axis=0), rtol=1e-12)


@settings(max_examples=200)
@given(st.lists(rows, min_size=1, max_size=4), rows)
@example([np.full((3, 3), NAN)], np.full((1, 3), 1e100))
@example([np.zeros((3, 3)), np.full((3, 3), 1e-300)], np.zeros((1, 3)))
@example([np.array([[1e100] * 3, [-1e100] * 3])] * 3, np.array([[1e100, -1e100, NAN]]))
@example([np.full((2, 3), 5.0), np.full((2, 3), 1e100), np.full((2, 3), -1e100)], np.ones((1, 3)))
def test_no_finite_input_makes_anything_else_than_finite(parts, X):
    policy = Standard()
    memory = gone_through(policy, parts)
    assert np.isfinite(memory).all()
    Z = scaled(policy, memory, X)
    np.testing.assert_array_equal(np.isnan(Z), np.isnan(X))
    assert (np.abs(Z[~np.isnan(Z)]) <= policy.clip).all()


def test_a_missing_value_is_not_learned():
    policy = Standard()
    X = noise(50)
    memory = policy.start(X)
    gap = np.array([[NAN, 5.0, NAN]])
    after = policy.update(memory, gap)
    np.testing.assert_array_equal(after[:, [0, 2]], memory[:, [0, 2]])
    np.testing.assert_array_equal(policy.update(memory, np.full((4, 3), NAN)), memory)
    Z = scaled(policy, memory, gap)
    np.testing.assert_array_equal(np.isnan(Z), np.isnan(gap))


def test_a_feature_that_was_never_there_starts_when_it_comes():
    policy = Standard()
    memory = policy.start(np.column_stack([np.full(32, NAN), noise(32)[:, 0]]))
    X = np.column_stack([np.linspace(400, 410, 100), noise(100)[:, 1]])
    for part in np.split(X, 5):
        memory = policy.update(memory, part)
    Z = scaled(policy, memory, X)
    assert np.isfinite(Z).all()


def test_standard_starts_a_late_feature_with_its_own_mean_and_deviation():
    policy = Standard()
    late = np.array([[400.0], [402.0], [404.0]])
    memory = policy.update(policy.start(np.full((32, 1), NAN)), late)
    np.testing.assert_allclose(memory[:, 0], [3, 402.0, np.var(late)], rtol=1e-14)


@pytest.mark.parametrize("level", [0.0, 1.0, -7e8, 1e-20, 1e99])
def test_a_constant_feature_is_zero_and_a_step_from_it_is_seen(level):
    policy = Standard()
    memory = gone_through(policy, [np.full((32, 1), level)] * 10)
    np.testing.assert_allclose(scaled(policy, memory, np.array([[level]])), 0.0, atol=1e-6)
    step = scaled(policy, memory, np.array([[level + 0.001 * abs(level) + 0.001]]))
    assert step == policy.clip


def test_scaled_rows_have_mean_zero_and_deviation_one():
    X = noise(500)
    Z = scaled(Standard(), Standard().start(X), X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), 1, rtol=1e-12)


@pytest.mark.parametrize("clip", [1.0, 8.0, 20.0])
def test_what_lies_far_out_is_clipped(clip):
    policy = Standard(clip=clip)
    memory = policy.start(noise(100))
    wild = np.array([[1e100, -1e100, NAN]])
    np.testing.assert_array_equal(scaled(policy, memory, wild), [[clip, -clip, NAN]])


@pytest.mark.parametrize("wild", [1e6, -1e6, 1e100, -1e100])
def test_one_wild_row_cannot_move_a_standard_that_has_moved(wild):
    policy = Standard()
    memory = policy.start(noise(1000))
    after = policy.update(memory, np.full((1, 3), wild))
    # The row counts as one at clip = 20 deviations: the mean moves by 20 / 1001 deviations at most,
    # and the variance grows by 20^2 / 1001 of itself at most.
    deviation = np.sqrt(memory[2])
    assert (np.abs(after[1] - memory[1]) <= policy.clip / 1001 * deviation * (1 + 1e-9)).all()
    assert (after[2] <= (1 + policy.clip**2 / 1001) * memory[2]).all()


def test_the_memory_that_is_given_is_not_changed():
    policy = Standard()
    memory = policy.start(noise(50))
    copy = memory.copy()
    X = noise(5, seed=1) * 3
    policy.update(memory, X)
    scaled(policy, memory, X)
    np.testing.assert_array_equal(memory, copy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Standard(memory=0), "memory must be at least 1 row, got 0"),
        (lambda: Standard(memory=NAN), "memory must be at least 1 row, got nan"),
        (lambda: Standard(clip=0), "clip must be finite and above 0, got 0"),
        (lambda: Standard(clip=-1.0), "clip must be finite and above 0, got -1.0"),
        (lambda: Standard(clip=np.inf), "clip must be finite and above 0, got inf"),
    ],
)
def test_a_wrong_setting_is_refused(make, message):
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        make()
