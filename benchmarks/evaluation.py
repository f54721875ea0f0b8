"""Time the evaluation itself: `python -m benchmarks.evaluation`.

One online trial of ONLAD on MNIST with the paper's settings, through `update_many` and as a loop
in NumPy; repeats take turns, on one thread, and medians are given. Then the OS-ELM part of both AUC
tables, all columns: one trial of each cell, or with --trials 50 all of it, on two cores. What is
run is also compared with what is stored.
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
from experiments.run import Cell
from experiments.settings import hyperparameters
from experiments.testbeds import Array, Part

from experiments import datasets, metrics, records, reproduce, testbeds
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


def again(cell: Cell, seed: int) -> float:
    """Run a stored trial and return how far its AUC is from the stored one."""
    record = cell.run([seed])[0]
    stored = {records.key(r): r["auc"] for r in records.read(cell.file)}
    return abs(record["auc"] - stored[records.key(record)])


def tables(trials: int) -> dict[str, Any]:
    """Run the first trials of each cell of the OS-ELM methods on two cores, and say how long."""
    wanted = list(reproduce.cells([FAMILY], None, reproduce.DATASETS))
    tasks = [(again, (cell, seed)) for cell in wanted for seed in range(trials)]
    begun = time.monotonic()
    off = max(reproduce.in_parallel("trials", tasks, CORES))
    minutes = (time.monotonic() - begun) / 60
    return {
        "cells": len(wanted),
        "trials": len(tasks),
        "minutes": round(minutes, 2),
        "minutes for 50 trials": round(minutes * TRIALS / trials, 2),
        "wanted": MINUTES,
        "farthest from a stored AUC": off,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trials", type=int, default=1, help="a cell of the tables (default: 1)")
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
        "tables": tables(args.trials),
        "machine": records.machine(),
        "commit": records.commit(),
    }
    print(json.dumps(found, indent=2))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    slow_tables = found["tables"]["minutes for 50 trials"] > MINUTES
    if fast > SECONDS or slow < RATIO * fast or slow_tables:
        print("slower than wanted, or the machine is busy", file=sys.stderr)


if __name__ == "__main__":
    main()
