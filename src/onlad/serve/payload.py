"""Samples out of the bytes of a message: JSON or plain numbers, one or many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import orjson

from onlad.reference import Array
from onlad.rows import Names, read_one
from onlad.serve.config import StreamTable

# A message is read in one go, so its size bounds how long others wait for their turn.
MOST_ROWS = 1000
MOST_BYTES = 1_000_000
MOST_FEATURES = 1000
LONGEST_NAME = 200
LONGEST_WHY = 300
LATEST = 1e11  # seconds since 1970

_SEPARATORS = re.compile(r"[,;\s]+")


class Rows(NamedTuple):
    """What a message holds: vectors with their times, and what was wrong with the others."""

    rows: list[Array]
    times: list[float]
    names: Names
    bad: list[tuple[int, str]]
    timed: bool = False  # each sample has a time of its own


def read(stream: StreamTable, data: bytes, names: Names, now: float) -> Rows:
    """Return the samples in a message. `names` are those of the stream, if it has any yet.

    A message is refused whole, as number 0, when it cannot be taken apart.
    """
    rows: list[Array] = []
    times: list[float] = []
    bad: list[tuple[int, str]] = []
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data)} bytes in one message; at most {MOST_BYTES}")
        samples = _plain(data) if stream.payload == "plain" else _json(data)
    except Exception as error:  # whatever it is, it belongs to this message and to no other
        return Rows(rows, times, names, [(0, _why(error))])
    timed = stream.time is not None
    for index, sample in enumerate(samples):
        try:
            time = now
            timed = timed and isinstance(sample, dict) and sample.get(stream.time) is not None
            if isinstance(sample, dict):
                if stream.time is not None:
                    time = _time(sample.pop(stream.time, None), now)
                sample = _chosen(sample, stream)  # noqa: PLW2901
            row, found = read_one(sample, names)
            if not names:
                _refuse_odd(found)
                names = found
        except Exception as error:
            bad.append((index, _why(error)))
        else:
            rows.append(row)
            times.append(time)
    return Rows(rows, times, names, bad, timed)


def _why(error: Exception) -> str:
    """Return what is wrong with a message that its reader stumbled over."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply: a sample is an object or a list of numbers"
    return str(error)[:LONGEST_WHY] or type(error).__name__


def _json(data: bytes) -> Sequence[Any]:
    value = orjson.loads(data)
    if isinstance(value, dict):
        return (value,)
    if not isinstance(value, list):
        raise ValueError(f"a sample is an object or a list of numbers, got {value!r:.60}")
    if not value:
        raise ValueError("the list is empty")
    if isinstance(value[0], (dict, list)):
        if len(value) > MOST_ROWS:
            raise ValueError(f"{len(value)} samples in one message; at most {MOST_ROWS}")
        return value
    return (value,)


def _plain(data: bytes) -> Sequence[list[float]]:
    text = data.decode("utf-8")  # UnicodeDecodeError is a ValueError
    lines = [line for line in text.splitlines() if line.strip()]
    if not 1 <= len(lines) <= MOST_ROWS:
        raise ValueError(f"{len(lines)} samples in one message; 1 to {MOST_ROWS} are allowed")
    return [[float(part) for part in _SEPARATORS.split(line.strip())] for line in lines]


def _chosen(sample: dict[str, Any], stream: StreamTable) -> dict[str, Any]:
    if stream.columns:
        chosen = {name: sample[name] for name in stream.columns if name in sample}
        if not chosen:
            raise ValueError(f"none of the columns {list(stream.columns)} is there")
        return chosen
    for name in stream.ignore:
        sample.pop(name, None)
    return sample


def _refuse_odd(names: Names) -> None:
    """Refuse names that would make a stream for ever too large."""
    if len(names) > MOST_FEATURES:
        raise ValueError(f"{len(names)} features; at most {MOST_FEATURES}")
    if any(len(str(name)) > LONGEST_NAME for name in names):
        raise ValueError(f"a name has more than {LONGEST_NAME} letters")


def _time(value: Any, now: float) -> float:
    if value is None:
        return now
    if isinstance(value, str):
        when = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    time = float(value)
    # Beyond the year 5138 it is no time in seconds, but one in milli-, micro- or nanoseconds.
    for _ in range(3):
        if abs(time) > LATEST:
            time /= 1000
    if not abs(time) <= LATEST:
        raise ValueError(f"the time {value!r:.60} is none: give seconds since 1970, or ISO 8601")
    return time
