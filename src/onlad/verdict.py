"""The result of a monitor: a `Verdict` for one sample, `Verdicts` for many, as columns.

Causes, bands, directions and severity are computed when they are read: few callers need them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onlad import severity
from onlad._kernel import severities
from onlad.reference import Array
from onlad.samples import Made

#: Fields of a verdict that are columns as they are.
JUDGED = ("ready", "score", "threshold", "p_value", "is_anomaly", "learned", "drift")


class Around(NamedTuple):
    """Values and bands of one sample, from which parts of its verdict are computed."""

    names: tuple[Hashable, ...]
    values: Array  # (n,) NaN where one is missing
    expected: Array  # (n,) NaN where nothing was
    reach: Array  # (n,) half widths of the bands
    unusual: int  # unusual samples among the last ones, this one included; 1 if it is not
    rate: float  # the false-alarm budget

    def band(self, side: int) -> dict[Hashable, float]:
        """Return the lower (-1) or upper (1) ends of the bands, or the expected values (0)."""
        return self.named(self.expected + side * self.reach)

    def named(self, numbers: Array) -> dict[Hashable, float]:
        """Return the numbers that are known, by name."""
        pairs = zip(self.names, numbers.tolist(), strict=True)
        return {name: number for name, number in pairs if not math.isnan(number)}


def causes(names: tuple[Hashable, ...], shares: Array) -> dict[Hashable, float]:
    """Return the shares above 0 by name, the largest first."""
    ordered = np.argsort(-shares, kind="stable").tolist()
    return {names[j]: float(shares[j]) for j in ordered if shares[j] > 0}


class _LateCauses:
    """Computes `causes` when it is read for the first time."""

    __slots__ = ("_around", "_names", "_rate", "_shares")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name != "causes":
                raise AttributeError(f"a Verdict has no attribute {name!r}")
            found = causes(self._names, np.frombuffer(self._shares))
            object.__setattr__(self, "causes", found)
            return found


@dataclass(frozen=True, slots=True)
class Verdict(_LateCauses):
    """The verdict of a monitor on one sample.

    Attributes
    ----------
    ready
        False during the warm-up, in which nothing is an anomaly.
    score
        How unusual the sample is: 0 is normal, 1 is twice as far out as 999 of 1,000 samples of the
        start. It has no upper bound.
    threshold
        A sample with a higher score is an anomaly.
    p_value
        Share of recent normal samples with a score at least as high.
    is_anomaly
        Whether the score is above the threshold.
    causes
        Share of each feature in the score, the largest first; they sum to 1. A missing value is
        never a cause. Empty during the warm-up.
    learned
        Whether the sample is normal enough to be learned. It is learned 64 to 128 samples later,
        unless many of the samples after it are unusual.
    drift
        Whether a new mode was confirmed here: a lasting change is normal from now on.
    drifting
        The feature that has drifted slowly away from what the others predict, or None. It is a
        notice, not an alarm.
    expected
        The prediction of each feature from the others and from the samples before, in raw units.
        Empty during the warm-up.
    low, high
        The band around it in which 95 % of normal values lie.
    direction
        ``"above"`` or ``"below"``, for each feature outside its band.
    severity
        0 to 100, comparable between machines (`onlad.severity`): each factor of ten adds ten
        points, in how rarely normal data has such a score, and in how many of the last samples were
        unusual.
    """

    ready: bool
    score: float
    threshold: float
    p_value: float
    is_anomaly: bool
    causes: dict[Hashable, float]
    learned: bool
    drift: bool
    drifting: Hashable | None = None

    @property
    def around(self) -> Around:
        """Values and bands of the sample; empty in a copy of a verdict."""
        data, names = getattr(self, "_around", b""), getattr(self, "_names", ())
        if not data:
            none = np.empty(0)
            return Around((), none, none, none, 1, 1.0)
        n, numbers = len(names), np.frombuffer(data)
        values, expected, reach = numbers[: 3 * n].reshape(3, n)
        rate = float(getattr(self, "_rate", 1.0))
        return Around(names, values, expected, reach, int(numbers[-1]), rate)

    def with_around(self, names: tuple[Hashable, ...], numbers: Array, rate: float) -> Verdict:
        """Return the verdict itself, with values and bands of the sample, as the kernel has them.

        `numbers` are values, expected values, half widths of bands, and the count of unusual ones
        among the last samples.
        """
        for name, value in (("_names", names), ("_around", numbers.tobytes()), ("_rate", rate)):
            object.__setattr__(self, name, value)  # it is frozen for everybody else
        return self

    @property
    def expected(self) -> dict[Hashable, float]:
        """The expected value of each feature."""
        return self.around.band(0)

    @property
    def low(self) -> dict[Hashable, float]:
        """The lower end of the band of each feature."""
        return self.around.band(-1)

    @property
    def high(self) -> dict[Hashable, float]:
        """The upper end of the band of each feature."""
        return self.around.band(1)

    @property
    def direction(self) -> dict[Hashable, str]:
        """Above or below, for each feature outside its band."""
        low, high, around = self.low, self.high, self.around
        return {
            name: "above" if value > high[name] else "below"
            for name, value in around.named(around.values).items()
            if name in high and not low[name] <= value <= high[name]
        }

    @property
    def severity(self) -> float:
        """The severity, 0 to 100."""
        around = self.around
        ratio = self.score / self.threshold
        return severity.severity(ratio, self.p_value, around.unusual, around.rate)


class Verdicts(Made[Verdict]):
    """Verdicts of many samples as columns; ``verdicts[i]`` is a `Verdict`.

    The columns are arrays with one entry per sample: ``ready``, ``score``, ``threshold``,
    ``p_value``, ``is_anomaly``, ``learned``, ``drift``, ``drifting`` (the number of the feature, or
    -1), ``severity``, and with one column for each feature, in the order of ``names``, ``shares``,
    ``values``, ``expected``, ``low`` and ``high``.
    """

    def __init__(self, names: tuple[Hashable, ...], rows: int, features: int | None = None) -> None:
        self.names = names
        n = len(names) if features is None else features
        self.ready = np.zeros(rows, bool)
        self.score = np.zeros(rows)
        self.threshold = np.full(rows, np.inf)
        self.p_value = np.ones(rows)
        self.is_anomaly = np.zeros(rows, bool)
        self.learned = np.ones(rows, bool)
        self.drift = np.zeros(rows, bool)
        self.drifting = np.full(rows, -1, "int64")
        self.shares = np.zeros((rows, n))
        self.values = np.full((rows, n), np.nan)
        self.around = np.full((rows, 2 * n + 1), np.nan)  # as the kernel fills it in
        self.around[:, -1] = 1.0
        self.rate = np.ones(rows)  # the false-alarm budget

    def part(self, names: tuple[Hashable, ...], rows: slice) -> Verdicts:
        """Return the verdicts on some of the rows, under these names; they share the memory."""
        found = Verdicts.__new__(Verdicts)
        vars(found).update({column: values[rows] for column, values in vars(self).items()})
        found.names = names
        return found

    def __len__(self) -> int:
        return len(self.score)

    def put(self, part: slice, other: Verdicts) -> None:
        """Copy other verdicts into a part of these."""
        for name, column in vars(self).items():
            if name != "names":
                column[part] = getattr(other, name)

    def joined(self, late: Verdicts) -> Verdicts:
        """Return these verdicts, combined with those of a monitor of later features, `late`.

        It watches these features too, but its anomalies count only where a later feature is the
        largest cause. There its score is used, in units of the threshold here.
        """
        n, both = len(self.names), Verdicts(late.names, len(self))
        for name, column in vars(self).items():
            if name not in ("names", "shares", "values", "around"):
                setattr(both, name, column)
        both.values = late.values
        both.shares[:, :n] = self.shares
        for own, other, given in (
            (both.expected, late.expected, self.expected),
            (both.reach, late.reach, self.reach),
        ):
            own[:, :n], own[:, n:] = given, other[:, n:]
        both.unusual[:] = self.unusual
        with np.errstate(invalid="ignore"):
            ratio = late.score / late.threshold
            higher = ratio > np.where(self.is_anomaly, self.score / self.threshold, 0.0)
            score = ratio * self.threshold
        take = late.is_anomaly & (late.shares.argmax(axis=1) >= n) & higher & self.ready
        both.is_anomaly = self.is_anomaly | take
        both.score = np.where(take, score, self.score)
        both.p_value = np.where(take, late.p_value, self.p_value)
        both.shares[take], both.unusual[take] = late.shares[take], late.unusual[take]
        return both

    def _item(self, place: int) -> Verdict:
        drifting = int(self.drifting[place])
        verdict = Verdict(
            **{name: getattr(self, name)[place].item() for name in JUDGED},
            causes=causes(self.names, self.shares[place]),
            drifting=self.names[drifting] if drifting >= 0 else None,
        )
        around = np.concatenate((self.values[place], self.around[place]))
        return verdict.with_around(self.names, around, float(self.rate[place]))

    @property
    def expected(self) -> Array:
        """The expected value of each feature."""
        return self.around[:, : len(self.names)]

    @property
    def reach(self) -> Array:
        """Half widths of the bands."""
        return self.around[:, len(self.names) : -1]

    @property
    def unusual(self) -> Array:
        """How many of the last samples were unusual."""
        return self.around[:, -1]

    @property
    def low(self) -> Array:
        """The lower ends of the bands."""
        return np.asarray(self.expected - self.reach)

    @property
    def high(self) -> Array:
        """The upper ends of the bands."""
        return np.asarray(self.expected + self.reach)

    @property
    def severity(self) -> Array:
        """The severity of each sample, 0 to 100."""
        found = np.zeros(len(self))
        ratio, unusual = self.score / self.threshold, np.ascontiguousarray(self.unusual)
        severities(
            ratio=ratio, p_value=self.p_value, unusual=unusual, rate=self.rate,
            constants=severity, out=found,
        )  # fmt: skip
        return found
