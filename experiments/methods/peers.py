"""What a user would take instead, as each library gives it, behind the scaler it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from experiments.methods import Build, Entry, Hyperparameters, Method
from experiments.testbeds import Array, Testbed, Trial


class River:
    """A River detector: dicts, one at a time. Scores are its own, higher is more unusual."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Array) -> None:
        for row in X.tolist():
            self.model.learn_one(dict(enumerate(row)))

    def score(self, X: Array) -> Array:
        return np.array([self.model.score_one(dict(enumerate(row))) for row in X.tolist()])

    def stream(self, X: Array) -> Array:
        scores = np.empty(len(X))
        for i, row in enumerate(X.tolist()):
            x = dict(enumerate(row))
            scores[i] = self.model.score_one(x)
            self.model.learn_one(x)
        return scores


class PySad:
    """A PySAD model: arrays, one at a time. What is no finite number yet counts as usual."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Array) -> None:
        for x in X.astype("float64"):
            self.model.fit_partial(x)

    def score(self, X: Array) -> Array:
        return np.array([self.model.score_partial(x) for x in X.astype("float64")])

    def stream(self, X: Array) -> Array:
        scores = np.empty(len(X))
        for i, x in enumerate(X.astype("float64")):
            scores[i] = self.model.score_partial(x)
            self.model.fit_partial(x)
        return scores


class Offline:
    """A model of scikit-learn that learns once."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Array) -> None:
        self.model.fit(X)

    def score(self, X: Array) -> Array:
        return -np.asarray(self.model.score_samples(X))

    def stream(self, X: Array) -> Array:
        raise NotImplementedError("learns once: there is no stream")


class Forest(Offline):
    """An isolation forest. Each tree takes columns of all rows, so they are stored by columns."""

    def fit(self, X: Array) -> None:
        self.model.fit(np.asfortranarray(X))


class Pca(Offline):
    """The mean squared error of a reconstruction from principal components."""

    def score(self, X: Array) -> Array:
        error: Array = self.model.errors(X)
        return error


def half_space_trees(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    from experiments.methods import _river  # noqa: PLC0415

    # No scaler: the trees are for values in [0, 1], and so are the data.
    return _river.HalfSpaceTrees(_river.grown(n_features, seed, **hyperparameters))


def one_class_svm(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Method:
    from experiments.methods import _river  # noqa: PLC0415

    return _river.OneClassSvm(_river.Svm(**hyperparameters), n_features)


def loda(hyperparameters: Hyperparameters, n_features: int, seed: int) -> PySad:
    from pysad.models import LODA  # noqa: PLC0415

    return PySad(LODA(random_state=seed, **hyperparameters))


def kitnet(hyperparameters: Hyperparameters, n_features: int, seed: int) -> PySad:
    from experiments.methods import _kitnet  # noqa: PLC0415

    return _kitnet.Method(_kitnet.Fast(random_state=seed, **hyperparameters))


def isolation_forest(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Offline:
    from sklearn.ensemble import IsolationForest  # noqa: PLC0415

    return Forest(IsolationForest(random_state=seed, **hyperparameters))


def pca(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Pca:
    from experiments.methods import _once  # noqa: PLC0415

    # Components for 90 % of the variance: with all of them, the default, nothing is left over.
    return Pca(_once.Pca(**({"n_components": 0.9} | hyperparameters)))


class PyOd(Offline):
    """A PyOD model that learns once: its scores are higher for what is unusual."""

    def score(self, X: Array) -> Array:
        return np.asarray(self.model.decision_function(X))


def local_outlier_factor(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Offline:
    from experiments.methods import _once  # noqa: PLC0415

    return Offline(_once.Lof(**({"novelty": True} | hyperparameters)))


def nearest_neighbours(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Offline:
    from experiments.methods import _once  # noqa: PLC0415

    return PyOd(_once.Knn(**hyperparameters))


def one_class_svm_rbf(hyperparameters: Hyperparameters, n_features: int, seed: int) -> Offline:
    from experiments.methods import _once  # noqa: PLC0415

    return Offline(_once.RbfSvm(**hyperparameters))


def run_once(
    build: Build, testbed: Testbed, hyperparameters: Hyperparameters, trials: Sequence[Trial]
) -> list[list[Array]]:
    """Return the scores of each part of each trial, for a method that draws nothing at random.

    All trials have the same training rows, so each class has one model, and each row one score.
    """
    scores: list[list[Array]] = [[] for _ in trials]
    for parts in zip(*(trial.parts for trial in trials), strict=True):
        data = parts[0].data
        model = build(hyperparameters, data.shape[1], 0)
        model.fit(parts[0].train)
        rows = np.unique(np.concatenate([part.rows for part in parts]))
        found = model.score(data[rows])
        for mine, part in zip(scores, parts, strict=True):
            mine.append(found[np.searchsorted(rows, part.rows)])
    return scores


def _fixed(label: str, build: Build) -> Entry:
    return Entry(label, "peer", build, partial(run_once, build), testbeds=("offline",), trials=50)


METHODS = {
    "hst": Entry("River HalfSpaceTrees", "peer", half_space_trees),
    "ocsvm": Entry("River OneClassSVM", "peer", one_class_svm),
    "loda": Entry("PySAD LODA", "peer", loda),
    "kitnet": Entry("PySAD KitNet", "peer", kitnet),
    "iforest": Entry("IsolationForest", "peer", isolation_forest, testbeds=("offline",)),
    "pca": _fixed("PCA", pca),
    "lof": _fixed("LOF", local_outlier_factor),
    "knn": _fixed("kNN", nearest_neighbours),
    "ocsvm-rbf": _fixed("One-class SVM, RBF", one_class_svm_rbf),
}


def _grid(**ranges: Sequence[Any]) -> list[Hyperparameters]:
    return [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]


# Twenty settings each, those of the library among them. What streams is searched on the Online
# Testbed, what learns once on the Offline Testbed.
GRIDS = {
    "hst": _grid(n_trees=(10, 25), height=(5, 8), window_size=(25, 50, 100, 250, 500)),
    "ocsvm": _grid(nu=(0.01, 0.05, 0.1, 0.2, 0.5), intercept_lr=(0.001, 0.01, 0.1, 1.0)),
    "loda": _grid(num_bins=(5, 10, 20, 50, 100), num_random_cuts=(25, 50, 100, 200)),
    "kitnet": _grid(
        learning_rate=(0.01, 0.03, 0.1, 0.3), hidden_ratio=(0.1, 0.3, 0.5, 0.75, 0.9)
    ),
    "iforest": _grid(
        max_samples=(32, 64, "auto", 512, 1024), max_features=(0.1, 0.25, 0.5, 1.0)
    ),
    "pca": _grid(
        n_components=(
            0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.87, 0.9, 0.91, 0.92,
            0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.999,
        )
    ),
    "lof": _grid(
        n_neighbors=(2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 125, 150)
    ),
    "knn": _grid(n_neighbors=(1, 2, 3, 5, 8, 12, 20, 35, 60, 100), method=("largest", "mean")),
    "ocsvm-rbf": _grid(nu=(0.01, 0.05, 0.1, 0.25, 0.5), gamma=("scale", "auto", 0.1, 1.0)),
    "vae": _grid(latent_dim=(2, 4, 8, 16, 32), dropout_rate=(0.0, 0.2), lr=(1e-4, 1e-3)),
    "deep-svdd": _grid(
        hidden_neurons=([8, 4], [16, 8], [32, 16], [64, 32], [128, 64]),
        lr=(1e-5, 1e-4, 1e-3, 1e-2),
    ),
}  # fmt: skip
