"""Choose settings on validation data: 10 folds offline, 10 validation streams online.

    python -m experiments.tune online --dataset mnist --method onlad

ONLAD and FPELM-AE are tried on the paper's full ranges (tb:exploration). `onlad-plus`, ours, first
on three folds over more activations, weights, forgetting factors and kinds of score, then its best
settings on all ten folds with several ridges. The variants have six settings each, on three folds,
and the peers twenty: those that stream online, those that learn once offline.
One line a setting; what is stored is not run again.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import itertools
import json
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import datasets, records, testbeds, ways
from experiments.methods import Hyperparameters, module_of, peers, registry, run_trials
from experiments.methods.onlad import onlad_plus
from experiments.records import Record
from experiments.run import dataset, trial_auc
from experiments.settings import paper
from experiments.testbeds import TESTBEDS, Testbed
from onlad import reference

FOLDS = tuple(range(testbeds.FOLDS))
FEW = FOLDS[:3]  # of the first stage of ours
BEST = 3  # settings that go on to the second
RIDGES = (1e-6, 1e-4, 1e-2)
METHODS = ("onlad", "fpelm", "onlad-plus", *ways.GRIDS, *peers.GRIDS)
WIDER: dict[Testbed, tuple[str, ...]] = {  # where ours also tried 32 units, relu and a = 0.95
    "offline": ("smartphone_har", "drive_diagnosis", "letter_recognition"),
    "online": ("drive_diagnosis", "letter_recognition"),
}


def searched(testbed: Testbed, method: str) -> bool:
    """Return whether settings of a method are sought on a testbed."""
    if method in peers.GRIDS:
        return testbed == registry()[method].testbeds[-1]
    return method in METHODS


def grid(testbed: Testbed, method: str, name: str = "") -> list[Hyperparameters]:
    """Return the settings to try, small ones first. Offline nothing is forgotten.

    Those of a variant depend on the dataset `name`: it has the hidden layer of the paper's ONLAD;
    those of ours by `WIDER`.
    """
    if method in peers.GRIDS:
        return peers.GRIDS[method]
    if method in ways.GRIDS:
        layer = paper()["settings"][testbed][name]["onlad"]
        return ways.grid(method, layer, testbed == "offline")
    if method == "onlad-plus":
        wider = name in WIDER[testbed]
        ranges: dict[str, Sequence[Any]] = {
            "n_hidden": (32, 64, 128, 256) if wider else (64, 128, 256),
            "activation": ("tanh", "sigmoid", "identity", "relu")[: 4 if wider else 3],
            "weights": ("uniform", "normal"),
            "forgetting": (0.95, 0.97, 0.98, 0.99) if wider else (0.97, 0.98, 0.99),
            "ridge": (1e-2,),
        }
    else:
        ranges = dict(sorted(paper()["ranges"][method].items(), reverse=True))
        ranges = {"n_hidden": ranges.pop("n_hidden"), **ranges}
    if testbed == "offline":
        ranges["forgetting"] = (1.0,)
    return [
        dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())
    ]


def possible(
    testbed: Testbed, data: datasets.Dataset, method: str, parameters: Hyperparameters
) -> bool:
    """Return whether P exists, whichever class comes first: with ridge it always does.

    It needs more samples than hidden units, and linear units no more than inputs and a bias give.
    """
    if "ridge" in parameters or method in (*ways.GRIDS, *peers.GRIDS):
        return True
    rows = testbeds.divide(len(data.y), testbed)
    first = rows["init"] if testbed == "online" else rows["train"][: len(rows["train"]) * 9 // 10]
    most = np.bincount(data.y[first]).min() - 1
    if parameters["activation"] == "identity":
        most = min(most, data.X.shape[1] + 1)
    return parameters["n_hidden"] <= most


def _aucs(
    testbed: Testbed, data: datasets.Dataset, method: str, parameters: Hyperparameters, k: int
) -> dict[str, float]:
    """Return the AUC of fold or stream `k`; of ours one for each kind of score."""
    trial = testbeds.validation(testbed, data.X, data.y, k)
    if method != "onlad-plus":
        return {"": trial_auc(trial, run_trials(method, testbed, parameters, [trial])[0])}
    found = []
    for part in trial.parts:
        model = onlad_plus(parameters, data.X.shape[1], trial.seed)
        model.fit(part.train)
        found.append(model.evidence(part.X, learn=testbed == "online"))
    return {
        kind: trial_auc(trial, [reference.combine(*evidence, kind) for evidence in found])
        for kind in reference.SCORES
    }


def try_out(
    testbed: Testbed, name: str, method: str, parameters: Hyperparameters, folds: Sequence[int]
) -> list[Record]:
    """Return the records of one setting: one, or of ours one for each kind of score."""
    data, begun = dataset(name), time.perf_counter()
    folds = list(folds) if possible(testbed, data, method, parameters) else []
    try:
        runs = [_aucs(testbed, data, method, parameters, k) for k in folds]
    except ValueError as error:
        if "do not span all hidden units" not in str(error):
            raise
        folds, runs = [], []
    kinds = runs[0] if runs else {"": 0.0}
    seconds = (time.perf_counter() - begun) / len(kinds)
    return [
        {
            "testbed": testbed,
            "dataset": name,
            "dataset_sha256": data.sha256,
            "method": method,
            "hyperparameters": parameters | ({"score": kind} if kind else {}),
            "folds": folds,
            "aucs": [round(run[kind], 5) for run in runs],
            "seconds": round(seconds, 3),
            "machine": records.machine(),
            "commit": records.commit(module_of(method)),
        }
        for kind in kinds
    ]


def _without_score(parameters: Hyperparameters) -> str:
    return json.dumps({k: v for k, v in parameters.items() if k != "score"}, sort_keys=True)


def tasks(testbed: Testbed, name: str, method: str) -> list[tuple[Hyperparameters, list[int]]]:
    """Return the settings still to be tried, with their folds. Ours: stage by stage."""
    mine = [r for r in records.read(f"tune/{testbed}-{method}") if r["dataset"] == name]

    def todo(wanted: list[Hyperparameters], folds: Sequence[int]) -> list[Any]:
        done = {
            _without_score(r["hyperparameters"])
            for r in mine
            if len(r["folds"]) >= len(folds) or not r["folds"]
        }
        return [(p, list(folds)) for p in wanted if _without_score(p) not in done]

    if not searched(testbed, method):
        return []
    if method in (*ways.GRIDS, *peers.GRIDS):
        return todo(grid(testbed, method, name), FEW)
    if method != "onlad-plus":
        return todo(grid(testbed, method), FOLDS)
    first = todo(grid(testbed, method, name), FEW)
    if first:
        return first
    few = sorted((r for r in mine if len(r["folds"]) == len(FEW)), key=lambda r: -sum(r["aucs"]))
    wanted = [r["hyperparameters"] | {"ridge": ridge} for r in few[:BEST] for ridge in RIDGES]
    for parameters in wanted:
        del parameters["score"]
    unique = {_without_score(p): p for p in wanted}
    return todo(list(unique.values()), FOLDS)


def _store(
    testbed: Testbed, name: str, method: str, task: tuple[Hyperparameters, list[int]]
) -> None:
    records.append(f"tune/{testbed}-{method}", try_out(testbed, name, method, *task))


def tune(wanted: Sequence[tuple[Testbed, str, str]], n_jobs: int) -> None:
    """Try what is not stored yet for each testbed, dataset and method."""
    from experiments.reproduce import in_parallel  # noqa: PLC0415  (it imports this module)

    for _ in range(2):  # the second stage of ours is known after the first
        todo = [(_store, (*cell, task)) for cell in wanted for task in tasks(*cell)]
        if todo:
            for _ in in_parallel("tune", todo, n_jobs):
                pass


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("testbed", choices=[*TESTBEDS, "both"])
    parser.add_argument("--dataset", action="append", choices=list(paper()["datasets"]))
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(arguments)
    beds = TESTBEDS if args.testbed == "both" else (args.testbed,)
    names, methods = args.dataset or list(paper()["datasets"]), args.method or METHODS
    tune([(bed, name, method) for method in methods for bed in beds for name in names], args.jobs)


if __name__ == "__main__":
    main()
