"""Machines that change for good, or begin to run in a second way, with faults before and after.

    python -m experiments.benchmark.regimes      # the record of the page

The change comes long after the start: other relations between the sensors, other levels, more
noise, or a second way of running that alternates with the first. Faults are counted once the change
was accepted or should have been. Beside each monitor stands one that was started when the machine
changed, which is what to reach.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import os
from collections.abc import Mapping

import numpy as np

from experiments import metrics, records
from experiments.benchmark.machines import autoregression
from experiments.benchmark.measures import alarms
from experiments.benchmark.series import Series, series
from experiments.records import Record
from experiments.reproduce import in_parallel
from onlad import Monitor

FILE = "benchmark/regimes"
NOISES = ("Gaussian", "heavy tails", "a slow walk beside it", "bursts of volatility")
CHANGES = ("other relations", "other levels", "more noise", "a second way of running")
SEEDS = range(4)
ROWS, HISTORY, CHANGE, COUNTED = 40_000, 4_000, 10_000, 21_000
ALTERNATES = 1_200  # rows of each way of running


def make(noise: str, change: str, seed: int) -> Series:
    """Return a machine of 4 to 23 sensors, with a fault in one of them every 2,000 rows."""
    rng = np.random.default_rng([seed, 177, NOISES.index(noise), CHANGES.index(change)])
    n, row = int(rng.integers(4, 24)), np.arange(ROWS)
    causes = max(2, n // 4)
    hidden = np.column_stack(
        [autoregression(rng, ROWS, rng.uniform(0.8, 0.99)) for _ in range(causes)]
    )
    before = rng.normal(size=(causes, n))
    after = before + rng.normal(size=(causes, n)) * (0.0 if change == "other levels" else 0.5)
    shift = rng.normal(0, 4, n) * (rng.random(n) < 0.5) * (change != "more noise")
    changed = row >= CHANGE
    if change == "a second way of running":
        changed &= (row // ALTERNATES) % 2 == 0
    clean = np.where(changed[:, None], hidden @ after + shift, hidden @ before)
    normal = noise != "heavy tails"
    rest = rng.normal(size=(ROWS, n)) if normal else rng.standard_t(4, size=(ROWS, n))
    if noise == "bursts of volatility":
        rest = rest * np.exp(0.5 * autoregression(rng, ROWS, 0.999))[:, None]
    if noise == "a slow walk beside it":
        walk = 0.01 * np.cumsum(rng.normal(size=(ROWS, 2)), axis=0)
        clean = clean + walk @ rng.normal(size=(2, n))
    if change == "more noise":
        rest = rest * np.where(changed, rng.uniform(1.5, 3), 1)[:, None]
    X = 3 * clean / clean[:HISTORY].std(axis=0) + rest
    y = np.zeros(ROWS, int)
    for first in [6_000, 8_000, *range(18_000, ROWS - 500, 2_000)]:
        last, sensor = first + int(rng.integers(5, 80)), int(rng.integers(n))
        size = rng.choice([8, 12, 20]) * rng.choice([-1, 1])
        X[first:last, sensor] += size * (2 if change == "more noise" else 1)
        y[first:last] = 1
    X = X * 10.0 ** rng.uniform(-2, 2, n) + rng.normal(0, 10, n)
    return series("regimes", f"{noise}, {change}, seed {seed}", X, y, history=HISTORY)


def measured(told: str, noise: str, change: str, seed: int) -> Record:
    """Return what a monitor does after a change, with a history, without, or started anew."""
    machine = make(noise, change, seed)
    first = {"nothing": 0, "history": HISTORY, "anew": CHANGE}[told]
    monitor = Monitor()
    if told == "history":
        monitor.fit(machine.X[:first])
    verdicts = monitor.observe_many(machine.X[first:])
    counted = slice(COUNTED - first, None)
    y, score = machine.y[COUNTED:], verdicts.score[counted]
    said = alarms(y, verdicts.is_anomaly[counted])
    return {
        "told": told,
        "noise": noise,
        "change": change,
        "seed": seed,
        "faults": len(said.delays),
        "found": sum(delay is not None for delay in said.delays),
        "false_episodes": said.false,
        "normal_rows": int(np.count_nonzero(y == 0)),
        "average_precision": round(float(metrics.auc_pr(y, score)), 4),
        **records.origin("python -m experiments.benchmark.regimes", "experiments/benchmark"),
    }


def means(told: str, **wanted: str) -> Mapping[str, float]:
    """Return found faults, false episodes in 10,000 rows and average precision of some machines."""
    some = [
        record
        for record in records.read(FILE)
        if record["told"] == told and all(record[name] == value for name, value in wanted.items())
    ]

    def total(name: str) -> int:
        return sum(record[name] for record in some)

    return {
        "found": float(total("found") / total("faults")),
        "false": float(1e4 * total("false_episodes") / total("normal_rows")),
        "precision": float(np.mean([record["average_precision"] for record in some])),
    }


def main() -> None:
    tasks = [
        (told, noise, change, seed)
        for told in ("nothing", "history", "anew")
        for noise in NOISES
        for change in CHANGES
        for seed in SEEDS
    ]
    found = in_parallel("regimes", [(measured, task) for task in tasks], os.cpu_count() or 1)
    records.write(FILE, list(found))


if __name__ == "__main__":
    main()
