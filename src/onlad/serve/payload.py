"""Samples out of the bytes of a message: JSON or plain numbers, one or many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from onlad import kernel
from onlad.reference import Array
from onlad.rows import LARGEST, Names, read_one
from onlad.serve.config import StreamTable
from onlad.streams.records import NONE_KNOWN
from onlad.streams.times import LATEST, seconds

# A message is read in one go, so its size bounds how long others wait for their turn.
MOST_ROWS = 1000
MOST_BYTES = 1_000_000
MOST_FEATURES = 1000
LONGEST_NAME = 200
LONGEST_WHY = 300

_NONE: Array = np.empty((0, 0))
_SEPARATORS = re.compile(r"[,;\s]+")


class Rows(NamedTuple):
    """What a message holds: vectors with their times, and what was wrong with the others."""

    rows: Array  # one per row
    times: list[float]
    names: Names
    bad: list[tuple[int, str]]
    timed: bool = False  # each sample has a time of its own
    late: frozenset[str] = frozenset()  # names that the stream did not start with: not watched


def read(stream: StreamTable, data: bytes, names: Names, now: float) -> Rows:
    """Return the samples in a message. `names` are those of the stream, if it has any yet.

    A message is refused whole, as number 0, when it cannot be taken apart.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data)} bytes in one message; at most {MOST_BYTES}")
        samples = _plain(data) if stream.payload == "plain" else _json(data)
        if names and (found := _block(stream, samples, names, now)) is not None:
            return found
    except Exception as error:  # whatever it is, it belongs to this message and to no other
        return Rows(_NONE, [], names, [(0, _why(error))])
    return _each(stream, samples, names, now)


def _block(stream: StreamTable, samples: Sequence[Any], names: Names, now: float) -> Rows | None:
    """Return samples as one block, or None if anything is unusual, with the samples as they were.

    It is what `_each` would return, at a fraction of its time.
    """
    if type(samples[0]) is not dict:
        return None
    X = np.empty((len(samples), len(names)))
    times, timed, read = [now] * len(samples), stream.time is not None, kernel.read_dict
    for i, sample in enumerate(samples):
        if type(sample) is not dict:
            return None
        chosen = sample
        if stream.columns:
            chosen = {name: sample[name] for name in stream.columns if name in sample}
        elif timed or stream.ignore:
            chosen = sample.copy()
            for name in stream.ignore:
                chosen.pop(name, None)
            chosen.pop(stream.time, None)
        if not chosen or not read(chosen, names, X[i], LARGEST):
            return None
        if timed:
            when: Any = sample.get(stream.time)
            if type(when) not in (float, int) or not -LATEST <= when <= LATEST:
                return None
            times[i] = float(when)
    if np.fmax.reduce(np.abs(X), axis=None) > LARGEST:
        return None
    return Rows(X, times, names, [], timed)


def _each(stream: StreamTable, samples: Sequence[Any], names: Names, now: float) -> Rows:
    """Return samples read one by one, each with what is wrong with it."""
    rows: list[Array] = []
    times: list[float] = []
    bad: list[tuple[int, str]] = []
    timed, late = stream.time is not None, set[str]()
    for index, sample in enumerate(samples):
        try:
            time = now
            timed = timed and isinstance(sample, dict) and sample.get(stream.time) is not None
            if isinstance(sample, dict):
                if stream.time is not None:
                    given = sample.pop(stream.time, None)
                    time = now if given is None else seconds(given)
                sample = _chosen(sample, stream)  # noqa: PLW2901
                if names and not sample.keys() <= set(names):
                    sample = _known(sample, names, late)  # noqa: PLW2901
            row, found = read_one(sample, names)
            if not names:
                _refuse_odd(found)
                names = found
        except Exception as error:
            bad.append((index, _why(error)))
        else:
            rows.append(row)
            times.append(time)
    return Rows(np.array(rows) if rows else _NONE, times, names, bad, timed, frozenset(late))


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


def _known(sample: dict[str, Any], names: Names, late: set[str]) -> dict[str, Any]:
    """Return a sample without the names that came later, as `onlad watch` reads it."""
    kept = {name: value for name, value in sample.items() if name in names}
    if not kept:
        raise ValueError(f"{NONE_KNOWN}: {list(sample)[:5]}")
    late |= sample.keys() - kept.keys()
    return kept


def _refuse_odd(names: Names) -> None:
    """Refuse names that would make a model too large."""
    if len(names) > MOST_FEATURES:
        raise ValueError(f"{len(names)} features; at most {MOST_FEATURES}")
    if any(len(str(name)) > LONGEST_NAME for name in names):
        raise ValueError(f"a name has more than {LONGEST_NAME} letters")
