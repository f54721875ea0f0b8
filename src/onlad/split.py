"""Which rows of a history belong to one mode, when it has several.

Rows are grouped by their place (k-means). A grouping is taken when a linear prediction of each
feature inside the groups leaves clearly less error in the rows of a group, in cross-validation,
than one for all rows that knows the mean of each group: places alone are no modes, other relations
between the sensors are. So one sensor alone has no modes.
"""

from __future__ import annotations

import numpy as np

from onlad.instance import Instance
from onlad.mode import PRIOR_SQUARE, Mode
from onlad.reference import Array

MOST = 4  # modes of a history
GAIN = 0.15  # how much smaller errors must be, in natural logarithms of their squares
DEARER = 0.05  # how much more for each group after the second
LOOK = 4_096  # rows that are looked at
FEWEST = 128  # rows of a mode
ROUNDS = 15  # of k-means


def split(mode: Mode, windows: Array, present: Array) -> Array:
    """Return the group of each row, 0 for all if there is one mode; `mode` has scaled the rows."""
    rows = len(windows)
    group: Array = np.zeros(rows, int)
    looked = np.linspace(0, rows - 1, min(rows, LOOK)).astype(int)
    V, known = mode.scaled(windows[looked]), present[looked]
    n = mode.features
    moving = mode.scale > 0
    fewest = max(FEWEST, 2 * V.shape[1])
    if len(looked) < 2 * fewest or np.count_nonzero(moving) < 2:
        return group
    best, places = GAIN, np.empty(0)
    for k in range(2, MOST + 1):
        centres, own = _groups(V[:, :n], k)
        sizes = np.bincount(own, minlength=k)
        if sizes.min() < fewest:
            continue
        means = np.array([V[own == i].mean(axis=0) for i in range(k)])
        whole = _squares(V - means[own], n)
        gain = 0.0
        for i, size in enumerate(sizes):
            group_rows = own == i
            apart = _mean(_squares(V[group_rows], n), known[group_rows])
            together = _mean(whole[group_rows], known[group_rows])
            # What is smaller than any usual square is no error: else a valve that does not move
            # in one group would count as predicted a thousand times better there.
            ratio = (together + PRIOR_SQUARE) / (apart + PRIOR_SQUARE)
            gain += size / len(V) * float(np.mean(np.log(ratio)[moving]))
        if gain > best + (DEARER if len(places) else 0.0):
            best, places = gain, centres
    return _nearest(mode.scaled(windows)[:, :n], places) if len(places) else group


def _squares(V: Array, n: int) -> Array:
    """Return the squared errors of each row, one half predicted by the other."""
    half, squares = len(V) // 2, np.empty((len(V), n))
    for part, rest in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        model = Instance("linear", V.shape[1], n, 0)
        model.learn(V[rest], V[rest, :n])
        squares[part] = model.errors(V[part], V[part, :n]) ** 2
    return squares


def _mean(squares: Array, present: Array) -> Array:
    """Return the mean over the rows in which a value was present."""
    return np.asarray((squares * present).sum(axis=0) / np.maximum(present.sum(axis=0), 1))


def _groups(Z: Array, k: int) -> tuple[Array, Array]:
    """Return `k` centres and the group of each row, from starts that lie far apart."""
    centres = Z[:1]
    for _ in range(k - 1):
        distance = np.min([((Z - c) ** 2).sum(axis=1) for c in centres], axis=0)
        usual = np.where(distance <= np.quantile(distance, 0.95), distance, -1.0)  # no outlier
        centres = np.vstack((centres, Z[np.argmax(usual)]))
    for _ in range(ROUNDS):
        own = _nearest(Z, centres)
        centres = np.array(
            [Z[own == i].mean(axis=0) if (own == i).any() else centres[i] for i in range(k)]
        )
    return centres, _nearest(Z, centres)


def _nearest(Z: Array, centres: Array) -> Array:
    nearest: Array = np.argmin([((Z - c) ** 2).sum(axis=1) for c in centres], axis=0)
    return nearest
