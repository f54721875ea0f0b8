"""The monitor of a microcontroller in NumPy: the definition of `c/onlad.c`.

Its modes, and the way of a row through them, are those of the monitor (`onlad.mode`,
`onlad.judge`); what is defined here is what a chip does otherwise. It keeps the sums where the chip
keeps their factors, solves where the chip updates, and computes in float64. So both agree up to
rounding. Nobody pauses it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from onlad import anchor, judge, limit, mode, watching
from onlad.anchor import Anchor
from onlad.counter import Counters
from onlad.instance import HIDDEN, RIDGE, Instance
from onlad.mcu.layout import BINS, DELAY, PARTS, WARMUP, Sizes
from onlad.mode import CORRELATED, LEANING, SMOOTHING, STATISTICS, Mode
from onlad.reference import Array

FORGETTING = mode.FORGETTING**2  # of a squared error, at each row learned
PART = WARMUP // PARTS  # rows of a part of the start
BLOCK = 512  # the mean of the largest of these rows is about the 0.999 quantile
OCTAVE, LOWEST = 16, -5  # bins of the histogram in a factor of two, from 2^LOWEST on
STEEP = 8.0  # of a running median: within a quarter of the mean distance it follows in proportion
WIDER = 2.0  # usual squares of a candidate, in units: above, they are too small
ANCHOR_CLIP = 20.0  # the largest scaled value that counts for an anchor
LARGEST = 1e15  # what a sensor may say; more is a missing value


class Units(Instance):
    """Tanh units with the chip's tanh."""

    def hidden(self, V: Array) -> Array:
        """Return the hidden layer of the inputs `V`, one row each."""
        return squash(V @ self.alpha + self.b)


class Place(Mode):
    """A place for a mode, and how far its start is. The ridge is forgotten, and put back."""

    def __init__(self, sizes: Sizes, alpha: Array, bias: Array) -> None:
        super().__init__(sizes.features, sizes.window, True, 0)
        tanh, grouped = Units("tanh", self.features, self.features, 0), (-1, *sizes[2:4])
        self.instances = tanh, self.instances[1]
        missing = ((0, 0), (0, 0), (0, HIDDEN - sizes.units))  # units that are not there stay 0
        tanh.alpha = np.pad(alpha.T.reshape(grouped), missing).reshape(tanh.alpha.shape)
        tanh.b = np.pad(bias.reshape(grouped), missing).ravel()
        self.turns = np.arange(sizes.units), order(sizes)[1:]
        self.role, self.begun = "free", 0  # rows of its start
        self.seen: list[Array] = []  # of these, those that give its units,
        self.measured: list[tuple[Array, Array, Array]] = []  # and those that give its levels

    def take(self, window: Array, present: Array) -> None:
        """Let the usual squares follow a row."""
        self._take(self.errors(self.scaled(window)), present[None])

    def statistics_of(self, window: Array, present: Array) -> tuple[Array, Array]:
        """Return the four statistics of a row, and its errors in usual deviations."""
        E = self.errors(self.scaled(window)) * np.sqrt(self.inverse())[:, None] * present
        return self.statistics(E**2, present.sum())[:, 0], E[:, 0]

    def learn_one(self, window: Array) -> None:
        """Learn a row. One unit gets back of its ridge what is forgotten until its next turn."""
        V = self.scaled(window)
        for each, turns in zip(self.instances, self.turns, strict=True):
            each.learn(V[:, : len(each.alpha)], V[:, : self.features], FORGETTING)
            unit = turns[self.count % len(turns)]
            each.gram -= (1 - FORGETTING) * each._ridge  # `solve` adds all of it
            each.gram[:, unit, unit] += (1 - FORGETTING) * RIDGE * len(turns)
            each.solve()
        self.count += 1

    def take_over(self, source: Place) -> None:
        """Take over what was learned, but not what was measured."""
        self.centre, self.scale, self.count = source.centre, source.scale, source.count
        self.instances = copy.deepcopy(source.instances)


class Definition:
    """What a chip holds. `observe` is one row."""

    def __init__(
        self, sizes: Sizes, alpha: Array, bias: Array, counters: Sequence[int] = ()
    ) -> None:
        self.n, self.width = sizes.features, sizes.window
        self._layer = sizes, alpha, bias
        self.ready = False
        self.places = [Place(*self._layer) for _ in range(sizes.modes)]
        self.places[0].role = "beginning"
        self.modes = self.places[:1]
        self.judge = judge.Judge(judge.first(np.zeros(self.n), self.width), [*self.modes], 1)
        # The last rows: raw windows, the newest value first, and what is present of each row.
        self.kept: list[tuple[Array, Array]] = []
        self.said: list[tuple[float, Place, bool]] = []  # score, mode, unusual
        self.counters = Counters(np.array([np.full(self.n, np.nan), np.zeros(self.n)]))
        self.counters.which = np.array(counters, int)  # none has a value yet
        self.limit = ChipLimit(1e-4)
        self.now, self.gate, self.doubt, self.last = 0.0, 0.0, 1.0, 0.0
        self.tick: list[tuple[float, bool]] = []  # its scores in limits, and which are unusual
        self.explained = self.foreign = self.idle = 0
        self.anchor: Anchored | None = None
        self.drifting = -1

    def with_role(self, role: str) -> list[Place]:
        """Return the places with a role."""
        return [place for place in self.places if place.role == role]

    @property
    def current(self) -> Place:
        """The mode of the last row."""
        return self.modes[int(self.judge.moving.mode[0])]

    # -- the start of a mode ------------------------------------------------------------------

    def begin(self, place: Place, ago: int, first: bool) -> bool:
        """Take one row more of a start; return whether it is the last."""
        part, at, (window, present) = PART, place.begun, self.kept[-1 - ago]
        x = np.where(present, window[0, : self.n], np.nan)
        place.begun += 1
        if at < 2 * part:
            place.seen.append(x)
            if at == 2 * part - 1:
                rows = np.array(place.seen)
                centre, place.scale = mode.unit(rows)
                known = ~np.isnan(rows)
                mean = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                place.centre = np.where(np.isnan(centre), np.nan, mean)
            return False
        twin = self.places[1] if first and len(self.places) > 1 else None
        if twin is not None and at in (6 * part, 9 * part):
            place.take_over(twin)
        judge.wake(place, x)
        if at < 4 * part:
            place.learn_one(window)
            if first and 2 * part <= DELAY:
                place.learn_one(self.kept[-1 - ago - 2 * part][0])
            return False
        place.take(window, present)  # before it is measured: none is above OFTEN usual squares
        if at >= 6 * part:
            place.measured.append((*place.statistics_of(window, present), present))
        if twin is not None:
            if at == 4 * part:
                twin.take_over(place)
                twin.role = "twin"
            judge.wake(twin, x)
            twin.learn_one(window)
        if at < 12 * part - 1 or (not first and self.widen(place)):
            return False
        self.settle_levels(place, first)
        if twin is not None:
            place.take_over(twin)
            twin.role = "free"
        return True

    def widen(self, place: Place) -> bool:
        """Begin again in wider units if those of the first rows are far too small."""
        usual = place.usual[1]
        if usual.mean() <= WIDER:
            return False
        again = Place(*self._layer)
        again.role, again.begun, again.centre = place.role, 2 * PART, place.centre
        again.scale = np.minimum(place.scale * np.sqrt(np.maximum(usual, 1.0)), LARGEST)
        self.places[self.places.index(place)] = again
        return True

    def settle_levels(self, place: Place, first: bool) -> None:
        """Settle levels: one half of the rows gives those of rows, one those of means and leans."""
        found, E, present = (np.array(each) for each in zip(*place.measured, strict=True))
        half, leans = len(found) // 2, mode.leaning(E.swapaxes(0, 1), present)
        square = (leans[:, :half] ** 2).mean(axis=1)
        least = mode.PRIOR * square.mean(axis=1, keepdims=True)
        shrunk = (half * square + least) / (half + mode.PRIOR)
        place.leaning = np.maximum(shrunk, CORRELATED * LEANING / (2 - LEANING))
        median, reach = level(found[:half], 1.0, mode.LEAST[0])
        standard = ((found[half:] - median) / reach).T
        means = mode.running(standard, np.zeros(STATISTICS))
        slow = level(means.T, 1 / SMOOTHING, mode.LEAST[1])
        lean = place.lean_statistics(leans[:, half:])
        slowest = level(lean.T, CORRELATED / LEANING, mode.LEAST[0])
        place.levels = mode.Levels(median, reach, *slow, *slowest)
        if first:
            for score in place.score(standard):
                self.limit.count(score)

    def settle_limit(self) -> None:
        """Set threshold and gate of the next rows."""
        rows = max(sum(place.count for place in self.with_role("mode")), 1)
        self.limit.refresh()
        self.doubt, self.now = limit.doubt(rows), self.limit.value(rows)
        if self.limit.shelved():
            self.now = max(self.now, watching.SHELVED * max(row[0] for row in self.said[-DELAY:]))
        self.gate = gate(self.limit.edge, rows)

    # -- modes --------------------------------------------------------------------------------

    def seclude(self, ago: int) -> bool:
        """Give a refused row to the candidate; return whether that is a mode now."""
        self.idle = 0
        if not self.with_role("waiting"):
            if not self.with_role("beginning"):
                if not self.with_role("free"):
                    return False
                free = self.places.index(self.with_role("free")[0])
                self.places[free] = Place(*self._layer)
                self.places[free].role = "beginning"
            young = self.with_role("beginning")[0]
            if self.begin(young, ago, False):
                young.role, self.explained, self.foreign = "waiting", 0, 0
            return False
        waiting, (window, present) = self.with_role("waiting")[0], self.kept[-1 - ago]
        judge.wake(waiting, np.where(present, window[0, : self.n], np.nan))
        if waiting.score(waiting.standardised(window, present[None])[0])[0] <= 1:
            waiting.take(window, present)
            waiting.learn_one(window)
            self.explained += 1
        else:
            self.foreign += 1
        if self.foreign > watching.FOREIGN * (self.explained + watching.CANDIDATE):
            waiting.role = "free"
            return False
        modes = self.with_role("mode")
        rows = sum(place.count for place in modes)
        if self.explained < min(max(watching.PATIENCE * rows, watching.SHORTEST), watching.LONGEST):
            return False
        if len(modes) == len(self.places) - 1:  # the one that learned least gives its place
            least = min(modes, key=lambda place: place.count)
            least.role = "free"
            if self.anchor is not None and self.anchor.place is least:
                self.anchor, self.drifting = None, -1
        waiting.role = "mode"
        self.meet(self.current if self.current.role == "mode" else waiting)
        return True

    def meet(self, current: Place) -> None:
        """Let rows be judged by the modes as they are."""
        self.modes = self.with_role("mode")
        now = np.array([self.modes.index(current)])
        self.judge = judge.Judge(self.judge.moving._replace(mode=now), [*self.modes], 1)

    def decide(self) -> bool:
        """Decide on the row of DELAY rows ago; return whether there is a new mode."""
        if len(self.said) <= DELAY:
            return False
        score, place, unusual = self.said[-1 - DELAY]
        if sum(row[2] for row in self.said[-1 - DELAY :]) >= watching.SPARED * (DELAY + 1):
            return self.seclude(DELAY)
        self.limit.count(min(score, self.gate))
        self.idle += 1
        let_go = DELAY // watching.EXPIRING
        if self.idle % let_go == 0:
            for young in self.with_role("beginning"):
                if self.idle // let_go > young.begun:
                    young.role = "free"
        if unusual:
            return False
        place = place if place.role == "mode" else self.current
        window, present = self.kept[-1 - DELAY]
        place.take(window, present)
        place.learn_one(window)
        if self.anchor is None and place.count >= anchor.SETTLED:
            self.anchor = Anchored(place)
        return False

    # -- rows ---------------------------------------------------------------------------------

    def observe(self, x: Array) -> tuple[float, float, bool]:
        """Return score, threshold and whether a mode is new, of one row."""
        x = self.counters.rates(np.where(np.abs(x) <= LARGEST, x, np.nan)[None])[0][0]
        if not self.ready:
            if not np.isnan(x).all():
                self._warm_up(x)
            return 0.0, 0.0, False
        past = self.judge.moving.past
        (score,), _, _, _, (known,), _ = self.judge.rows(x[None])
        self._keep(known, past, x)
        unusual = score > self.gate
        most = self.now * (limit.SINGLE if self.last <= self.now else 1.0)
        told = score / self.doubt, most / self.doubt
        self.said = [*self.said[-DELAY:], (score, self.current, unusual)]
        self.tick.append((score / most, unusual))
        drift = self.decide()
        if self.anchor is not None and self.anchor.features < self.n:
            self.anchor.settle()
        elif score <= self.now and self.anchor and self.anchor.place is self.current:
            self.drifting = self.anchor.follow_one(self.kept[-1][0])
        if len(self.tick) == DELAY:
            ratio, refused = np.array(self.tick).T
            self.limit.follow(ratio, refused > 0)
            self.settle_limit()
            self.tick = []
        self.last = score
        return *told, drift

    def _keep(self, known: Array, past: Array, x: Array) -> None:
        window = np.concatenate((known, past.ravel()))[None]
        self.kept = [*self.kept[-DELAY:], (window, ~np.isnan(x))]

    def _warm_up(self, x: Array) -> None:
        present, moving = ~np.isnan(x), self.judge.moving
        known = np.where(present, x, moving.held)
        self._keep(known, moving.past, x)
        past = np.vstack((known[None], moving.past))[: self.width - 1]
        counts = moving.patience + present  # of the values of each feature
        age = np.where(present, 0.0, moving.age + 1)
        self.judge.moving = moving._replace(held=known, age=age, past=past, patience=counts)
        if self.begin(self.places[0], 0, True):
            patience = watching.HELD * WARMUP / np.maximum(counts, 1)
            patience[self.counters.which] = 0.0  # a rate is not held
            whole = np.array([self.width - 1])
            self.judge.moving = self.judge.moving._replace(patience=patience, run=whole)
            self.places[0].role, self.ready = "mode", True
            self.settle_limit()


class Anchored(Anchor):
    """The anchor: the linear prediction of one mode, copied feature by feature."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.place, self.features = place, 0

    def settle(self) -> None:
        """Copy the prediction of one feature more."""
        j, now = self.features, Anchor(self.place)
        self.beta[:, j] = now.beta[:, j]
        for name in ("centre", "scale", "deviation"):
            getattr(self, name)[j] = getattr(now, name)[j]
        self.features += 1

    def follow_one(self, window: Array) -> int:
        """Let the lean follow a row of its mode; return what drifts, or -1."""
        place = self.place
        z = (window.reshape(place.width, -1) - self.centre) / np.where(
            self.scale > 0, self.scale, np.inf
        )
        V = np.clip(np.nan_to_num(z), -ANCHOR_CLIP, ANCHOR_CLIP).reshape(1, -1)
        error = (V[:, : place.features] - place.instances[1].hidden(V) @ self.beta)[0]
        half = int(2 * self.rows >= anchor.MEASURED)
        self.rows = min(self.rows + 1, anchor.MEASURED)
        self.lean = self.lean + (error - self.lean) / anchor.MEAN
        if self.rows < anchor.MEASURED:
            self.halves[half] = np.maximum(self.halves[half], np.abs(self.lean))
        return self.drifting()


def gate(edge: float, rows: int) -> float:
    """Return above which score a row is refused, by the edge of the tail and the rows learned."""
    return watching.REFUSED * max(1.0, edge) * (1 + watching.YOUNG / rows)


def squash(x: Array) -> Array:
    """Return the chip's tanh: a quotient of polynomials.

    Examples
    --------
    >>> x = np.linspace(-9, 9, 9001)
    >>> bool(np.abs(squash(x) - np.tanh(x)).max() < 1.2e-4)
    True
    """
    s = x**2
    y = x * (135135 + s * (17325 + s * (378 + s)))
    y = y / (135135 + s * (62370 + s * (3150 + s * 28)))
    return np.asarray(np.where(np.abs(x) > 4.9, np.sign(x), y))


def level(measured: Array, rows_in_mean: float, least: float) -> tuple[Array, Array]:
    """Return median and reach of what was measured, row after row without keeping it."""
    median, away = measured[0].copy(), np.zeros(STATISTICS)
    for count, found in enumerate(measured[1:], 1):
        away = away + (np.abs(found - median) - away) / count
        median = median + np.clip(STEEP * (found - median), -2 * away, 2 * away) / count
    whole = len(measured) // BLOCK * BLOCK
    blocks = measured[: whole or None].reshape(max(whole // BLOCK, 1), -1, STATISTICS)
    high = blocks.max(axis=1).mean(axis=0)
    wider = mode.BEYOND * (1 + mode.FEW * rows_in_mean / len(measured))
    return median, np.maximum(wider * (high - median), least)


def order(sizes: Sizes) -> Array:
    """Return which input of the monitor, newest first and constant last, each of the chip is."""
    n, w = sizes.features, sizes.window
    return np.append(n * w, np.arange(n * w).reshape(w, n)[::-1].ravel())


class ChipLimit(limit.Limit):
    """The limit of the monitor, with a histogram of recent scores by the logarithm of their roots.

    A row begins a cluster above some bin if it is above it, and none of the GAP + 1 rows before it
    is. So a second histogram, of the lower of each row and the highest of those before it, says
    how many rows above a bin do not begin one.
    """

    def __init__(self, rate: float) -> None:
        self.rows = np.zeros((BINS, 2), int)  # all, and those that follow one as high
        self.before = np.zeros(limit.GAP + 1, int)  # bins of the last rows, the newest first
        super().__init__(rate, np.zeros(1))

    def refresh(self) -> None:
        """Fit the tail to the histogram as it is."""
        self.edge, self.base = (max(limit.LEAST, root**2) for root in self.tails())

    def count(self, score: float) -> None:
        """Put a normal score into the histogram; halve it when it is full."""
        at = bin_of(score)
        self.rows[at, 0] += 1
        self.rows[min(at, self.before.max()), 1] += 1
        self.before = np.append(at, self.before[:-1])
        if self.rows[:, 0].sum() >= limit.RECENT:
            self.rows = halved(self.rows)

    def tails(self) -> tuple[float, float]:
        """Return `onlad.limit.tail` of the histogram, not `clustered` and so.

        The rows of a bin are taken to be spread over it, and so are the clusters that begin there.
        """
        rows = self.rows[:, 0]
        n = int(rows.sum())
        if n < 2:
            return 0.0, 0.0
        low = np.array([lowest(i) for i in range(BINS + 1)])
        bins = np.repeat(np.arange(BINS), rows)
        nth = np.arange(n) - np.repeat(np.cumsum(rows) - rows, rows)
        roots = low[bins] + (low[bins + 1] - low[bins]) * (nth + 0.5) / rows[bins]
        k = min(max(int(n * limit.TAIL), limit.FEWEST), n - 1)
        begin = (rows - self.rows[:, 1]) / np.maximum(rows, 1)  # of the rows of a bin
        clusters = max(begin[bins[-k:]].sum(), 1.0)
        edge = limit.tail(roots, self.rate, clustered=False)
        return edge, limit.tail(roots, self.rate * k / clusters, clustered=False)


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


def lowest(bin_: int) -> float:
    """Return the least root of a bin."""
    word = (bin_ - 1 + (127 + LOWEST) * OCTAVE) << 19
    return float(np.uint32(word).view("float32")) if bin_ else 0.0
