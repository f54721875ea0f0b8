"""kNN, LOF, PCA and a one-class SVM that do once what all settings of a search have in common.

At 784 features a search spends nearly all its time on distances or on principal components. Here
the `MOST` nearest neighbours, all components and all squared distances of a training set are found
once. A setting takes the first of them, or makes its kernel from them. The models are PyOD's and
scikit-learn's own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from pyod.models.knn import KNN
from scipy.spatial.distance import squareform
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.svm import OneClassSVM

from experiments.testbeds import Array

MOST = 150  # the most that a grid asks for
KEPT = 4 << 30  # bytes: the distances of 10 classes in 3 folds, 5,040 rows each, are 3 GB

_found: OrderedDict[tuple[str, bytes, bytes], tuple[Array, ...]] = OrderedDict()


def _digest(X: Array | None) -> bytes:
    return b"" if X is None else hashlib.sha256(np.ascontiguousarray(X)).digest()


def _once(
    what: str, train: Array, X: Array | None, find: Callable[[], tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Return what `find` found for a training set and rows, the first time."""
    key = what, _digest(train), _digest(X)
    if key not in _found:
        _found[key] = found = find()
        while sum(part.nbytes for kept in _found.values() for part in kept) > KEPT:
            _found.popitem(last=False)
        return found
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
        components, self._mean, ratios = _once("components", X, None, lambda: _components(X))
        # As scikit-learn counts them: the fewest that explain more than the share.
        self.n_components = int(np.searchsorted(np.cumsum(ratios), self.share, side="right")) + 1
        self._components = components[: self.n_components]

    def errors(self, X: Array) -> Array:
        """Return the mean squared error of each row's reconstruction."""
        centred = X - self._mean
        error: Array = np.mean(
            (centred - centred @ self._components.T @ self._components) ** 2, axis=1
        )
        return error


def _components(X: Array) -> tuple[Array, ...]:
    model = PCA().fit(X)
    return model.components_, model.mean_, model.explained_variance_ratio_


class RbfSvm:
    """scikit-learn's one-class SVM with an RBF kernel, which is made from squared distances."""

    def __init__(self, nu: float = 0.5, gamma: str | float = "scale") -> None:
        self.nu, self.gamma = nu, gamma

    def fit(self, X: Array) -> None:
        self._X = X.astype("float64")
        by_name = {"scale": 1 / (X.shape[1] * self._X.var()), "auto": 1 / X.shape[1]}
        self._gamma = by_name[self.gamma] if isinstance(self.gamma, str) else self.gamma
        (squares,) = _once("squares", X, None, lambda: (_squares(self._X),))
        kernel = squareform(np.exp(-self._gamma * squares), checks=False)
        np.fill_diagonal(kernel, 1)
        self._svm = OneClassSVM(kernel="precomputed", nu=self.nu).fit(kernel)

    def score_samples(self, X: Array) -> Array:
        squares = euclidean_distances(X.astype("float64"), self._X, squared=True)
        scores: Array = self._svm.score_samples(np.exp(-self._gamma * squares))
        return scores


def _squares(X: Array) -> Array:
    """Return the squared distance of each pair of rows, once."""
    squares: Array = squareform(euclidean_distances(X, squared=True), checks=False)
    return squares
