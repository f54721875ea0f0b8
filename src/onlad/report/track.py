"""A run of any length in constant memory, to be drawn: scores, thresholds, alarms and causes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onlad.incident import Incident
from onlad.reference import Array
from onlad.report.joined import Joined, Joiner
from onlad.streams.block import Block, Time
from onlad.verdict import Verdicts

BUCKETS = 2048  # at most twice as many; a picture has no more columns
MOST = 200  # incidents that are kept, the most severe ones
#: Value of an empty bucket, and how two buckets become one.
COLUMNS: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "score": (math.nan, np.fmax),
    "limit": (math.nan, lambda a, b: np.where(np.isnan(b), a, b)),
    "alarms": (0, np.add),
    "drift": (False, np.logical_or),
    "row": (0, lambda a, b: a),
    "shares": (0.0, np.add),
}


class Track:
    """Keeps the highest score of each bucket of samples; buckets are joined when there are many.

    ``score``, ``limit``, ``alarms``, ``drift``, ``row`` and ``shares`` have one entry per bucket;
    a score is NaN while the monitor learned. ``shares`` sums the shares of alarms by feature.
    """

    def __init__(self) -> None:
        self.names: tuple[Any, ...] = ()
        self.width = 1  # samples per bucket
        self.n_seen = 0
        self._times: list[Time] = []
        self._columns = {name: np.full(2 * BUCKETS, no) for name, (no, _) in COLUMNS.items()}
        self._columns["shares"] = np.zeros((2 * BUCKETS, 0))
        self._joiner = Joiner()
        self._severe: list[tuple[float, int, Incident]] = []  # a heap

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(name)
        column: Array = self._columns[name][: len(self)]
        return column

    def __len__(self) -> int:
        return (self.n_seen + self.width - 1) // self.width

    @property
    def times(self) -> list[Time]:
        """The time of the first sample of each bucket, None where there is none."""
        return self._times[: len(self)]

    @property
    def incidents(self) -> list[Incident]:
        """The most severe incidents, in their order."""
        self._keep(self._joiner.finish())
        return [incident for _, _, incident in sorted(self._severe, key=lambda each: each[1])]

    @property
    def n_incidents(self) -> int:
        """How many there were."""
        return self._joiner.count

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take the verdicts on a block."""
        n, features = len(verdicts), [self._place(name) for name in verdicts.names]
        while self.n_seen + n > 2 * BUCKETS * self.width:
            self._join()
        bucket = (self.n_seen + np.arange(n)) // self.width
        columns = self._columns
        ready, alarm = verdicts.ready, verdicts.is_anomaly
        np.fmax.at(columns["score"], bucket[ready], verdicts.score[ready])
        columns["limit"][bucket[ready]] = verdicts.threshold[ready]
        np.add.at(columns["alarms"], bucket[alarm], 1)
        shares = np.zeros((int(alarm.sum()), len(self.names)))
        shares[:, features] = verdicts.shares[alarm]
        np.add.at(columns["shares"], bucket[alarm], shares)
        np.logical_or.at(columns["drift"], bucket, verdicts.drift)
        first, at = np.unique(bucket, return_index=True)
        for b, i in zip(first.tolist(), at.tolist(), strict=True):
            if b == len(self._times):
                columns["row"][b] = block.row[i]
                self._times.append(None if block.times is None else block.times[i])
        self.n_seen += n
        self._keep(self._joiner.add(block, verdicts))

    def _place(self, name: Any) -> int:
        """Return the column of a feature in ``shares``; one that is new gets one."""
        if name not in self.names:
            self.names = (*self.names, name)
            self._columns["shares"] = np.pad(self._columns["shares"], ((0, 0), (0, 1)))
        return self.names.index(name)

    def _join(self) -> None:
        """Make one bucket of two."""
        for name, (empty, join) in COLUMNS.items():
            old = self._columns[name]
            self._columns[name] = np.full_like(old, empty)
            self._columns[name][:BUCKETS] = join(old[::2], old[1::2])
        self._times = self._times[::2]
        self.width *= 2

    def _keep(self, joined: list[Joined]) -> None:
        for each in joined:
            incident = each.whole
            heapq.heappush(self._severe, (incident.severity, incident.number, incident))
            if len(self._severe) > MOST:
                heapq.heappop(self._severe)
