"""The paper's two testbeds, to the letter: alg:eval_offline and alg:eval_online.

A dataset is divided once, by a draw that no trial changes: the rows that judge a method are never
those that chose its settings. A trial's seed draws all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Testbed = Literal["offline", "online"]
TESTBEDS: tuple[Testbed, ...] = get_args(Testbed)
ANOMALIES = 0.1  # of the normal samples
FOLDS = 10  # of the cross-validation on the offline training part


@dataclass(frozen=True)
class Part:
    """One model's life: rows it is trained on, then rows it is judged on, in order."""

    data: Array  # the whole dataset; the fields below are rows of it
    train_rows: Array
    rows: Array
    anomalous: Array  # of `rows`
    concepts: tuple[int, ...]  # normal class of each concept
    starts: tuple[int, ...]  # where each concept starts in `rows`

    @property
    def train(self) -> Array:
        return self.data[self.train_rows]

    @property
    def X(self) -> Array:
        return self.data[self.rows]


@dataclass(frozen=True)
class Trial:
    """What one seed gives: a part a class offline, one part online. AUC is their mean."""

    seed: int
    parts: tuple[Part, ...]


def divide(n: int, testbed: Testbed) -> dict[str, Array]:
    """Return the fixed division of `n` rows.

    Offline: train 80 %, test 20 %. Online: init 10 %, valid 45 %, test 45 %.
    """
    rows = np.random.default_rng(0).permutation(n)
    if testbed == "offline":
        train, test = np.split(rows, [round(0.8 * n)])
        return {"train": train, "test": test}
    init, valid, test = np.split(rows, [round(0.1 * n), round(0.55 * n)])
    return {"init": init, "valid": valid, "test": test}


def _sample(rng: np.random.Generator, others: Array, n_normal: int) -> Array:
    """Return a tenth as many anomalies as normal samples, or all where there are fewer."""
    return rng.choice(others, min(int(n_normal * ANOMALIES), len(others)), replace=False)


def _offline(X: Array, y: Array, train: Array, test: Array, seed: int) -> Trial:
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(int(y.max()) + 1):
        normal = test[y[test] == i]
        anomalies = _sample(rng, test[y[test] != i], len(normal))
        rows = np.concatenate([normal, anomalies])
        anomalous = np.arange(len(rows)) >= len(normal)
        parts.append(Part(X, train[y[train] == i], rows, anomalous, (i,), (0,)))
    return Trial(seed, tuple(parts))


def offline(X: Array, y: Array, seed: int) -> Trial:
    """Return a trial of alg:eval_offline."""
    rows = divide(len(y), "offline")
    return _offline(X, y, rows["train"], rows["test"], seed)


def fold(X: Array, y: Array, k: int) -> Trial:
    """Return fold `k` of the cross-validation: alg:eval_offline within the training part."""
    folds = np.array_split(divide(len(y), "offline")["train"], FOLDS)
    train = np.concatenate(folds[:k] + folds[k + 1 :])
    return _offline(X, y, train, folds[k], k)


def online(X: Array, y: Array, seed: int, judged: Literal["test", "valid"] = "test") -> Trial:
    """Return a trial of alg:eval_online on X_test, or on X_valid to choose settings."""
    rng = np.random.default_rng(seed)
    rows = divide(len(y), "online")
    init, stream = rows["init"], rng.permutation(rows[judged])
    normal, anomaly = np.split(stream, [round(0.9 * len(stream))])
    indices = rng.permutation(int(y.max()) + 1)
    concepts, labels = [], []
    for i in indices:
        usual = normal[y[normal] == i]
        concept = np.concatenate([usual, _sample(rng, anomaly[y[anomaly] != i], len(usual))])
        order = rng.permutation(len(concept))
        concepts.append(concept[order])
        labels.append(order >= len(usual))
    starts = np.cumsum([0, *map(len, concepts[:-1])])
    part = Part(
        X,
        init[y[init] == indices[0]],
        np.concatenate(concepts),
        np.concatenate(labels),
        tuple(indices.tolist()),
        tuple(starts.tolist()),
    )
    return Trial(seed, (part,))


def trial(testbed: Testbed, X: Array, y: Array, seed: int) -> Trial:
    """Return the trial of a seed, on test data."""
    return (offline if testbed == "offline" else online)(X, y, seed)


def validation(testbed: Testbed, X: Array, y: Array, k: int) -> Trial:
    """Return fold `k` offline, validation stream `k` online: never a row of test data."""
    return fold(X, y, k) if testbed == "offline" else online(X, y, k, judged="valid")
