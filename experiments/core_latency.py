"""The core's row of the paper's latency figures: cycles of a step, counted in simulation.

    python -m experiments.core_latency run       # resumable: skips what is stored for this gateware
    python -m experiments.core_latency table     # from the records alone

A step's cycles do not depend on the data, but for the rare steps in which the wind-up guard acts.
Time is at 100 MHz, the clock of the paper's board, and without the n cycles that load a sample.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

import numpy as np

from experiments import core_source
from experiments.pages import markdown
from experiments.records import Record, append, latest, origin
from onlad.hardware import Config, OnladCore
from onlad.hardware.paper import SIZES

MEGAHERTZ = 100
CORES = (
    *(Config(n, N) for n, N in SIZES),
    *(Config(n, N, 2) for n, N in SIZES),  # as many arithmetic units as the paper's core
    *(Config(n, N, 16) for n, N in SIZES),
    Config(512, 64, 32),
    Config(512, 64, activation="sigmoid"),
)


def records() -> list[Record]:
    """Return the last record of each core."""
    return latest("core_latency", "config")


def measure(config: Config) -> dict[str, int]:
    """Return the cycles of a training step and of a prediction."""
    device = OnladCore(**asdict(config)).simulate()
    x = np.random.default_rng(0).uniform(0, 1, config.n)
    device.learn_one(x)
    device.learn_one(x)
    train = device.cycles
    device.score_one(x)
    return {"train": train, "predict": device.cycles}


def run() -> None:
    """Simulate what is not stored yet for the gateware as it is, and store each at once."""
    digest = core_source.gateware()
    done = [r["config"] for r in records() if r["gateware"] == digest]
    for config in CORES:
        if asdict(config) in done:
            continue
        begun = time.perf_counter()
        record = {"config": asdict(config), **measure(config), "megahertz": MEGAHERTZ}
        source = {"gateware": digest, **origin("make core-latency", "experiments/core_latency.py")}
        append("core_latency", [record | source])
        print(f"{time.perf_counter() - begun:5.0f} s  {record}", flush=True)


HEAD = (
    "n", "N", "lanes", "G", "training, cycles", "us", "of the ideal", "prediction, cycles", "us",
    "of the ideal",
)  # fmt: skip


def rows() -> list[tuple[str, ...]]:
    found = []
    stored = {Config(**r["config"]): r for r in records()}
    paper = [Config(n, N) for n, N in SIZES]
    for config in [*paper, *(c for c in CORES if c not in paper)]:
        if config not in stored:
            continue
        r = stored[config]
        c, U = r["config"], r["config"]["lanes"]
        n, N = c["n"], c["hidden"]
        ideal = {"train": (3 * n * N + 3 * N * N) / U, "predict": 2 * n * N / U}
        cells = [f"{n:,}", str(N), str(U), c["activation"]]
        for step, best in ideal.items():
            us = r[step] / r["megahertz"]
            cells += [f"{r[step]:,}", f"{us:.1f}", f"{100 * best / r[step]:.1f} %"]
        found.append(tuple(cells))
    return found


def table() -> None:
    print(markdown(HEAD, rows()))


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]]()
