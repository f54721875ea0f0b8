"""What the journal is made of: records of a batch, as the bytes of a frame.

A frame is a mark by which it is found, its length, a CRC-32 and the records of one batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onlad.reference import Array
from onlad.serve import decimals

MAGIC = b"\xf5onl"
_HEAD = struct.Struct("<4sII")  # of a frame: MAGIC, its bytes, their CRC-32
_SIZE = struct.Struct("<I")  # of a record in a frame
_MANY = struct.Struct("<ccdIHI")  # M, kind of values, seen, records, features, bytes about them
_MARK = struct.Struct("<HQ")


class Mark(NamedTuple):
    """A message of MQTT, by which it is known when the broker sends it again."""

    mid: int
    digest: int


class Rows(NamedTuple):
    """Samples of one watcher, and the messages that brought them."""

    number: int  # of the watcher
    first: int  # the row of the first sample, counted from the watcher's start
    paused: bool
    seen: float  # when they came, by the clock
    X: Array
    times: Array
    marks: list[Mark]


class Fact(NamedTuple):
    """Anything else: a birth, a delivered alarm, marks that are still needed."""

    kind: str
    values: dict[str, Any]

    @property
    def number(self) -> int | None:
        """Of the watcher, if it is about one."""
        return self.values.get("number")


Record: TypeAlias = Rows | Fact

END = Fact("end", {})  # the last record of a segment that another one follows


def digest(topic: bytes, payload: bytes) -> int:
    """Return a number that differs when messages do."""
    found = hashlib.blake2b(topic, digest_size=8)
    found.update(b"\0" + payload)  # no topic has a zero byte
    return int.from_bytes(found.digest(), "big")


def encode_rows(several: Sequence[Rows]) -> Iterator[bytes]:
    """Yield the bytes of rows that came at one time and have the same number of features.

    Together they take less than half of what each would take alone, in bytes and in time.
    """
    X = np.concatenate([rows.X for rows in several]).astype("<f8", copy=False)
    values = decimals.packed(X)
    if values is None and len(several) > 1:  # some of them may still be packed
        runs = [list(r) for _, r in groupby(several, lambda rows: decimals.packed(rows.X) is None)]
        if len(runs) > 1:
            for run in runs:
                yield from encode_rows(run)
            return
    columns = (
        ("<u4", [rows.number for rows in several]),
        ("<u8", [rows.first for rows in several]),
        ("<u4", [len(rows.X) for rows in several]),
        ("<u2", [len(rows.marks) for rows in several]),
        ("?", [rows.paused for rows in several]),
    )
    raw = [np.array(column, kind).tobytes() for kind, column in columns]
    raw += [rows.times.astype("<f8", copy=False).tobytes() for rows in several]
    about = zlib.compress(b"".join(raw), 1)
    kind = b"R" if values is None else b"D"
    head = _MANY.pack(b"M", kind, several[0].seen, len(several), X.shape[1], len(about))
    marks = b"".join([_MARK.pack(*mark) for rows in several for mark in rows.marks])
    yield b"".join((head, about, marks, X.tobytes() if values is None else values))


def decode(body: bytes, only: int | None = None) -> Iterator[Record]:
    """Yield the records in some bytes; of rows, those of a watcher `only` if one is given."""
    if body[:1] == b"F":
        yield Fact(*json.loads(body[1:]))
        return
    _, kind, seen, _, n, size = _MANY.unpack_from(body)
    columns, times = _about(body)
    if only is not None and only not in columns[0]:
        return
    counts, at = columns[2], _MANY.size + size
    marks = [
        Mark(*mark) for mark in _MARK.iter_unpack(body[at : at + sum(columns[3]) * _MARK.size])
    ]
    data, total = body[at + len(marks) * _MARK.size :], sum(counts)
    if kind == b"D":
        X = decimals.unpacked(data, total, n)
    else:
        X = np.frombuffer(data, "<f8", total * n).reshape(total, n).astype(float, copy=False)
    row = mark = 0
    for watcher, first, rows, n_marks, paused in zip(*columns, strict=True):
        here = slice(row, row + rows)
        few = marks[mark : mark + n_marks]
        if only is None or watcher == only:
            yield Rows(watcher, first, paused, seen, X[here], times[here], few)
        row, mark = row + rows, mark + n_marks


def _about(body: bytes) -> tuple[list[list[Any]], Array]:
    """Return whose rows are in some bytes: a list per column, and the times. It has a checksum."""
    _, _, _, k, _, size = _MANY.unpack_from(body)
    about = zlib.decompress(body[_MANY.size : _MANY.size + size])
    columns, start = [], 0
    for column in ("<u4", "<u8", "<u4", "<u2", "?"):
        columns.append(np.frombuffer(about, column, k, start).tolist())
        start += np.dtype(column).itemsize * k
    return columns, np.frombuffer(about, "<f8", sum(columns[2]), start).astype(float, copy=False)


def framed(batch: Iterable[Record]) -> bytes:
    """Return the frame of a batch of records."""
    bodies: list[bytes] = []
    for alike, group in groupby(batch, _alike):
        if alike is None:
            bodies += [b"F" + json.dumps(fact).encode() for fact in group]
        else:
            bodies += encode_rows([rows for rows in group if isinstance(rows, Rows)])
    frame = b"".join(_SIZE.pack(len(body)) + body for body in bodies)
    return _HEAD.pack(MAGIC, len(frame), zlib.crc32(frame)) + frame


def _alike(record: Record) -> tuple[float, int] | None:
    """Return what rows that are written together have in common."""
    return None if isinstance(record, Fact) else (record.seen, record.X.shape[1])


def frames(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the whole frames with where they begin and end, also those behind damage."""
    at = data.find(MAGIC)
    while at >= 0:
        start, stop = at + _HEAD.size, at + 1
        if start <= len(data):
            _, length, crc = _HEAD.unpack_from(data, at)
            frame = data[start : start + length]
            if len(frame) == length and zlib.crc32(frame) == crc:
                stop = start + length
                yield at, stop, frame
        at = data.find(MAGIC, stop)


def records(frame: bytes, only: int | None = None) -> Iterator[Record]:
    """Yield the records of a frame; of rows, those of a watcher `only` if one is given."""
    for body in _bodies(frame, 0):
        yield from decode(body, only)


def _bodies(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        (length,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size + length
        yield data[at - length : at]


def legible(damaged: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield watcher, first row and number of rows that stood in bytes between frames.

    As far as that can be known.
    """
    at = damaged.find(MAGIC)
    while at >= 0:
        with contextlib.suppress(struct.error, zlib.error, ValueError):
            for body in _bodies(damaged, at + _HEAD.size):
                if body[:1] == b"M":
                    (watchers, firsts, counts, *_), _ = _about(body)
                    yield from zip(watchers, firsts, counts, strict=True)
        at = damaged.find(MAGIC, at + 1)
