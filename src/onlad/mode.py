"""`Mode`: one way in which a machine runs, what is usual in it, and how unusual a row is for it.

A mode has a centre and a unit for each feature and two instances: tanh units on the row, and a
linear prediction of each feature from all others and the rows before. Each error is squared and
divided by its usual square, which is the mean of those learned, but not far below the largest: a
feature that seldom moves must not outweigh the others when it does. Four statistics come of a row:
for each instance the mean and the largest of these squares. Each is standardised (`Levels`): 0 is
the median of normal rows, 1 lies twice as far above it as the 0.999 quantile. So is a running mean
of each, in which no row counts for more than 1. And so are the same four statistics of the
leans, the EWMAs of the errors: a small fault that lasts moves them to one side. The score
is the mean over the four of the highest of the three: linear in the squares, without a ceiling. In
rows without order there is no running mean.

The statistics of a start come from cross-validation: each half of the rows is predicted by a model
of the other half. So a stream that has not shown its range yet has wide levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from onlad import fields
from onlad.fields import Numbers, Within
from onlad.instance import CONSTANT, GROUPS, HIDDEN, PROJECTED, RIDGE, WIDEST, Instance, Kind
from onlad.modelfile import need
from onlad.reference import Array

STATISTICS = 4
FORGETTING = 0.9999  # the paper's a: squared errors k learned rows ago weigh a^(2k)
CLIP = 1e4  # the largest scaled value: beside its square the ridge is still seen
RANGE = 4.0  # a unit is at least the range over this
PRIOR, PRIOR_SQUARE = 64.0, 0.02  # rows that a usual square starts with, and the least of these
OFTEN = 64.0  # a usual square is at least the largest that was learned, over this
ACCEPTED = 8.0  # what a square of an accepted row counts for at most: less than 3 deviations
MEMORY = 5_000  # rows that a usual square weighs at most
SMOOTHING = 1 / 30  # weight of the newest row in a running mean
LEANING = 1 / 30  # weight of the newest error in its lean
QUANTILE, BEYOND = 0.999, 2.0  # a level reaches this quantile, times this
FEW = 4.0  # widens a level that few rows were there for
LEAST = (0.5, 0.05)  # the least reach of a level: of rows and leans, of running means
WINSOR = 3.0  # deviations that an error counts for at most in its lean
CORRELATED = 4.0  # rows over which errors are taken to be alike, in the deviation of a lean
BLOCK = 64  # rows of an EWMA that are averaged together: their weights stay well above 0
STILL = 1e-12  # of a centre: what moves by less does not move, it is rounded otherwise
COVERED = 0.95  # share of the normal values of a feature that its band holds
WIDENING = 0.02  # by which a value outside of its band raises the logarithm of the width
NARROWEST = 1e-3  # of the root of the usual square: no band is narrower

# In a file: wider than any stream needs, and narrow enough that no square or quotient overflows.
LARGEST_UNIT = 1e120  # a mode may start from values that another mode estimated
SMALLEST_UNIT = 1e-30  # what moves by less is still
LARGEST_SUM = 1e14  # of products of scaled values: the ridge is still seen beside it
LARGEST_SQUARE = 1e60  # of an error
LARGEST_LEVEL, SMALLEST_REACH = 1e9, 1e-3


class Levels(NamedTuple):
    """What is usual for the statistics: (4,) the median of rows, and how far 1 is from it."""

    median: Array
    reach: Array
    mean_median: Array  # the same of running means
    mean_reach: Array
    lean_median: Array  # the same of leans
    lean_reach: Array


@dataclass(frozen=True, slots=True, eq=False)
class ModeState:
    """What was learned of one mode. beta follows from the sums, of which one half is kept."""

    gram: Annotated[Array, Numbers(("groups", HIDDEN * (HIDDEN + 1) // 2), high=LARGEST_SUM)]
    linear_gram: Annotated[Array, Numbers(("half",), high=LARGEST_SUM)]
    moment: Annotated[Array, Numbers((HIDDEN, "n"), high=LARGEST_SUM)]
    linear_moment: Annotated[Array, Numbers(("projected",), high=LARGEST_SUM)]
    centre: Annotated[Array, Numbers(("n",), high=LARGEST_UNIT, missing=True)]
    scale: Annotated[Array, Numbers(("n",), low=0, high=LARGEST_UNIT)]
    usual: Annotated[Array, Numbers((2, "n"), low=0, high=LARGEST_SQUARE)]
    largest: Annotated[Array, Numbers((2, "n"), low=0, high=LARGEST_SQUARE)]
    band: Annotated[Array, Numbers(("n",), low=0, high=CLIP)]
    leaning: Annotated[Array, Numbers((2, "n"), low=SMALLEST_REACH, high=WINSOR**2)]
    levels: Annotated[Array, Numbers((6, STATISTICS), high=LARGEST_LEVEL)]
    weight: Annotated[float, Within(0, MEMORY)]
    count: Annotated[int, Within(1)]

    def check(self, n: int, width: int) -> None:
        """Refuse, with `ValueError`, what no mode of `n` features could have learned."""
        M = units(n, width)
        projected = (M, n) if n * width > WIDEST else (0,)
        groups, half = min(GROUPS, n), M * (M + 1) // 2
        sizes = {"n": n, "groups": groups, "half": half, "projected": projected}
        fields.check(self, sizes)
        check_unit(self.centre, self.scale, n)
        reach = Numbers((3, STATISTICS), low=SMALLEST_REACH)
        reach.check("reach in levels", self.levels[1::2])
        _check_sums(unpacked(self.gram), RIDGE)
        _check_sums(unpacked(self.linear_gram[None]), CONSTANT)


class Mode:
    """What was learned of one mode. `start` makes it, `learn` goes on."""

    def __init__(self, features: int, width: int, ordered: bool, seed: int) -> None:
        self.features, self.width, self.ordered, self.seed = features, width, ordered, seed
        self.centre: Array = np.full(features, np.nan)
        self.scale: Array = np.zeros(features)
        self.instances = self._instances()
        self.usual: Array = np.zeros((2, features))
        self.largest: Array = np.ones((2, features))  # square that was learned; 1 if it never moved
        self.band: Array = np.zeros(features)  # errors of the prediction that are within COVERED
        self.weight = 0.0  # rows behind `usual`
        self.count = 0  # rows learned
        one = np.ones(STATISTICS)
        self.levels = Levels(0 * one, one, 0 * one, one, 0 * one, one)
        self.leaning: Array = np.ones((2, features))  # usual squares of leans

    def _instances(self) -> tuple[Instance, Instance]:
        inputs = self.features * self.width
        kind: Kind = "linear" if inputs <= WIDEST else "projected"
        n = self.features
        return Instance("tanh", n, n, self.seed), Instance(kind, inputs, n, self.seed + 1)

    # -- from raw windows to statistics -------------------------------------------------------

    def scaled(self, windows: Array) -> Array:
        """Return raw windows in units of this mode; what is not known, or never moved, is 0."""
        scale = np.where(self.scale > 0, self.scale, np.inf)
        Z = (windows.reshape(-1, self.width, self.features) - self.centre) / scale
        Z[np.isnan(Z)] = 0.0
        return np.minimum(np.maximum(Z, -CLIP, out=Z), CLIP, out=Z).reshape(len(windows), -1)

    def errors(self, V: Array) -> Array:
        """Return the errors of both instances, (2, rows, features), for scaled windows."""
        return _errors(self.instances, V, self.features)

    def inverse(self) -> Array:
        """Return one over each usual square, (2, features), shrunk towards their mean."""
        least = np.maximum(self.usual.mean(axis=1, keepdims=True), PRIOR_SQUARE)
        mixed: Array = (self.weight * self.usual + PRIOR * least) / (self.weight + PRIOR)
        return np.asarray(1.0 / np.maximum(mixed, self.largest / OFTEN))

    def statistics(self, squares: Array, count: Array | int) -> Array:
        """Return the four statistics, (4, rows), of squares of `count` features in usual units."""
        return np.concatenate((squares.sum(axis=2) / np.maximum(count, 1), squares.max(axis=2)))

    def standardised(self, windows: Array, present: Array) -> tuple[Array, Array]:
        """Return the standardised statistics of rows, and their errors in usual deviations."""
        E = self.errors(self.scaled(windows)) * np.sqrt(self.inverse())[:, None] * present
        found = self.statistics(E**2, present.sum(axis=1))
        return (found - self.levels.median[:, None]) / self.levels.reach[:, None], E

    def lean_statistics(self, leans: Array) -> Array:
        """Return the four statistics, (4, rows), of leans."""
        return self.statistics(leans**2 / self.leaning[:, None], self.features)

    def score(
        self, standard: Array, means: Array | None = None, leans: Array | None = None
    ) -> Array:
        """Return the score of rows from their statistics and, if ordered, running means."""
        levels = self.levels
        if means is not None and leans is not None:
            slow = (means - levels.mean_median[:, None]) / levels.mean_reach[:, None]
            lean = self.lean_statistics(leans) - levels.lean_median[:, None]
            standard = np.maximum(np.maximum(standard, slow), lean / levels.lean_reach[:, None])
        return np.asarray(np.maximum(standard, 0.0).mean(axis=0))

    # -- learning -----------------------------------------------------------------------------

    def start(
        self, windows: Array, present: Array, given: tuple[Array, Array] | None = None
    ) -> Array:
        """Learn the first rows; return their scores, each given by a model of the other half.

        `given` are centre and scale, if they are not to be found in the rows.
        """
        rows = np.where(present, windows[:, : self.features], np.nan)
        self.centre, self.scale = unit(rows) if given is None else given
        V, n, half = self.scaled(windows), self.features, len(windows) // 2
        E = np.empty((2, len(V), n))
        for part, rest in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            others = self._instances()
            _learn(others, V[rest], n, 1.0)
            E[:, part] = _errors(others, V[part], n)
        self._take(E, present)
        self.band = _quantile(np.abs(E[1]), present)
        _learn(self.instances, V, n, 1.0)
        self.count = len(V)
        E *= np.sqrt(self.inverse())[:, None] * present
        found = self.statistics(E**2, present.sum(axis=1))
        median, reach = _level(found, 1.0, LEAST[0])
        standard = (found - median[:, None]) / reach[:, None]
        if not self.ordered:
            self.levels = self.levels._replace(median=median, reach=reach)
            return self.score(standard)
        means = running(standard, np.median(np.minimum(standard, 1.0), axis=1))
        leans = leaning(E, present)
        square = (leans**2).mean(axis=1)
        shrunk = (len(V) * square + PRIOR * square.mean(axis=1, keepdims=True)) / (len(V) + PRIOR)
        self.leaning = np.maximum(shrunk, CORRELATED * LEANING / (2 - LEANING))
        self.levels = Levels(
            median,
            reach,
            *_level(means, 1 / SMOOTHING, LEAST[1]),
            *_level(self.lean_statistics(leans), CORRELATED / LEANING, LEAST[0]),
        )
        return self.score(standard, means, leans)

    def learn(self, windows: Array, present: Array) -> None:
        """Learn rows, and forget as much of the past."""
        V = self.scaled(windows)
        E = _learn(self.instances, V, self.features, FORGETTING ** (2 * len(V)))
        self._take(E, present)
        self.widen(E[1], present)
        self.count += len(V)

    def accept(self, window: Array, present: Array) -> None:
        """Learn one row and forget nothing. Errors as large as those left are usual from now on."""
        V = self.scaled(window)
        _learn(self.instances, V, self.features, 1.0)
        left = (self.errors(V) ** 2 * present)[:, 0]
        self.largest = np.maximum(self.largest, OFTEN / ACCEPTED * left)

    def _take(self, E: Array, present: Array) -> None:
        """Let the usual squares follow errors."""
        squares = E**2 * present
        largest = squares.max(axis=1, initial=0.0)
        asleep = ~(self.scale > 0)
        self.largest = np.maximum(largest, self.largest if self.weight else 1.0 * asleep)
        count = present.sum(axis=0)
        mean = (self.weight * self.usual + squares.sum(axis=1)) / np.maximum(self.weight + count, 1)
        self.usual = np.where(count > 0, mean, self.usual)
        self.weight = min(self.weight + len(present), MEMORY)

    def widen(self, errors: Array, present: Array) -> None:
        """Let the band of each feature follow errors of its prediction: wider if more lie outside.

        Over time a share of COVERED lies inside, whatever the distribution is.
        """
        outside = ((np.abs(errors) > self.band) & present).sum(axis=0)
        grown = self.band * np.exp(WIDENING * (outside - (1 - COVERED) * present.sum(axis=0)))
        self.band = np.clip(grown, NARROWEST * np.sqrt(self.usual[1]), CLIP)

    # -- values in and out --------------------------------------------------------------------

    def learned(self) -> ModeState:
        """Return all that was learned."""
        tanh, linear = self.instances
        return ModeState(
            gram=packed(tanh.gram), linear_gram=packed(linear.gram)[0], moment=tanh.moment.copy(),
            linear_moment=linear.moment.copy() if linear.kind == "projected" else np.empty(0),
            centre=self.centre.copy(), scale=self.scale.copy(), usual=self.usual.copy(),
            largest=self.largest.copy(), leaning=self.leaning.copy(), levels=np.array(self.levels),
            band=self.band.copy(),
            weight=float(self.weight), count=self.count,
        )  # fmt: skip

    def resume(self, state: ModeState) -> Mode:
        """Take over what `learned` returned."""
        tanh, linear = self.instances
        self.centre, self.scale = state.centre.copy(), state.scale.copy()
        tanh.gram, tanh.moment = unpacked(state.gram), state.moment.copy()
        linear.gram = unpacked(state.linear_gram[None])
        if linear.kind == "projected":
            linear.moment = state.linear_moment.copy()
        tanh.solve()
        linear.solve()
        self.usual, self.largest = state.usual.copy(), state.largest.copy()
        self.band = state.band.copy()
        self.weight, self.count = state.weight, state.count
        self.leaning, self.levels = state.leaning.copy(), Levels(*state.levels.copy())
        return self


def unit(rows: Array) -> tuple[Array, Array]:
    """Return centre and unit of each feature; NaN and 0 where it was not seen, 0 if it is still.

    The unit is the deviation, but at least a quarter of the range: a channel that is seldom on
    must not be blown up. What is still gets its unit when it first moves: that move is 1.
    """
    known = ~np.isnan(rows)
    seen = known.any(axis=0)
    some = np.where(seen, rows, 0.0)
    centre = np.nanmedian(some, axis=0)
    span = np.nanmax(some, axis=0) - np.nanmin(some, axis=0)
    scale = np.maximum(np.nanstd(some, axis=0), span / RANGE)
    still = scale <= STILL * np.abs(centre) + SMALLEST_UNIT
    return np.where(seen, centre, np.nan), np.where(still | ~seen, 0.0, scale)


def running(standard: Array, start: Array) -> Array:
    """Return the running mean of each statistic after each row; none counts for more than 1."""
    weight = np.full(standard.T.shape, SMOOTHING)
    return np.asarray(ewma(np.minimum(standard.T, 1.0), weight, start).T)


def leaning(E: Array, present: Array) -> Array:
    """Return the lean of each error, (2, rows, features), after each row.

    A value that is missing leaves it as it is.
    """
    weight = np.broadcast_to(LEANING * present[:, None], (len(present), *E[:, 0].shape))
    errors = np.clip(E, -WINSOR, WINSOR).swapaxes(0, 1)
    return np.asarray(ewma(errors, weight, np.zeros_like(E[:, 0])).swapaxes(0, 1))


def ewma(values: Array, weight: Array, start: Array) -> Array:
    """Return ``mean += weight * (value - mean)`` after each row, from `start` on, in blocks.

    Examples
    --------
    >>> ewma(np.array([8.0, 0.0, 4.0]), np.array([0.5, 0.5, 0.0]), np.zeros(()))
    array([4., 2., 2.])
    """
    means = np.empty_like(values)
    for first in range(0, len(values), BLOCK):
        part = slice(first, first + BLOCK)
        kept = np.cumprod(1 - weight[part], axis=0)  # of the mean before the block
        means[part] = kept * (start + np.cumsum(weight[part] * values[part] / kept, axis=0))
        start = means[part][-1]
    return means


def packed(gram: Array) -> Array:
    """Return one half of each symmetric matrix, with its diagonal: (groups, half)."""
    rows, columns = np.triu_indices(gram.shape[1])
    return gram[:, rows, columns]


def unpacked(half: Array) -> Array:
    """Return the symmetric matrices of which `half` was `packed`."""
    size = int((np.sqrt(8 * half.shape[1] + 1) - 1) / 2)
    rows, columns = np.triu_indices(size)
    gram: Array = np.zeros((len(half), size, size))
    gram[:, rows, columns] = half
    gram[:, columns, rows] = half
    return gram


def units(n: int, width: int) -> int:
    """Return the units of the second instance of a mode."""
    return n * width + 1 if n * width <= WIDEST else PROJECTED + 1


def check_unit(centre: Array, scale: Array, n: int) -> None:
    """Refuse, with `ValueError`, what is no centre and scale of `n` features."""
    Numbers((n,), high=LARGEST_UNIT, missing=True).check("centre", centre)
    Numbers((n,), low=0, high=LARGEST_UNIT).check("scale", scale)
    moving = scale > 0
    large = bool((scale[moving] >= SMALLEST_UNIT).all())
    need(large, f"scale must be 0 or at least {SMALLEST_UNIT}")
    need(not np.isnan(centre[moving]).any(), "a feature with a scale must have a centre")


def _check_sums(gram: Array, last: float) -> None:
    """Insist on sums that rows can have: with half of the ridge they are positive definite.

    They are then, with the whole ridge, whatever rows are added.
    """
    ridge = np.append(np.full(gram.shape[1] - 1, RIDGE), last)
    try:
        np.linalg.cholesky(gram + np.diag(ridge / 2))
    except np.linalg.LinAlgError:
        raise ValueError("the sums of a mode are not those of any rows") from None


def _quantile(sizes: Array, present: Array) -> Array:
    """Return the COVERED quantile of each feature's values, 0 where there are none."""
    known = [sizes[present[:, j], j] for j in range(sizes.shape[1])]
    return np.array([np.quantile(each, COVERED) if len(each) else 0.0 for each in known])


def _level(found: Array, rows_in_mean: float, least: float) -> tuple[Array, Array]:
    median, high = np.quantile(found, [0.5, QUANTILE], axis=1)
    widened = BEYOND * (1 + FEW * rows_in_mean / found.shape[1])
    return median, np.maximum(widened * (high - median), least)


def _errors(instances: tuple[Instance, Instance], V: Array, n: int) -> Array:
    tanh, linear = instances
    X = V[:, :n]
    return np.array([tanh.errors(X, X), linear.errors(V, X)])


def _learn(instances: tuple[Instance, Instance], V: Array, n: int, forgotten: float) -> Array:
    """Learn scaled windows; return the errors before it."""
    tanh, linear = instances
    X = V[:, :n]
    return np.array([tanh.learn(X, X, forgotten), linear.learn(V, X, forgotten)])
