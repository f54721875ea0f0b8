"""A run of any length in constant memory, to be drawn: scores, thresholds, alarms and causes."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from onlad.incident import Incident, Incidents
from onlad.reference import Array
from onlad.streams.block import Block, Time
from onlad.verdict import Verdicts

BUCKETS = 2048  # at most twice as many; a picture has no more columns
MOST = 200  # incidents that are kept, the most severe ones


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
        self._columns: dict[str, Array] = {}
        self._open = Incidents()
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
        for incident in self._open.finish():
            self._keep(incident)
        return [incident for _, _, incident in sorted(self._severe, key=lambda each: each[1])]

    @property
    def n_incidents(self) -> int:
        """How many there were."""
        return self._open.count

    def add(self, block: Block, verdicts: Verdicts) -> None:
        """Take the verdicts on a block."""
        if not self._columns:
            self._start(block.names)
        n = len(verdicts)
        while self.n_seen + n > 2 * BUCKETS * self.width:
            self._join()
        bucket = (self.n_seen + np.arange(n)) // self.width
        columns = self._columns
        ready, alarm = verdicts.ready, verdicts.is_anomaly
        np.fmax.at(columns["score"], bucket[ready], verdicts.score[ready])
        columns["limit"][bucket[ready]] = verdicts.threshold[ready]
        np.add.at(columns["alarms"], bucket[alarm], 1)
        np.add.at(columns["shares"], bucket[alarm], verdicts.shares[alarm])
        np.logical_or.at(columns["drift"], bucket, verdicts.drift)
        first, at = np.unique(bucket, return_index=True)
        for b, i in zip(first.tolist(), at.tolist(), strict=True):
            if b == len(self._times):
                columns["row"][b] = block.row[i]
                self._times.append(None if block.times is None else block.times[i])
        self.n_seen += n
        for incident in self._open.add(verdicts, block.row, block.times):
            self._keep(incident)

    def _start(self, names: tuple[Any, ...]) -> None:
        self.names = names
        n = 2 * BUCKETS
        self._columns = {
            "score": np.full(n, math.nan),
            "limit": np.full(n, math.nan),
            "alarms": np.zeros(n, np.int64),
            "drift": np.zeros(n, bool),
            "row": np.zeros(n, np.int64),
            "shares": np.zeros((n, len(names))),
        }

    def _join(self) -> None:
        """Make one bucket of two."""
        columns, half = self._columns, BUCKETS
        for name, join in (
            ("score", np.fmax),
            ("limit", lambda a, b: np.where(np.isnan(b), a, b)),
            ("alarms", np.add),
            ("shares", np.add),
            ("drift", np.logical_or),
            ("row", lambda a, b: a),
        ):
            old = columns[name]
            empty = math.nan if name in ("score", "limit") else 0
            columns[name] = np.full_like(old, empty)
            columns[name][:half] = join(old[::2], old[1::2])
        self._times = self._times[::2]
        self.width *= 2

    def _keep(self, incident: Incident) -> None:
        heapq.heappush(self._severe, (incident.severity, incident.number, incident))
        if len(self._severe) > MOST:
            heapq.heappop(self._severe)
