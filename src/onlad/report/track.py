"""A run of any length in constant memory, to be drawn: scores, thresholds, alarms and causes."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from onlad import kernel
from onlad.reference import Array
from onlad.streams.block import Block, Time
from onlad.verdict import Verdicts

BUCKETS = 2048  # at most twice as many; a picture has no more columns
STRONGEST = 200  # alarms that are kept one by one


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
        self._strongest: list[tuple[float, int, dict[str, Any]]] = []  # a heap

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
    def strongest(self) -> list[dict[str, Any]]:
        """The strongest alarms, in their order."""
        return [alarm for _, _, alarm in sorted(self._strongest, key=lambda each: each[1])]

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
        for i in np.flatnonzero(alarm).tolist():
            self._keep(block, verdicts, i)

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

    def _keep(self, block: Block, verdicts: Verdicts, i: int) -> None:
        score, row = float(verdicts.score[i]), int(block.row[i])
        if len(self._strongest) == STRONGEST and score <= self._strongest[0][0]:
            return
        alarm = {
            "row": row,
            "time": None if block.times is None else block.times[i],
            "score": score,
            "threshold": float(verdicts.threshold[i]),
            "causes": dict(list(kernel.causes(verdicts.names, verdicts.shares[i]).items())[:3]),
        }
        heapq.heappush(self._strongest, (score, row, alarm))
        if len(self._strongest) > STRONGEST:
            heapq.heappop(self._strongest)
