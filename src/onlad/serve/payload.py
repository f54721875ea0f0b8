"""Samples out of the bytes of a message: JSON or plain numbers, one or many.

`onlad.streams.records` has the rules of JSON. Here is what the service adds: limits, plain numbers,
times of arrival, and a fast way for blocks of usual samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onlad import _kernel
from onlad.reference import Array
from onlad.rows import LARGEST, Names
from onlad.serve.tables import StreamTable
from onlad.streams import records
from onlad.streams.block import number
from onlad.streams.records import LONGEST_NAME
from onlad.streams.times import LATEST, seconds

# A message is read in one go, so its size bounds how long others wait for their turn.
MOST_ROWS = 1000
MOST_BYTES = 1_000_000
MOST_FEATURES = 1000
LONGEST_WHY = 300

_NONE: Array = np.empty((0, 0))
_SEPARATORS = re.compile(r"[,;\s]+")


class Rows(NamedTuple):
    """What a message holds: vectors with their times, and what was wrong with the others."""

    rows: Array  # one per row
    times: list[float]
    names: Names  # those of the stream, and those that came later and are watched
    bad: list[tuple[int, str]]
    timed: bool = False  # each sample has a time of its own
    late: frozenset[str] = frozenset()  # names that came later and are not watched


def read(
    stream: StreamTable, data: bytes, names: Names, now: float, *, grows: bool = False
) -> Rows:
    """Return the samples in a message. `names` are those of the stream, if it has any yet.

    If it `grows`, names that come later are added to them. A message is refused whole, as number 0,
    when it cannot be taken apart.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data)} bytes in one message; at most {MOST_BYTES}")
        samples = _plain(data) if stream.payload == "plain" else records.parsed(data)
        if not 1 <= len(samples) <= MOST_ROWS:
            raise ValueError(f"{len(samples)} samples in one message; 1 to {MOST_ROWS} are allowed")
        plain = names and not stream.choice.states
        if plain and (found := _block(stream, samples, names, now)) is not None:
            return found
    except Exception as error:  # whatever it is, it belongs to this message and to no other
        return Rows(_NONE, [], names, [(0, why(error))])
    return _each(stream, samples, names, now, grows=grows)


def _block(stream: StreamTable, samples: Sequence[Any], names: Names, now: float) -> Rows | None:
    """Return samples as one block, or None if anything is unusual, with the samples as they were.

    It is what `_each` would return, at a fraction of its time.
    """
    if type(samples[0]) is not dict:
        return _arrays(samples, names, now)
    X = np.empty((len(samples), len(names)))
    times, read = [now] * len(samples), _kernel.read_dict
    more = stream.time is not None or len(samples[0]) > len(names)
    time = stream.choice.time_among(samples[0], names) if more else None
    timed = time is not None and time == stream.time
    for i, sample in enumerate(samples):
        if type(sample) is not dict:
            return None
        chosen = sample
        if stream.columns:
            chosen = {name: sample[name] for name in stream.columns if name in sample}
        elif time is not None or stream.ignore:
            chosen = sample.copy()
            for name in stream.ignore:
                chosen.pop(name, None)
            chosen.pop(time, None)
        if not chosen or not read(chosen, names, X[i], LARGEST):
            return None
        if time is not None:
            when: Any = sample.get(time)
            if type(when) not in (float, int) or not -LATEST <= when <= LATEST:
                return None
            times[i] = float(when)
    return Rows(X, times, names, [], timed)


def _arrays(samples: Sequence[Any], names: Names, now: float) -> Rows | None:
    n, numbers = len(names), {float, int}
    if any(type(s) is not list or len(s) != n or set(map(type, s)) - numbers for s in samples):
        return None
    X = np.array(samples, "float64")
    return None if (np.abs(X) > LARGEST).any() else Rows(X, [now] * len(X), names, [])


def _each(
    stream: StreamTable, samples: Sequence[Any], names: Names, now: float, *, grows: bool = False
) -> Rows:
    """Return samples read one by one, each with what is wrong with it."""
    rows: list[list[float]] = []
    times: list[float] = []
    bad: list[tuple[int, str]] = []
    known = names or stream.columns
    reader = records.Records(
        stream.choice, known, lambda words: None, begun=bool(known), grows=grows
    )
    timed = stream.time is not None
    for index, sample in enumerate(samples):
        try:
            values, given, _ = reader.take(sample)
            time = now if given is None else seconds(given)
            if not names and reader.roles is not None:
                first = reader.roles.features
                if len(first) > MOST_FEATURES:  # which would make a model too large
                    raise ValueError(f"{len(first)} features; at most {MOST_FEATURES}")
                if any(len(str(name)) > LONGEST_NAME for name in first):
                    raise ValueError(f"a name has more than {LONGEST_NAME} letters")
        except Exception as error:
            bad.append((index, why(error)))
        else:
            timed = timed and given is not None
            rows.append(values)
            times.append(time)
    late = frozenset(name[:LONGEST_NAME] for name in reader.late.reported)
    if not rows or reader.roles is None:
        return Rows(_NONE, times, names, bad, timed, late)
    width = max(map(len, rows))
    X = np.array([row + [math.nan] * (width - len(row)) for row in rows])
    return Rows(X, times, reader.roles.features[:width], bad, timed, late)


def why(error: Exception) -> str:
    """Return what is wrong with a message that its reader stumbled over."""
    return str(error)[:LONGEST_WHY] or type(error).__name__


def _plain(data: bytes) -> Sequence[list[float]]:
    text = data.decode("utf-8")  # UnicodeDecodeError is a ValueError
    lines = [line for line in text.splitlines() if line.strip()]
    cells = [enumerate(_SEPARATORS.split(line.strip())) for line in lines]
    return [[number(part, i) for i, part in line] for line in cells]
