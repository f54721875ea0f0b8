"""Run one cell of the AUC tables: one line per trial.

    python -m experiments.run online --dataset mnist --method onlad --trials 5
    python -m experiments.run offline --dataset digits --method pca --settings ours --store

A line is a record. With --store it is kept in experiments/results; a trial that is stored
already is not run again unless --again is given.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from experiments import datasets, metrics, records, testbeds
from experiments.methods import Hyperparameters, module_of, registry, run_trials
from experiments.records import Record
from experiments.settings import SETTINGS, Settings, hyperparameters
from experiments.testbeds import TESTBEDS, Array, Testbed, Trial


@lru_cache(maxsize=2)
def dataset(name: str, data_dir: Path | None = None) -> datasets.Dataset:
    """Return a dataset; the last ones are kept."""
    return datasets.load(name, data_dir)


def trial_auc(trial: Trial, scores: Sequence[Array]) -> float:
    """Return the AUC of a trial: the mean over its parts."""
    pairs = zip(trial.parts, scores, strict=True)
    return float(np.mean([metrics.auc(part.anomalous, found) for part, found in pairs]))


@dataclass(frozen=True)
class Cell:
    """One cell of an AUC table."""

    testbed: Testbed
    dataset: str
    method: str
    settings: Settings

    @property
    def hyperparameters(self) -> Hyperparameters:
        return hyperparameters(self.settings, self.testbed, self.dataset, self.method)

    @property
    def file(self) -> str:
        return records.auc_file(self.testbed, self.method)

    def missing(self, seeds: Sequence[int]) -> list[int]:
        """Return the seeds whose trials no column has; those of another column become its own."""
        cell = vars(self) | {"hyperparameters": self.hyperparameters}
        return [r["seed"] for r in records.borrow(self.file, [cell | {"seed": s} for s in seeds])]

    def run(self, seeds: Sequence[int], data_dir: Path | None = None) -> list[Record]:
        """Run the trials of these seeds and return their records."""
        data, parameters = dataset(self.dataset, data_dir), self.hyperparameters
        trials = [testbeds.trial(self.testbed, data.X, data.y, seed) for seed in seeds]
        begun = time.perf_counter()
        scores = run_trials(self.method, self.testbed, parameters, trials)
        seconds = (time.perf_counter() - begun) / len(trials)
        return [
            {
                "testbed": self.testbed,
                "dataset": self.dataset,
                "dataset_sha256": data.sha256,
                "method": self.method,
                "settings": self.settings,
                "hyperparameters": parameters,
                "seed": trial.seed,
                "auc": trial_auc(trial, found),
                "seconds": round(seconds, 4),
                "samples": sum(len(part.rows) for part in trial.parts),
                "machine": records.machine(),
                "commit": records.commit(module_of(self.method)),
            }
            for trial, found in zip(trials, scores, strict=True)
        ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("testbed", choices=TESTBEDS)
    parser.add_argument("--dataset", required=True, choices=list(datasets.DATASETS))
    parser.add_argument("--method", required=True, choices=list(registry()))
    parser.add_argument(
        "--settings", choices=SETTINGS, help="default: the paper's, or ours where it has none"
    )
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial; then + 1 each")
    parser.add_argument("--store", action="store_true", help="append the lines to the records")
    parser.add_argument("--again", action="store_true", help="with --store: stored trials too")
    parser.add_argument("--data-dir", type=Path, help="folder with the npz files; else ONLAD_DATA")
    args = parser.parse_args(arguments)
    entry = registry()[args.method]
    if args.testbed not in entry.testbeds:
        raise SystemExit(f"{entry.label} does not run on the {args.testbed} testbed")
    has_paper = entry.family in ("os-elm", "neural") and args.method != "onlad-plus"
    settings = args.settings or ("paper" if has_paper else "ours")
    cell = Cell(args.testbed, args.dataset, args.method, settings)
    seeds = list(range(args.seed, args.seed + args.trials))
    if args.store and not args.again:
        seeds = cell.missing(seeds)
    at_once = len(seeds) if entry.run_trials else 1
    for start in range(0, len(seeds), max(at_once, 1)):
        for record in cell.run(seeds[start : start + at_once], args.data_dir):
            print(json.dumps(record), flush=True)
            if args.store:
                records.append(cell.file, [record])


if __name__ == "__main__":
    main()
