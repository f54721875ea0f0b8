import numpy as np
import pytest

from onlad.mode import Mode, unit
from onlad.split import FEWEST, MOST, split
from plants import plant, smooth, white, windows


def groups(X, width=1):
    """Return the group of each row of `X`, as a start finds it."""
    mode = Mode(X.shape[1], width, True, 0)
    mode.centre, mode.scale = unit(X)
    return split(mode, windows(X, width), ~np.isnan(X))


def modes(sizes, seed=0):
    """Return rows of machines that relate their sensors otherwise, and the mode of each row."""
    rng = np.random.default_rng(seed)
    parts = []
    for i, size in enumerate(sizes):
        weights = np.random.default_rng(i).normal(size=6)
        load = rng.normal(size=(size, 1))
        parts.append(
            load * weights + 5 * i * (-1) ** np.arange(6) + 0.05 * rng.normal(size=(size, 6))
        )
    return np.vstack(parts), np.repeat(np.arange(len(sizes)), sizes)


def assert_same_grouping(found, truth):
    """Assert that two rows are in one group exactly if they are in one mode."""
    pairs = set(zip(found.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == len(np.unique(found)) == len(np.unique(truth))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [2, 3])
def test_modes_that_relate_their_sensors_otherwise_are_told_apart(count, seed):
    X, truth = modes([600] * count, seed)
    assert_same_grouping(groups(X), truth)


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_modes_that_overlap_go_to_the_mode_that_explains_them(seed):
    rng = np.random.default_rng(seed)
    truth = np.repeat(rng.permutation(np.arange(30) % 3), 100)
    loadings, level = rng.normal(0, 2, (3, 3, 8)), rng.normal(0, 6, (3, 8))
    factors = rng.normal(size=(3000, 1, 3))
    X = (factors @ loadings[truth])[:, 0] + level[truth] + rng.normal(size=(3000, 8))
    found = groups(X)
    own = [np.bincount(truth[found == i]).max() for i in np.unique(found)]
    assert len(own) == 3
    assert sum(own) > 0.99 * len(X)


def alternating(rows, every=100):
    return (np.arange(rows) // every) % 2


def test_modes_that_alternate_are_told_apart():
    rng = np.random.default_rng(0)
    truth = alternating(1600)
    load = rng.normal(size=1600)
    # In one mode the second sensor follows the first, in the other it goes against it.
    follower = np.where(truth == 0, load, 8 - load)
    X = np.column_stack([load, follower]) + 0.05 * rng.normal(size=(1600, 2))
    assert_same_grouping(groups(X), truth)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    "make", [lambda s: plant(2000, s)[0], lambda s: smooth(2000, 5, s), lambda s: white(2000, 5, s)]
)
def test_a_stream_of_one_mode_is_not_split(make, width, seed):
    assert (groups(make(seed), width) == 0).all()


def test_places_alone_are_no_modes():
    # Two levels that one relation explains: the third sensor is the sum of the others at both.
    rng = np.random.default_rng(0)
    level = 10.0 * alternating(2000)[:, None] + rng.normal(size=(2000, 2))
    X = np.column_stack([level, level.sum(axis=1)]) + 0.1 * rng.normal(size=(2000, 3))
    assert (groups(X) == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_switch_that_is_seldom_on_makes_no_mode(seed):
    rng = np.random.default_rng(seed)
    on = np.zeros((5000, 3))
    for j in range(3):
        for start in rng.integers(0, 4970, 3):
            on[start : start + 30, j] = 1.0
    analog = smooth(5000, 2, seed) + 4.0 * on.sum(axis=1, keepdims=True)
    assert (groups(np.hstack([on, analog]), 4) == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_modes_of_many_factors_are_told_apart(seed):
    rng = np.random.default_rng(seed)
    truth = np.repeat(rng.permutation(np.arange(12) % 3), 400)
    loadings, level = rng.normal(size=(3, 5, 12)), rng.normal(0, 9, (3, 12))
    factors = rng.normal(size=(4800, 5))
    signal = np.einsum("tf,tfs->ts", factors, loadings[truth]) + level[truth]
    assert_same_grouping(groups(signal + rng.normal(size=signal.shape)), truth)


def test_a_few_outliers_are_no_mode():
    X, truth = modes([1200, FEWEST // 4])
    assert (groups(X) == 0).all()
    assert truth.any()


def test_there_are_at_most_so_many_groups():
    X, _ = modes([400] * (MOST + 3))
    assert groups(X).max() < MOST


def test_too_few_rows_and_still_ones_are_not_split():
    assert (groups(modes([100, 100])[0]) == 0).all()
    assert (groups(np.full((2000, 3), 7.0)) == 0).all()
    assert (groups(np.full((2000, 3), np.nan)) == 0).all()


def test_missing_values_do_not_make_modes():
    X, truth = modes([800, 800])
    gone = np.random.default_rng(3).uniform(size=X.shape) < 0.1
    last = np.where(gone, np.nan, X)
    for t in range(1, len(X)):  # a monitor holds the last value
        last[t] = np.where(gone[t], last[t - 1], last[t])
    mode = Mode(6, 1, True, 0)
    mode.centre, mode.scale = unit(np.where(gone, np.nan, X))
    found = split(mode, last, ~gone)
    assert np.mean((found == found[0]) == (truth == truth[0])) > 0.98
