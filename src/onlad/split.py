"""Which rows of a history belong to one mode, when it has several.

Rows are grouped by their place (k-means). Then each group is fitted, and each row goes to the group
that explains it best, a few times. A grouping is taken when

* a linear prediction of each feature inside the groups leaves clearly less error in the rows of a
  group, in cross-validation, than one for all rows that knows the mean of each group: places alone
  are no modes, other relations between the sensors are. So one sensor alone has no modes;
* the machine stays in a group for a while. Rows of one mode that was split in two are explained by
  both halves alike, and go from one to the other and back.
"""

from __future__ import annotations

import numpy as np

from onlad.instance import Instance
from onlad.mode import PRIOR_SQUARE, Mode
from onlad.reference import Array

MOST = 4  # modes of a history
GAIN = 0.15  # how much smaller errors must be, in natural logarithms of their squares
LOOK = 4_096  # rows that are looked at
FEWEST = 128  # rows of a mode
ROUNDS = 15  # of k-means
REFINING = 5  # rounds, at most
STAY = 64  # least rows that a machine stays in a mode, on average


def split(mode: Mode, windows: Array, present: Array) -> Array:
    """Return the group of each row, 0 for all if there is one mode; `mode` has scaled the rows."""
    rows, n = len(windows), mode.features
    group: Array = np.zeros(rows, int)
    looked = np.linspace(0, rows - 1, min(rows, LOOK)).astype(int)
    whole = mode.scaled(windows)
    V, known = whole[looked], present[looked]
    fewest, moving = max(FEWEST, 2 * V.shape[1]), mode.scale > 0
    if len(looked) < 2 * fewest or np.count_nonzero(moving) < 2:
        return group
    best = GAIN
    for k in range(2, MOST + 1):
        own = _groups(V[:, :n], k)
        if np.bincount(own, minlength=k).min() < FEWEST or _gain(V, known, own, moving) <= 0:
            continue  # no better by far: this is the usual case, and soon found
        own = _refined(V, own, k, n)
        if np.bincount(own, minlength=k).min() < fewest:
            continue
        of_all = _likeliest([_fitted(V[own == i], n) for i in range(k)], whole, n)
        if STAY * np.count_nonzero(np.diff(of_all)) > rows:
            continue
        gain = _gain(V, known, own, moving)
        if gain > best:
            best, group = gain, of_all
    return group


def _refined(V: Array, own: Array, k: int, n: int) -> Array:
    """Return the group of each row after each went to the group that explains it best."""
    for _ in range(REFINING):
        before = own
        if np.bincount(own, minlength=k).min() < FEWEST:
            break
        own = _likeliest([_fitted(V[own == i], n) for i in range(k)], V, n)
        if np.array_equal(own, before):
            break
    return own


def _fitted(V: Array, n: int) -> tuple[Instance, Array]:
    """Return a linear prediction of rows, and its usual squared error for each feature."""
    model = Instance("linear", V.shape[1], n, 0)
    model.learn(V, V[:, :n])
    return model, (model.errors(V, V[:, :n]) ** 2).mean(axis=0) + PRIOR_SQUARE


def _likeliest(models: list[tuple[Instance, Array]], V: Array, n: int) -> Array:
    """Return the model under which each row is most likely."""
    costs = [model.errors(V, V[:, :n]) ** 2 / usual + np.log(usual) for model, usual in models]
    likeliest: Array = np.argmin([cost.mean(axis=1) for cost in costs], axis=0)
    return likeliest


def _gain(V: Array, known: Array, own: Array, moving: Array) -> float:
    """Return how much smaller errors are inside the groups, in logarithms of their squares."""
    n, sizes = len(moving), np.bincount(own)
    means = np.array([V[own == i].mean(axis=0) for i in range(len(sizes))])
    whole, gain = _squares(V - means[own], n), 0.0
    for i, size in enumerate(sizes):
        rows = own == i
        apart = _mean(_squares(V[rows], n), known[rows])
        together = _mean(whole[rows], known[rows])
        # What is smaller than any usual square is no error: else a valve that does not move in one
        # group would count as predicted a thousand times better there.
        ratio = (together + PRIOR_SQUARE) / (apart + PRIOR_SQUARE)
        gain += size / len(V) * float(np.mean(np.log(ratio)[moving]))
    return gain


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


def _groups(Z: Array, k: int) -> Array:
    """Return the group of each row by its place, from `k` starts that lie far apart."""
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
    return _nearest(Z, centres)


def _nearest(Z: Array, centres: Array) -> Array:
    nearest: Array = np.argmin([((Z - c) ** 2).sum(axis=1) for c in centres], axis=0)
    return nearest
