"""`Watching`: what a monitor does after its start, row by row and tick by tick.

Each row is judged at once. Every TICK rows the rest happens: the limit is updated, and the rows of
the tick before are learned, late enough to see what followed them. A row is learned if it was
usual and fewer than a tenth of the rows after it were refused. So a fault that begins slowly is
refused before its first rows are learned. What is refused for long goes into quarantine. There a
new mode has to explain rows that it did not learn before it is confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from onlad import fields, judge, kernel
from onlad.anchor import MEASURED, SETTLED, Anchor, AnchorState
from onlad.counter import Counters
from onlad.fields import LARGEST_COUNT, Numbers, Within
from onlad.limit import SINGLE, Limit, LimitState, doubt
from onlad.mode import STATISTICS, WINSOR, Mode, ModeState, unit
from onlad.modelfile import need
from onlad.reference import Array
from onlad.split import split

TICK = 64
REFUSED = 0.5  # rows above this share of the edge, or of 1 if the edge is lower, are not learned
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
HELD = 4.0  # usual gaps for which a missing value is held
HISTORY = 32_768  # rows of a history that are learned; of a longer one, blocks from all of it

# In a file.
LARGEST_WINDOW = 4_096
# A projected instance draws PROJECTED numbers for each input, and a file has no such array. It has
# arrays of about the same size for each feature, so short windows are in proportion to the file.
SHORT_WINDOW, LARGEST_INPUTS = 4, 2**14
LARGEST = kernel.LARGEST["float64"]
LARGEST_HELD = 1e122  # an estimated value lies up to 5 units from its centre
LARGEST_SCORE = 1e30


@dataclass(frozen=True, slots=True, eq=False)
class WatchingState:
    """What a monitor has after its start. `kept` to `open` are of the rows of two ticks."""

    width: Annotated[int, Within(1, LARGEST_WINDOW)]
    ordered: bool
    past: Annotated[Array, Numbers(("past", "n"), high=LARGEST_HELD, missing=True)]
    kept: Annotated[Array, Numbers(("kept", "n"), high=LARGEST_HELD, missing=True)]
    held: Annotated[Array, Numbers(("n",), high=LARGEST_HELD, missing=True)]
    age: Annotated[Array, Numbers(("n",), low=0, high=LARGEST)]
    patience: Annotated[Array, Numbers(("n",), low=0, high=LARGEST)]
    counted: Annotated[Array, Numbers((2, "n"), high=LARGEST, missing=True)]
    means: Annotated[Array, Numbers((STATISTICS,), high=LARGEST_SCORE)]
    leans: Annotated[Array, Numbers((2, "n"), high=WINSOR)]
    score: Annotated[Array, Numbers((2 * TICK,), low=0, high=LARGEST_SCORE)]
    present: Annotated[Array, Numbers((2 * TICK, "n"), "bool")]
    refused: Annotated[Array, Numbers((2 * TICK,), "bool")]
    open: Annotated[Array, Numbers((2 * TICK,), "bool")]
    mode: Annotated[Array, Numbers((2 * TICK,), "int64", 0, "last_mode")]
    run: Annotated[Array, Numbers((2 * TICK,), "int64", 0, "last_of_window")]
    current: Annotated[int, Within(0, "last_mode")]
    drifting: Annotated[int, Within(-1, "last_feature")]
    at: Annotated[int, Within(0, TICK - 1)]
    begun: Annotated[int, Within(1, "n_seen")]
    explained: Annotated[int, Within(0)]
    foreign: Annotated[int, Within(0)]
    modes: tuple[ModeState, ...]
    first_modes: Annotated[int, Within(0, "modes")]
    candidate: ModeState | None
    anchors: tuple[AnchorState | None, ...]
    quarantine: Annotated[
        Array, Numbers((range(LARGEST_COUNT), "inputs"), high=LARGEST_HELD, missing=True)
    ]
    limit: LimitState

    def check(self, n: int, n_seen: int) -> None:
        """Refuse, with `ValueError`, what no monitor of `n` features could have."""
        count, width, rest = len(self.modes), self.width, self.width - 1
        need(1 <= count <= MODES, f"there must be 1 to {MODES} modes, got {count}")
        need(len(self.anchors) == count, f"there must be {count} anchors, got {len(self.anchors)}")
        lengths = {"n": n, "past": rest, "kept": rest + 2 * TICK, "inputs": n * width}
        need(bool((self.counted[1] >= 0).all()), "counted must have rows since each last value")
        ends = {"last_mode": count - 1, "last_feature": n - 1, "n_seen": n_seen}
        ends |= {"last_of_window": rest, "modes": count}
        fields.check(self, lengths | ends)
        for mode in (*self.modes, self.candidate):
            if mode is not None:
                mode.check(n, width)
        for anchor in self.anchors:
            if anchor is not None:
                anchor.check(n, width)
        rows, most = len(self.quarantine), 0 if self.candidate else CANDIDATE - 1
        need(rows <= most, f"quarantine must hold at most {most} rows, got {rows}")
        late = rows or self.candidate is not None or any(self.anchors)
        need(
            self.ordered or not late, "rows without order have no quarantine, candidate or anchors"
        )
        self.limit.check()


def check_size(n: int, width: int) -> None:
    """Refuse, with `ValueError`, a window with too many rows and features for a file."""
    Within(1, LARGEST_WINDOW).check("width", width)
    fits = width <= SHORT_WINDOW or n * width <= LARGEST_INPUTS
    rule = f"a window of {width} rows has at most {LARGEST_INPUTS // width} features, got {n}"
    need(fits, rule)


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


def runs(rows: int, breaks: Array, width: int) -> Array:
    """Return how many rows before each one follow the last break, at most `width` - 1.

    Examples
    --------
    >>> runs(6, np.array([4]), 3)
    array([2, 2, 2, 2, 0, 1])
    """
    since = np.full(rows, width - 1)
    for back in range(width - 1):
        at = breaks + back
        at = at[(at < rows)]
        since[at] = np.minimum(since[at], back)
    return since


class Watching:
    """A started monitor. `start` makes one of the first rows, `rows` goes on."""

    def __init__(self, features: int, width: int, ordered: bool, rate: float, seed: int) -> None:
        self.features, self.width, self.ordered = features, width, ordered
        self.seed = seed
        self.modes: list[Mode] = []
        self.first_modes = 0  # that are of the start; they come first
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
        self.run: Array = np.full(2 * TICK, width - 1, "int64")  # rows before it in its window
        self.refused: Array = np.zeros(2 * TICK, bool)
        self.open: Array = np.zeros(2 * TICK, bool)  # may be learned: judged while not paused
        self.at = 0  # rows of this tick
        self.counters = Counters(np.array([np.full(features, np.nan), np.zeros(features)]))
        self._judge = judge.Judge(judge.first(np.zeros(features), width), self.modes, 0)
        self._now, self._doubt = np.inf, 1.0
        self.expected: Array = np.zeros((2 * TICK, features))  # of the rows of this tick
        self.reach: Array = np.zeros((0, features))  # of each mode: half widths of the bands

    @classmethod
    def start(
        cls,
        X: Array,
        window: int | None,
        rate: float,
        seed: int,
        *,
        given: tuple[Array, Array] | None = None,
        usual: Array | None = None,
    ) -> Watching:
        """Return what watches on after the rows of `X`, which are learned if they are `usual`.

        `given` are centre and scale of each feature, if they are not to be found in the rows.
        """
        breaks: Array = np.zeros(0, int)  # rows that do not follow the one before
        if len(X) > HISTORY:
            first = np.linspace(0, len(X) - TICK, HISTORY // TICK).astype(int)
            X = X[(first[:, None] + np.arange(TICK)).ravel()]
            breaks = np.arange(0, len(X), TICK)
        rows, n = X.shape
        none = np.array([np.full(n, np.nan), np.zeros(n)])
        counters, X = Counters.found(X) if given is None else (Counters(none), X)
        present = ~np.isnan(X)
        last = np.maximum.accumulate(np.where(present, np.arange(rows)[:, None], -1), axis=0)
        held = np.where(last >= 0, np.take_along_axis(X, np.maximum(last, 0), axis=0), np.nan)
        ordered = is_ordered(held)
        width = window or (default_window(n) if ordered else 1)
        self = cls(n, width, ordered, rate, seed)
        self.counters = counters
        padded = np.concatenate((np.repeat(held[:1], width - 1, axis=0), held))
        learned = np.arange(rows) if usual is None else np.flatnonzero(usual)
        run = runs(rows, breaks, width)
        windows, known = self._windows(padded, learned, run), present[learned]
        first_mode = Mode(n, width, ordered, seed)
        first_mode.centre, first_mode.scale = unit(X[learned]) if given is None else given
        group = split(first_mode, windows, known) if ordered else np.zeros(len(learned), int)
        changes = learned[1:][np.diff(group) != 0]
        run = runs(rows, np.concatenate((breaks, changes)), width)
        windows = self._windows(padded, learned, run)
        scores = np.zeros(len(learned))
        for i in range(int(group.max()) + 1):
            own = np.flatnonzero(group == i)
            mode = Mode(n, width, ordered, seed)
            scores[own] = mode.start(windows[own], known[own], given)
            self._add(mode, windows[own], known[own])
        self.begun, self.first_modes = rows, len(self.modes)
        self.limit = Limit(rate, scores)
        usual_gap = rows / np.maximum(present.sum(axis=0), 1)
        usual_gap[counters.which] = 0.0  # a rate is not held: how far a counter rose is not known
        moving = judge.Moving(
            held[-1].copy(),
            (rows - 1 - last[-1]).astype(float),
            HELD * usual_gap,
            padded[::-1][: width - 1].copy(),
            np.zeros(STATISTICS),
            np.zeros((2, n)),
            np.array([group[-1]]),
            np.minimum(run[-1:] + 1, width - 1),
        )
        self.run[TICK - 1] = run[-1]
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
        """Give a judge what changes with each row, and the modes."""
        self._judge = judge.Judge(moving, self.modes, self.first_modes)
        self._inform()

    def _inform(self) -> None:
        """Settle the limit of the next tick."""
        self.reach = np.array([mode.band * mode.scale for mode in self.modes])
        self._doubt = doubt(self.learned_rows)
        self._now = self.limit.value(self.learned_rows)
        if self.ordered and self.limit.shelved():
            self._now = max(self._now, SHELVED * float(self.score[:TICK].max()))
        trust = 1 + YOUNG / self.learned_rows if self.ordered else 1.0
        self._gate = REFUSED * max(1.0, self.limit.edge) * trust

    @property
    def moving(self) -> judge.Moving:
        """What changes with each row."""
        return self._judge.moving

    @property
    def learned_rows(self) -> int:
        """Rows that all modes have learned."""
        return sum(mode.count for mode in self.modes)

    def allow(self, rate: float) -> None:
        """Change the share of normal rows at which a false alarm may begin."""
        self.limit.allow(rate)
        self._inform()

    # -- rows ---------------------------------------------------------------------------------

    def rows(self, X: Array, shares: Array, paused: bool | Array) -> slice:
        """Judge rows of one tick; fill in their squares by feature.

        Return where they are in `score`, `refused` and others, until the next `tick`.
        """
        first = TICK + self.at
        self.at += len(X)
        stop = TICK + self.at
        held = self.held[self.width - 1 :][first:stop]
        X, base, gap = self.counters.rates(X)
        said = self._judge.rows(X)
        self.score[first:stop], self.mode[first:stop], self.run[first:stop] = said[:3]
        shares[:], held[:], expected = said[3:]
        self.expected[first:stop] = base + gap * expected
        self.refused[first:stop] = self.score[first:stop] > self._gate
        self.present[first:stop] = ~np.isnan(X)
        self.open[first:stop] = np.logical_not(paused)
        return slice(first, stop)

    def told(self, rows: slice) -> tuple[Array, Array]:
        """Return score and threshold of rows of this tick, as they are reported."""
        return self.score[rows] / self._doubt, self._limits(rows) / self._doubt

    def _limits(self, rows: slice) -> Array:
        """Return from which score each of these rows of this tick is an anomaly."""
        before = self.score[rows.start - 1 : rows.stop - 1]
        single = self.ordered & (before <= self._now)
        return np.where(single, SINGLE * self._now, self._now)

    def unusual(self, row: int) -> int:
        """Return how many of the TICK rows up to this one were refused."""
        return int(np.count_nonzero(self.refused[row - TICK + 1 : row + 1]))

    @property
    def threshold(self) -> float:
        """The limit of the rows of this tick, as it is reported."""
        return self._now / self._doubt

    def _windows(self, held: Array, rows: Array, run: Array) -> Array:
        """Return the raw windows, the newest first, of rows that have `width` - 1 before them.

        If fewer of these were in a `run` with the row, the row stands in for them.
        """
        back = np.where(run[rows] < self.width - 1, 0, 1)
        return np.concatenate(
            [held[rows + self.width - 1 - lag * back] for lag in range(self.width)], axis=1
        )

    # -- ticks --------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Update the model after TICK rows; return whether a new mode was confirmed."""
        is_open = self.open[TICK:]  # while paused nothing follows the stream
        ratio = self.score[TICK:] / self._limits(slice(TICK, 2 * TICK))
        self.limit.follow(ratio[is_open], self.refused[TICK:][is_open])
        if self.ordered and self.limit.lasts():
            self._widen()
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
        if confirmed:
            moving = self.moving
            known = np.minimum(moving.mode, len(self.modes) - 1)
            self._meet(moving._replace(mode=known))
        keep = self.width - 1
        self.held[: keep + TICK] = self.held[TICK:]
        for column in (self.present, self.score, self.mode, self.run, self.refused, self.open):
            column[:TICK] = column[TICK:]
        self.open[TICK:] = False
        self.at = 0
        self._inform()
        return confirmed

    def _learn(self, rows: Array) -> None:
        for i, mode in enumerate(self.modes):
            own = rows[self.mode[rows] == i]
            if len(own):
                mode.learn(self._windows(self.held, own, self.run), self.present[own])

    def _widen(self) -> None:
        """Let bands follow what is refused for long too, or a machine that changed has none."""
        rows = TICK + np.flatnonzero(self.open[TICK:] & self.refused[TICK:])
        for i, mode in enumerate(self.modes):
            own = rows[self.mode[rows] == i]
            if len(own):
                windows = self._windows(self.held, own, self.run)
                mode.widen(mode.errors(mode.scaled(windows))[1], self.present[own])

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
            quiet = (self.mode[TICK:] == i) & self.open[TICK:] & (self.score[TICK:] <= self._now)
            rows = TICK + np.flatnonzero(quiet)
            if len(rows):
                anchor.follow(mode, self._windows(self.held, rows, self.run))
                if self.drifting < 0:
                    self.drifting = anchor.drifting()

    def _seclude(self, rows: Array) -> bool:
        """Put refused rows into quarantine, or let old ones go; return whether a mode is new."""
        if not len(rows):
            self.quarantine = self.quarantine[EXPIRING:]
            return False
        windows, present = self._windows(self.held, rows, self.run), self.present[rows]
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
        fits = self.candidate.score(standard) <= 1
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
            self.first_modes -= least < self.first_modes
            self.mode[self.mode == least] = 0
            self.mode[self.mode > least] -= 1
        self.modes.append(mode)
        self.anchors.append(None)

    def accept(self, X: Array) -> None:
        """Learn the last row of `X`, whatever its score is, after the rows before it."""
        X = self._past(X)
        past = np.concatenate((np.repeat(X[:1], self.width, axis=0), X))
        whole = np.full(len(past), self.width - 1)
        window = self._windows(past, np.array([len(past) - self.width]), whole)
        known = ~np.isnan(window[:, : self.features])
        for mode in self.modes:
            judge.wake(mode, X[-1])
        scores = [mode.score(mode.standardised(window, known)[0])[0] for mode in self.modes]
        self.modes[int(np.argmin(scores))].accept(window, known)
        self._inform()

    def _past(self, X: Array) -> Array:
        """Return rows of the past with the rates of counters."""
        first = np.where(np.isnan(self.counters.counted[0]), np.nan, X[0])
        rates: Array = Counters(np.array([first, np.zeros(self.features)])).rates(X[1:])[0]
        start = np.where(np.isnan(self.counters.counted[0]), X[0], np.nan)
        return np.concatenate((start[None], rates))

    def reject(self) -> None:
        """Drop the quarantine, the candidate, and what of the last rows would go there."""
        self.quarantine, self.candidate = self.quarantine[:0], None
        self.explained = self.foreign = 0
        self.open[: TICK + self.at] &= ~self.refused[: TICK + self.at]

    # -- values in and out --------------------------------------------------------------------

    def learned(self) -> WatchingState:
        """Return all that was learned."""
        moving = self.moving
        return WatchingState(
            width=self.width,
            ordered=self.ordered,
            past=moving.past,
            kept=self.held.copy(),
            held=moving.held,
            age=moving.age,
            patience=moving.patience,
            counted=self.counters.counted.copy(),
            means=moving.means,
            leans=moving.leans,
            score=self.score.copy(),
            present=self.present.copy(),
            refused=self.refused.copy(),
            open=self.open.copy(),
            mode=self.mode.copy(),
            run=self.run.copy(),
            current=int(moving.mode[0]),
            drifting=self.drifting,
            at=self.at,
            begun=self.begun,
            explained=self.explained,
            foreign=self.foreign,
            modes=tuple(mode.learned() for mode in self.modes),
            first_modes=self.first_modes,
            candidate=None if self.candidate is None else self.candidate.learned(),
            anchors=tuple(None if a is None else a.learned() for a in self.anchors),
            quarantine=self.quarantine.copy(),
            limit=self.limit.learned(),
        )

    @classmethod
    def resumed(cls, state: WatchingState, rate: float, seed: int) -> Watching:
        """Return what gave `state`; it goes on to the last bit."""
        n = len(state.held)
        self = cls(n, state.width, state.ordered, rate, seed)

        def mode(learned: ModeState) -> Mode:
            return Mode(n, self.width, self.ordered, seed).resume(learned)

        self.modes, self.first_modes = [mode(each) for each in state.modes], state.first_modes
        self.anchors = [
            None if learned is None else Anchor(own).resume(learned)
            for own, learned in zip(self.modes, state.anchors, strict=True)
        ]
        self.candidate = None if state.candidate is None else mode(state.candidate)
        self.limit = Limit(rate, np.zeros(1)).resume(state.limit)
        self.begun, self.at, self.drifting = state.begun, state.at, state.drifting
        self.explained, self.foreign = state.explained, state.foreign
        self.quarantine, self.held = state.quarantine.copy(), state.kept.copy()
        self.present, self.score = state.present.copy(), state.score.copy()
        self.mode, self.run = state.mode.copy(), state.run.copy()
        self.refused, self.open = state.refused.copy(), state.open.copy()
        self.counters = Counters(state.counted.copy())
        now = np.array([state.current])
        run = np.minimum(self.run[TICK + self.at - 1 : TICK + self.at] + 1, self.width - 1)
        moved = state.held, state.age, state.patience, state.past, state.means, state.leans
        self._meet(judge.Moving(*moved, now, run))
        return self
