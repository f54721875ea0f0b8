"""Influx line protocol: ``measurement,tag=a field=1.5,other=2i 1700000000000000000``.

A series is a measurement with its tags: one device, so one monitor. Numbers and booleans are
watched, texts are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from onlad.rows import Names
from onlad.streams.block import MOST, Bad, Block, Choice, Say, measurement
from onlad.streams.lines import Chunk, decoded
from onlad.streams.records import Late

_SERIES = re.compile(r"(?:\\.|[^\\ ])+", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=, ])+)=", re.DOTALL)
_TEXT = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_PLAIN = re.compile(r"[^, ]+")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$|[-+]?\d+[iu]$", re.ASCII)
_STAMP = re.compile(r"-?\d+$", re.ASCII)
_BOOLEANS = dict.fromkeys(("t", "T", "true", "True", "TRUE"), 1.0) | dict.fromkeys(
    ("f", "F", "false", "False", "FALSE"), 0.0
)
#: A first line like this is line protocol, not the header of a table.
LOOKS_LIKE = re.compile(rb"(?:\\.|[^\\ #{\[])+ +(?:\\.|[^\\=, ])+=\S")


class Point(NamedTuple):
    """One line: its series, its fields that are numbers, and its time in nanoseconds."""

    series: str
    fields: dict[str, float]
    time: int | None
    end: int  # where the fields end in the line


def parse(line: str) -> Point:
    r"""Return the point that a line describes, or raise `ValueError` that says what is wrong.

    Examples
    --------
    >>> parse('pump,host=a flow=1.5,n=3i,on=t,state="a b" 17')
    Point(series='pump,host=a', fields={'flow': 1.5, 'n': 3.0, 'on': 1.0}, time=17, end=42)
    """
    series = _SERIES.match(line)
    if not series or series.group().startswith(","):
        raise ValueError("it has no measurement")
    at = series.end()
    at += len(line) - at - len(line[at:].lstrip(" "))
    fields: dict[str, float] = {}
    while True:
        key = _KEY.match(line, at)
        if not key:
            raise ValueError(f"no field=value at character {at + 1}")
        name, at = re.sub(r"\\([=, ])", r"\1", key.group(1)), key.end()
        text = _TEXT.match(line, at)
        if text:
            at = text.end()
        else:
            plain = _PLAIN.match(line, at)
            if not plain:
                raise ValueError(f"field {name!r} has no value")
            fields[name], at = _value(plain.group(), name), plain.end()
        if line[at : at + 1] != ",":
            break
        at += 1
    rest = line[at:].strip(" ")
    if (rest and not _STAMP.match(rest)) or line[at : at + 1] not in ("", " "):
        raise ValueError(f"{rest[:40]!r} is not a time in nanoseconds")
    return Point(series.group(), fields, int(rest) if rest else None, at)


def _value(text: str, name: str) -> float:
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if not _NUMBER.match(text):
        raise ValueError(f"field {name!r} holds {text[:40]!r}, which is not a value")
    return float(text.rstrip("iu"))


def with_fields(line: str, fields: Mapping[str, float | bool | str]) -> str:
    """Return the line with more fields.

    Examples
    --------
    >>> with_fields('pump flow=1.5 17', {"onlad_score": 2.5, "onlad_is_anomaly": False})
    'pump flow=1.5,onlad_score=2.5,onlad_is_anomaly=false 17'
    """
    end = parse(line).end
    return f"{line[:end]},{field_text(fields)}{line[end:]}"


def field_text(fields: Mapping[str, float | bool | str]) -> str:
    r"""Return fields in line protocol. Numbers that are not finite are left out.

    Examples
    --------
    >>> field_text({"score": 2.5, "threshold": math.inf, "cause": 'the "pump"'})
    'score=2.5,cause="the \\"pump\\""'
    """
    parts = []
    for name, value in fields.items():
        if isinstance(value, bool):
            parts.append(f"{name}={'true' if value else 'false'}")
        elif isinstance(value, str):
            text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            parts.append(f'{name}="{text}"')
        elif math.isfinite(value):
            parts.append(f"{name}={value!r}")
    return ",".join(parts)


class Series:
    """Knows which fields of each series are watched: those of its first line, and `Late` ones."""

    def __init__(
        self, choice: Choice, known: Callable[[str], Names], say: Say, *, grows: bool = False
    ) -> None:
        self._choice, self._known = choice, known
        self._late = partial(Late, choice, say, grows=grows)
        self._series: dict[str, tuple[Names, Late]] = {}

    def sample(self, point: Point) -> tuple[Names, list[float]]:
        """Return names and values to watch; no names if there are no numbers."""
        series, fields = point.series, point.fields
        if series not in self._series:
            if len(self._series) == MOST:
                raise ValueError(f"{series!r} is one series too many: at most {MOST} are watched")
            names = self._known(series) or tuple(filter(self._choice.wants, fields))
            if not names:
                return (), []
            self._series[series] = names, self._late((*names, *fields), what=f"{series}: field ")
        names, late = self._series[series]
        if new := late.watched(fields, len(names)):
            names = (*names, *new)
            self._series[series] = names, late
        return names, [measurement(fields.get(str(name), math.nan), name) for name in names]


def blocks(chunks: Iterable[Chunk], series: Series) -> Iterator[Block]:
    """Yield runs of lines of one series. Well-formed lines are passed on, watched or not."""
    row = 0
    for chunk in chunks:
        run: _Run | None = None
        if chunk.too_long:
            bad = [Bad(f"line {chunk.line}", chunk.problem, row)]
            yield Block(bad=bad, position=chunk.position)
            row += 1
        for number, raw in enumerate(chunk.data.split(b"\n"), chunk.line):
            if not raw.strip() or raw.lstrip().startswith(b"#"):
                continue
            names: Names = ()
            values: list[float] = []
            bad = []
            line, point = "", None
            try:
                line = decoded(raw.rstrip(b"\r"))
                point = parse(line)
                names, values = series.sample(point)
            except ValueError as error:
                bad = [Bad(f"line {number}", str(error), row)]
            if run and (not point or run.series != point.series or run.names != names or bad):
                yield run.block(chunk.position)
                run = None
            if bad:
                passed = [line] if point else None
                yield Block(lines=passed, row=np.array([row]), bad=bad, position=chunk.position)
            elif point:
                run = run or _Run(point.series, names, [])
                run.rows.append((row, values, point.time, line))
            row += 1
        if run:
            yield run.block(chunk.position)


class _Run(NamedTuple):
    """Lines of one series that follow each other: row, values, time and text of each."""

    series: str
    names: Names
    rows: list[tuple[int, list[float], int | None, str]]

    def block(self, position: int) -> Block:
        row, values, times, lines = zip(*self.rows, strict=True)
        matrix = np.array(values, dtype=float).reshape(len(row), len(self.names))
        index = np.array(row, np.int64)
        return Block(self.names, matrix, index, times, None, self.series, lines, position=position)
