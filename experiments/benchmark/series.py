"""One stream with what is known about it, what a method says of it, and collections of streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.testbeds import Array

Range = tuple[int, int]  # [start, stop) of rows


@dataclass(frozen=True, kw_only=True)
class Series:
    """A stream in raw units, in order of time unless `ordered` is False.

    Attributes
    ----------
    X
        (rows, features) float64; NaN is a missing value.
    y
        (rows,) 1 where a row is anomalous.
    history
        Rows at the beginning that are known to be normal; a method may be fitted to them.
    first
        First row that counts, for a method that was not fitted to the history.
    causes
        Features in which a fault shows, by the rows of the fault.
    marks
        Rows for which the share in alarm is asked, by name.
    times
        (rows,) of the rows, in seconds, for methods that are given them.
    """

    collection: str
    name: str
    X: Array
    y: Array
    history: int
    first: int
    causes: Mapping[Range, tuple[int, ...]] = field(default_factory=dict)
    marks: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    ordered: bool = True
    times: Array | None = None

    def __post_init__(self) -> None:
        rows = len(self.X)
        if self.X.ndim != 2 or self.y.shape != (rows,):
            raise ValueError(f"{self.name}: X is {self.X.shape} and y is {self.y.shape}")
        if not 0 < self.history < rows or not 0 <= self.first < rows:
            raise ValueError(f"{self.name}: history {self.history}, first {self.first} of {rows}")
        if self.y[: self.history].any():
            raise ValueError(f"{self.name}: row {int(np.argmax(self.y))} of the history is a fault")
        for start, stop in (*self.causes, *(r for ranges in self.marks.values() for r in ranges)):
            if not 0 <= start < stop <= rows:
                raise ValueError(f"{self.name}: no rows {start} to {stop} in {rows}")


def series(
    collection: str,
    name: str,
    X: Array,
    y: Array | None = None,
    *,
    history: int,
    first: int | None = None,
    causes: Mapping[Range, tuple[int, ...]] | None = None,
    marks: Mapping[str, Sequence[Range]] | None = None,
    ordered: bool = True,
) -> Series:
    """Return a series; by default all rows are normal, and those after the history count."""
    X = np.ascontiguousarray(X, "float64").reshape(len(X), -1)
    return Series(
        collection=collection,
        name=name,
        X=X,
        y=np.zeros(len(X), int) if y is None else np.asarray(y).astype(int),
        history=history,
        first=history if first is None else first,
        causes=causes or {},
        marks={key: tuple(ranges) for key, ranges in (marks or {}).items()},
        ordered=ordered,
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a method says of each row of a series; None where it does not say it.

    Attributes
    ----------
    score
        (rows,) higher is more unusual.
    alarm
        (rows,) True where the method raises an alarm, by its own threshold.
    shares
        (rows, features) how much of a score is due to each feature.
    ready
        (rows,) False where the method cannot judge yet.
    drifting
        (rows,) the feature that drifts slowly, or -1.
    told
        Number of first rows that were learned as history; they do not count.
    """

    score: Array
    alarm: Array | None = None
    shares: Array | None = None
    ready: Array | None = None
    drifting: Array | None = None
    told: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Collection:
    """Series of one source, by name: `load` reads or makes one of `names`."""

    name: str
    title: str
    names: Callable[[], Sequence[str]]
    load: Callable[[str], Series]
    needs: str | None = None  # the environment variable with its folder

    def missing(self) -> str | None:
        """Return a line that says what is missing, or None."""
        if self.needs is None or os.environ.get(self.needs):
            return None
        return f"{self.name}: skipped; set {self.needs} to the folder with its files"
