"""CSV and similar text. The kernel reads plain lines, Python's csv module those with quotes."""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from onlad._kernel import read_csv
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.streams.block import (
    MISSING,
    Bad,
    Block,
    Choice,
    Roles,
    Say,
    Spans,
    StreamError,
    number,
    one_hot,
)
from onlad.streams.lines import LONGEST, Chunk, decoded

ROWS = 4096  # lines that are read together
DELIMITERS = ",;\t|"
_SEP = re.compile(rb'(?:\xef\xbb\xbf)?"?sep=([,;|\t])"?\s*', re.IGNORECASE)
IGNORED, TEXT = -1, -2  # slots of the kernel; TEXT - k is text column k


class Dialect(NamedTuple):
    """How a table is written; None: derived from the first line."""

    delimiter: str | None = None
    decimal: str = "."


class Table(NamedTuple):
    """What the first line says: how to read the others."""

    delimiter: str
    decimal: str
    header: bytes  # as in the file, to recognise a repetition; empty if there is none
    roles: Roles
    time: int | None  # field
    label: int | None
    slots: Array  # feature of each field, or what else it is
    states: tuple[tuple[int, tuple[int, ...], tuple[str, ...]], ...] = ()  # field, features, states


def blocks(
    chunks: Iterable[Chunk],
    choice: Choice,
    known: Names = (),
    dialect: Dialect = Dialect(),  # noqa: B008  (a value)
    say: Say = print,
) -> Iterator[Block]:
    """Yield the samples of delimited text with a header line, or without one."""
    table: Table | None = None
    row = 0
    for chunk in chunks:
        start, line = 0, chunk.line
        if chunk.too_long:
            if table is None:
                raise StreamError(f"line {line}, the header, has over {LONGEST} bytes")
            yield Block(bad=[Bad(f"line {line}", chunk.problem, row)], position=chunk.position)
            row += 1
            continue
        while start < len(chunk.data):
            if table is None:
                end = chunk.data.find(b"\n", start) + 1 or len(chunk.data)
                first = chunk.data[start:end]
                separator = _SEP.fullmatch(first)  # as Excel writes it
                if separator:
                    dialect = dialect._replace(delimiter=dialect.delimiter or separator[1].decode())
                if separator or not first.strip():
                    start, line = end, line + 1
                    continue
                table, headless = _table(
                    first, line, choice=choice, known=known, dialect=dialect, say=say
                )
                if headless:
                    yield Block(bad=[Bad(f"line {line}", headless, row)])
                else:
                    start, line = end, line + 1
                continue
            block, start, n_lines, n_rows = _read(chunk, start, line, row, table)
            line += n_lines
            row += n_rows
            yield block


def _read(
    chunk: Chunk, start: int, line: int, row: int, table: Table
) -> tuple[Block, int, int, int]:
    """Return the next lines as a block, the position after them, and their lines and rows."""
    values = np.empty((ROWS, len(table.roles.features)))
    n_texts = (table.time is not None) + (table.label is not None)
    texts = np.empty((ROWS, n_texts + len(table.states), 2), np.int64)
    lines = np.empty((ROWS, 2), np.int64)
    kinds = np.empty(ROWS, np.uint8)
    n, start = read_csv(
        data=chunk.data, start=start, delimiter=table.delimiter, decimal=table.decimal,
        largest=LARGEST, slots=table.slots, values=values, texts=texts, lines=lines, kinds=kinds,
    )  # fmt: skip
    for k, (_, features, states) in enumerate(table.states, n_texts):
        for i, state in enumerate(Spans(chunk.data, texts[:n, k])[:]):
            values[i, features] = one_hot(state, states)
    bad: list[Bad] = []
    quoted_times: dict[int, str] = {}  # of rows that Python read
    quoted_labels: dict[int, str] = {}
    is_row, keep = np.ones(n, bool), np.ones(n, bool)
    for i in np.flatnonzero(kinds[:n]).tolist():
        text = chunk.data[slice(*lines[i].tolist())]
        if not text.strip() or text == table.header:  # repeated in a file that was started again
            is_row[i] = keep[i] = False
            continue
        try:
            values[i], quoted_times[i], quoted_labels[i] = _read_quoted(text, table)
        except ValueError as error:
            here = row + int(np.count_nonzero(is_row[:i]))
            bad.append(Bad(f"line {line + i}", str(error), here))
            keep[i] = False
    index = row + np.cumsum(is_row) - 1
    times = labels = None
    if table.time is not None:
        times = Spans(chunk.data, texts[:n, 0], quoted_times)
    if table.label is not None:
        labels = Spans(chunk.data, texts[:n, n_texts - 1], quoted_labels)
    # The position is the end of these lines; the rest of the chunk is not read yet.
    position = chunk.position - len(chunk.data) + start
    block = Block(
        table.roles.features, values[:n], index, times, labels, bad=bad, position=max(0, position)
    )
    kept = block if keep.all() else block.part(np.flatnonzero(keep))
    return kept, start, n, int(is_row.sum())


def _read_quoted(raw: bytes, table: Table) -> tuple[list[float], str, str]:
    """Return numbers, time and label of a line that is not plain, or say why it is bad."""
    fields = _fields(raw, table.delimiter)
    wanted = len(table.slots)
    if len(fields) != wanted:
        raise ValueError(f"it has {len(fields)} fields; the first line has {wanted}")
    values = [0.0] * len(table.roles.features)
    for j, field in zip(table.slots.tolist(), fields, strict=True):
        if j >= 0:
            values[j] = number(field, table.roles.features[j], table.decimal)
    for place, features, states in table.states:
        for j, value in zip(features, one_hot(fields[place], states), strict=True):
            values[j] = value
    time = "" if table.time is None else fields[table.time].strip()
    return values, time, "" if table.label is None else fields[table.label].strip()


def _fields(raw: bytes, delimiter: str) -> list[str]:
    text = decoded(raw)
    if "\0" in text:
        raise ValueError("it holds a zero byte")
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"it is not a line of CSV: {error}") from None


def _table(
    raw: bytes, line: int, *, choice: Choice, known: Names, dialect: Dialect, say: Say
) -> tuple[Table, str]:
    """Return the table that the first line describes, and why that line is no header, if so."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise StreamError("the source is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8")
    raw = raw.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
    delimiter = dialect.delimiter or _delimiter(raw, dialect.decimal)
    try:
        fields = [field.strip() for field in _fields(raw, delimiter)]
    except ValueError as error:
        raise StreamError(f"line {line}, the header: {error}") from None
    names: list[Hashable] = list(fields)
    header, problem = raw, ""
    if all(_is_value(field, dialect.decimal) for field in fields) and any(fields):
        names = list(range(len(fields)))
        header, problem = b"", "it holds numbers, not names: columns are called 0, 1, 2 ..."
    if unnamed := [str(i + 1) for i, name in enumerate(names) if name == ""]:
        say(f"column {', '.join(unnamed)} has no name and is ignored")
    named = [name for name in names if name != ""]
    twice = {name for name in named if named.count(name) > 1}
    if twice:
        raise StreamError(f"line {line}, the header, has {sorted(map(str, twice))[0]!r} twice")
    roles = choice.roles(choice.named(named), known)
    place_of = {name: j for j, name in enumerate(roles.features)}
    states = tuple(
        (names.index(column), tuple(place_of[f"{column}={state}"] for state in known_states),
         known_states)
        for column, known_states in choice.states
        if column in names and f"{column}={known_states[0]}" in place_of
    )  # fmt: skip
    time = None if roles.time is None else names.index(roles.time)
    label = None if roles.label is None else names.index(roles.label)
    texts = [place for place in (time, label) if place is not None]
    texts += [place for place, *_ in states]
    slots = np.array([place_of.get(name, IGNORED) for name in names], np.int32)
    for k, place in enumerate(texts):
        slots[place] = TEXT - k
    return Table(delimiter, dialect.decimal, header, roles, time, label, slots, states), problem


def _delimiter(line: bytes, decimal: str) -> str:
    """Return the most frequent delimiter of the line; of equal ones the comma comes first.

    If the comma is the decimal sign, it can still be the delimiter: numbers are then in quotes.
    """
    text = line.decode("latin-1")
    known = DELIMITERS.replace(decimal, "")
    if decimal in DELIMITERS and decimal in text and not any(each in text for each in known):
        return decimal
    return max(known, key=lambda each: (text.count(each), -known.index(each)))


def _is_value(text: str, decimal: str) -> bool:
    if text.lower() in MISSING:
        return True
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True
