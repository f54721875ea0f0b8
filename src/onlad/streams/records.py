"""Samples from JSON, in lines or in messages, for `onlad watch` and `onlad serve` alike.

A sample is an object of names and numbers, an array of numbers, or one number. ``null``, NaN and an
absent name are missing values; a number as text is refused. The first sample decides the names. A
number with a name that comes later is added to them, unless the user chose the columns; text is
reported once, and not watched. A sample of such names only is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from onlad.rows import Names
from onlad.streams.block import MOST, Bad, Block, Choice, Roles, Say, StreamError, Time, measurement
from onlad.streams.lines import Chunk

try:
    from orjson import loads  # an extra
except ImportError:
    from json import loads  # type: ignore[assignment]

Sample = tuple[list[float], Time, str]
LONGEST_NAME = 200  # letters of a name that comes later


def parsed(raw: bytes) -> list[Any]:
    """Return the samples in a line or a message, unchecked: one, or those of a list."""
    try:
        found = loads(raw)
    except ValueError:
        found = _slowly(raw)  # it accepts NaN, and says what is wrong
    if isinstance(found, list) and found and isinstance(found[0], (dict, list)):
        return found
    return [found]


def _slowly(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply: a sample is an object or an array") from None


class Late:
    """The rule for names that come after the first sample of a series.

    A number is watched from then on if the series `grows`, unless the user chose the columns, its
    name is very long, or there are MOST already. Any other name is reported once.
    """

    def __init__(
        self, choice: Choice, say: Say, usual: Iterable[Any], *, grows: bool, what: str = ""
    ) -> None:
        self._choice, self._say, self._what = choice, say, what
        self._grows = grows and not choice.columns
        self._usual = set(usual)  # names that were checked before
        self.reported: list[str] = []

    def watched(self, record: Mapping[Any, Any], n: int) -> dict[str, float]:
        """Return what of a sample is watched from now on, besides the `n` names that are."""
        new: dict[str, float] = {}
        if record.keys() <= self._usual:
            return new
        for name, value in record.items():
            if name in self._usual or (self._grows and value is None):
                continue
            fits = isinstance(name, str) and len(name) <= LONGEST_NAME and n + len(new) < MOST
            wanted = self._choice.wants(name)
            if self._grows and wanted and fits and isinstance(value, (bool, int, float)):
                new[name] = _number(value, name)
                continue
            if len(self._usual) < MOST:
                self._usual.add(name)
            if wanted:
                self.reported.append(str(name))
                self._say(f"{self._what}{str(name)!r} came later and is not watched")
        self._usual |= new.keys()
        return new


class Records:
    """Reads the samples of one series; the first one decides the names, unless some are `known`.

    If the series has `begun` before, also the first sample here can have late names. If it `grows`,
    numbers with late names are added to its samples, after the others.
    """

    def __init__(
        self,
        choice: Choice,
        known: Names = (),
        say: Say = print,
        *,
        begun: bool = False,
        grows: bool = False,
    ) -> None:
        self._choice, self._known, self._begun = choice, known, begun
        self.roles: Roles | None = None
        self._width = 0  # of the first sample
        self._late = partial(Late, choice, say, grows=grows)
        self.late = self._late(())

    def read(self, raw: bytes) -> Iterator[Sample | str]:
        """Yield each sample in a line or a message, or why it is refused."""
        try:
            for sample in parsed(raw):
                try:
                    yield self.take(sample)
                except ValueError as error:
                    yield str(error)
        except ValueError as error:
            yield str(error)

    def take(self, sample: Any) -> Sample:
        """Return numbers, time and label, or raise `ValueError` that says what is wrong."""
        record = self._choice.expanded(self._named(sample))
        roles = self.roles or self._roles(record)
        values = [_number(record.get(name), name) for name in roles.features]
        if not any(name in record for name in roles.features):
            raise ValueError(f"it has none of the names that are watched, but {list(record)[:5]}")
        if self.roles is None:
            self.roles, self._width = roles, len(record)
            first = () if self._begun else record.keys()
            self.late = self._late((*roles.features, roles.time, roles.label, *first))
        if new := self.late.watched(record, len(values)):
            self.roles = roles._replace(features=(*roles.features, *new))
            values += new.values()
        time = record.get(roles.time) if roles.time is not None else None
        label = "" if roles.label is None else record.get(roles.label)
        if isinstance(label, (bool, int, float)):
            label = str(int(label)) if isinstance(label, bool) else str(label)
        time = time if isinstance(time, (str, int, float)) else None
        return values, time, label if isinstance(label, str) else ""

    def _named(self, sample: Any) -> dict[Any, Any]:
        """Return a sample by names. Each array has as many values as the first one."""
        if isinstance(sample, dict) and sample:
            return sample
        if isinstance(sample, (int, float)) and not isinstance(sample, bool):
            sample = [sample]
        if not isinstance(sample, list) or not sample:
            raise ValueError("it is neither an object of names and numbers nor an array of numbers")
        known = self.roles.features if self.roles else self._known
        names: Sequence[Any] = range(self._width or len(sample))
        if any(isinstance(name, str) for name in known):
            names = known  # an array has its values in this order
        elif known and not self._width:
            kept = (self._choice.time, self._choice.label)
            wanted = {n for n in names if self._choice.wants(n) and str(n) not in kept}
            names = names if wanted == set(known) else known
        if len(sample) != len(names):
            raise ValueError(f"it has {len(sample)} values, and the stream has {len(names)}")
        return dict(zip(names, sample, strict=True))

    def _roles(self, record: dict[Any, Any]) -> Roles:
        # A name that the model knows can be missing in a record, so also in the first.
        found = [*record, *(name for name in self._known if name not in record)]
        try:
            return self._choice.roles(found, self._known, complete=False)
        except StreamError as error:  # the next record may have other names
            raise ValueError(str(error)) from None


def _number(value: Any, name: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, (bool, int, float)):
        try:
            return measurement(float(value), name)
        except OverflowError:
            raise ValueError(f"column {str(name)!r} holds a number that is too large") from None
    shown = "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, str):
        shown = f'"{value}"' if len(value) <= 40 else f'"{value[:37]}..."'
    raise ValueError(f"column {str(name)!r} holds {shown}, which is not a number")


def blocks(
    chunks: Iterable[Chunk],
    choice: Choice,
    known: Names = (),
    say: Say = print,
    *,
    grows: bool = False,
) -> Iterator[Block]:
    """Yield the samples of JSON lines."""
    records = Records(choice, known, say, grows=grows)
    row = 0
    for chunk in chunks:
        found: list[tuple[str, Sample | str]] = []
        if chunk.too_long:
            found.append((f"line {chunk.line}", chunk.problem))
        for line, raw in enumerate(chunk.data.split(b"\n"), chunk.line):
            if raw.strip():
                found += [(f"line {line}", each) for each in records.read(raw)]
        yield from collected(found, row, records.roles, chunk.position)
        row += len(found)


def collected(
    found: list[tuple[str, Sample | str]], first: int, roles: Roles | None, position: int
) -> Iterator[Block]:
    """Yield samples as blocks of one width; `found` has their places, and texts for bad ones."""
    bad = [
        Bad(place, each, i) for i, (place, each) in enumerate(found, first) if isinstance(each, str)
    ]
    good = [(i, each) for i, (_, each) in enumerate(found, first) if not isinstance(each, str)]
    if roles is None or not good:
        yield Block(bad=bad, position=position)
        return
    for width, run in groupby(good, lambda each: len(each[1][0])):
        index, samples = zip(*run, strict=True)
        values, times, labels = zip(*samples, strict=True)
        yield Block(
            roles.features[:width],
            np.array(values),
            np.array(index, np.int64),
            None if roles.time is None else times,
            None if roles.label is None else labels,
            bad=[each for each in bad if each.row <= index[-1]],
            position=position,
        )
        bad = [each for each in bad if each.row > index[-1]]
    if bad:
        yield Block(bad=bad, position=position)
