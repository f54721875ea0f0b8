"""The last samples of a device, as the page draws them, in one array.

As objects, the 600 samples of 1,000 devices would take four times the memory, and Python would look
through all of them every few seconds while samples wait.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onlad.reference import Array
from onlad.verdict import Verdicts


class Point(NamedTuple):
    """What the page draws of one sample."""

    row: int
    time: float
    score: float
    threshold: float  # inf while the monitor warms up
    is_anomaly: bool
    drift: bool


class History:
    """At most `most` points, the oldest first."""

    def __init__(self, most: int) -> None:
        self._ring: Array = np.empty((most, len(Point._fields)))
        self._around: Array = np.empty((most, 0))  # (most, 3, n) values, expected, half widths
        self._count = 0  # of all points ever

    def add(self, first: int, times: Array, verdicts: Verdicts) -> None:
        """Add samples from row `first` on."""
        v, most, end = verdicts, len(self._ring), self._count + len(times)
        if self._around.shape[1:] != (3, len(v.names)):
            self._around = np.full((most, 3, len(v.names)), np.nan, "float32")
        row = np.arange(first, first + len(times))
        points = (row, times, v.score, v.threshold, v.is_anomaly, v.drift)
        begin = max(self._count, end - most)
        while begin < end:  # to the end of the ring, and from its beginning on
            at, stop = begin % most, min(end, begin + most - begin % most)
            here = slice(at, at + stop - begin)
            part = slice(len(times) - end + begin, len(times) - end + stop)
            for j, column in enumerate(points):
                self._ring[here, j] = column[part]
            for j, column in enumerate((v.values, v.expected, v.reach)):
                self._around[here, j] = column[part]
            begin = stop
        self._count = end

    @property
    def _kept(self) -> Array:
        """Where what is kept stands, the oldest first."""
        most = len(self._ring)
        return np.arange(max(0, self._count - most), self._count) % most

    def around(self) -> Array:
        """Return values, expected values and half widths of bands of what is kept, (.., 3, n)."""
        return self._around[self._kept]

    def values(self, many: int) -> Array:
        """Return the values of `many` samples, spread over what is kept, (many, n)."""
        if not self._count:
            return np.empty((many, 0))
        kept = self._kept
        return np.asarray(self._around[kept[np.linspace(0, len(kept) - 1, many, dtype=int)], 0])

    def points(self) -> list[Point]:
        """Return what is kept."""
        return [
            Point(int(row), time, score, threshold, bool(is_anomaly), bool(drift))
            for row, time, score, threshold, is_anomaly, drift in self._ring[self._kept].tolist()
        ]

    def after(self, older: History | None) -> tuple[list[Point], Array]:
        """Return what is kept, after what `older` has of the rows before, and what is around it."""
        points, around = self.points(), self.around()
        if older is None:
            return points, around
        before, wide = older.points(), older.around()
        if points:
            n = sum(p.row < points[0].row for p in before)
            before, wide = before[:n], wide[:n]
            late = ((0, 0), (0, 0), (0, around.shape[2] - wide.shape[2]))  # sensors that came later
            wide = np.pad(wide, late, constant_values=np.nan)
            wide = np.concatenate((wide, around))
        return before + points, wide
