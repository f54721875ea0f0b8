"""Events of a burn-in that come again and again are normal; others are not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from onlad import Monitor
from onlad.burnin import BURN_IN
from onlad.recurring import AS_LARGE, TIMES, recurring

ROWS, EVERY = 6_000, 300


def sawtooth(rows: int = ROWS) -> NDArray[np.float64]:
    """Return a level that rises and is emptied every EVERY rows, beside two other sensors."""
    rng = np.random.default_rng(3)
    level = 30 + 30 * (np.arange(rows) % EVERY) / EVERY
    load = np.zeros(rows)
    for t in range(1, rows):
        load[t] = 0.95 * load[t - 1] + rng.normal()
    X = np.column_stack([level, load, 2 * load + 5])
    return X + rng.normal(0, [0.2, 0.3, 0.3], X.shape)


def test_a_level_that_is_emptied_again_and_again_raises_no_alarm_after_the_burn_in() -> None:
    verdicts = Monitor().observe_many(sawtooth())
    assert not verdicts.is_anomaly[BURN_IN + 64 :].any()


def test_a_jump_of_another_size_still_alarms() -> None:
    X = sawtooth()
    X[5_150:5_153, 1] += 25.0  # of a sensor that never jumps
    assert Monitor().observe_many(X).is_anomaly[5_150:5_153].any()


def events(jumps: list[tuple[int, float]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return rows with jumps of one row each, by feature and size, and where they are."""
    X = np.random.default_rng(0).normal(size=(1_000, 3))
    at = 50 + 40 * np.arange(len(jumps))
    for row, (feature, size) in zip(at, jumps, strict=True):
        X[row, feature] += size
    refused = np.zeros(len(X), bool)
    refused[at] = True
    return X, refused


@pytest.mark.parametrize(
    ("jumps", "expected"),
    [
        ([(0, 40.0)] * TIMES, TIMES),
        ([(0, 40.0)] * (TIMES - 1), 0),
        ([(0, 40.0), (1, 40.0)] * (TIMES - 1), 0),
        ([(0, 40.0), (0, -40.0)] * (TIMES - 1), 0),
        ([(0, 40.0 * 2 * AS_LARGE**i) for i in range(2 * TIMES)], 0),
        ([(0, 40.0)] * TIMES + [(2, 40.0)], TIMES),
        ([], 0),
    ],
)
def test_events_recur_if_they_are_alike(jumps: list[tuple[int, float]], expected: int) -> None:
    X, refused = events(jumps)
    found = recurring(X, refused)
    assert np.count_nonzero(found) == expected
    assert not (found & ~refused).any()


def test_all_rows_of_an_event_go_with_its_first() -> None:
    X, refused = events([(0, 40.0)] * TIMES)
    for row in np.flatnonzero(refused):
        refused[row + 1 : row + 4] = True
    assert np.array_equal(recurring(X, refused), refused)


def test_missing_values_and_sensors_at_rest_are_no_jumps() -> None:
    X, refused = events([(0, 40.0)] * TIMES)
    X[:, 1], X[::7, 2] = 5.0, np.nan
    assert np.array_equal(recurring(X, refused), refused)
