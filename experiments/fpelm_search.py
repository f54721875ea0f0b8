"""FPELM-AE's search on the Online Testbed, made for a GPU: all settings of one hidden size at once.

    python -m experiments.fpelm_search           # resumes: what is stored is not run again
    python -m experiments.fpelm_search --dataset mnist --minutes 5

A step of FP-ELM is a solve, so the paper's full ranges take a processor days. What is tried and
stored is that of ``experiments.tune online --method fpelm``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import groupby, product

import jax
import numpy as np

from experiments import datasets, records, testbeds, tune
from experiments.methods import Hyperparameters
from experiments.methods import _fpelm_batch as batch
from experiments.run import dataset, trial_auc
from experiments.settings import paper
from experiments.steps import machine

FILES = "experiments/methods/fpelm.py", "experiments/methods/_fpelm_batch.py"


def try_out(data: datasets.Dataset, settings: Sequence[Hyperparameters]) -> None:
    """Run all validation streams with each of the settings; store a record for each."""
    begun = time.perf_counter()
    trials = [testbeds.validation("online", data.X, data.y, k) for k in tune.FOLDS]
    pairs = list(product(settings, trials))
    scores = batch.stream(*zip(*pairs, strict=True))
    aucs = [trial_auc(trial, [s]) for (_, trial), s in zip(pairs, scores, strict=True)]
    seconds = time.perf_counter() - begun
    what = f"{data.name}, {settings[0]['n_hidden']} units: {len(pairs)} streams, {max(aucs):.3f}"
    print(f"{seconds:7.1f} s  {what}", file=sys.stderr, flush=True)
    for setting, values in zip(
        settings, np.reshape(aucs, (-1, len(trials))).round(5).tolist(), strict=True
    ):
        record = {
            "testbed": "online",
            "dataset": data.name,
            "dataset_sha256": data.sha256,
            "method": "fpelm",
            "hyperparameters": setting,
            "folds": list(tune.FOLDS),
            "aucs": values,
            "seconds": round(seconds / len(settings), 3),
            "machine": machine(),
            "commit": records.commit(*FILES),
        }
        records.append("tune/online-fpelm", [record])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", action="append", choices=list(paper()["datasets"]))
    parser.add_argument("--minutes", type=float, default=np.inf, help="start nothing after these")
    args = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    end = time.monotonic() + 60 * args.minutes
    for name in args.dataset or paper()["datasets"]:
        left = [setting for setting, _ in tune.tasks("online", name, "fpelm")]
        for _, settings in groupby(left, key=lambda setting: setting["n_hidden"]):
            if time.monotonic() < end:
                try_out(dataset(name), list(settings))


if __name__ == "__main__":
    main()
