"""kNN, LOF and PCA that do once what all settings of a search have in common.

At 784 features a search spends nearly all its time on distances or on principal components, and its
settings differ in how many of them they use. Here the `MOST` nearest neighbours and all components
of a training set are found once, and a setting takes the first of them. The models are PyOD's and
scikit-learn's own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from pyod.models.knn import KNN
from sklearn.decomposition import PCA
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from experiments.testbeds import Array

MOST = 150  # the most that a grid asks for
KEPT = 160  # pairs of a training set and rows: 3 folds of 26 classes, training and scoring

_found: OrderedDict[tuple[str, bytes, bytes], Any] = OrderedDict()


def _digest(X: Array | None) -> bytes:
    return b"" if X is None else hashlib.sha256(np.ascontiguousarray(X)).digest()


def _once(what: str, train: Array, X: Array | None, find: Callable[[], Any]) -> Any:
    """Return what `find` found for a training set and rows, the first time."""
    key = what, _digest(train), _digest(X)
    if key not in _found:
        _found[key] = find()
        while len(_found) > KEPT:
            _found.popitem(last=False)
    return _found[key]


class _First:
    """Replaces `kneighbors` of a scikit-learn model: the first of those found once."""

    _fit_X: Array
    n_neighbors: int

    def kneighbors(
        self, X: Array | None = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        wanted = n_neighbors or self.n_neighbors
        there = len(self._fit_X) - (X is None)  # a training row is no neighbour of its own
        most = max(wanted, min(MOST, there))
        find = super().kneighbors  # type: ignore[misc]
        distances, indices = _once(f"{most} nearest", self._fit_X, X, lambda: find(X, most))
        if return_distance:
            return distances[:, :wanted], indices[:, :wanted]
        return indices[:, :wanted]


class _Neighbours(_First, NearestNeighbors):  # type: ignore[misc]
    pass


class Lof(_First, LocalOutlierFactor):  # type: ignore[misc]
    """scikit-learn's local outlier factor."""


class Knn(KNN):  # type: ignore[misc]
    """PyOD's distance to the nearest neighbours."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.neigh_ = _Neighbours(**self.neigh_.get_params())


class Pca:
    """scikit-learn's principal components, as many as explain a share of the variance."""

    def __init__(self, n_components: float) -> None:
        self.share = n_components

    def fit(self, X: Array) -> None:
        self._all = _once("components", X, None, lambda: PCA().fit(X))
        explained = np.cumsum(self._all.explained_variance_ratio_)
        # As scikit-learn counts them: the fewest that explain more than the share.
        self.n_components = int(np.searchsorted(explained, self.share, side="right")) + 1

    def errors(self, X: Array) -> Array:
        """Return the mean squared error of each row's reconstruction."""
        components = self._all.components_[: self.n_components]
        centred = X - self._all.mean_
        error: Array = np.mean((centred - centred @ components.T @ components) ** 2, axis=1)
        return error
