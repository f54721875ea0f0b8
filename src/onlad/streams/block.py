"""What every source yields: consecutive samples of one series, and the rows that were bad."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from onlad.errors import OnladError
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.samples import Made, listed

Time: TypeAlias = "str | int | float | None"
Say: TypeAlias = Callable[[str], None]
T = TypeVar("T")

#: A column with one of these names is the time, unless the caller says otherwise.
TIMES = ("time", "timestamp", "datetime", "date", "ts", "_time", "date_time")
#: Spellings of a missing value. Compared in lower case.
MISSING = ("", "nan", "na", "n/a", "null", "none")


_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+")

#: Series of one source that get a monitor each: about 0.1 MB per series of eight features.
MOST = 1000


class StreamError(OnladError):
    """A source cannot be read, or has a bad row, and the reader stops at such rows."""


class Bad(NamedTuple):
    """A row that is not a sample: where it is, and why."""

    where: str  # "line 17", "message 3"
    why: str
    row: int  # its index in the source

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class Spans(Made[str]):
    """Texts that are decoded only when they are read: most never are. `known` are read already."""

    def __init__(self, data: bytes, spans: Array, known: dict[int, str] | None = None) -> None:
        self._data, self._spans, self._known = data, spans, known or {}

    def __len__(self) -> int:
        return len(self._spans)

    def _item(self, place: int) -> str:
        if place in self._known:
            return self._known[place]
        start, stop = self._spans[place].tolist()
        return self._data[start:stop].decode().strip()


@dataclass
class Block:
    """Consecutive samples of one series.

    ``row`` is the index of each in its source, bad rows counted. A block without names has
    no samples, only bad rows or lines to be passed on.
    """

    names: Names = ()
    values: Array = field(default_factory=lambda: np.empty((0, 0)))
    row: Array = field(default_factory=lambda: np.empty(0, np.int64))
    times: Sequence[Time] | None = None
    labels: Sequence[str] | None = None
    series: str = ""
    lines: Sequence[str] | None = None  # the samples as they came, to be passed on with a verdict
    bad: list[Bad] = field(default_factory=list)
    position: int = 0  # bytes or rows of the source that have been read

    def part(self, which: slice | Array) -> Block:
        """Return some of the samples, by their places, with what else is in the block."""
        return replace(
            self,
            values=self.values[which],
            row=self.row[which],
            times=_part(self.times, which),
            labels=_part(self.labels, which),
            lines=_part(self.lines, which),
        )


def _part(texts: Sequence[T] | None, which: slice | Array) -> Sequence[T] | None:
    if texts is None:
        return None
    return texts[which] if isinstance(which, slice) else [texts[i] for i in which.tolist()]


class Roles(NamedTuple):
    """The roles of the columns of a source."""

    features: Names
    time: Hashable | None
    label: Hashable | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which columns are watched, by name or by pattern such as ``temp_*``."""

    columns: tuple[str, ...] = ()  # none: all
    ignore: tuple[str, ...] = ()
    time: str | None = None  # None: a column with one of the names in TIMES
    label: str | None = None
    states: tuple[tuple[str, tuple[str, ...]], ...] = ()  # columns of text, and what they hold

    def states_of(self, name: Hashable) -> tuple[str, ...]:
        """Return the states that a column of text may hold; none if it holds numbers."""
        return next((states for column, states in self.states if column == name), ())

    def named(self, names: Iterable[Hashable]) -> list[Hashable]:
        """Return columns by the names under which they are watched.

        Examples
        --------
        >>> Choice(states=(("valve", ("open", "shut")),)).named(["flow", "valve"])
        ['flow', 'valve=open', 'valve=shut']
        """
        found: list[Hashable] = []
        for name in names:
            states = self.states_of(name)
            found += [f"{name}={state}" for state in states] if states else [name]
        return found

    def expanded(self, record: dict[Any, Any]) -> dict[Any, Any]:
        """Return a record with 0 or 1 for each state in place of a text.

        All states of an unknown text are 0, which is unusual.
        """
        if not self.states:
            return record
        found: dict[Any, Any] = {}
        for name, value in record.items():
            states = self.states_of(name)
            if not states:
                found[name] = value
            elif value is not None and not isinstance(value, str):
                raise ValueError(f"column {str(name)!r} holds {value!r:.40}, which is not text")
            else:
                pairs = zip(states, one_hot(value, states), strict=True)
                found |= {f"{name}={state}": number for state, number in pairs}
        return found

    def wants(self, name: Hashable) -> bool:
        """Return whether a column is to be watched, if it has no other role."""
        own = str(name)
        for column, states in self.states:
            if own in (f"{column}={state}" for state in states):
                own = column
        chosen = not self.columns or _matches(own, self.columns)
        return chosen and not _matches(own, self.ignore)

    def time_among(self, found: Iterable[str], known: Names = ()) -> str | None:
        """Return which of the names is the time: the one given, or one of TIMES.

        A feature of a model is never the time.
        """
        time = self.time
        if time is None:
            names = (name for name in found if name.lower() in TIMES)
            time = next((name for name in names if not _matches(name, self.ignore)), None)
        return None if time in known else time

    def roles(
        self, found: Sequence[Hashable], known: Names = (), *, complete: bool = True
    ) -> Roles:
        """Return the roles of the columns `found`; a model that has names decides the features.

        If the columns are not `complete`, one that is ignored, or the time, may come later.
        """
        by_name = {str(name): name for name in found}
        for name in (self.time, self.label):
            if name is not None and name not in by_name:
                if complete:
                    raise StreamError(f"there is no column {name!r}; there are {_listed(found)}")
                by_name[name] = name
        time = self.time_among(by_name, known)
        kept = {name for name in (time, self.label) if name is not None}
        label = None if self.label is None else by_name[self.label]
        stated = [column for column, _ in self.states]
        for pattern in (*self.columns, *(self.ignore if complete else ())):
            if not any(_matches(name, (pattern,)) for name in (*by_name, *stated)):
                raise StreamError(f"no column matches {pattern!r}; there are {_listed(found)}")
        features = known or tuple(
            original for name, original in by_name.items() if name not in kept and self.wants(name)
        )
        absent = [name for name in features if name not in found]
        if absent:
            raise StreamError(
                f"the model watches {_listed(absent)}, which the source does not have; "
                f"there are {_listed(found)}"
            )
        if not features:
            raise StreamError(f"no column is left to watch of {_listed(found)}")
        return Roles(features, None if time is None else by_name[time], label)


def one_hot(text: str | None, states: tuple[str, ...]) -> list[float]:
    """Return 1 for the state that a text names, 0 for the others, NaN if the text is missing.

    Examples
    --------
    >>> one_hot("run", ("off", "run")), one_hot("", ("off", "run"))
    ([0.0, 1.0], [nan, nan])
    """
    text = (text or "").strip()
    if text not in states and text.lower() in MISSING:
        return [float("nan")] * len(states)
    return [float(text == state) for state in states]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _listed(names: Sequence[Hashable]) -> str:
    return listed([repr(str(name)) for name in names], 12)


def number(text: str, name: Hashable, decimal: str = ".") -> float:
    """Return the number in a cell, NaN for a missing value; an error says what it holds instead.

    Examples
    --------
    >>> number(" 1.5e3 ", "flow"), number("n/a", "flow")
    (1500.0, nan)
    >>> number("1_000", "flow")
    Traceback (most recent call last):
        ...
    ValueError: column 'flow' holds '1_000', which is not a number
    """
    try:
        # An underscore is Python syntax; if the decimal sign is another, a point groups thousands.
        if "_" in text or (decimal != "." and "." in text):
            raise ValueError
        value = float(text.replace(decimal, "."))
    except ValueError:
        if text.strip().lower() in MISSING:
            return float("nan")
        shown = text if len(text) <= 40 else text[:37] + "..."
        hint = ". --decimal , reads it" if decimal == "." and _COMMA.fullmatch(text.strip()) else ""
        raise ValueError(
            f"column {str(name)!r} holds {shown!r}, which is not a number{hint}"
        ) from None
    return measurement(value, name)


def measurement(value: float, name: Hashable) -> float:
    """Return the value if it can be a measurement; NaN is a missing value."""
    if abs(value) > LARGEST:
        raise ValueError(f"column {str(name)!r} holds {value:g}, which cannot be a measurement")
    return value
