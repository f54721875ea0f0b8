"""Time the evaluation itself: `python -m benchmarks.evaluation`.

One online trial of ONLAD on MNIST with the paper's settings, through `update_many` and as a loop
in NumPy; repeats take turns, on one thread, and medians are given. Then the time of the OS-ELM
part of both AUC tables, from the seconds that its stored trials took.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from experiments.methods import registry
from experiments.settings import hyperparameters
from experiments.testbeds import Array, Part

from experiments import datasets, metrics, records, testbeds
from onlad import reference

SECONDS, RATIO, MINUTES = 0.5, 5.0, 30.0  # what is wanted
FAMILY = "os-elm"
TRIALS, CORES = 50, 2


def compiled(part: Part, parameters: dict[str, Any], seed: int) -> Array:
    model = registry()["onlad"].build(parameters, part.data.shape[1], seed)
    model.fit(part.train)
    return model.stream(part.X)


def loop(part: Part, parameters: dict[str, Any], seed: int) -> Array:
    """Return the same scores as one writes it in NumPy, in the type of `Detector`."""
    drawn = reference.init(part.data.shape[1], parameters["n_hidden"], seed=seed)
    state = reference.fit(drawn, part.train.astype("float64"), activation="sigmoid")
    alpha, b, beta, P = state
    a2, scores = parameters["forgetting"] ** 2, []
    for x in part.X.astype("float64"):
        h = 1 / (1 + np.exp(-(x @ alpha + b)))
        u = P @ h / a2
        d = 1 + h @ u
        e = x - h @ beta
        P = P / a2 - np.outer(u, u) / d
        beta += np.outer(u / d, e)
        scores.append(np.mean(e * e))
    return np.array(scores)


def timed(run: Callable[..., Array], *arguments: Any) -> tuple[float, Array]:
    begun = time.perf_counter()
    scores = run(*arguments)
    return time.perf_counter() - begun, scores


def tables_minutes() -> dict[str, Any]:
    """Return how long the trials of the OS-ELM methods take on two cores, from their records."""
    seconds, trials = 0.0, 0
    for name, entry in registry().items():
        for testbed in entry.testbeds if entry.family == FAMILY else ():
            for r in records.read(records.auc_file(testbed, name)):
                if r["settings"] in ("paper", "ours") and r["seed"] < TRIALS:
                    seconds += r["seconds"]
                    trials += 1
    return {"trials": trials, "minutes": round(seconds / 60 / CORES, 2), "wanted": MINUTES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="also write the numbers to this file")
    args = parser.parse_args()
    data = datasets.load("mnist")
    parameters = hyperparameters("paper", "online", "mnist", "onlad")
    part = testbeds.online(data.X, data.y, seed=0).parts[0]
    runs = {"update_many": compiled, "NumPy loop": loop}
    times: dict[str, list[float]] = {name: [] for name in runs}
    aucs = {}
    for repeat in range(args.repeats):
        for name, run in runs.items():
            if name == "update_many" or repeat < 2:  # the loop takes seconds
                seconds, scores = timed(run, part, parameters, 0)
                times[name].append(seconds)
                aucs[name] = round(metrics.auc(part.anomalous, scores), 4)
    fast, slow = (median(times[name]) for name in runs)
    found = {
        "samples": len(part.rows),
        "seconds": {"update_many": round(fast, 4), "NumPy loop": round(slow, 4)},
        "auc": aucs,
        "wanted_seconds": SECONDS,
        "loop / update_many": round(slow / fast, 2),
        "wanted_ratio": RATIO,
        "tables": tables_minutes(),
        "machine": records.machine(),
        "commit": records.commit(),
    }
    print(json.dumps(found, indent=2))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    if fast > SECONDS or slow < RATIO * fast:
        print("slower than wanted, or the machine is busy", file=sys.stderr)


if __name__ == "__main__":
    main()
