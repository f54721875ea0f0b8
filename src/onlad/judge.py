"""`Judge`: rows in, scores out, one row after the other. The definition of the kernel's judge.

It holds what moves on with each row: the value that each feature had last, the rows before, the
running means, the leans, and the mode that the machine is in. The modes themselves change only
between calls.

A row belongs to the mode in which it is least unusual; the mode of the row before is kept while its
score is at most KEEP. A missing value counts as the last one; if it is missing for much longer than
usual, as what the other features make of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onlad.mode import LEANING, SMALLEST_UNIT, SMOOTHING, STATISTICS, STILL, WINSOR, Mode
from onlad.reference import Array

KEEP = 0.5
FILLED = 5.0  # the largest scaled value that is made up


class Moving(NamedTuple):
    """What a judge holds between two rows."""

    held: Array  # (n,) the last value of each feature, NaN before the first
    age: Array  # (n,) rows since then
    patience: Array  # (n,) rows for which a value is held
    past: Array  # (width - 1, n) the rows before, the newest first
    means: Array  # (4,) running means
    leans: Array  # (2, n) running means of errors
    mode: Array  # (1,) of the last row


def first(patience: Array, width: int) -> Moving:
    """Return what a judge holds before its first row."""
    n = len(patience)
    unknown = np.full(n, np.nan)
    past = np.full((width - 1, n), np.nan)
    means = np.zeros(STATISTICS)
    leans = np.zeros((2, n))
    return Moving(unknown, np.zeros(n), patience, past, means, leans, np.zeros(1, "int64"))


class Judge:
    """Judges rows by the modes given, in NumPy."""

    def __init__(self, moving: Moving, modes: list[Mode]) -> None:
        self.moving, self.modes = moving, modes

    def rows(self, X: Array) -> tuple[Array, ...]:
        """Return score, mode, squares by feature, values held and expected for each row of `X`."""
        return tuple(np.array(column) for column in zip(*map(self._row, X), strict=True))

    def _row(self, x: Array) -> tuple[float, int, Array, Array, Array]:
        now, present = self.moving, ~np.isnan(x)
        known, age = np.where(present, x, now.held), np.where(present, 0.0, now.age + 1)
        for each in self.modes:
            wake(each, x)
        best = (0.0, int(now.mode[0]), now.means, now.leans, np.zeros(len(x)))
        if present.any():
            window = np.concatenate((known, now.past.ravel()))[None]
            best = self._best(window, present[None])
        own = self.modes[best[1]]
        expected = np.full(len(x), np.nan)
        if present.any():
            V = own.scaled(window)
            expected = own.centre + (V[0, : len(x)] - own.errors(V)[1, 0]) * own.scale
        old = ~present & (age > now.patience) & (own.scale > 0)
        if old.any():
            V = own.scaled(np.concatenate((known, now.past.ravel()))[None])
            made = np.clip(V[0, : len(x)] - own.errors(V)[1, 0], -FILLED, FILLED)
            known = np.where(old, own.centre + made * own.scale, known)
        past = np.vstack((known[None], now.past))[:-1] if len(now.past) else now.past
        self.moving = Moving(known, age, now.patience, past, best[2], best[3], np.array([best[1]]))
        return best[0], best[1], best[4], known, expected

    def _best(self, window: Array, present: Array) -> tuple[float, int, Array, Array, Array]:
        now, current = self.moving, int(self.moving.mode[0])
        order = [current, *(i for i in range(len(self.modes)) if i != current)]
        best: tuple[float, int, Array, Array, Array] | None = None
        for i in order:
            mode, means = self.modes[i], now.means
            leans = now.leans if i == current else 0 * now.leans  # of errors of another mode
            standard, E = mode.standardised(window, present)
            if mode.ordered:
                means = means + SMOOTHING * (np.minimum(standard[:, 0], 1.0) - means)
                leans = leans + LEANING * (np.clip(E[:, 0], -WINSOR, WINSOR) - leans) * present
                score = float(mode.score(standard, means[:, None], leans[:, None])[0])
            else:
                score = float(mode.score(standard)[0])
            if best is None or score < best[0]:
                best = (score, i, means, leans, (E[:, 0] ** 2).sum(axis=0))
            if best[0] <= KEEP and i == current:
                break
        assert best is not None
        return best


def wake(mode: Mode, x: Array) -> None:
    """Give features that never moved their unit, at their first move."""
    asleep = ~(mode.scale > 0) & ~np.isnan(x)
    if asleep.any():
        mode.centre = np.where(asleep & np.isnan(mode.centre), x, mode.centre)
        moved = np.abs(x - mode.centre)
        moves = asleep & (moved > STILL * np.abs(mode.centre) + SMALLEST_UNIT)
        mode.scale = np.where(moves, moved, mode.scale)
