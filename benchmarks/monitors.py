"""Time a bank of monitors: `python -m benchmarks.monitors`; `table` writes the table of the page.

One row per device and call, and blocks; beside them in the same run a loop of `Monitor.observe`,
a bank of detectors with as many inputs, and memory: a sum of as many numbers as a row has to be
multiplied with (`benchmarks.monitor.numbers`), of each device its own. What is counted is processor
time on one thread. Two threads are measured by the clock, against the processor time of one in
turns with them: what else runs can only make them look slower, so the fastest turn counts.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.monitor import numbers
from onlad import Detector, Monitor, limit
from onlad.fleet import Bank, MonitorBank

SIZES = ((8, 1000), (8, 10_000), (64, 500))  # features, devices
START, ROUNDS = 2_048, 3
# Rows after which all devices fit their limits again. Each measurement has as many: else some would
# have that work in them and others not.
CALLS = limit.RECENT // limit.FRESH
TURNS = 7  # of one thread and two
FILE = Path(__file__).parent / "results" / "monitors.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "fleet.md"
MARKS = "<!-- monitors: python -m benchmarks.monitors -->", "<!-- end of monitors -->"


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return how long work takes."""
    begun = clock()
    work()
    return clock() - begun


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stream(rng: np.random.Generator, devices: int, rows: int, n: int) -> Any:
    """Return rows of devices, (devices, rows, n)."""
    cause = np.sin(np.arange(rows) / 20 + rng.uniform(0, 6, (devices, 1)))
    return rng.normal(size=(devices, rows, n)) + cause[:, :, None]


def measure(n: int, devices: int) -> dict[str, object]:
    """Return microseconds per row, the medians over all rounds, and ratios."""
    rng = np.random.default_rng(0)
    start = Monitor().fit(stream(rng, 1, START, n)[0])
    ctypes.CDLL(None).malloc_trim(0)  # what an earlier size has left
    before = resident()
    bank = MonitorBank(start, devices, threads=1)
    memory = (resident() - before) / devices
    before = resident()
    compact = MonitorBank(start, devices, threads=1, storage="compact")
    small = (resident() - before) / devices
    window = start.describe()["window"]
    walk = np.ones((devices, numbers(n, n * window)[0]))
    detectors = Bank(Detector(n_hidden=64), devices, n_features=n * window, threads=1)
    X, inputs = stream(rng, devices, CALLS, n), rng.normal(size=(devices, n * window))
    rows = [dict(enumerate(row)) for row in X[0].tolist()]
    loop = [bank[i] for i in range(min(devices, 1000))]
    taken: dict[str, list[float]] = {}

    def keep(name: str, took: float, count: int) -> None:
        taken.setdefault(name, []).append(took / count * 1e6)

    def one_by_one(bank: MonitorBank) -> None:
        for t in range(CALLS):
            bank.observe(X[:, t])

    def in_a_loop() -> None:
        for x in rows:
            for monitor in loop:
                monitor.observe(x)

    for _ in range(ROUNDS):
        for name, each in (("", bank), ("compact, ", compact)):
            took = seconds(partial(one_by_one, each))
            keep(f"{name}one row per call", took, devices * CALLS)
            keep(f"{name}in blocks", seconds(partial(each.observe_many, X)), devices * CALLS)
        keep("loop of observe", seconds(in_a_loop), len(loop) * CALLS)
        keep("bank of detectors", seconds(lambda: detectors.update(inputs)), devices)
        keep("memory", seconds(lambda: walk.sum(axis=1)), devices)
    bank.observe_many(X)  # what was measured before has emptied the caches
    turns = {1: "in blocks, in turns", 2: "in blocks, two threads by the clock"}
    for threads in (1, 2) * TURNS:
        bank.threads = threads
        clock = time.perf_counter if threads == 2 else time.process_time
        keep(turns[threads], seconds(partial(bank.observe_many, X), clock), devices * CALLS)
    bank.threads = 1
    found = {name: round(median(each), 2) for name, each in taken.items()}
    one, two = (min(taken[name]) for name in turns.values())
    found[turns[2]] = round(two, 2)
    return {
        "features": n,
        "devices": devices,
        "us_per_row": found,
        "rows_per_second": round(1e6 / found["one row per call"]),
        "rows_per_second_in_blocks": round(1e6 / found["in blocks"]),
        "loop_ratio": round(found["loop of observe"] / found["one row per call"], 2),
        "detectors_ratio": round(found["one row per call"] / found["bank of detectors"], 2),
        "memory_ratio": round(found["one row per call"] / found["memory"], 2),
        "kB_in_memory": round(memory / 1e3, 1),
        "kB_in_memory_compact": round(small / 1e3, 1),
        "kB_in_a_file": round(len(bank.to_bytes()) / devices / 1e3, 1),
        "two_threads": round(one / two, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def table(found: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| features | devices | rows per second and core, one per call | in blocks | a loop takes "
        "| a bank of detectors takes | memory takes | two threads | kB per device |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        lines.append(
            f"| {r['features']} | {r['devices']:,} | {r['rows_per_second']:,} "
            f"| {r['rows_per_second_in_blocks']:,} | {r['loop_ratio']} x "
            f"| {1 / r['detectors_ratio']:.2f} x | {1 / r['memory_ratio']:.2f} x "
            f"| {r['two_threads']} x | {r['kB_in_memory']} |"
        )
    lines += [
        "",
        'With `storage="compact"`, in the same run:',
        "",
        "| features | devices | rows per second and core, one per call | in blocks "
        "| kB per device |",
        "|---|---|---|---|---|",
    ]
    for r in found:
        speed = [
            1e6 / r["us_per_row"][f"compact, {how}"] for how in ("one row per call", "in blocks")
        ]
        lines.append(
            f"| {r['features']} | {r['devices']:,} | {speed[0]:,.0f} | {speed[1]:,.0f} "
            f"| {r['kB_in_memory_compact']} |"
        )
    lines += [
        "",
        "On paper, for devices that send one row per second, in one call per second:",
        "",
        "| devices | features | memory | cores | rows come at |",
        "|---|---|---|---|---|",
    ]
    for devices in (1_000_000, 100_000_000):
        for r in found[1:]:
            cores = devices / r["rows_per_second"]
            lines.append(
                f"| {devices:,} | {r['features']} | {devices * r['kB_in_memory'] / 1e6:,.0f} GB "
                f"| {cores:,.0f} | {8e-9 * devices * r['features']:,.2f} GB/s |"
            )
    lines += [
        "",
        "This assumes that cores that share memory keep their speed, that rows come as float64, "
        "and that all devices have started.",
    ]
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the table of the record."""
    return records.filled(text, MARKS, table(records.read(FILE)))


def main() -> None:
    if sys.argv[1:] != ["table"]:
        found = (measure(*size) for size in SIZES)
        records.write(FILE, records.measured("python -m benchmarks.monitors", found))
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
