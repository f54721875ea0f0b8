"""JSON: an object or an array a record, in lines or in messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from onlad.rows import Names
from onlad.streams.block import MOST, Bad, Block, Choice, Roles, Say, StreamError, Time, sane
from onlad.streams.lines import LONGEST, Chunk

Sample = tuple[list[float], Time, str]
#: A name that comes later is not watched, and is reported once; a sample of such names is refused.
NONE_KNOWN = "none of its names is one that the stream started with"


class Records:
    """Reads records of one series; the first one decides the names."""

    def __init__(self, choice: Choice, known: Names = (), say: Say = print) -> None:
        self._choice, self._known, self._say = choice, known, say
        self.roles: Roles | None = None
        self._strange: set[Any] = set()

    def read(self, raw: bytes) -> Sample:
        """Return numbers, time and label, or raise `ValueError` that says what is wrong."""
        try:
            record = json.loads(raw)
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {error.start + 1} is not UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if isinstance(record, (int, float)) and not isinstance(record, bool):
            record = [record]
        if isinstance(record, list):
            record = dict(enumerate(record))
            if self.roles and len(record) != self._width:
                raise ValueError(f"it has {len(record)} values; the first has {self._width}")
        if not isinstance(record, dict) or not record:
            raise ValueError("it is no object of names and numbers, and no array of numbers")
        roles = self.roles or self._roles(record)
        values = [_number(record.get(name), name) for name in roles.features]
        if self.roles is None:
            self.roles = roles
        elif not record.keys() <= self._found:
            if not any(name in record for name in roles.features):
                raise ValueError(f"{NONE_KNOWN}: {list(record)[:5]}")
            self._tell_strange(record)
        time = record.get(roles.time) if roles.time is not None else None
        label = "" if roles.label is None else record.get(roles.label)
        if isinstance(label, (bool, int, float)):
            label = str(int(label)) if isinstance(label, bool) else str(label)
        time = time if isinstance(time, (str, int, float)) else None
        return values, time, label if isinstance(label, str) else ""

    def _tell_strange(self, record: dict[Any, Any]) -> None:
        """Say, once each, which names came later and are not watched."""
        for name in record:
            strange = name not in self._found and name not in self._strange
            if strange and not self._known and self._choice.wants(name):
                if len(self._strange) < MOST:
                    self._strange.add(name)
                self._say(f"{str(name)!r} came later and is not watched")

    def _roles(self, record: dict[Any, Any]) -> Roles:
        self._found = record.keys() | set(self._known)
        self._width = len(record)
        # A name that the model knows can be missing in a record, so also in the first.
        found = [*record, *(name for name in self._known if name not in record)]
        try:
            return self._choice.roles(found, self._known, complete=False)
        except StreamError as error:  # the next record may be another
            raise ValueError(str(error)) from None


def _number(value: Any, name: Any) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, (bool, int, float)):
        try:
            return sane(float(value), name)
        except OverflowError:
            raise ValueError(f"column {str(name)!r} holds a number beyond all measure") from None
    shown = json.dumps(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    raise ValueError(f"column {str(name)!r} holds {shown}, which is no number")


def blocks(
    chunks: Iterable[Chunk], choice: Choice, known: Names = (), say: Say = print
) -> Iterator[Block]:
    """Yield the samples of JSON lines."""
    records = Records(choice, known, say)
    row = 0
    for chunk in chunks:
        samples: list[Sample] = []
        index: list[int] = []
        bad: list[Bad] = []
        if chunk.too_long:
            why = f"it has {chunk.too_long} bytes; a line may have {LONGEST}"
            bad.append(Bad(f"line {chunk.line}", why, row))
            row += 1
        for line, raw in enumerate(chunk.data.split(b"\n"), chunk.line):
            if not raw.strip():
                continue
            try:
                samples.append(records.read(raw))
                index.append(row)
            except ValueError as error:
                bad.append(Bad(f"line {line}", str(error), row))
            row += 1
        yield collected(samples, index, bad, records.roles, chunk.position)


def collected(
    samples: list[Sample], index: list[int], bad: list[Bad], roles: Roles | None, position: int
) -> Block:
    """Return samples as a block."""
    if roles is None or not samples:
        return Block(bad=bad, position=position)
    values, times, labels = zip(*samples, strict=True)
    return Block(
        roles.features,
        np.array(values),
        np.array(index, np.int64),
        None if roles.time is None else times,
        None if roles.label is None else labels,
        bad=bad,
        position=position,
    )
