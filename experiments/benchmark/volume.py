"""VUS-PR in milliseconds, for sweeps of hundreds of runs; the page has TSB-AD's own code.

TSB-AD walks over 250 thresholds for each of up to a hundred window lengths. All that it needs of
a threshold are sums over the rows above it. Here each row is sorted once to the first threshold
that it exceeds, and the sums are cumulative. A test compares both.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments import metrics
from experiments.benchmark.series import Range
from experiments.testbeds import Array

THRESHOLDS = 250


def vus_pr(y: Array, score: Array, window: int) -> float:
    """Return the volume under the precision-recall surface for buffers of up to `window` rows."""
    rows, faults = len(y), metrics.intervals(y == 1)
    places = np.linspace(0, rows - 1, THRESHOLDS).astype(int)
    # For each row the first threshold that it reaches; thresholds fall.
    first = np.searchsorted(np.sort(-score)[places], -score, side="left")
    predicted = _up_to(first, np.ones(rows))
    near = np.zeros(rows, bool)
    for start, stop in joined(faults, window, rows):
        near[start:stop] = True
    inside = y == 1
    areas = []
    for length in range(window + 1):
        weight = weights(y, faults, length) * near
        hits = _up_to(first, weight)
        buffered = inside.sum() + _up_to(first, np.where(inside, 0.0, weight))
        segments = joined(faults, length, rows)
        seen = np.zeros(THRESHOLDS + 1)
        for start, stop in segments:
            seen[first[start:stop].min()] += 1
        recall = np.minimum(hits / ((inside.sum() + buffered) / 2), 1)
        recall *= np.cumsum(seen)[:THRESHOLDS] / len(segments)
        areas.append(np.diff(recall, prepend=0.0) @ (hits / predicted))
    return float(np.mean(areas))


def joined(faults: list[Range], window: int, rows: int) -> list[Range]:
    """Return faults with half a window on both sides; those that meet are one."""
    half, found, begin = window // 2, [], max(faults[0][0] - window // 2, 0)
    for (_, stop), (start, _) in pairwise(faults):
        if stop - 1 + half < start - half:
            found.append((begin, stop + half))
            begin = start - half
    return [*found, (begin, min(faults[-1][1] + half, rows))]


def weights(y: Array, faults: list[Range], window: int) -> Array:
    """Return what each row counts for: 1 in a fault, and less the farther it lies from one."""
    weight = y.astype(float)
    for start, stop in faults:
        after = np.arange(stop, min(stop + window // 2, len(y)))
        weight[after] += np.sqrt(1 - (after - stop + 1) / max(window, 1))
        before = np.arange(max(start - window // 2, 0), start)
        weight[before] += np.sqrt(1 - (start - before) / max(window, 1))
    return np.minimum(weight, 1.0)


def _up_to(first: Array, weight: Array) -> Array:
    """Return the sum of the weights of rows above each threshold."""
    return np.cumsum(np.bincount(first, weight, THRESHOLDS + 1)[:THRESHOLDS])
