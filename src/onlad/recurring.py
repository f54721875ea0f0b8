"""Which events of a burn-in came again and again in the same way: they are part of what is normal.

An event is a run of samples that were not normal. Two events are alike if they begin with the same
jump: in the same direction, about as large. A tank that is emptied or a pump that starts comes
several times in some thousand samples, each time alike. Faults seldom do.
"""

from __future__ import annotations

import numpy as np

from onlad.limit import GAP
from onlad.reference import Array

TIMES = 4  # that an event came, at least
ALIKE = 0.95  # least cosine between two jumps
AS_LARGE = 1.5  # largest ratio between their sizes


def recurring(X: Array, refused: Array) -> Array:
    """Return which of the samples that were `refused` belong to an event that recurs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> X[[100, 300, 500, 700], 0] += 20
    >>> X[[200, 800], 1] += 20
    >>> refused = (X > 10).any(axis=1)
    >>> np.flatnonzero(recurring(X, refused)).tolist()
    [100, 300, 500, 700]
    """
    rows = np.flatnonzero(refused)
    parts = np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1) if len(rows) else []
    parts = [part for part in parts if part[0] > 0]
    found: Array = np.zeros(len(X), bool)
    if len(parts) < TIMES:
        return found
    change = np.nan_to_num(np.diff(X, axis=0, prepend=X[:1]))
    usual = np.sqrt(np.mean(change[~refused] ** 2, axis=0))
    jumps = (change / np.where(usual > 0, usual, np.inf))[[part[0] for part in parts]]
    size = np.maximum(np.linalg.norm(jumps, axis=1), 1e-9)
    cosine = (jumps @ jumps.T) / np.outer(size, size)
    ratio = np.abs(np.log(size[:, None] / size))
    alike = (cosine >= ALIKE) & (ratio <= np.log(AS_LARGE))
    for part, times in zip(parts, alike.sum(axis=1), strict=True):
        found[part] = times >= TIMES
    return found
