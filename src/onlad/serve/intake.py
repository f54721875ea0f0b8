"""What came in and waits for the next step, and the rows of devices that a batch of it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onlad.reference import Array
from onlad.report.record import records
from onlad.serve import payload
from onlad.serve.alarm import rounded
from onlad.serve.frames import Mark, Rows
from onlad.serve.tables import StreamTable
from onlad.serve.watcher import Watcher, padded
from onlad.verdict import Verdicts


@dataclass(slots=True)
class Item:
    """One message or request."""

    stream: StreamTable
    device: str
    payload: bytes
    arrived: float  # time.perf_counter
    mark: Mark | None = None
    again: bool = False  # the broker says that it may have sent it before
    done: Callable[[], None] | None = None  # its samples are safe: acknowledge it
    refused: Callable[[], None] | None = None  # they are not: it has to come again
    reply: Callable[[Answer], None] | None = None

    @property
    def where(self) -> dict[str, str]:
        """Return stream and device, as logs have them."""
        return {"stream": self.stream.name, "device": self.device}


@dataclass(slots=True)
class Part:
    """The rows of one device in a batch, and their verdicts."""

    watcher: Watcher
    seen: float  # when they came
    first: int  # row of the first sample
    rows: Rows = field(init=False)  # what the journal has of them
    verdicts: Verdicts | None = None
    blocks: list[Array] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def record(self) -> Rows:
        """Return what goes into the journal."""
        w = self.watcher
        X = np.concatenate([padded(block, len(w.names)) for block in self.blocks])
        times = np.array(self.times)
        self.rows = Rows(w.number, w.journaled, w.paused, self.seen, X, times, self.marks)
        return self.rows


@dataclass(slots=True)
class Answer:
    """What the sender of an item may want to know."""

    bad: list[tuple[int, str]] = field(default_factory=list)
    refused: str = ""  # why nothing of it was taken, though it could be read
    part: Part | None = None
    start: int = 0  # where the item's samples begin in the part
    rows: int = 0


class Batch:
    """The items of one step, taken apart."""

    def __init__(self) -> None:
        self.now = time.time()
        self.parts: dict[int, Part] = {}  # by number of the device
        self.answers: list[tuple[Item, Answer]] = []

    def add(self, item: Item, watcher: Watcher, found: payload.Rows) -> Answer:
        """Put an item's rows behind those that the device has in the batch already."""
        if not len(found.rows):
            return Answer(found.bad)
        if not watcher.names:
            watcher.name(found.names)
        part = self.parts.get(watcher.number)
        if part is None:
            part = self.parts[watcher.number] = Part(watcher, self.now, watcher.monitor.n_seen)
        answer = Answer(found.bad, part=part, start=len(part.times), rows=len(found.rows))
        part.blocks.append(found.rows)
        part.times += found.times
        part.marks += [item.mark] if item.mark is not None else []
        return answer


def messages(
    watcher: Watcher, verdicts: Verdicts, which: Sequence[int], first: int, times: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Yield verdicts as messages have them: three digits, and causes of anomalies only.

    `times` are those of all verdicts, and `first` is the row of the first of them.
    """
    where = watcher.where
    limits: dict[float | None, float | None] = {None: None}  # few differ
    for i, found in zip(which, records(verdicts, which, anomalies_only=True), strict=True):
        limit = found["threshold"]
        if limit not in limits:
            limits[limit] = rounded(limit)
        found["score"], found["threshold"] = rounded(found["score"]), limits[limit]
        yield {**where, "row": first + i, "time": float(times[i]), **found}
