import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlad.fields import values
from onlad.mode import (
    CLIP,
    CORRELATED,
    FORGETTING,
    LEANING,
    MEMORY,
    SMOOTHING,
    WINSOR,
    Mode,
    leaning,
    packed,
    running,
    unit,
    unpacked,
)
from plants import smooth, white, windows

NAN = np.nan


def started(X, width=1, ordered=True, present=None):
    """Return a mode that learned the rows of `X`, and their scores."""
    mode = Mode(X.shape[1], width, ordered, 0)
    present = ~np.isnan(X) if present is None else present
    return mode, mode.start(windows(X, width), present)


def scores(mode, X, width=1):
    """Return the scores of rows, each by itself."""
    standard, _ = mode.standardised(windows(X, width), ~np.isnan(X))
    return mode.score(standard)


def assert_same(one, other):
    np.testing.assert_equal(values(one), values(other))


@pytest.mark.parametrize("width", [1, 4])
def test_a_score_of_one_is_twice_as_far_out_as_one_normal_row_in_a_thousand(width):
    mode, first = started(smooth(4000, 5), width)
    later = scores(mode, smooth(4000, 5, seed=1), width)
    # Half of the distance lies at the quantile 0.999, of new rows as of the start: 4 in 4,000 with
    # a deviation of 2. The score is a mean over four statistics, so fewer rows get that far.
    assert np.mean(later > 0.5) < 0.003
    assert np.mean(later > 0.2) > 0.0005
    assert (later >= 0).all()
    assert np.quantile(first, 0.5) < 0.3


def test_the_first_scores_come_from_a_model_that_did_not_see_the_row():
    # Few rows of many features: a model explains those it learned far better than others. Scores
    # of the start must be like those of new rows, not like those of learned ones.
    X = white(200, 20)
    mode, _ = started(X, ordered=False)
    errors = [mode.standardised(Y, np.ones(Y.shape, bool))[1][1] for Y in (X, white(200, 20, 1))]
    assert (errors[0] ** 2).mean() < 0.9 * (errors[1] ** 2).mean()
    assert np.median(scores(mode, white(200, 20, seed=1))) < 1


def test_the_score_grows_with_the_square_of_a_deviation_and_has_no_ceiling_before_the_clip():
    mode, _ = started(white(2000, 4), ordered=False)
    x = np.zeros((4, 4))
    x[:, 1] = [3, 6, 12, 15]
    found = scores(mode, x)
    ratio = found[1:] / found[:-1]
    # The linear error is the deviation itself; in the tanh units it saturates a little.
    assert (ratio > 0.6 * np.array([4, 4, 1.5625])).all()
    assert found[-1] > 10 * found[0]


def test_a_value_that_is_far_out_is_clipped_and_its_squares_are_finite():
    mode, _ = started(smooth(1000, 3))
    x = np.full((1, 3), 1e100)
    standard, errors = mode.standardised(x, np.ones((1, 3), bool))
    assert np.isfinite(errors**2).all()
    assert np.isfinite(standard).all()
    np.testing.assert_array_equal(np.abs(mode.scaled(x)), CLIP)


@pytest.mark.parametrize("scale", [1e-28, 1e-9, 1e9, 1e90])
def test_the_unit_of_a_feature_does_not_matter(scale):
    X, new = smooth(500, 3), smooth(200, 3, seed=1)
    plain, first = started(X)
    other, again = started(X * scale)
    # Scaled values differ by rounding; the errors, sums of them, by rounding times the condition.
    bound = 100 * np.finfo(float).eps * np.linalg.cond(plain.instances[1].gram[0])
    np.testing.assert_allclose(again, first, rtol=1e3 * bound, atol=1e3 * bound)
    found = scores(other, new * scale)
    np.testing.assert_allclose(found, scores(plain, new), rtol=1e3 * bound, atol=1e3 * bound)


def test_a_missing_value_adds_nothing_to_a_statistic():
    X = smooth(500, 4)
    mode, _ = started(X)
    row = smooth(1, 4, seed=5)
    row[0, 2] = 50.0
    hidden = np.array([[True, True, False, True]])
    _, errors = mode.standardised(row, hidden)
    assert (errors[:, 0, 2] == 0).all()
    mean = mode.statistics(errors**2, hidden.sum(axis=1))[:2, 0]
    np.testing.assert_allclose(mean, (errors[:, 0] ** 2).sum(axis=1) / 3)


def test_the_lean_is_the_running_mean_of_errors_and_keeps_its_value_where_one_is_missing():
    rng = np.random.default_rng(0)
    E, present = rng.uniform(-2, 2, (2, 50, 3)), rng.uniform(size=(50, 3)) < 0.7
    found = leaning(E, present)
    for k, j in np.ndindex(2, 3):
        known = E[k, present[:, j], j]
        weights = LEANING * (1 - LEANING) ** np.arange(len(known))[::-1]
        np.testing.assert_allclose(found[k, -1, j], weights @ known, rtol=1e-12)
    assert np.abs(leaning(E * 1e6, present)).max() <= WINSOR


def test_a_small_offset_that_lasts_is_seen_in_the_lean_alone():
    # One deviation of one sensor among four: no row is unusual, nor is their mean square.
    X = white(4000, 4)
    mode, first = started(X)
    later = white(200, 4, seed=1)
    later[:, 2] += 1.0
    standard, E = mode.standardised(windows(later, 1), np.ones(later.shape, bool))
    means, leans = running(standard, np.zeros(4)), leaning(E, np.ones(later.shape, bool))
    before = mode.score(standard, means, np.zeros_like(leans))[100:]
    assert np.median(mode.score(standard, means, leans)[100:]) > 2 * np.median(before)
    assert np.median(mode.score(standard, means, leans)[100:]) > np.quantile(first, 0.99)


def test_errors_that_follow_each_other_have_a_wide_lean():
    rng = np.random.default_rng(0)
    shocks = rng.normal(size=(4000, 3))
    slow = shocks.copy()
    for t in range(1, len(slow)):
        slow[t] += 0.95 * slow[t - 1]
    alone, follows = started(shocks)[0], started(slow)[0]
    floor = CORRELATED * LEANING / (2 - LEANING)
    np.testing.assert_allclose(alone.leaning, floor)
    assert (follows.leaning[0] > 4 * floor).all()  # the tanh units see no row before


def test_learning_forgets_as_the_paper_does():
    X = smooth(600, 3)
    mode, _ = started(X[:500])
    gram = [each.gram.copy() for each in mode.instances]
    mode.learn(X[500:], np.ones((100, 3), bool))
    V = mode.scaled(X[500:])
    for instance, before in zip(mode.instances, gram, strict=True):
        H = instance.hidden(V).reshape(len(V), len(before), -1).swapaxes(0, 1)
        added = H.swapaxes(1, 2) @ H
        # One product and one sum, in another order.
        np.testing.assert_allclose(
            instance.gram, before * FORGETTING**200 + added, rtol=1e-12, atol=1e-9
        )
    assert mode.count == 600


def test_the_weight_of_the_past_is_bounded_for_ever():
    mode, _ = started(smooth(300, 3))
    for seed in range(500):
        mode.learn(smooth(64, 3, seed), np.ones((64, 3), bool))
    # A geometric series: no more than 1 / (1 - a^2) rows, and those of the last group whole.
    assert mode.instances[1].gram[0, -1, -1] <= 1 / (1 - FORGETTING**2) + 64
    assert mode.weight == MEMORY
    assert mode.count == 300 + 500 * 64


@settings(max_examples=10)
@given(st.lists(st.integers(0, 300), max_size=4))
def test_usual_squares_are_means_whatever_the_groups(cuts):
    mode, _ = started(smooth(500, 3))
    E = white(300, 3, seed=4)[None].repeat(2, axis=0)
    present = white(300, 3, seed=5) > -1
    before = (mode.weight * mode.usual + (E**2 * present).sum(axis=1)) / (
        mode.weight + present.sum(axis=0)
    )
    whole, _ = started(smooth(500, 3))
    whole._take(E, present)
    np.testing.assert_allclose(whole.usual, before, rtol=1e-12)
    for part in np.split(np.arange(300), sorted(cuts)):
        mode._take(E[:, part], present[part])
    # A group weighs like its rows, also where some are missing: a missing value in a tenth of the
    # rows moves the mean by a share of that.
    np.testing.assert_allclose(mode.usual, whole.usual, rtol=0.2)


def test_an_accepted_row_scores_lower_and_moves_nothing_else():
    X = smooth(800, 4)
    mode, _ = started(X)
    odd = smooth(1, 4, seed=3)
    odd[0, 1] += 6.0
    before, usual = scores(mode, odd)[0], mode.usual.copy()
    mode.accept(odd, np.ones(odd.shape, bool))
    assert scores(mode, odd)[0] < before
    np.testing.assert_array_equal(mode.usual, usual)
    assert mode.count == 800


@pytest.mark.parametrize(("n", "width"), [(1, 4), (3, 1), (6, 4), (20, 3), (300, 1)])
def test_what_was_learned_makes_an_equal_mode(n, width):
    mode, _ = started(smooth(200, n), width)
    mode.learn(windows(smooth(64, n, seed=2), width), np.ones((64, n), bool))
    twin = Mode(n, width, True, 0).resume(mode.learned())
    assert_same(twin.learned(), mode.learned())
    for mine, theirs in zip(twin.instances, mode.instances, strict=True):
        np.testing.assert_array_equal(mine.beta, theirs.beta)
    new = smooth(50, n, seed=3)
    np.testing.assert_array_equal(scores(twin, new, width), scores(mode, new, width))
    twin.learn(windows(new, width), np.ones((50, n), bool))
    mode.learn(windows(new, width), np.ones((50, n), bool))
    assert_same(twin.learned(), mode.learned())


def test_what_is_given_away_is_a_copy():
    mode, _ = started(smooth(200, 3))
    learned = mode.learned()
    kept = copy.deepcopy(learned)
    twin = Mode(3, 1, True, 0).resume(learned)
    twin.learn(smooth(64, 3, seed=1) * 9, np.ones((64, 3), bool))
    assert_same(learned, kept)
    assert_same(mode.learned(), kept)


# -- units ---------------------------------------------------------------------------------


def test_a_unit_is_the_deviation_around_the_median():
    X = white(4000, 2) * [2.0, 1e-9] + [5.0, 1.0]
    centre, scale = unit(X)
    np.testing.assert_array_equal(centre, np.median(X, axis=0))
    # In 4,000 normal values the range is some 7 deviations: a quarter of it is more than one.
    assert (scale >= X.std(axis=0)).all()
    assert (scale < 2.5 * X.std(axis=0)).all()


def test_a_channel_that_is_seldom_on_is_not_blown_up():
    X = np.zeros((1000, 1))
    X[::200] = 8.0
    assert unit(X)[1] == 2.0  # a quarter of its range


@pytest.mark.parametrize("level", [0.0, 7.0, -7e8, 1e99, 1e-20])
def test_what_does_not_move_has_no_unit(level):
    X = np.full((100, 2), level)
    X[:, 1] = NAN
    centre, scale = unit(X)
    assert centre[0] == level
    assert np.isnan(centre[1])
    np.testing.assert_array_equal(scale, 0.0)
    mode, first = started(X)
    assert (first == 0).all()
    np.testing.assert_array_equal(mode.scaled(X), 0.0)


# -- helpers -------------------------------------------------------------------------------


def test_a_running_mean_weighs_the_newest_and_no_row_above_one():
    standard = white(300, 4).T
    standard[2, 100] = 1e6
    start = np.array([0.1, 0.2, 0.3, 0.4])
    found = running(standard, start)
    weight = SMOOTHING * (1 - SMOOTHING) ** np.arange(299, -1, -1)
    expected = np.minimum(standard, 1.0) @ weight + start * (1 - SMOOTHING) ** 300
    np.testing.assert_allclose(found[:, -1], expected, rtol=0, atol=1e-12)
    assert found.max() <= 1


@given(st.integers(1, 12), st.integers(1, 4))
def test_symmetric_matrices_are_packed_and_unpacked_to_the_bit(size, count):
    A = white(count * size, size).reshape(count, size, size)
    gram = A + A.swapaxes(1, 2)
    assert packed(gram).shape == (count, size * (size + 1) // 2)
    np.testing.assert_array_equal(unpacked(packed(gram)), gram)


def test_a_start_with_few_rows_has_wider_levels():
    reach = [
        np.mean([started(smooth(rows, 8, seed))[0].levels.mean_reach for seed in range(8)])
        for rows in (256, 2000)
    ]
    assert reach[0] > 1.1 * reach[1]
