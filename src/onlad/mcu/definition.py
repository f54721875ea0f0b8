"""The monitor of a microcontroller in NumPy: the definition of `c/onlad.c`.

It keeps the sums where the chip keeps their factors, solves where the chip updates, and computes
in float64. So both agree up to rounding. Symbols are those of `onlad.reference`; the constants are
those of the monitor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onlad import anchor, judge, limit, mode, watching
from onlad.counter import Counters
from onlad.instance import CONSTANT, RIDGE
from onlad.mcu.layout import BINS, WARMUP, Sizes
from onlad.mode import CORRELATED, LEANING, SMALLEST_UNIT, SMOOTHING, STATISTICS, STILL, WINSOR
from onlad.reference import Array

DELAY = watching.TICK
FORGETTING = mode.FORGETTING**2  # of a squared error, at each row learned
PART = WARMUP // 12  # rows of a part of the start
BLOCK = 512  # the mean of the largest of these rows is about the 0.999 quantile
OCTAVE, LOWEST = 16, -5  # bins of the histogram in a factor of two, from 2^LOWEST on
ANCHOR_CLIP = 20.0  # the largest scaled value that counts for an anchor
LARGEST = 1e15  # what a sensor may say; more is a missing value


@dataclass(eq=False)
class Place:
    """A place for a mode: what `onlad.mode.Mode` has, and how far its start is."""

    centre: Array
    scale: Array
    K: Array  # (d, d) sums of the linear instance, with the ridge; the newest row comes last
    G: Array  # (groups, units, units) sums of the tanh instance, with the ridge
    moment: Array  # (units, features)
    usual: Array
    largest: Array
    leaning: Array  # usual squares of leans
    levels: Array = field(default_factory=lambda: np.zeros((6, STATISTICS)))
    role: str = "free"
    rows: int = 0  # learned
    weight: int = 0
    begun: int = 0  # rows of its start
    seen: list[Array] = field(default_factory=list)  # of these, those that gave its units


class Definition:
    """What a chip holds. `observe` is one row."""

    def __init__(
        self, sizes: Sizes, alpha: Array, bias: Array, counters: Sequence[int] = ()
    ) -> None:
        self.n, self.width, self.groups, self.units, self.modes = sizes
        self.alpha, self.bias = alpha.astype("float64"), bias.astype("float64")
        self.rate = 1e-4
        self.paused = self.ready = False
        self.places = [self._place() for _ in range(self.modes)]
        self.places[0].role = "beginning"
        self.current = 0
        # The rows that are kept, the newest last: values held, presence, score, mode, flags.
        self.held: list[Array] = [np.full(self.n, np.nan)] * (DELAY + self.width)
        self.present: list[Array] = [np.zeros(self.n, bool)] * (DELAY + self.width)
        self.said: list[tuple[float, int, bool, bool]] = []  # score, mode, unusual, open
        self.age, self.patience = np.zeros(self.n), np.zeros(self.n)
        self.counters = Counters(np.array([np.full(self.n, np.nan), np.zeros(self.n)]))
        self.counters.which = np.array(counters, int)  # none has a value yet
        self.means = np.zeros(STATISTICS)
        self.first_means = np.zeros(STATISTICS)
        self.leans, self.first_leans = np.zeros((2, self.n)), np.zeros((2, self.n))
        self.measured: list[Array] = []
        self.leaned: list[Array] = []
        self.recent = Recent()
        self.factor, self.now, self.gate, self.doubt, self.last = 1.0, 0.0, 0.0, 1.0, 0.0
        self.since = self.episode = self.alarms = 0
        self.peak = self.highest = 0.0
        self.ticked = self.explained = self.foreign = self.idle = 0
        self.anchor: Anchored | None = None
        self.drifting = -1

    def _place(self) -> Place:
        n, d = self.n, self.n * self.width + 1
        ridge = np.append(CONSTANT, np.full(d - 1, RIDGE))
        return Place(
            np.zeros(n), np.zeros(n), np.diag(ridge),
            np.array([np.diag(np.full(self.units, RIDGE))] * self.groups),
            np.zeros((self.units, n)), np.zeros((2, n)), np.zeros((2, n)), np.zeros((2, n)),
        )  # fmt: skip

    # -- one mode and one row, `ago` rows before the newest -----------------------------------

    def window(self, centre: Array, scale: Array, ago: int, clip: float = mode.CLIP) -> Array:
        """Return 1 and the scaled rows, the oldest first."""
        stop = len(self.held) - ago
        rows = np.array(self.held[stop - self.width : stop])
        z = (rows - centre) / np.where(scale > 0, scale, np.inf)
        return np.append(1.0, np.clip(np.where(np.isnan(z), 0.0, z), -clip, clip))

    def look(self, place: Place, ago: int) -> tuple[Array, Array, Array]:
        """Return window, hidden layer and the errors of both instances."""
        v = self.window(place.centre, place.scale, ago)
        z = v[-self.n :]
        h = np.tanh(self.alpha @ z + self.bias).reshape(self.groups, self.units)
        errors = np.empty((2, self.n))
        for k in range(self.groups):
            own = slice(k, None, self.groups)
            errors[0, own] = z[own] - h[k] @ np.linalg.solve(place.G[k], place.moment[:, own])
        P = np.linalg.inv(place.K)
        errors[1] = (P @ v)[-self.n :] / np.diag(P)[-self.n :]
        return v, h, errors

    def statistics(self, place: Place, errors: Array, ago: int) -> tuple[Array, Array]:
        """Return the four statistics, and the errors in usual deviations."""
        present = self.present[len(self.present) - 1 - ago]
        least = np.maximum(place.usual.mean(axis=1, keepdims=True), mode.PRIOR_SQUARE)
        mixed = (place.weight * place.usual + mode.PRIOR * least) / (place.weight + mode.PRIOR)
        E = errors / np.sqrt(np.maximum(mixed, place.largest / mode.OFTEN)) * present
        return four(E**2, max(present.sum(), 1)), E

    def lean(self, leans: Array, E: Array, ago: int) -> Array:
        """Return the leans after a row; a missing value leaves them as they are."""
        present = self.present[len(self.present) - 1 - ago]
        return leans + LEANING * (np.clip(E, -WINSOR, WINSOR) - leans) * present

    @staticmethod
    def total(place: Place, standard: Array, *slow: Array) -> float:
        """Return the score of standardised statistics; `slow` are running means and leans."""
        if slow:
            means, leans = slow
            lean = four(leans**2 / place.leaning, len(place.centre))
            standard = np.maximum(standard, (means - place.levels[2]) / place.levels[3])
            standard = np.maximum(standard, (lean - place.levels[4]) / place.levels[5])
        return float(np.maximum(standard, 0.0).mean())

    def learn(self, place: Place, v: Array, h: Array, kept: float = FORGETTING) -> None:
        """Learn what was seen; put back the ridge of one unit, as much as all forget in a turn."""
        z = v[-self.n :]
        unit, one = place.rows % self.units, 1 + place.rows % (len(v) - 1)
        for k in range(self.groups):
            own = slice(k, None, self.groups)
            place.G[k] = kept * place.G[k] + np.outer(h[k], h[k])
            place.moment[:, own] = kept * place.moment[:, own] + np.outer(h[k], z[own])
            place.G[k, unit, unit] += RIDGE * self.units * (1 - FORGETTING)
        place.K = kept * place.K + np.outer(v, v)
        place.K[one, one] += RIDGE * (len(v) - 1) * (1 - FORGETTING)
        place.rows += 1

    def take(self, place: Place, errors: Array, ago: int) -> None:
        """Let the usual squares follow errors."""
        present = self.present[len(self.present) - 1 - ago]
        moved = place.usual + (errors**2 - place.usual) / (place.weight + 1)
        place.usual = np.where(present, moved, place.usual)
        place.largest = np.where(present, np.maximum(place.largest, errors**2), place.largest)
        place.weight = min(place.weight + 1, mode.MEMORY)

    def wake(self, place: Place, ago: int) -> None:
        """Give features that never moved their unit, at their first move."""
        x, present = self.held[-1 - ago], self.present[len(self.present) - 1 - ago]
        asleep = ~(place.scale > 0) & present
        place.centre = np.where(asleep & np.isnan(place.centre), x, place.centre)
        moved = np.abs(x - place.centre)
        moves = asleep & (moved > STILL * np.abs(place.centre) + SMALLEST_UNIT)
        place.scale = np.where(moves, moved, place.scale)

    # -- the start of a mode ------------------------------------------------------------------

    def begin(self, place: Place, ago: int, first: bool) -> bool:
        """Take one row more of a start; return whether it is the last."""
        part, at = PART, place.begun
        place.begun += 1
        if at < 2 * part:
            present = self.present[len(self.present) - 1 - ago]
            place.seen.append(np.where(present, self.held[-1 - ago], np.nan))
            if at == 2 * part - 1:
                self.settle_units(place)
            return False
        twin = self.places[1] if first and self.modes > 1 else None
        if twin is not None and at in (6 * part, 9 * part):
            self.copy(twin, place)
        self.wake(place, ago)
        v, h, errors = self.look(place, ago)
        if at < 4 * part:
            self.learn(place, v, h)
            if first and 2 * part <= DELAY:
                self.learn(place, *self.look(place, ago + 2 * part)[:2])
            return False
        if at >= 6 * part:
            self.measure(place, errors, ago, at - 6 * part, first)
        self.take(place, errors, ago)
        if twin is not None:
            if at == 4 * part:
                self.copy(place, twin)
                twin.role = "twin"
            self.wake(twin, ago)
            self.learn(twin, *self.look(twin, ago)[:2])
        if at < 12 * part - 1:
            return False
        level(self.measured, place.levels[2:4], 1 / SMOOTHING, mode.LEAST[1])
        level(self.leaned, place.levels[4:], CORRELATED / LEANING, mode.LEAST[0])
        if twin is not None:
            self.copy(twin, place)
            twin.role = "free"
        return True

    @staticmethod
    def copy(source: Place, into: Place) -> None:
        """Take over what was learned, but not what was measured."""
        into.centre, into.scale, into.rows = source.centre, source.scale, source.rows
        into.K, into.G, into.moment = source.K.copy(), source.G.copy(), source.moment.copy()

    def settle_units(self, place: Place) -> None:
        """Measure centre and unit of each feature."""
        rows = np.array(place.seen)
        seen = ~np.isnan(rows).all(axis=0)
        some = np.where(seen, rows, 0.0)
        centre, span = np.nanmean(some, axis=0), np.nanmax(some, axis=0) - np.nanmin(some, axis=0)
        scale = np.maximum(np.nanstd(some, axis=0), span / mode.RANGE)
        still = scale <= STILL * np.abs(centre) + SMALLEST_UNIT
        fresh = self._place()
        place.centre, place.scale = np.where(seen, centre, np.nan), np.where(still, 0.0, scale)
        place.K, place.G, place.moment = fresh.K, fresh.G, fresh.moment
        place.usual, place.largest = fresh.usual, np.array([1.0 * (place.scale <= 0)] * 2)
        place.seen = []

    def measure(self, place: Place, errors: Array, ago: int, at: int, first: bool) -> None:
        """Measure the levels of rows, then those of running means and of leans."""
        found, E = self.statistics(place, errors, ago)
        half = 3 * PART
        if at in (0, half):
            self.measured, self.leaned = [], []
        self.first_leans = self.lean(self.first_leans if at else np.zeros_like(E), E, ago)
        if at < half:
            self.measured.append(found)
            self.leaned.append(self.first_leans**2)
            if at == half - 1:
                level(self.measured, place.levels[:2], 1.0, mode.LEAST[0])
                square = np.mean(self.leaned, axis=0)
                least = mode.PRIOR * square.mean(axis=1, keepdims=True)
                shrunk = (half * square + least) / (half + mode.PRIOR)
                place.leaning = np.maximum(shrunk, CORRELATED * LEANING / (2 - LEANING))
                self.first_means = np.zeros(STATISTICS)
            return
        self.leaned.append(four(self.first_leans**2 / place.leaning, self.n))
        standard = (found - place.levels[0]) / place.levels[1]
        if first:
            self.recent.count(self.total(place, standard))
        moved = np.minimum(standard, 1.0) - self.first_means
        self.first_means = self.first_means + SMOOTHING * moved
        self.measured.append(self.first_means)

    # -- the limit ----------------------------------------------------------------------------

    def settle_limit(self) -> None:
        """Set threshold and gate of the next rows."""
        rows = max(sum(p.rows for p in self.places if p.role == "mode"), 1)
        edge, base = (max(limit.LEAST, root**2) for root in self.recent.tails(self.rate))
        self.doubt = limit.doubt(rows)
        self.now = base * self.factor * self.doubt
        if self.since and self.episode >= limit.LASTING and self.alarms >= limit.TOLD:
            self.now = max(self.now, watching.SHELVED * self.highest)
        self.gate = watching.REFUSED * max(1.0, edge) * (1 + watching.YOUNG / rows)

    def follow(self, ratio: float, unusual: bool) -> None:
        """Let the factor follow one row."""
        if unusual:
            self.since, self.episode = 1, min(self.episode + 1, limit.LASTING)
            self.alarms += ratio > 1
            self.peak = max(self.peak, ratio)
        elif self.since:
            self.since += 1
            if self.since > limit.GAP + 1:
                weak = limit.STRONG if self.episode < limit.SHORT else limit.WEAK
                if 1 < self.peak < weak:
                    self.factor = min(self.factor * np.exp(limit.STEP), np.exp(limit.HIGHEST))
                self.since, self.episode, self.alarms, self.peak = 0, 0, 0, 0.0

    # -- modes --------------------------------------------------------------------------------

    def seclude(self, ago: int) -> bool:
        """Give a refused row to the candidate; return whether that is a mode now."""
        self.idle = 0
        waiting = next((p for p in self.places if p.role == "waiting"), None)
        if waiting is None:
            young = next((p for p in self.places if p.role == "beginning"), None)
            if young is None:
                free = [i for i, p in enumerate(self.places) if p.role == "free"]
                if not free:
                    return False
                young = self.places[free[0]] = self._place()
                young.role = "beginning"
            if self.begin(young, ago, False):
                young.role, self.explained, self.foreign = "waiting", 0, 0
            return False
        self.wake(waiting, ago)
        v, h, errors = self.look(waiting, ago)
        found, _ = self.statistics(waiting, errors, ago)
        standard = (found - waiting.levels[0]) / waiting.levels[1]
        if self.total(waiting, standard) <= 1:
            self.take(waiting, errors, ago)
            self.learn(waiting, v, h)
            self.explained += 1
        else:
            self.foreign += 1
        if self.foreign > watching.FOREIGN * (self.explained + watching.CANDIDATE):
            waiting.role = "free"
            return False
        rows = sum(p.rows for p in self.places if p.role == "mode")
        needed = min(max(watching.PATIENCE * rows, watching.SHORTEST), watching.LONGEST)
        if self.explained < needed:
            return False
        self.confirm(waiting)
        return True

    def confirm(self, candidate: Place) -> None:
        """Make the candidate a mode; the one that learned least gives its place if none is free."""
        modes = [p for p in self.places if p.role == "mode"]
        if len(modes) == self.modes - 1:
            least = min(modes, key=lambda p: p.rows)
            least.role = "free"
            if self.anchor is not None and self.anchor.place is least:
                self.anchor, self.drifting = None, -1
        candidate.role = "mode"
        if self.places[self.current].role != "mode":
            self.current = self.places.index(candidate)

    def decide(self) -> bool:
        """Decide on the row of DELAY rows ago; return whether there is a new mode."""
        if len(self.said) <= DELAY:
            return False
        score, own, unusual, is_open = self.said[-1 - DELAY]
        refused = sum(row[2] for row in self.said[-1 - DELAY :])
        if not is_open:
            return False
        if refused >= watching.SPARED * (DELAY + 1):
            return self.seclude(DELAY)
        self.recent.count(min(score, self.gate))
        self.idle += 1
        let_go = DELAY // watching.EXPIRING
        if self.idle % let_go == 0:
            for young in (p for p in self.places if p.role == "beginning"):
                if self.idle // let_go > young.begun:
                    young.role = "free"
        if unusual:
            return False
        place = self.places[own if self.places[own].role == "mode" else self.current]
        v, h, errors = self.look(place, DELAY)
        self.take(place, errors, DELAY)
        self.learn(place, v, h)
        if self.anchor is None and place.rows >= anchor.SETTLED:
            self.anchor = Anchored(place)
        return False

    # -- rows ---------------------------------------------------------------------------------

    def observe(self, x: Array) -> tuple[float, float, bool]:
        """Return score, threshold and whether a mode is new, of one row."""
        said = np.abs(x) <= LARGEST
        rates = self.counters.rates(np.where(said, x, np.nan)[None])[0][0]
        known = np.where(said, rates, self.held[-1])
        present = said & ~np.isnan(known)
        self.age = np.where(said, 0.0, self.age + 1)
        if not self.ready:
            if present.any() and not self.paused:
                self._keep(known, present)
                self._warm_up(present)
            return 0.0, 0.0, False
        self._keep(known, present)
        for place in self.places:
            if place.role == "mode":
                self.wake(place, 0)
        score = self._judge() if present.any() else 0.0
        unusual = score > self.gate
        most = self.now * (limit.SINGLE if self.last <= self.now else 1.0)
        told = score / self.doubt, most / self.doubt
        self._fill_in(present)
        self.said = [*self.said[-DELAY:], (score, self.current, unusual, not self.paused)]
        self.highest = max(self.highest, score)
        if not self.paused:
            self.follow(score / most, unusual)
        drift = self.decide()
        if self.anchor is not None and not self.anchor.settled(self):
            self.anchor.settle(self)
        elif self.anchor is not None and not (self.paused or score > self.now):
            self.drifting = self.anchor.follow(self)
        self.ticked += 1
        if self.ticked == DELAY:
            if not self.paused:
                self.factor = max(self.factor * (1 - limit.STEP * DELAY * self.rate), 1.0)
            self.settle_limit()
            self.ticked, self.highest = 0, 0.0
        self.last = score
        return *told, drift

    def _keep(self, known: Array, present: Array) -> None:
        self.held = [*self.held[1:], known]
        self.present = [*self.present[1:], present]

    def _warm_up(self, present: Array) -> None:
        self.patience = self.patience + present
        if self.begin(self.places[0], 0, True):
            self.patience = watching.HELD * WARMUP / np.maximum(self.patience, 1)
            self.places[0].role, self.ready = "mode", True
            self.settle_limit()

    def _judge(self) -> float:
        order = [self.current, *(i for i in range(self.modes) if i != self.current)]
        first, kept, leant, best = self.current, self.means, self.leans, np.inf
        for i in order:
            place = self.places[i]
            if place.role != "mode":
                continue
            found, E = self.statistics(place, self.look(place, 0)[2], 0)
            standard = (found - place.levels[0]) / place.levels[1]
            means = kept + SMOOTHING * (np.minimum(standard, 1.0) - kept)
            leans = self.lean(leant if i == first else 0 * leant, E, 0)
            score = self.total(place, standard, means, leans)
            if score < best:
                best, self.current, self.means, self.leans = score, i, means, leans
            if i == first and best <= judge.KEEP:
                break
        return float(best)

    def _fill_in(self, present: Array) -> None:
        place = self.places[self.current]
        old = ~present & (self.age > self.patience) & (place.scale > 0)
        if old.any():
            v, _, errors = self.look(place, 0)
            made = np.clip(v[-self.n :] - errors[1], -judge.FILLED, judge.FILLED)
            filled = np.where(old, place.centre + made * place.scale, self.held[-1])
            self.held = [*self.held[:-1], filled]


class Anchored:
    """The anchor: the linear prediction of one mode, copied feature by feature."""

    def __init__(self, place: Place) -> None:
        self.place, n, d = place, len(place.centre), len(place.K)
        self.beta = np.zeros((n, d))
        self.unit = np.zeros((3, n))  # centre, scale, deviation
        self.lean, self.halves = np.zeros(n), np.zeros((2, n))
        self.features = self.rows = 0

    def settled(self, chip: Definition) -> bool:
        """Return whether all features are copied."""
        return self.features == chip.n

    def settle(self, chip: Definition) -> None:
        """Copy the prediction of one feature more."""
        j, place = self.features, self.place
        own = len(place.K) - chip.n + j
        P = np.linalg.inv(place.K)
        self.beta[j] = -P[:, own] / P[own, own]
        self.beta[j, own] = 0.0
        mixed = place.weight * place.usual[1, j] + mode.PRIOR * mode.PRIOR_SQUARE
        usual = max(mixed / (place.weight + mode.PRIOR), place.largest[1, j] / mode.OFTEN)
        self.unit[:, j] = place.centre[j], place.scale[j], np.sqrt(usual)
        self.features += 1

    def follow(self, chip: Definition) -> int:
        """Let the lean follow the newest row if it is of this mode; return what drifts, or -1."""
        if self.place is not chip.places[chip.current]:
            return chip.drifting
        centre, scale, deviation = self.unit
        v = chip.window(centre, scale, 0, ANCHOR_CLIP)
        half = int(2 * self.rows >= anchor.MEASURED)
        self.rows = min(self.rows + 1, anchor.MEASURED)
        self.lean = self.lean + (v[-chip.n :] - self.beta @ v - self.lean) / anchor.MEAN
        if self.rows < anchor.MEASURED:
            self.halves[half] = np.maximum(self.halves[half], np.abs(self.lean))
            return -1
        slack = anchor.SLACK * deviation
        walks = self.halves[1] > anchor.GROWS * self.halves[0] + slack
        bound = anchor.OUTSIDE * self.halves.max(axis=0) + slack
        outside = np.where(walks | ~(scale > 0), 0.0, np.abs(self.lean) / bound)
        worst = int(np.argmax(outside))
        return worst if outside[worst] > 1 else -1


def four(squares: Array, count: int) -> Array:
    """Return the mean over so many features, and the largest, of the squares of each instance."""
    return np.append(squares.sum(axis=1) / count, squares.max(axis=1))


def level(measured: list[Array], into: Array, rows_in_mean: float, least: float) -> None:
    """Fill in median and reach of what was measured, row after row without keeping it."""
    median, away = measured[0].copy(), np.zeros(STATISTICS)
    for count, found in enumerate(measured[1:], 1):
        away = away + (np.abs(found - median) - away) / count
        median = median + np.where(found > median, 2.0, -2.0) * away / count
    whole = len(measured) // BLOCK * BLOCK
    blocks = np.array(measured[:whole] or measured).reshape(max(whole // BLOCK, 1), -1, STATISTICS)
    high = blocks.max(axis=1).mean(axis=0)
    wider = mode.BEYOND * (1 + mode.FEW * rows_in_mean / len(measured))
    into[0], into[1] = median, np.maximum(wider * (high - median), least)


class Recent:
    """A histogram of recent normal scores, by the logarithm of their roots.

    A row begins a cluster above some bin if it is above it, and none of the GAP + 1 rows before it
    is. So a second histogram, of the lower of each row and the highest of those before it, says
    how many rows above a bin do not begin one.
    """

    def __init__(self) -> None:
        self.rows = np.zeros((BINS, 2), int)  # all, and those that follow one as high
        self.before = np.zeros(limit.GAP + 1, int)  # bins of the rows counted last, the newest first

    def count(self, score: float) -> None:
        """Put a normal score into the histogram; halve it when it is full."""
        at = bin_of(score)
        self.rows[at, 0] += 1
        self.rows[min(at, self.before.max()), 1] += 1
        self.before = np.append(at, self.before[:-1])
        if self.rows[:, 0].sum() >= limit.RECENT:
            self.rows = halved(self.rows)

    def tails(self, rate: float) -> tuple[float, float]:
        """Return `onlad.limit.tail`, not `clustered` and so, of the middles of the bins."""
        n = int(self.rows[:, 0].sum())
        if n < 2:
            return 0.0, 0.0
        wanted = min(max(int(np.float32(n) * np.float32(limit.TAIL)), 8), n - 1)
        above, following = np.cumsum(self.rows[::-1], axis=0)[::-1].T  # rows in a bin or higher
        edge = int(max((i for i in range(1, BINS) if above[i] >= wanted), default=1)) - 1
        k, u = int(above[edge + 1]), middle(edge)
        excess = np.repeat([middle(i) for i in range(BINS)], self.rows[:, 0])[n - k :] - u
        if k < 2 or excess.sum() <= 0:
            return u, u
        b0, b1 = excess.mean(), (excess * np.arange(k - 1, -1, -1)).mean() / (k - 1)
        shape = float(np.clip(2 - b0 / max(b0 - 2 * b1, 1e-6 * b0), 0.0, 0.5))
        beyond = n - int(np.float32(0.999) * np.float32(n))
        most = max((middle(i) for i in range(edge + 1, BINS) if above[i] >= beyond), default=0.0)

        def reach(ends: int) -> float:
            far = -np.log(rate * n / max(ends, 1))
            if far <= 0:
                return u
            if shape > 1e-3:
                far = (np.exp(shape * far) - 1) / shape
            return float(min(u + b0 * (1 - shape) * far, limit.FARTHEST * most))

        return reach(k), reach(k - int(following[edge + 1]))


def halved(rows: Array) -> Array:
    """Return the histograms of every second row, from the highest bin on.

    Examples
    --------
    >>> halved(np.array([[7, 2, 0, 1, 1, 1]]).T).T.tolist()
    [[4, 1, 0, 0, 1, 0]]
    """
    return np.diff(np.cumsum(rows[::-1], axis=0) // 2, prepend=0, axis=0)[::-1]


def bin_of(score: float) -> int:
    """Return the bin of a score: the logarithm of its root, in sixteenths of an octave."""
    word = int(np.float32(np.sqrt(score)).view("uint32"))
    return min(max((word >> 19) - (127 + LOWEST) * OCTAVE + 1, 0), BINS - 1)


def middle(bin_: int) -> float:
    """Return the root in the middle of a bin."""
    if bin_ == 0:
        return 0.0
    word = ((bin_ - 1 + (127 + LOWEST) * OCTAVE) << 19) + (1 << 18)
    return float(np.uint32(word).view("float32"))
