"""The networks of the AUC tables in one command, made for a GPU: settings x trials at once.

    python -m experiments.neural                 # resumes: what is stored is not run again
    python -m experiments.neural --dataset letter_recognition --minutes 5

First the trials of NN-AE and DNN-AE with the paper's settings, and those of VAE and Deep SVDD with
their library's; then a search on validation data alone, over a part of the paper's ranges
(`WIDTHS`, `TRAINING`) with the paper's own settings among the candidates, or over the settings of a
peer; then the trials with the settings found. All records are those of `experiments.run` and
`experiments.tune`. Nothing compiled of onlad is needed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import jax
import numpy as np

from experiments import datasets, metrics, records, testbeds
from experiments.methods import Hyperparameters, _deep, peers
from experiments.methods import _autoencoder as ae
from experiments.records import Record
from experiments.settings import Settings, chosen, equal, paper
from experiments.steps import machine
from experiments.testbeds import Testbed

TRIALS = 50  # in the tables
AT_ONCE = 16  # trials of a stream on a processor: each batch is stored when it is there
PAPERS = ("nn", "dnn")  # the others are peers, of the Offline Testbed alone
WIDTHS: dict[str, list[list[int]]] = {  # of the hidden layers
    "nn": [[8], [16], [32], [64], [128], [256]],
    "dnn": [[16, 8, 16], [64, 8, 64], [32, 16, 32], [64, 32, 64], [128, 256, 128]],
}
TRAINING = ((8, 20), (32, 5))  # batch, epochs
RUNS = {"offline": 3, "online": 10}  # folds of the ten, validation streams
ON_CPU = jax.default_backend() == "cpu"
NARROW = 32  # on a GPU candidates up to this width are padded to one another, wider ones too


def candidates(testbed: Testbed, dataset: str, method: str) -> list[Hyperparameters]:
    """Return the settings that the search tries."""
    if method not in PAPERS:
        return peers.GRIDS[method]
    found = [
        {"activation": activation, "hidden": hidden, "batch": batch, "epochs": epochs}
        for activation, hidden, (batch, epochs) in product(
            ("sigmoid", "relu"), WIDTHS[method], TRAINING
        )
    ]
    own = dict(paper()["settings"][testbed][dataset][method])
    return found if own in found else [*found, own]


def aucs(
    testbed: Testbed,
    method: str,
    settings: Sequence[Hyperparameters],
    trials: Sequence[testbeds.Trial],
) -> list[float]:
    """Return the AUC of trial k with setting k; all run side by side."""
    if method in PAPERS:
        scores = ae.run_trials(testbed, [ae.Settings(**s) for s in settings], trials)
    else:
        scores = _deep.run_trials(method, settings, trials)
    return [
        float(np.mean([metrics.auc(p.anomalous, s) for p, s in zip(t.parts, found, strict=True)]))
        for t, found in zip(trials, scores, strict=True)
    ]


class Cell:
    """One testbed, dataset and method."""

    def __init__(self, testbed: Testbed, data: datasets.Dataset, method: str) -> None:
        self.testbed, self.data, self.method = testbed, data, method

    def _record(self, **fields: object) -> Record:
        fixed = {
            "testbed": self.testbed,
            "dataset": self.data.name,
            "dataset_sha256": self.data.sha256,
            "method": self.method,
        }
        files = [f"experiments/methods/{name}.py" for name in ("neural", "_autoencoder", "_deep")]
        return fixed | fields | {"machine": machine(), "commit": records.commit(*files)}

    def _group(self, setting: Hyperparameters) -> object:
        """Return what settings must have in common to run side by side with little padding."""
        if self.method not in PAPERS:
            return _deep.KINDS[self.method](**setting).size if ON_CPU else ()
        widths = tuple(setting["hidden"])
        # Offline the training decides the time, and its length depends on batch and epochs.
        length = (setting["batch"], setting["epochs"]) if self.testbed == "offline" else 0
        return (widths if ON_CPU else max(widths) <= NARROW), length

    def search(self) -> None:
        """Try all candidates on validation data; store a record for each."""
        name = f"tune/{self.testbed}-{self.method}"
        done = [r["hyperparameters"] for r in records.read(name) if r["dataset"] == self.data.name]
        groups: dict[object, list[Hyperparameters]] = {}
        for setting in candidates(self.testbed, self.data.name, self.method):
            if setting not in done:
                groups.setdefault(self._group(setting), []).append(setting)
        folds = list(range(RUNS[self.testbed]))
        runs = [testbeds.validation(self.testbed, self.data.X, self.data.y, k) for k in folds]
        for settings in groups.values():
            begun = time.perf_counter()
            pairs = list(product(settings, runs))
            found = aucs(self.testbed, self.method, *zip(*pairs, strict=True))
            seconds = self._report(f"search, {len(pairs)} runs", begun)
            each = {"folds": folds, "seconds": round(seconds / len(settings), 3)}
            for setting, values in zip(
                settings, np.reshape(found, (-1, len(folds))).round(5).tolist(), strict=True
            ):
                record = self._record(hyperparameters=setting, aucs=values, **each)
                records.append(name, [record])

    def trials(self, settings: Settings, count: int) -> None:
        """Run the trials of the tables and store each."""
        where = (self.testbed, self.data.name, self.method)
        if settings == "found":
            setting = chosen(*where)
        elif settings == "equal":
            setting = equal(*where)
        else:
            setting = paper()["settings"][self.testbed][self.data.name].get(self.method, {})
        wanted = [
            self._record(settings=settings, hyperparameters=setting, seed=k) for k in range(count)
        ]
        rest = records.borrow(records.auc_file(self.testbed, self.method), wanted)
        # A processor takes one after the other anyway: so each is kept as soon as it is there.
        at_once = (1 if self.testbed == "offline" else AT_ONCE) if ON_CPU else len(rest)
        for start in range(0, len(rest), max(at_once, 1)):
            self._run(rest[start : start + at_once])

    def _run(self, wanted: list[Record]) -> None:
        runs = [testbeds.trial(self.testbed, self.data.X, self.data.y, r["seed"]) for r in wanted]
        begun = time.perf_counter()
        found = aucs(self.testbed, self.method, [r["hyperparameters"] for r in wanted], runs)
        what = f"{wanted[0]['settings']}, {len(runs)} trials, {np.mean(found):.3f}"
        seconds = round(self._report(what, begun) / len(runs), 4)
        for record, run, auc in zip(wanted, runs, found, strict=True):
            samples = sum(len(part.rows) for part in run.parts)
            whole = record | {"auc": auc, "seconds": seconds, "samples": samples}
            name = records.auc_file(self.testbed, self.method)
            records.append(name, [{field: whole[field] for field in records.AUC_FIELDS}])

    def _report(self, what: str, begun: float) -> float:
        seconds = time.perf_counter() - begun
        cell = f"{self.testbed} {self.data.name} {self.method}"
        print(f"{seconds:7.1f} s  {cell}: {what}", file=sys.stderr, flush=True)
        return seconds


def cells(names: Iterable[str], methods: Sequence[str] = PAPERS) -> list[Cell]:
    return [
        Cell(testbed, data, method)
        for data in map(datasets.load, names)
        for testbed, method in product(testbeds.TESTBEDS, methods)
        if testbed == "offline" or method in PAPERS
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", action="append", choices=list(paper()["datasets"]))
    parser.add_argument("--method", action="append", choices=[*PAPERS, *_deep.KINDS])
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--threads", type=int, default=1, help="compile as many cells at a time")
    parser.add_argument("--minutes", type=float, default=np.inf, help="start nothing after these")
    args = parser.parse_args(arguments)
    end = time.monotonic() + 60 * args.minutes
    methods = args.method or [*PAPERS, *_deep.KINDS]
    wanted = cells(args.dataset or paper()["datasets"], methods)

    def as_given(cell: Cell) -> None:
        cell.trials("paper" if cell.method in PAPERS else "ours", args.trials)

    def with_found(cell: Cell) -> None:
        cell.search()
        for settings in ("found", "equal") if cell.method in PAPERS else ("equal",):
            cell.trials(settings, args.trials)

    def run(step: Callable[[Cell], None], cell: Cell) -> None:
        if time.monotonic() < end:
            step(cell)

    with ThreadPoolExecutor(args.threads) as pool:
        for job in [pool.submit(run, s, c) for s, c in product((as_given, with_found), wanted)]:
            job.result()


if __name__ == "__main__":
    main()
