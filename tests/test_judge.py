"""What `onlad.judge` says of a row; the kernel is compared with it in test_compiled.py."""

import copy

import numpy as np

from onlad import judge
from onlad.mode import Mode
from plants import smooth, windows

NAN = np.nan


def made(X, width, ordered=True, seed=0):
    mode = Mode(X.shape[1], width, ordered, seed)
    mode.start(windows(X, width), ~np.isnan(X))
    return mode


def defined(moving, modes, X, first_modes):
    """Return what the definition says of the rows of `X`, and what it holds after them."""
    own = judge.Judge(moving, modes, first_modes)
    names = ("score", "mode", "run", "shares", "held", "expected")
    return dict(zip(names, own.rows(X), strict=True)), own.moving


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


# -- what the definition says --------------------------------------------------------------


def say(modes, X, patience=6.0, first_modes=0):
    moving = judge.first(np.full(X.shape[1], patience), modes[0].width)
    return defined(moving, copy.deepcopy(modes), X, first_modes)


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


def test_a_small_fault_that_lasts_is_not_hidden_by_changes_of_the_mode():
    rng = np.random.default_rng(0)

    def machine(rows, noise):
        cause = rng.normal(size=(rows, 1))
        return np.hstack((cause, cause, cause)) + noise * rng.normal(size=(rows, 3))

    # The second mode is of the same machine with more noise: in it a fault is less unusual.
    modes = [made(machine(600, 0.2), 1), made(machine(600, 0.35), 1)]
    X = machine(300, 0.2)
    X[100:, 0] += 0.5
    of_one, of_both = (say(some, X)[0] for some in (modes[:1], modes))
    kept = of_both["score"][140:] / of_one["score"][140:]
    assert np.median(kept) > 0.5


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


def test_no_window_reaches_over_a_change_between_modes_of_the_start():
    modes, still = modes_of(4, 4, 2), 5.0
    X = np.full((80, 4), still)
    for i, part in enumerate(np.split(np.arange(80), 2)):
        Y = smooth(300, 4, seed=40 + i)[:40]
        X[np.ix_(part, [0, 3])] = [Y, 6 - 2 * Y[:, ::-1]][i][:, [0, 3]]
        X[part, 2] = NAN
    reached, _ = say(modes, X, first_modes=0)
    stopped, _ = say(modes, X, first_modes=2)
    np.testing.assert_array_equal(stopped["mode"][40:], 1)
    np.testing.assert_array_equal(stopped["run"][38:45], [3, 3, 0, 1, 2, 3, 3])
    np.testing.assert_array_equal(reached["run"][4:], 3)
    assert stopped["score"][40:43].max() < 1 < reached["score"][40:43].max()
    # The rows before stand in for nothing else: without a change nothing differs.
    np.testing.assert_array_equal(stopped["score"][:40], reached["score"][:40])


def test_a_value_made_up_does_not_count_against_the_others():
    # The common cause is new in each row, so a value estimated in the row before would be wrong.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 1)) + 0.1 * rng.normal(size=(1200, 4))
    mode, X = made(X[:600], 1), X[600:]
    X[100:, 1] = NAN
    score = say([mode], X)[0]["score"]
    held, made_up = score[100:106].mean(), score[110:].mean()
    assert made_up < 0.1 * held


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
