"""The compiled `Judge` is the one of `onlad.judge`, row by row."""

import copy

import numpy as np
import pytest

from onlad import judge, kernel
from onlad.instance import WIDEST
from onlad.mode import STATISTICS, Mode
from plants import smooth, windows

NAN = np.nan
NAMES = ("score", "mode", "shares", "held", "refused", "present", "expected")


def made(X, width, ordered=True, seed=0):
    mode = Mode(X.shape[1], width, ordered, seed)
    mode.start(windows(X, width), ~np.isnan(X))
    return mode


def compiled(moving, modes):
    """Return the kernel's judge of these modes."""
    width, ordered = modes[0].width, modes[0].ordered
    held, age, patience, past, means, leans, mode = moving
    own = kernel.Judge(
        width, ordered, judge.constants(), held, age, patience, past, means, leans, int(mode[0])
    )
    for each in modes:
        tanh, linear = each.instances
        projection = linear.alpha[:, :-1] if linear.kind == "projected" else np.empty((0, 0))
        own.add(
            each.centre, each.scale, tanh.alpha, tanh.b, tanh.beta,
            np.ascontiguousarray(projection), linear.beta, each.inverse(), np.array(each.levels),
            1 / each.leaning,
        )  # fmt: skip
    return own


def judged(own, X, width, gate=1.0, block=None):
    """Return what a compiled judge says of the rows of `X`, given in blocks."""
    rows, n = X.shape
    score, mode = np.empty(rows), np.empty(rows, "int64")
    refused, present = np.empty(rows, bool), np.empty((rows, n), bool)
    held, shares = np.full((rows + width - 1, n), NAN), np.empty((rows, n))
    expected = np.empty((rows, n))
    own.attach(score, mode, refused, present, held, expected)
    for first in range(0, rows, block or rows):
        part = slice(first, first + (block or rows))
        own.rows(np.ascontiguousarray(X[part]), first, gate, shares[part])
    said = (score, mode, shares, held[width - 1 :], refused, present, expected)
    return dict(zip(NAMES, said, strict=True))


def defined(moving, modes, X):
    """Return what the definition says of the rows of `X`, and what it holds after them."""
    own = judge.Judge(moving, modes)
    names = ("score", "mode", "shares", "held", "expected")
    return dict(zip(names, own.rows(X), strict=True)), own.moving


def usual_gap(n):
    return np.full(n, 6.0)


def rough(rows, n, seed):
    """Return a stream with gaps, spikes, other modes, an outage, and a feature that moves late."""
    rng = np.random.default_rng(seed)
    X = smooth(rows, n, seed)
    X[rows // 4 : rows // 2] = 6 - 2 * X[rows // 4 : rows // 2, ::-1]
    X[rng.uniform(size=rows) < 0.03] *= 9
    X[rng.uniform(size=X.shape) < 0.05] = NAN
    X[rows // 8 : rows // 4, n // 2 :] = NAN  # far longer than a value is held
    X[rows // 2 : rows // 2 + 5] = NAN
    X[rows // 2 + 9, 0] = 1e100
    if n > 2:
        X[:, 1] = 5.0
        X[3 * rows // 4 :, 1] = 5.0 + rng.normal(size=rows - 3 * rows // 4)
        X[: rows // 3, 2] = NAN  # first seen late
    return X


def modes_of(n, width, count, ordered=True):
    """Return modes of streams whose sensors are related otherwise; feature 1 is still in each."""
    found = []
    for i in range(count):
        X = smooth(300, n, seed=40 + i)
        X = [X, 6 - 2 * X[:, ::-1], X * np.linspace(3, -3, n) + 20][i]
        if n > 2:
            X[:, 1], X[:, 2] = 5.0, NAN if i == 0 else X[:, 2]
        found.append(made(X, width, ordered))
    return found


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("n", "width", "ordered"),
    [
        (1, 1, False),
        (1, 4, True),
        (2, 1, True),
        (5, 4, True),
        (5, 1, False),
        (17, 3, True),
        (100, 3, True),
        (WIDEST + 4, 1, True),
    ],
)
def test_the_compiled_judge_is_the_definition(n, width, ordered, count):
    modes = modes_of(n, width, count, ordered)
    assert (modes[0].instances[1].kind == "projected") == (n * width > WIDEST)
    X = rough(240, n, seed=7)
    moving = judge.first(usual_gap(n), width)
    own = compiled(moving, modes)
    found = judged(own, X, width)
    expected, after = defined(moving, copy.deepcopy(modes), X)
    # Errors are sums of products of a scaled value, at most 20, and a coefficient: rounding of
    # each, times the number of terms. A square in units of the usual one carries it twice, and a
    # score is that over a reach of at least 0.05. Values made up for missing ones go into the rows
    # after them with a gain of the order of the coefficients.
    largest = max(np.abs(each.beta).sum(axis=0).max() for m in modes for each in m.instances)
    bound = 100 * np.finfo(float).eps * n * width * largest * 20
    assert bound < 1e-6
    np.testing.assert_array_equal(found["mode"], expected["mode"])
    for name in ("score", "shares"):
        np.testing.assert_allclose(
            found[name], expected[name], rtol=bound, atol=1e3 * bound, err_msg=name
        )
    np.testing.assert_allclose(found["held"], expected["held"], rtol=bound, atol=bound)
    np.testing.assert_allclose(
        found["expected"], expected["expected"], rtol=bound, atol=1e3 * bound, err_msg="expected"
    )
    np.testing.assert_array_equal(found["refused"], found["score"] > 1.0)
    np.testing.assert_array_equal(found["present"], ~np.isnan(X))
    held, age, patience, past, means, leans, current = own.moving()
    np.testing.assert_allclose(held, after.held, rtol=bound, atol=bound)
    np.testing.assert_array_equal(age, after.age)
    np.testing.assert_array_equal(patience, after.patience)
    np.testing.assert_allclose(past.reshape(width - 1, n), after.past, rtol=bound, atol=bound)
    np.testing.assert_allclose(means, after.means, rtol=bound, atol=1e3 * bound)
    np.testing.assert_allclose(leans.reshape(2, n), after.leans, rtol=bound, atol=1e3 * bound)
    assert current == after.mode[0]
    if count > 1 and n > 1:
        assert len(np.unique(found["mode"])) > 1  # it was all in the stream


@pytest.mark.parametrize("count", [1, 3])
def test_units_found_at_the_first_move_are_those_of_the_definition(count):
    modes = modes_of(5, 2, count)
    X = rough(240, 5, seed=7)
    moving = judge.first(usual_gap(5), 2)
    own, twins = compiled(moving, modes), copy.deepcopy(modes)
    judged(own, X, 2)
    assert modes[0].scale[1] == 0  # those given are not changed
    defined(moving, twins, X)
    for i, twin in enumerate(twins):
        centre, scale = own.unit(i)
        np.testing.assert_array_equal(centre, twin.centre)
        np.testing.assert_array_equal(scale, twin.scale)
        assert scale[1] > 0


@pytest.mark.parametrize("block", [1, 7, 64])
def test_blocks_of_any_size_are_the_same_to_the_last_bit(block):
    modes, X = modes_of(5, 3, 3), rough(240, 5, seed=8)
    moving = judge.first(usual_gap(5), 3)
    whole, parts = compiled(moving, modes), compiled(moving, modes)
    expected, found = judged(whole, X, 3), judged(parts, X, 3, block=block)
    for name in NAMES:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    for mine, theirs in zip(parts.moving(), whole.moving(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_judge_that_is_given_what_another_holds_goes_on_to_the_last_bit():
    modes, X = modes_of(5, 3, 2), rough(240, 5, seed=9)
    one = compiled(judge.first(usual_gap(5), 3), modes)
    judged(one, X[:100], 3)
    held, age, patience, past, means, leans, current = one.moving()
    moving = judge.Moving(
        held, age, patience, past.reshape(2, 5), means, leans.reshape(2, 5), np.array([current])
    )
    for i, mode in enumerate(modes):
        mode.centre, mode.scale = one.unit(i)
    other = compiled(moving, modes)
    expected, found = judged(one, X[100:], 3), judged(other, X[100:], 3)
    for name in NAMES:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


# -- what the definition says --------------------------------------------------------------


def say(modes, X, patience=6.0):
    n = X.shape[1]
    return defined(judge.first(np.full(n, patience), modes[0].width), copy.deepcopy(modes), X)


def test_a_missing_value_is_held_and_then_made_up_by_the_others():
    X = smooth(300, 4, seed=2)
    mode = made(smooth(600, 4), 1)
    truth = X[:, 1].copy()
    X[100:, 1] = NAN
    said, _ = say([mode], X)
    np.testing.assert_array_equal(said["held"][100:106, 1], truth[99])
    made_up = said["held"][106:, 1]
    # The others know the common cause: the rest is the noise, of 0.2, of a sensor of about 1.
    assert np.std(made_up - truth[106:]) < 0.35 < np.std(truth[99] - truth[106:])
    np.testing.assert_array_equal(said["shares"][100:, 1], 0.0)


def test_a_row_with_no_value_scores_nothing_and_moves_nothing():
    mode, X = made(smooth(600, 4), 1), smooth(100, 4, seed=2)
    X[50] = NAN
    said, _ = say([mode], X)
    assert said["score"][50] == 0
    assert (said["shares"][50] == 0).all()
    gone = say([mode], np.delete(X, 50, axis=0))[0]["score"]
    np.testing.assert_array_equal(np.delete(said["score"], 50), gone)


def test_a_row_belongs_to_the_mode_in_which_it_is_least_unusual():
    modes = modes_of(6, 1, 3)
    X = np.full((60, 6), 5.0)
    moves = [0, 3, 4, 5]
    for i, part in enumerate(np.split(np.arange(60), 3)):
        Y = smooth(300, 6, seed=40 + i)[:20]
        Y = [Y, 6 - 2 * Y[:, ::-1], Y * np.linspace(3, -3, 6) + 20][i]
        X[np.ix_(part, moves)] = Y[:, moves]
        X[part, 2] = NAN
    said, _ = say(modes, X)
    # A running mean takes some rows to come down after the step.
    for i, part in enumerate(np.split(said["mode"], 3)):
        assert np.mean(part == i) > 0.8


def test_the_first_move_of_a_still_feature_is_one_unit():
    mode = modes_of(5, 1, 1)[0]
    x = np.array([0.0, 5.0, NAN, 0.0, 0.0])
    judge.wake(mode, x)
    assert mode.scale[1] == 0
    judge.wake(mode, x + 0.25)
    assert mode.scale[1] == 0.25
    assert mode.scaled(np.array([[0, 5.25, 0, 0, 0]]))[0, 1] == 1.0
    judge.wake(mode, x + 3)  # and it stays
    assert mode.scale[1] == 0.25
    np.testing.assert_array_equal(mode.scale[[0, 3, 4]] > 0, True)


def test_a_feature_that_was_never_seen_has_its_first_value_for_centre():
    mode = modes_of(5, 1, 1)[0]
    assert np.isnan(mode.centre[2])
    judge.wake(mode, np.array([0.0, 5.0, 40.0, 0.0, 0.0]))
    assert (mode.centre[2], mode.scale[2]) == (40.0, 0.0)
    judge.wake(mode, np.array([0.0, 5.0, 42.0, 0.0, 0.0]))
    assert (mode.centre[2], mode.scale[2]) == (40.0, 2.0)


# -- the binding ---------------------------------------------------------------------------


def test_arrays_that_do_not_fit_are_refused():
    modes = modes_of(3, 2, 1)
    moving = judge.first(usual_gap(3), 2)
    own = compiled(moving, modes)
    refusal = pytest.raises(ValueError, match="the arrays do not fit the judge")
    X = smooth(10, 3)
    with refusal:  # nothing is attached
        own.rows(X, 0, 1.0, np.empty((10, 3)))
    judged(own, X, 2)
    for wrong in (X[:, :2].copy(), X):
        with refusal:
            own.rows(wrong, 0 if wrong is not X else 5, 1.0, np.empty((10, 3)))
    with refusal:
        own.rows(X, 0, 1.0, np.empty((10, 2)))
    with refusal:
        own.unit(1)
    with refusal:
        compiled(moving._replace(past=np.empty((2, 3))), modes)
    with refusal:
        compiled(moving._replace(means=np.zeros(STATISTICS + 1)), modes)
    with refusal:
        compiled(moving, modes_of(4, 2, 1))
    own.clear()
    with refusal:  # no mode to judge by
        own.rows(X, 0, 1.0, np.empty((10, 3)))
    with pytest.raises(TypeError):  # a converted output would be lost
        compiled(moving, modes).rows(X, 0, 1.0, np.empty((10, 3), "float32"))
