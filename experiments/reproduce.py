"""Run every stored table, and go on where it stopped: `make reproduce`.

    python -m experiments.reproduce                          # all parts, then the report
    python -m experiments.reproduce auc --family os-elm      # one part

Each result is stored as soon as it is there. Trials run on all cores, one thread each. Timings are
measured one after another, so leave the machine alone meanwhile.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from joblib import Parallel, delayed

from experiments import datasets, drift, records, report, streams, tune
from experiments.methods import registry
from experiments.run import Cell
from experiments.settings import SAME_AS, STAND_IN, NoSettingsError, Settings, paper
from experiments.testbeds import TESTBEDS, Testbed

DATASETS = tuple(paper()["datasets"])
FAMILIES = ("os-elm", "neural", "variant", "peer")
PARTS = ("auc", "tune", "drift", "streams", "performance", "judged", "core", "report")
PERFORMANCE = {  # module, and the records that this machine has or lacks
    "latency": "latency",
    "forgetting_cost": "forgetting_cost",
    "power": "power",
    "operations": "operations",
    "chunk_size": "chunk_size",
    "precision": "precision",
    "ways": "ways_cost",
}
JUDGED = (  # beside the paper
    "ablation", "scaling", "neural_deviation", "adapter_defaults", "score_choice", "wind_up",
)  # fmt: skip
CORE = ("core_latency", "core_accuracy", "core_detection", "core_area")
PAPERS_METHODS = ("onlad", "onlad-nf", "fpelm", "nn", "dnn")


class Progress:
    """Lines on standard error: how far, how long it takes still."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self.begun = self.shown = time.monotonic()

    def step(self, what: str, n: int = 1) -> None:
        self.done += n
        now = time.monotonic()
        if now - self.shown < 5 and self.done < self.total:
            return
        self.shown = now
        left = (now - self.begun) / self.done * (self.total - self.done)
        print(
            f"{self.title}: {self.done} of {self.total}, about {left / 60:.0f} min left ({what})",
            file=sys.stderr,
            flush=True,
        )


def in_parallel(
    title: str, tasks: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]], n_jobs: int
) -> Iterator[Any]:
    """Yield the results of the tasks as they come, with progress."""
    progress = Progress(title, len(tasks))
    running = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    for result in running(delayed(call)(*arguments) for call, arguments in tasks):
        yield result
        progress.step(title)


def at_hand(names: Iterable[str]) -> list[str]:
    """Return the datasets that are here or can be fetched; name the others, a line each."""
    found = []
    for name in names:
        try:
            datasets.load(name)
            found.append(name)
        except datasets.MissingDataError as error:
            print(error, file=sys.stderr)
    return found


def settings_of(method: str, testbed: Testbed) -> tuple[Settings, ...]:
    """Return the columns a method has in the tables of a testbed."""
    if method == "onlad-01":
        return ("paper",)
    if method == "onlad-nf":
        return ("paper", "found")
    if method == "onlad-plus" or (
        registry()[method].family == "peer" and tune.searched(testbed, method)
    ):
        return ("ours", "equal")
    return ("paper", "found", "equal") if method in PAPERS_METHODS else ("ours",)


def cells(
    families: Iterable[str], methods: Iterable[str] | None, names: Iterable[str]
) -> Iterator[Cell]:
    """Yield the cells of the AUC tables; those whose settings are not found yet are left out."""
    for name, entry in registry().items():
        if entry.family not in families or (methods and name not in methods):
            continue
        for testbed in TESTBEDS:
            columns = settings_of(name, testbed) if testbed in entry.testbeds else ()
            for settings in columns:
                for dataset in names:
                    cell = Cell(testbed, dataset, name, settings)
                    # What was found for another dataset need not fit one that borrows settings.
                    if _has_settings(cell) and not (
                        settings in ("found", "equal") and dataset in STAND_IN
                    ):
                        yield cell


def _has_settings(cell: Cell) -> bool:
    """Return whether the search that gives the cell its settings is complete."""
    method = SAME_AS.get(cell.method, cell.method)
    dataset = STAND_IN.get(cell.dataset, cell.dataset)
    as_it_is = cell.settings == "ours" and registry()[method].family == "peer"
    if cell.settings != "paper" and method in tune.METHODS and not as_it_is:
        return not tune.tasks(cell.testbed, dataset, method)
    try:
        cell.hyperparameters  # noqa: B018  (asks whether there are any)
    except NoSettingsError:
        return False
    return True


def _store(cell: Cell, seeds: list[int]) -> int:
    records.append(cell.file, cell.run(seeds))
    return len(seeds)


def auc(wanted: Iterable[Cell], n_jobs: int, trials: int | None = None) -> None:
    """Run the trials of these cells that are not stored."""
    tasks = []
    for cell in wanted:
        entry = registry()[cell.method]
        seeds = cell.missing(range(trials or entry.trials))
        groups = [seeds] if entry.run_trials else [[seed] for seed in seeds]
        tasks += [(_store, (cell, group)) for group in groups if group]
    if tasks:
        for _ in in_parallel("AUC", tasks, n_jobs):
            pass


def performance() -> None:
    """Measure what has no records of this machine yet."""
    for name, stored in PERFORMANCE.items():
        if any(r.get("machine") == records.machine() for r in records.read(stored)):
            continue
        print(f"reproduce: {name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", f"experiments.{name}"], check=True)


def resumed(modules: Iterable[str]) -> None:
    """Run what else the pages need; each goes on where it stopped."""
    for name in modules:
        print(f"reproduce: {name}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", f"experiments.{name}", "run"], check=True)


def pages() -> None:
    """Make the pages from the records."""
    report.main([])
    for name in ("claims", "core_page", "numbers"):
        subprocess.run([sys.executable, "-m", f"experiments.{name}"], check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", default="all", choices=["all", *PARTS])
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--method", action="append", choices=list(registry()))
    parser.add_argument("--dataset", action="append", choices=[*DATASETS, "digits"])
    parser.add_argument("--trials", type=int, help="a cell; default: as in the stored tables")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(arguments)
    names = at_hand(args.dataset or [*DATASETS, "digits"])
    families = args.family or FAMILIES

    def tables() -> None:
        auc(list(cells(families, args.method, names)), args.jobs, args.trials)

    def search() -> None:
        methods = [m for m in tune.METHODS if not args.method or m in args.method]
        beds = [(b, n, m) for m in methods for b in TESTBEDS for n in names if n != "digits"]
        tune.tune(beds, args.jobs)
        if "neural" in families and not args.method:
            from experiments import neural  # noqa: PLC0415  (JAX loads slowly)

            for cell in neural.cells(name for name in names if name != "digits"):
                cell.search()

    steps: dict[str, list[Callable[[], None]]] = {
        "auc": [tables],
        "tune": [search],
        "drift": [drift.run] if "mnist" in names else [],
        "streams": [streams.run] if os.environ.get("ONLAD_STREAMS") else [],
        "performance": [performance],
        "judged": [partial(resumed, JUDGED)] if len(names) > len(DATASETS) else [],
        "core": [partial(resumed, CORE)] if len(names) > len(DATASETS) else [],
        "report": [pages],
    }
    order = [args.part] if args.part != "all" else ["auc", "tune", "auc", *list(steps)[2:]]
    try:
        for action in (action for step in order for action in steps[step]):
            action()
    except KeyboardInterrupt:
        raise SystemExit("stopped; what is done is stored: run it again to go on") from None


if __name__ == "__main__":
    main()
