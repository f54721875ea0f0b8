"""What came in and waits for the next step, and how a batch of it becomes rows of watchers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onlad.reference import Array
from onlad.report.record import record
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
class Answer:
    """What the sender of an item may want to know."""

    watcher: Watcher | None = None
    bad: list[tuple[int, str]] = field(default_factory=list)
    refused: str = ""  # why nothing of it was taken, though it could be read
    first: int = 0  # row of the first sample
    times: list[float] = field(default_factory=list)
    verdicts: Verdicts | None = None  # of the watcher's whole part
    start: int = 0  # where the item's samples begin in them
    rows: int = 0


@dataclass(slots=True)
class Part:
    """The rows of one watcher in a batch."""

    watcher: Watcher
    seen: float  # when they came
    count: int = 0
    blocks: list[Array] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def record(self) -> Rows:
        """Return what goes into the journal."""
        w = self.watcher
        blocks = [padded(block, len(w.names)) for block in self.blocks]
        X = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return Rows(w.number, w.journaled, w.paused, self.seen, X, np.array(self.times), self.marks)


class Batch:
    """The items of one step, taken apart."""

    def __init__(self) -> None:
        self.now = time.time()
        self.parts: dict[int, Part] = {}
        self.rows: dict[int, Rows] = {}  # what the journal has of them
        self.answers: list[tuple[Item, Answer]] = []

    def add(self, item: Item, watcher: Watcher, found: payload.Rows) -> Answer:
        """Put an item's rows behind those that the watcher has in the batch already."""
        answer = Answer(watcher=watcher, bad=found.bad, times=found.times, rows=len(found.rows))
        if answer.rows:
            if not watcher.names:
                watcher.name(found.names)
            part = self.parts.get(watcher.number)
            if part is None:
                part = self.parts[watcher.number] = Part(watcher, self.now)
            answer.start = part.count
            answer.first = watcher.monitor.n_seen + answer.start
            part.blocks.append(found.rows)
            part.count += answer.rows
            part.times += found.times
            if item.mark is not None:
                part.marks.append(item.mark)
        return answer


def message(
    watcher: Watcher, verdicts: Verdicts, index: int, row: int, when: float
) -> dict[str, Any]:
    """Return a verdict as messages have it: three digits, and causes of anomalies only."""
    found = record(verdicts, index, explain=bool(verdicts.is_anomaly[index]))
    limit = found["threshold"]
    found["score"] = rounded(found["score"])
    found["threshold"] = None if limit is None else rounded(limit)
    return watcher.where | {"row": row, "time": when} | found
