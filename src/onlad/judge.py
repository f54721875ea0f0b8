"""`Judge`: rows in, scores out, one row after the other. The definition of the kernel's judge.

It holds what changes with each row: the value that each feature had last, the rows before, the
running means, the leans, and the mode that the machine is in. The modes themselves change only
between calls.

A row belongs to the mode in which the row by itself is least unusual. Running means and leans have
no part in that: they are left behind when the mode changes, so a small fault that lasts would be
hidden by changes to and fro. The mode of the row before is kept while its score is at most KEEP.

A machine that had several modes in its start changes between these at any row, so no window reaches
over such a change: until enough rows have followed, the row itself stands in for the rows before
it. Any other change is a jump that was not seen before. A missing value counts as the last one; if
it is missing for much longer than usual, as what the other features make of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onlad.mode import LEANING, SMALLEST_UNIT, SMOOTHING, STATISTICS, STILL, WINSOR, Mode
from onlad.reference import Array

KEEP = 0.5
FILLED = 5.0  # the largest scaled value of an estimate


class Moving(NamedTuple):
    """What a judge holds between two rows."""

    held: Array  # (n,) the last value of each feature, NaN before the first
    age: Array  # (n,) rows since then
    patience: Array  # (n,) rows for which a value is held
    past: Array  # (width - 1, n) the rows before, the newest first
    means: Array  # (4,) running means
    leans: Array  # (2, n) running means of errors
    mode: Array  # (1,) of the last row
    run: Array  # (1,) rows that the next window may hold, at most width - 1


def first(patience: Array, width: int) -> Moving:
    """Return what a judge holds before its first row."""
    n = len(patience)
    unknown = np.full(n, np.nan)
    past = np.full((width - 1, n), np.nan)
    means = np.zeros(STATISTICS)
    leans = np.zeros((2, n))
    none = np.zeros(1, "int64")
    return Moving(unknown, np.zeros(n), patience, past, means, leans, none, none)


class Judge:
    """Judges rows by the modes given, in NumPy."""

    def __init__(self, moving: Moving, modes: list[Mode], first_modes: int) -> None:
        self.moving, self.modes, self.first_modes = moving, modes, first_modes

    def rows(self, X: Array) -> tuple[Array, ...]:
        """Return score, mode, run, squares by feature, values held and expected, for rows `X`."""
        return tuple(np.array(column) for column in zip(*map(self._row, X), strict=True))

    def _row(self, x: Array) -> tuple[float, int, int, Array, Array, Array]:
        now, present = self.moving, ~np.isnan(x)
        known, age = np.where(present, x, now.held), np.where(present, 0.0, now.age + 1)
        for each in self.modes:
            wake(each, x)
        own = self.modes[int(now.mode[0])]
        old = ~present & (age > now.patience) & (own.scale > 0)
        if old.any():
            V = own.scaled(self._window(known, int(now.run[0])))
            made = np.clip(V[0, : len(x)] - own.errors(V)[1, 0], -FILLED, FILLED)
            known = np.where(old, own.centre + made * own.scale, known)
        best = (0.0, int(now.mode[0]), now.means, now.leans, np.zeros(len(x)))
        if present.any():
            best = self._best(known, present[None])
        own = self.modes[best[1]]
        run = self._run(best[1])
        expected = np.full(len(x), np.nan)
        if present.any():
            V = own.scaled(self._window(known, run))
            expected = own.centre + (V[0, : len(x)] - own.errors(V)[1, 0]) * own.scale
        past = np.vstack((known[None], now.past))[:-1] if len(now.past) else now.past
        next_run = np.array([min(run + 1, len(past))])
        mode = np.array([best[1]])
        self.moving = Moving(known, age, now.patience, past, best[2], best[3], mode, next_run)
        return best[0], best[1], run, best[4], known, expected

    def _run(self, mode: int) -> int:
        """Return how many rows before this one its window may hold if it is of this mode."""
        current = int(self.moving.mode[0])
        changes = mode != current and max(mode, current) < self.first_modes
        return 0 if changes else int(self.moving.run[0])

    def _window(self, known: Array, run: int) -> Array:
        """Return the window of a row that may hold `run` rows before it: all of them, or none."""
        past = self.moving.past
        if run < len(past):
            past = np.broadcast_to(known, past.shape)
        return np.concatenate((known, past.ravel()))[None]

    def _best(self, known: Array, present: Array) -> tuple[float, int, Array, Array, Array]:
        now, current = self.moving, int(self.moving.mode[0])
        order = [current, *(i for i in range(len(self.modes)) if i != current)]
        best: tuple[float, int, Array, Array, Array] | None = None
        least = np.inf  # score of the row by itself
        for i in order:
            mode, means = self.modes[i], now.means
            leans = now.leans if i == current else 0 * now.leans  # of errors of another mode
            window = self._window(known, self._run(i))
            standard, E = mode.standardised(window, present)
            alone = float(mode.score(standard)[0])
            if not alone < least:
                continue
            least, score = alone, alone
            if mode.ordered:
                means = means + SMOOTHING * (np.minimum(standard[:, 0], 1.0) - means)
                leans = leans + LEANING * (np.clip(E[:, 0], -WINSOR, WINSOR) - leans) * present
                score = float(mode.score(standard, means[:, None], leans[:, None])[0])
            best = (score, i, means, leans, (E[:, 0] ** 2).sum(axis=0))
            if score <= KEEP and i == current:
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
