"""What drift does to a score: one online trial, scores of normal and anomalous samples over time.

    python -m experiments.drift        # stores one small record a method

The curves are medians over groups of samples.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import sys
from collections.abc import Sequence

import numpy as np

from experiments import datasets, metrics, records, testbeds
from experiments.methods import module_of, run_trials
from experiments.records import Record
from experiments.settings import hyperparameters
from experiments.testbeds import Array

METHODS = ("onlad", "onlad-nf", "nn")
POINTS = 250  # along the stream


def medians(scores: Array, keep: Array, points: int) -> list[float | None]:
    """Return the median of the kept scores in each of `points` groups; None where there is none."""
    groups = np.array_split(np.arange(len(scores)), points)
    kept = [scores[rows][keep[rows]] for rows in groups]
    return [float(f"{np.median(values):.4g}") if len(values) else None for values in kept]


def run(name: str = "mnist", methods: Sequence[str] = METHODS, seed: int = 0) -> None:
    """Run what is not stored yet."""
    done = {(r["dataset"], r["method"], r["seed"]) for r in records.read("drift")}
    for method in methods:
        if (name, method, seed) not in done:
            print(f"drift: {method}", file=sys.stderr)
            records.append("drift", [watch(name, method, seed)])


def watch(name: str, method: str, seed: int) -> Record:
    """Return the record of one method on one trial."""
    data = datasets.load(name)
    trial = testbeds.online(data.X, data.y, seed)
    parameters = hyperparameters("paper", "online", name, method)
    (part,), ((scores,),) = trial.parts, run_trials(method, "online", parameters, [trial])
    points = min(POINTS, len(scores) // 20)
    middles = [int(np.mean(rows)) for rows in np.array_split(np.arange(len(scores)), points)]
    return {
        "dataset": name,
        "dataset_sha256": data.sha256,
        "method": method,
        "hyperparameters": parameters,
        "seed": seed,
        "auc": metrics.auc(part.anomalous, scores),
        "concepts": list(part.concepts),
        "starts": list(part.starts),
        "at": middles,
        "normal": medians(scores, ~part.anomalous, points),
        "anomalous": medians(scores, part.anomalous, points),
        "machine": records.machine(),
        "commit": records.commit(module_of(method)),
    }


if __name__ == "__main__":
    run()
