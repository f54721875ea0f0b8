"""`Watching`: what a monitor does after its start, row by row and tick by tick.

Each row is judged at once. Every TICK rows the rest happens: the limit moves on, and the rows of
the tick before are learned, late enough to see what followed them. A row is learned if it was
usual and fewer than a tenth of the rows after it were refused. So a fault that begins slowly is
refused before its first rows are learned. What is refused for long goes into quarantine. There a
new mode has to explain rows that it did not learn before it is confirmed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onlad import judge, kernel
from onlad.anchor import MEASURED, SETTLED, Anchor
from onlad.limit import Limit
from onlad.mode import Mode, unit
from onlad.reference import Array
from onlad.split import split

TICK = 64
REFUSED = 0.5  # rows above this share of the limit, or of 1 if the limit is lower, are not learned
YOUNG = (
    256  # rows learned at which as much again is learned: a young model knows too little to refuse
)
SHELVED = 1.5  # an alarm that has lasted comes back when a score is so much above the last tick's
SPARED = 0.1  # share of the next rows that may be refused
MODES = 4  # at most; the one that learned least is dropped
CANDIDATE = 256  # refused rows from which a new mode is made
EXPIRING = 4  # of them leave the quarantine, the oldest first, in a tick with none to add
PATIENCE, SHORTEST, LONGEST = 0.5, 256, 4_096  # rows that it must explain, by the rows learned
FOREIGN = 0.25  # share of refused rows that it may fail to explain
ORDERED = 0.25  # least rank autocorrelation of a stream, at lags 1 and 2
WIDEST, LONGEST_WINDOW = 64, 4  # inputs, and rows, that are looked at together
HELD = 4.0  # a missing value is held for so many times its usual gap
HISTORY = 32_768  # rows of a history that are learned; of a longer one, blocks from all of it


def default_window(n_features: int) -> int:
    """Return how many rows are looked at together in a stream with an order.

    Examples
    --------
    >>> [default_window(n) for n in (1, 8, 16, 32, 64, 1000)]
    [4, 4, 4, 2, 1, 1]
    """
    return max(1, min(LONGEST_WINDOW, WIDEST // n_features))


def is_ordered(rows: Array) -> bool:
    """Return whether each row tells something about the next; records in any order do not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> walk = rng.normal(size=(200, 2)).cumsum(axis=0)
    >>> is_ordered(walk), is_ordered(rng.permutation(walk))
    (True, False)
    """
    rows = rows[:1024]
    known = ~np.isnan(rows)
    median = np.nanmedian(np.where(known.any(axis=0), rows, 0.0), axis=0)
    filled = np.where(known, rows, median)
    ranks = np.argsort(np.argsort(filled, axis=0, kind="stable"), axis=0).astype(float)
    # Equal values share their mean rank, or a channel that hardly moves would look ordered.
    for j in range(rows.shape[1]):
        _, place, count = np.unique(filled[:, j], return_inverse=True, return_counts=True)
        ranks[:, j] = (np.bincount(place, ranks[:, j]) / count)[place]
    ranks -= ranks.mean(axis=0)
    power = (ranks * ranks).sum(axis=0)
    moving = power > 0
    if not moving.any():
        return True
    lags = [(ranks[lag:] * ranks[:-lag]).sum(axis=0)[moving] / power[moving] for lag in (1, 2)]
    return bool(np.max(lags) >= ORDERED)


class Watching:
    """A started monitor. `start` makes one of the first rows, `rows` goes on."""

    def __init__(self, features: int, width: int, ordered: bool, rate: float, seed: int) -> None:
        self.features, self.width, self.ordered = features, width, ordered
        self.seed = seed
        self.modes: list[Mode] = []
        self.anchors: list[Anchor | None] = []
        self.limit = Limit(rate, np.zeros(1))
        self.begun = 0  # rows of the start
        self.candidate: Mode | None = None
        self.explained = self.foreign = 0  # refused rows since there is a candidate
        self.quarantine: Array = np.empty((0, features * width))  # raw windows
        self.drifting = -1
        # Of the tick before and of this one: values held (with those before), and what was said.
        self.held: Array = np.full((width - 1 + 2 * TICK, features), np.nan)
        self.present: Array = np.zeros((2 * TICK, features), bool)
        self.score: Array = np.zeros(2 * TICK)
        self.mode: Array = np.zeros(2 * TICK, "int64")
        self.refused: Array = np.zeros(2 * TICK, bool)
        self.open: Array = np.zeros(2 * TICK, bool)  # may be learned: judged while not paused
        self.at = 0  # rows of this tick
        self._judge: Any = None
        self._now = np.inf

    @classmethod
    def start(cls, X: Array, window: int | None, rate: float, seed: int) -> Watching:
        """Return what watches on after the rows of `X`, which are learned."""
        if len(X) > HISTORY:
            first = np.linspace(0, len(X) - TICK, HISTORY // TICK).astype(int)
            X = X[(first[:, None] + np.arange(TICK)).ravel()]
        rows, n = X.shape
        present = ~np.isnan(X)
        last = np.maximum.accumulate(np.where(present, np.arange(rows)[:, None], -1), axis=0)
        held = np.where(last >= 0, np.take_along_axis(X, np.maximum(last, 0), axis=0), np.nan)
        ordered = is_ordered(held)
        width = window or (default_window(n) if ordered else 1)
        self = cls(n, width, ordered, rate, seed)
        padded = np.concatenate((np.repeat(held[:1], width - 1, axis=0), held))
        windows = self._windows(padded, np.arange(rows))
        first_mode = Mode(n, width, ordered, seed)
        first_mode.centre, first_mode.scale = unit(X)
        group = split(first_mode, windows, present) if ordered else np.zeros(rows, int)
        scores = np.zeros(rows)
        for i in range(int(group.max()) + 1):
            own = np.flatnonzero(group == i)
            mode = Mode(n, width, ordered, seed)
            scores[own] = mode.start(windows[own], present[own])
            self._add(mode, windows[own], present[own])
        self.begun = rows
        self.limit = Limit(rate, scores)
        usual_gap = rows / np.maximum(present.sum(axis=0), 1)
        moving = judge.Moving(
            held[-1].copy(),
            (rows - 1 - last[-1]).astype(float),
            HELD * usual_gap,
            padded[::-1][: width - 1].copy(),
            np.zeros(len(first_mode.levels.median)),
            np.array([group[-1]]),
        )
        self.held[TICK : TICK + width - 1] = padded[len(padded) - (width - 1) :]
        self._meet(moving)
        return self

    def _add(self, mode: Mode, windows: Array, present: Array) -> None:
        self.modes.append(mode)
        anchor = None
        if self.ordered and len(windows) >= SETTLED:
            anchor = Anchor(mode)
            for first in range(0, len(windows), TICK):
                part = slice(first, first + TICK)
                anchor.follow(mode, windows[part], len(windows))
            anchor.rows = MEASURED
        self.anchors.append(anchor)

    def _meet(self, moving: judge.Moving) -> None:
        """Give a judge what moves on and the modes."""
        self._judge = kernel.Judge(
            self.width, self.ordered, judge.constants(), moving.held, moving.age, moving.patience,
            moving.past, moving.means, int(moving.mode[0]),
        )  # fmt: skip
        self._judge.attach(self.score, self.mode, self.refused, self.present, self.held)
        self._inform()

    def _inform(self) -> None:
        """Tell the judge of modes that have changed, and settle the limit of the next tick."""
        self._judge.clear()
        for mode in self.modes:
            tanh, linear = mode.instances
            projection = linear.alpha[:, :-1] if linear.kind == "projected" else np.empty((0, 0))
            self._judge.add(
                mode.centre, mode.scale, tanh.alpha, tanh.b, tanh.beta,
                np.ascontiguousarray(projection), linear.beta, mode.inverse(),
                np.array(mode.levels),
            )  # fmt: skip
        self._now = self.limit.value(self.learned_rows)
        if self.ordered and self.limit.lasts():
            self._now = max(self._now, SHELVED * float(self.score[:TICK].max()))
        trust = 1 + YOUNG / self.learned_rows if self.ordered else 1.0
        self._gate = REFUSED * max(1.0, self.limit.base) * trust

    @property
    def learned_rows(self) -> int:
        """Rows that all modes have learned."""
        return sum(mode.count for mode in self.modes)

    def allow(self, rate: float) -> None:
        """Change the share of normal rows at which a false alarm may begin."""
        self.limit.allow(rate)
        for i, mode in enumerate(self.modes):
            mode.centre, mode.scale = self._judge.unit(i)
        self._inform()

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, X: Array, shares: Array, paused: bool) -> tuple[Array, Array]:
        """Judge rows of one tick; fill in their squares by feature.

        Return views of their scores and of which are refused. They hold until the next `tick`.
        """
        first = TICK + self.at
        self._judge.rows(X, first, self._gate, shares)
        self.at += len(X)
        stop = TICK + self.at
        self.open[first:stop] = not paused
        return self.score[first:stop], self.refused[first:stop]

    @property
    def threshold(self) -> float:
        """The limit of the rows of this tick."""
        return self._now

    def _windows(self, held: Array, rows: Array) -> Array:
        """Return the raw windows, the newest first, of rows that have `width` - 1 before them."""
        if self.width == 1:
            return np.asarray(held[rows])
        return np.concatenate(
            [held[rows + self.width - 1 - lag] for lag in range(self.width)], axis=1
        )

    # -- ticks --------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Move on after TICK rows; return whether a new mode was confirmed."""
        for i, mode in enumerate(self.modes):
            mode.centre, mode.scale = self._judge.unit(i)
        judged = self.score[TICK:][self.open[TICK:]]  # while paused nothing follows the stream
        self.limit.follow(judged / self._now, judged > self._gate)
        first, stop = (0, TICK) if self.ordered else (TICK, 2 * TICK)  # no order: no delay
        decided = np.arange(first, stop)[self.open[first:stop]]
        confirmed = False
        if len(decided):
            total = np.concatenate(([0], np.cumsum(self.refused)))
            end = np.minimum(decided + TICK + 1, 2 * TICK) if self.ordered else decided + 1
            spared = (total[end] - total[decided]) / (end - decided) < SPARED
            refused = self.refused[decided]
            single = (refused & spared) if self.ordered else refused
            usual = ~refused & (spared if self.ordered else True)
            self._learn(decided[usual])
            self.limit.take(self.score[decided[usual | single]], self._gate)
            if self.ordered:
                confirmed = self._seclude(decided[~usual & ~single])
        self._look_for_drift()
        moving = self._moving() if confirmed else None
        keep = self.width - 1
        self.held[: keep + TICK] = self.held[TICK:]
        for column in (self.present, self.score, self.mode, self.refused, self.open):
            column[:TICK] = column[TICK:]
        self.open[TICK:] = False
        self.at = 0
        if moving is None:
            self._inform()
        else:
            self._meet(moving)
        return confirmed

    def _learn(self, rows: Array) -> None:
        for i, mode in enumerate(self.modes):
            own = rows[self.mode[rows] == i]
            if len(own):
                mode.learn(self._windows(self.held, own), self.present[own])

    def _look_for_drift(self) -> None:
        """Let anchors follow the rows of this tick, and settle new ones."""
        self.drifting = -1
        if not self.ordered:
            return
        for i, mode in enumerate(self.modes):
            anchor = self.anchors[i]
            if anchor is None:
                if mode.count >= SETTLED:
                    self.anchors[i] = Anchor(mode)
                continue
            usual = (self.mode[TICK:] == i) & self.open[TICK:] & ~self.refused[TICK:]
            rows = TICK + np.flatnonzero(usual)
            if len(rows):
                anchor.follow(mode, self._windows(self.held, rows))
                if self.drifting < 0:
                    self.drifting = anchor.drifting()

    def _seclude(self, rows: Array) -> bool:
        """Put refused rows into quarantine, or let old ones go; return whether a mode is new."""
        if not len(rows):
            self.quarantine = self.quarantine[EXPIRING:]
            return False
        windows, present = self._windows(self.held, rows), self.present[rows]
        if self.candidate is None:
            self.quarantine = np.concatenate((self.quarantine, windows))
            if len(self.quarantine) >= CANDIDATE:
                self.candidate = Mode(self.features, self.width, True, self.seed)
                known = ~np.isnan(self.quarantine[:, : self.features])
                self.candidate.start(self.quarantine, known)
                self.quarantine = self.quarantine[:0]
                self.explained = self.foreign = 0
            return False
        for x in windows[:, : self.features]:
            judge.wake(self.candidate, x)
        standard, _ = self.candidate.standardised(windows, present)
        fits = self.candidate.score(standard, None) <= 1
        if fits.any():
            self.candidate.learn(windows[fits], present[fits])
        self.explained += int(np.count_nonzero(fits))
        self.foreign += int(np.count_nonzero(~fits))
        if self.foreign > FOREIGN * (self.explained + CANDIDATE):
            self.candidate = None
            return False
        if self.explained < min(max(PATIENCE * self.learned_rows, SHORTEST), LONGEST):
            return False
        self._confirm(self.candidate)
        self.candidate = None
        return True

    def _confirm(self, mode: Mode) -> None:
        if len(self.modes) == MODES:
            least = int(np.argmin([each.count for each in self.modes]))
            del self.modes[least], self.anchors[least]
            self.mode[self.mode == least] = 0
            self.mode[self.mode > least] -= 1
        self.modes.append(mode)
        self.anchors.append(None)

    def _moving(self) -> judge.Moving:
        held, age, patience, past, means, current = self._judge.moving()
        return judge.Moving(
            held, age, patience, past.reshape(self.width - 1, self.features), means,
            np.array([min(current, len(self.modes) - 1)]),
        )  # fmt: skip

    def accept(self, X: Array) -> None:
        """Learn the last row of `X`, whatever its score is, after the rows before it."""
        for i, mode in enumerate(self.modes):
            mode.centre, mode.scale = self._judge.unit(i)
        past = np.concatenate((np.repeat(X[:1], self.width, axis=0), X))
        window = self._windows(past, np.array([len(past) - self.width]))
        known = ~np.isnan(window[:, : self.features])
        for mode in self.modes:
            judge.wake(mode, X[-1])
        scores = [mode.score(mode.standardised(window, known)[0], None)[0] for mode in self.modes]
        self.modes[int(np.argmin(scores))].accept(window, known)
        self._inform()

    # -- values in and out --------------------------------------------------------------------

    def learned(self) -> dict[str, Any]:
        """Return all that was learned, as numbers and arrays."""
        for i, mode in enumerate(self.modes):
            mode.centre, mode.scale = self._judge.unit(i)
        moving = self._moving()
        return {
            "width": self.width,
            "ordered": self.ordered,
            "begun": self.begun,
            "modes": [mode.learned() for mode in self.modes],
            "anchors": [None if a is None else a.learned() for a in self.anchors],
            "limit": self.limit.learned(),
            "candidate": None if self.candidate is None else self.candidate.learned(),
            "explained": self.explained,
            "foreign": self.foreign,
            "quarantine": self.quarantine.copy(),
            "drifting": self.drifting,
            "kept": self.held.copy(),
            "present": self.present.copy(),
            "score": self.score.copy(),
            "mode": self.mode.copy(),
            "refused": self.refused.copy(),
            "open": self.open.copy(),
            "at": self.at,
            **{name: value for name, value in moving._asdict().items() if name != "mode"},
            "current": int(moving.mode[0]),
        }

    @classmethod
    def resumed(cls, learned: dict[str, Any], rate: float, seed: int) -> Watching:
        """Return what gave `learned`; it goes on to the last bit."""
        n = len(learned["held"])
        self = cls(n, learned["width"], learned["ordered"], rate, seed)

        def mode(values: dict[str, Any]) -> Mode:
            return Mode(n, self.width, self.ordered, seed).resume(values)

        self.modes = [mode(values) for values in learned["modes"]]
        self.anchors = [
            None if values is None else Anchor(own).resume(values)
            for own, values in zip(self.modes, learned["anchors"], strict=True)
        ]
        self.begun = learned["begun"]
        self.limit = Limit(rate, np.zeros(1)).resume(learned["limit"])
        candidate = learned["candidate"]
        self.candidate = None if candidate is None else mode(candidate)
        self.explained, self.foreign = learned["explained"], learned["foreign"]
        self.quarantine, self.drifting = learned["quarantine"].copy(), learned["drifting"]
        self.held = learned["kept"].copy()
        for name in ("present", "score", "mode", "refused", "open"):
            setattr(self, name, learned[name].copy())
        self.at = learned["at"]
        names = ("held", "age", "patience", "past", "means")
        values = {name: learned[name] for name in names}
        moving = judge.Moving(**values, mode=np.array([learned["current"]]))
        self._meet(moving)
        return self
