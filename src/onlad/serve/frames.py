"""What the journal is made of: records of a batch, as the bytes of a frame.

A frame is a mark by which it is found, its length, a CRC-32 and the records of one batch.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from onlad.reference import Array
from onlad.serve import decimals

MAGIC = b"\xf5onl"
_HEAD = struct.Struct("<4sII")  # of a frame: MAGIC, its bytes, their CRC-32
_SIZE = struct.Struct("<I")  # of a record in a frame
_ROWS = struct.Struct("<cIQ?dIHH")  # kind, watcher, first row, paused, seen, rows, features, marks
_MARK = struct.Struct("<HQ")


class Mark(NamedTuple):
    """A message of MQTT, by which it is known when the broker sends it again."""

    mid: int
    digest: int


class Rows(NamedTuple):
    """Samples of one watcher, and the messages that brought them."""

    watcher: int
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


Record: TypeAlias = Rows | Fact

END = Fact("end", {})  # the last record of a segment that another one follows


def digest(topic: bytes, payload: bytes) -> int:
    """Return a number that differs when messages do."""
    found = hashlib.blake2b(topic, digest_size=8)
    found.update(b"\0" + payload)  # no topic has a zero byte
    return int.from_bytes(found.digest(), "big")


def encode(record: Record) -> bytes:
    """Return the bytes of a record."""
    if isinstance(record, Rows):
        rows, n = record.X.shape
        X = record.X.astype("<f8", copy=False)
        values, kind = decimals.packed(X), b"D"
        if values is None:
            values, kind = X.tobytes(), b"R"
        head = _ROWS.pack(kind, *record[:4], rows, n, len(record.marks))
        marks = b"".join([_MARK.pack(*mark) for mark in record.marks])
        times = record.times.astype("<f8", copy=False)
        body = b"".join((head, marks, times.tobytes(), values))
    else:
        body = b"F" + json.dumps([record.kind, record.values]).encode()
    return body


def decode(body: bytes) -> Record:
    """Return the record in its bytes."""
    if body[:1] == b"F":
        kind, values = json.loads(body[1:])
        return Fact(kind, values)
    kind, watcher, first, paused, seen, rows, n, count = _ROWS.unpack_from(body)
    at = _ROWS.size
    marks = [Mark(*mark) for mark in _MARK.iter_unpack(body[at : at + count * _MARK.size])]
    at += count * _MARK.size
    times = np.frombuffer(body, "<f8", rows, at)
    at += times.nbytes
    if kind == b"D":
        X = decimals.unpacked(body[at:], rows, n)
    else:
        X = np.frombuffer(body, "<f8", rows * n, at).reshape(rows, n)
    return Rows(
        watcher,
        first,
        paused,
        seen,
        X.astype(float, copy=False),
        times.astype(float, copy=False),
        marks,
    )


def framed(batch: Iterable[Record]) -> bytes:
    """Return the frame of a batch of records."""
    bodies = [encode(record) for record in batch]
    frame = b"".join(_SIZE.pack(len(body)) + body for body in bodies)
    return _HEAD.pack(MAGIC, len(frame), zlib.crc32(frame)) + frame


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


def records(frame: bytes) -> Iterator[Record]:
    """Yield the records of a frame."""
    at = 0
    while at < len(frame):
        (length,) = _SIZE.unpack_from(frame, at)
        at += _SIZE.size + length
        yield decode(frame[at - length : at])
