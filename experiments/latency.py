"""Time of one training step and of one prediction, for one sample per call: one record per size.

    python -m experiments.latency                        # the processor, one thread
    python -m experiments.latency --only fpelm nn dnn    # JAX alone, where it finds a GPU there

The clock runs from the call with a sample in host memory until the result is there, as the
paper's fig:train_latency and fig:predict_latency have it. All of it is measured `ROUNDS` times, and
of each number the quietest round is kept, as other work disturbs a machine for seconds. Records go
to results/latency.jsonl, in place of those of the same implementation, device and machine; run
again at the same commit, it adds rounds.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, product
from typing import Any

import numpy as np

from experiments import records
from experiments.records import Record
from experiments.settings import paper
from experiments.steps import IMPLEMENTATIONS, Step, device, machine
from experiments.testbeds import Array

CALLS, WARM, ROUNDS = 2000, 20, 5
SAME = ("implementation", "device", "machine", "commit")  # of rounds that count together
QUIET = 1.25  # at most so far is the median above the 10 % quantile where nothing else ran


def measured(call: Callable[[Array], object], rows: Array, calls: int) -> Array:
    """Return the seconds of each of `calls` calls, after some that do not count."""
    for x in islice(cycle(rows), WARM):
        call(x)
    seconds = np.empty(calls)
    for i, x in enumerate(islice(cycle(rows), calls)):
        begun = time.perf_counter()
        call(x)
        seconds[i] = time.perf_counter() - begun
    return seconds


def measure(
    names: Sequence[str], sizes: Sequence[tuple[int, int]], calls: int = CALLS
) -> Iterator[Record]:
    """Yield a record for each implementation, size, and of training and prediction."""
    cases = list(product(names, sizes))
    steps: list[Step] = [IMPLEMENTATIONS[name](*size) for name, size in cases]

    def compile_both(step: Step) -> None:
        step.predict(step.samples[0])
        step.train(step.samples[0])

    with ThreadPoolExecutor() as pool:  # compiling takes longer than measuring
        list(pool.map(compile_both, steps))
    for (name, (n_features, n_hidden)), step in zip(cases, steps, strict=True):
        for what, call in (("training", step.train), ("prediction", step.predict)):
            seconds = measured(call, step.samples, calls)
            low, median, high = np.quantile(seconds, [0.1, 0.5, 0.9])
            yield {
                "implementation": name,
                "device": device(name),
                "quantity": what,
                "n_features": n_features,
                "n_hidden": n_hidden,
                "calls": calls,
                "microseconds": round(1e6 * median, 2),
                "quantiles_10_90": [round(1e6 * low, 2), round(1e6 * high, 2)],
                "machine": machine(),
                "commit": records.commit("experiments/steps.py"),
            }


def disturbed(record: Record) -> bool:
    """Return whether other work ran meanwhile: then the median is far above the 10 % quantile."""
    quiet: float = record["quantiles_10_90"][0]
    return bool(record["microseconds"] > QUIET * quiet)


def quietest(rounds: Iterable[Record]) -> list[Record]:
    """Return one record of each number: of its quiet ones, the one with the lowest median."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in rounds:
        key = ("implementation", "device", "quantity", "n_features", "n_hidden")
        groups.setdefault(tuple(record[name] for name in key), []).append(record)
    return [
        min(group, key=lambda r: (disturbed(r), r["microseconds"]))
        | {"rounds": sum(r.get("rounds", 1) for r in group)}
        for group in groups.values()
    ]


def replace(name: str, new: Sequence[Record], same: Sequence[str]) -> None:
    """Store records in place of those that agree with one of them in the fields `same`."""
    keys = {tuple(r[field] for field in same) for r in new}
    kept = [r for r in records.read(name) if tuple(r[field] for field in same) not in keys]
    (records.RESULTS / f"{name}.jsonl").unlink(missing_ok=True)
    records.append(name, [*kept, *new])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(IMPLEMENTATIONS))
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args(arguments)
    sizes = list(product(paper()["latency"]["n_features"], paper()["latency"]["n_hidden"]))
    found = []
    names = args.only or list(IMPLEMENTATIONS)
    for record in (r for _ in range(args.rounds) for r in measure(names, sizes, args.calls)):
        found.append(record)
        what = f"{record['implementation']} ({record['device']}) {record['quantity']}"
        size = f"n = {record['n_features']}, N = {record['n_hidden']}"
        print(f"{record['microseconds']:9.1f} us  {what}, {size}", file=sys.stderr, flush=True)
    kinds = {tuple(r[name] for name in SAME) for r in found}
    before = [r for r in records.read("latency") if tuple(r[name] for name in SAME) in kinds]
    replace("latency", quietest([*before, *found]), SAME[:3])


if __name__ == "__main__":
    main()
