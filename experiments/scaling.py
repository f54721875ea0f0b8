"""What it changes when minimum and maximum come from the training rows alone.

    ONLAD_DATA=... python -m experiments.scaling run      # resumable: skips stored trials
    ONLAD_DATA=... python -m experiments.scaling run nn dnn    # some methods, here those for a GPU
    python -m experiments.scaling table                   # from the records alone

The paper normalises all samples at once, and so do the tables: test rows have a part in the scale.
Here the scale is that of the offline training part, or of the initial rows online, and test rows
may leave [0, 1]. Each trial is that of the same seed in the tables.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, product, repeat
from operator import itemgetter

import numpy as np

from experiments import datasets, metrics, records, steps, tables, testbeds
from experiments.methods import registry, run_trials
from experiments.records import Record
from experiments.run import trial_auc
from experiments.settings import hyperparameters, paper
from experiments.testbeds import TESTBEDS, Array, Testbed

NETWORKS = ("nn", "dnn")
METHODS = ("onlad", "fpelm", *NETWORKS)
TRIALS = 50


def scaled(X: Array, train: Array) -> Array:
    """Return X by the minimum and maximum of its rows `train`; else as `datasets.scale` does."""
    axis = None if X.dtype == np.uint8 else 0
    low = X[train].min(axis=axis).astype("float64")
    span = X[train].max(axis=axis).astype("float64") - low
    # A column that is constant in the training rows has no scale there: it keeps its unit.
    result: Array = ((X - low) / np.where(span > 0, span, 1.0)).astype("float32")
    return result


def data(testbed: Testbed, name: str) -> tuple[tuple[Array, Array], bool]:
    """Return X and y, and whether X differs from that of the tables."""
    X, y = datasets.raw(name)
    train = testbeds.divide(len(y), testbed)["train" if testbed == "offline" else "init"]
    new = scaled(X, train)
    return (new, y.astype("int64")), not np.array_equal(new, datasets.scale(X))


def aucs(
    testbed: Testbed, name: str, method: str, arrays: tuple[Array, Array], seeds: Sequence[int]
) -> Iterator[float]:
    """Yield the AUC of each trial with the paper's settings; networks run side by side."""
    trials = [testbeds.trial(testbed, *arrays, seed) for seed in seeds]
    given = hyperparameters("paper", testbed, name, method)
    if method in NETWORKS:
        from experiments import neural  # noqa: PLC0415  (JAX loads slowly)

        yield from neural.aucs(testbed, method, [given] * len(trials), trials)
        return
    for trial in trials:
        yield trial_auc(trial, run_trials(method, testbed, given, [trial])[0])


def run(methods: Sequence[str] = METHODS) -> None:
    """Run and store what is not stored."""
    names = ("testbed", "dataset", "method", "seed")
    known = {tuple(r[name] for name in names) for r in records.read("scaling")}
    for testbed, name in product(TESTBEDS, paper()["datasets"]):
        todo = [
            (m, s) for m in methods for s in range(TRIALS) if (testbed, name, m, s) not in known
        ]
        if not todo:
            continue
        arrays, differs = data(testbed, name)
        for method, mine in groupby(todo, key=itemgetter(0)):
            seeds = [seed for _, seed in mine]
            # Where the scale is the same the trial is the stored one.
            found = aucs(testbed, name, method, arrays, seeds) if differs else repeat(None)
            for seed, auc in zip(seeds, found, strict=differs):
                values = (testbed, name, method, seed, differs, auc)
                trial = dict(zip((*names, "differs", "auc"), values, strict=True))
                records.append("scaling", [trial | _origin(method)])
            print(f"scaling: {testbed}, {name}, {method}", file=sys.stderr, flush=True)


def _origin(method: str) -> Record:
    found = records.origin("python -m experiments.scaling run", "experiments/scaling.py")
    return found | ({"machine": steps.machine()} if method in NETWORKS else {})


def table() -> str:
    """Return the paired difference to the tables, a row for each dataset and testbed."""
    stored = records.read("scaling")
    if not stored:
        return "No records yet."
    rows, same = [], []
    for (name, label), testbed in product(tables.names().items(), TESTBEDS):
        mine = [r for r in stored if (r["testbed"], r["dataset"]) == (testbed, name)]
        if not any(r["differs"] for r in mine):
            same.append(f"{label}, {testbed}")
            continue
        before = tables.Aucs(testbed).cells
        row = [f"{label}, {testbed}"]
        for method in METHODS:
            aucs = {r["seed"]: r["auc"] for r in before.get((name, method, "paper"), [])}
            gaps = [r["auc"] - aucs[r["seed"]] for r in mine if r["method"] == method]
            gap = metrics.mean(gaps)
            row.append(f"{gap.mean:+.4f} ± {gap.half:.4f}")
        rows.append(row)
    about = tables.provenance(stored, {str(TRIALS): ["each cell"]})
    unchanged = f"The scale is the same, and so is each number: {'; '.join(same)}."
    heads = ["", *(registry()[m].label for m in METHODS)]
    return f"{tables.markdown(heads, rows)}\n\n{unchanged}\n\n{about}"


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2:] or METHODS)
    print(table())
