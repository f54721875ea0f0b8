"""Run each method on each series that is not stored yet; one record for each pair.

    python -m experiments.benchmark                                  # all, then the page
    python -m experiments.benchmark --collections skab nab --methods "Monitor()"
    python -m experiments.benchmark --methods "Monitor()" --again    # replace what is stored
    python -m experiments.benchmark --collections                    # the page alone

Each result is stored as soon as it is there, so a run that was stopped goes on. Collections whose
folder is not set are skipped.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import csv
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments import records
from experiments.benchmark import (
    collections,
    cuts,
    machines,
    measures,
    normals,
    plants,
    report,
    scenarios,
    timed,
)
from experiments.benchmark.methods import METHODS, OURS
from experiments.records import Record
from experiments.reproduce import in_parallel
from experiments.testbeds import Array

COLLECTIONS = {
    c.name: c
    for c in (
        *collections.LABELLED,
        cuts.COLLECTION,
        machines.COLLECTION,
        normals.COLLECTION,
        plants.COLLECTION,
        scenarios.COLLECTION,
        timed.COLLECTION,
    )
}
# No series: what is shown next depends on what was said. Who is asked, and what the answer is.
ASKED: dict[str, tuple[Callable[[Callable[[Array], scenarios.Watcher], int], float], str]] = {
    "poisoning": (scenarios.poisoned, "deviations"),
    "probes": (scenarios.blind, "blind"),
}
PROCESSES = 2


@dataclass(frozen=True)
class Task:
    """One method on one series, both by name: it is carried to another process."""

    collection: str
    series: str
    method: str

    @property
    def file(self) -> str:
        return f"benchmark/{self.collection}"

    def run(self) -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # peers divide by zero
            found = self._measured()
        words = ("--collections", self.collection, "--methods", self.method, "--again")
        return {
            "collection": self.collection,
            "series": self.series,
            "method": self.method,
            **found,
            "command": f"python -m experiments.benchmark {shlex.join(words)}",
            "machine": records.machine(),
            "commit": records.commit("experiments/benchmark", "experiments/streams.py"),
        }

    def _measured(self) -> Record:
        method = METHODS[self.method]
        if self.collection in ASKED:
            assert method.start
            ask, answer = ASKED[self.collection]
            return {answer: round(ask(method.start, int(self.series.removeprefix("seed "))), 3)}
        series = COLLECTIONS[self.collection].load(self.series)
        outcome = method(series)
        found = measures.measure(series, outcome)
        return found | {"seconds": round(outcome.seconds, 3)}


def tasks(names: Iterable[str], methods: Sequence[str]) -> list[Task]:
    """Return what there is to do for these collections; say which are skipped."""
    found = []
    for name in names:
        if name in ASKED:
            able = [m for m in methods if METHODS[m].start]
            seeds = range(scenarios.ASKED_SEEDS[name])
            found += [Task(name, f"seed {s}", m) for s in seeds for m in able]
            continue
        missing = COLLECTIONS[name].missing()
        if missing:
            print(missing, file=sys.stderr)
            continue
        able = [m for m in methods if m in OURS] if name == "timed" else methods
        found += [Task(name, series, m) for series in COLLECTIONS[name].names() for m in able]
    return found


def stored(task: Task) -> bool:
    return any(_same(record, task) for record in records.read(task.file))


def store(task: Task, record: Record) -> None:
    """Add a record, in place of the one of the same method and series if there is one."""
    if not stored(task):
        records.append(task.file, [record])
        return
    kept = [r for r in records.read(task.file) if not _same(r, task)]
    records.write(task.file, (*kept, record))


def _same(record: Record, task: Task) -> bool:
    return (record["series"], record["method"]) == (task.series, task.method)


def _run(task: Task) -> tuple[Task, Record]:
    return task, task.run()


def run(todo: Sequence[Task]) -> None:
    """Run the tasks and store each result."""
    if todo:
        for task, record in in_parallel("benchmark", [(_run, (t,)) for t in todo], PROCESSES):
            store(task, record)


def published() -> None:
    """Store the means that TSB-AD publishes: over the series at hand, and over all 180."""
    folder = collections.folder(collections.BENCHMARK)
    with (folder / "tsb_ad_m_published_vus_pr.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "tsb_ad_m_published_means_180.csv").open() as file:
        over_all = {row[""]: float(row["mean_vus_pr"]) for row in csv.DictReader(file)}
    known = {record["method"] for record in records.read("benchmark/published")}
    records.append(
        "benchmark/published",
        [
            {
                "method": method,
                "series": len(rows),
                "vus_pr": round(float(np.mean([float(row[method]) for row in rows])), 5),
                "vus_pr_180": mean,
            }
            for method, mean in over_all.items()
            if method not in known
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = [*COLLECTIONS, *ASKED]
    parser.add_argument("--collections", nargs="*", choices=everything, default=everything)
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--again", action="store_true", help="replace what is stored")
    args = parser.parse_args(arguments)
    wanted = tasks(args.collections, args.methods)
    try:
        run([task for task in wanted if args.again or not stored(task)])
    except KeyboardInterrupt:
        raise SystemExit("stopped; what is done is stored: run it again to go on") from None
    if any(task.collection == "tsb_ad_m" for task in wanted):
        published()
    report.main([])
