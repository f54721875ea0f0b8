"""The defaults of the scikit-learn adapter, on the data sets that scikit-learn brings.

    python -m experiments.adapter_defaults run      # a few minutes, unless they are stored

Each class of digits and wine, and the benign class of breast cancer, is in turn what is normal.
Half of its rows train, once clean and once with 8 % outliers among them; the other half and all
other rows are judged.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys
from collections.abc import Callable, Iterator
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np

from experiments import metrics, records, tables
from experiments.testbeds import Array

SCALERS = {"standardised": "StandardScaler", "to [0, 1]": "MinMaxScaler"}
RIDGES, UNITS = (1.0, 0.01), (8, 16, 32, 64, 128)
CHOSEN, JUDGED = (0, 1), (2, 3, 4, 5, 6, 7)  # splits: those of the first table and of the second
OUTLIERS = 0.08


def tasks(seed: int) -> Iterator[tuple[Array, Array, Array]]:
    """Yield training rows, rows to judge, and which of those are anomalous."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine  # noqa: PLC0415

    rng = np.random.default_rng(seed)
    for load, usual in (
        *((load_digits, c) for c in range(10)),
        *((load_wine, c) for c in range(3)),
        (load_breast_cancer, 1),
    ):
        X, y = load(return_X_y=True)
        normal = rng.permutation(np.flatnonzero(y == usual))
        others = rng.permutation(np.flatnonzero(y != usual))
        train, rest = np.array_split(normal, 2)
        for share in (0.0, OUTLIERS):
            count = round(share * len(train))
            rows = np.concatenate([rest, others[count:]])
            yield (
                X[np.concatenate([train, others[:count]])],
                X[rows],
                np.arange(len(rows)) >= len(rest),
            )


def score(build: Callable[[], Any], seed: int) -> float:
    """Return the mean AUC of a detector over the tasks of a split."""
    return fmean(
        metrics.auc(anomalous, -build().fit(train).score_samples(rows))
        for train, rows, anomalous in tasks(seed)
    )


def detectors() -> dict[str, Callable[[int], Any]]:
    """Return what the second table compares, by a seed."""
    from sklearn import ensemble, neighbors, svm  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    from onlad.adapters.sklearn import OnladDetector  # noqa: PLC0415

    return {
        "`OnladDetector()`": lambda s: OnladDetector(random_state=s),
        "the same with `n_hidden=128`": lambda s: OnladDetector(128, random_state=s),
        "the same with `ridge=10`, rows scaled to [0, 1] first": lambda s: make_pipeline(
            _scaler("to [0, 1]"), OnladDetector(ridge=10.0, random_state=s)
        ),
        "the same with `ridge=0.01`": lambda s: OnladDetector(ridge=0.01, random_state=s),
        "`IsolationForest()`": lambda s: ensemble.IsolationForest(random_state=s),
        "`OneClassSVM()`, standardised": lambda s: make_pipeline(
            _scaler("standardised"), svm.OneClassSVM()
        ),
        "`LocalOutlierFactor()`, standardised": lambda s: make_pipeline(
            _scaler("standardised"), neighbors.LocalOutlierFactor(novelty=True)
        ),
    }


def _scaler(name: str) -> Any:
    from sklearn import preprocessing  # noqa: PLC0415

    return getattr(preprocessing, SCALERS[name])()


def run() -> None:
    """Measure both tables and store them."""
    from sklearn.base import BaseEstimator  # noqa: PLC0415

    if records.read("adapter_defaults"):
        return  # stored already; delete the file to measure anew
    from onlad import Detector  # noqa: PLC0415

    class Plain(BaseEstimator):
        """The detector of the adapter behind another scaler."""

        def __init__(self, scaling: str, n_hidden: int, ridge: float, seed: int) -> None:
            self.scaling, self.n_hidden, self.ridge, self.seed = scaling, n_hidden, ridge, seed

        def fit(self, X: Array, y: Any = None) -> Plain:
            self.scaler_ = _scaler(self.scaling).fit(X)
            settings = {"n_hidden": self.n_hidden, "ridge": self.ridge, "seed": self.seed}
            self.detector_ = Detector(weights="normal", forgetting=1.0, **settings)
            self.detector_.fit(self.scaler_.transform(X))
            return self

        def score_samples(self, X: Array) -> Array:
            return -self.detector_.score_many(self.scaler_.transform(X))

    source = records.origin(
        "python -m experiments.adapter_defaults run", "experiments/adapter_defaults.py"
    )
    found = []
    for scaling, ridge, units, seed in product(SCALERS, RIDGES, UNITS, CHOSEN):
        auc = score(lambda a=(scaling, units, ridge, seed): Plain(*a), seed)  # type: ignore[misc]
        cell = {"scaling": scaling, "ridge": ridge, "n_hidden": units}
        found.append({"table": "search", **cell, "seed": seed, "auc": round(auc, 5), **source})
    for (name, build), seed in product(detectors().items(), JUDGED):
        auc = score(lambda b=build, s=seed: b(s), seed)  # type: ignore[misc]
        cell = {"detector": name, "seed": seed, "auc": round(auc, 5)}
        found.append({"table": "judged", **cell, **source})
        print(name, seed, f"{auc:.4f}", file=sys.stderr, flush=True)
    records.append("adapter_defaults", found)


def search() -> str:
    """Return the first table."""
    stored = [r for r in records.read("adapter_defaults") if r["table"] == "search"]
    rows = []
    for scaling, ridge in product(SCALERS, RIDGES):
        cells = [
            fmean(
                r["auc"]
                for r in stored
                if (r["scaling"], r["ridge"], r["n_hidden"]) == (scaling, ridge, units)
            )
            for units in UNITS
        ]
        rows.append([f"{scaling}, `ridge={ridge:g}`", *(f"{cell:.3f}" for cell in cells)])
    heads = "scaling inside", f"n_hidden {UNITS[0]}", *map(str, UNITS[1:])
    return tables.markdown(heads, rows)


def judged() -> str:
    """Return the second table."""
    stored = [r for r in records.read("adapter_defaults") if r["table"] == "judged"]
    by_name: dict[str, list[float]] = {}
    for r in stored:
        by_name.setdefault(r["detector"], []).append(r["auc"])
    rows = [[name, f"{fmean(aucs):.3f}", f"{stdev(aucs):.3f}"] for name, aucs in by_name.items()]
    table = tables.markdown(("detector", "mean AUC", "deviation over the splits"), rows)
    return f"{table}\n\n{tables.provenance(stored)}"


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
