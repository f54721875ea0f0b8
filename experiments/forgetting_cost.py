"""What forgetting costs: a training step of ONLAD beside one of FP-ELM, both in NumPy.

    python -m experiments.forgetting_cost    # results/forgetting_cost.jsonl, one record per size

The sizes are the paper's of fig:forget_latency, eight times those of the latency figures. There
n is far above N, and the terms in n hide the growth in N; a second set of sizes has few features,
so that the exponent of N can be fitted. The third implementation is FP-ELM arranged to need one
solve for one vector: score and step together, the most that can be said for it.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product

import numpy as np

from experiments import records
from experiments.latency import replace
from experiments.records import Record
from experiments.settings import paper
from experiments.steps import FORGETTING, RIDGE, Step, fpelm_numpy, onlad_numpy, samples
from experiments.testbeds import Array

GROWTH_FEATURES, GROWTH_HIDDEN = 16, (128, 192, 256, 384, 512)  # P stays in the cache
SECONDS, CALLS = 4.0, (5, 200)  # a size: as many rounds as fit, within bounds


def fpelm_vector(n_features: int, n_hidden: int) -> Step:
    """Return FP-ELM that keeps V = (r I + K) beta, by which beta is never needed whole.

    V_t = a^2 V_{t-1} + h' x is eq:fp_elm_train multiplied by r I + K_t.
    """
    from onlad import reference  # noqa: PLC0415

    alpha, b = reference.draw(n_features, n_hidden, "uniform", 0)
    K, V = np.eye(n_hidden), np.zeros((n_hidden, n_features))

    def predict(x: Array) -> float:
        h = x @ alpha + b
        return float(np.mean((x - np.linalg.solve(RIDGE * np.eye(n_hidden) + K, h) @ V) ** 2))

    def train(x: Array) -> None:
        nonlocal K, V
        predict(x)
        h = x @ alpha + b
        K = FORGETTING**2 * K + np.outer(h, h)
        V = FORGETTING**2 * V + np.outer(h, x)

    return Step(train, predict, samples(n_features, "float64"))


IMPLEMENTATIONS = {"onlad": onlad_numpy, "fpelm": fpelm_numpy, "fpelm-vector": fpelm_vector}


def measure(
    part: str, n_features: int, n_hidden: int, seconds: float = SECONDS, least: int = CALLS[0]
) -> list[Record]:
    """Return a record for each implementation; their calls take turns, so noise hits all alike."""
    steps = {name: make(n_features, n_hidden) for name, make in IMPLEMENTATIONS.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    begun, rounds = time.perf_counter(), 0
    while rounds <= least or (time.perf_counter() - begun < seconds and rounds < CALLS[1]):
        for name, step in steps.items():
            x = step.samples[rounds % len(step.samples)]
            start = time.perf_counter()
            step.train(x)
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return [
        {
            "part": part,
            "implementation": name,
            "n_features": n_features,
            "n_hidden": n_hidden,
            "calls": rounds - 1,
            "milliseconds": round(1e3 * float(np.median(taken[1:])), 5),  # the first one warms
            "machine": records.machine(),
            "commit": records.commit("experiments/steps.py", "experiments/forgetting_cost.py"),
        }
        for name, taken in times.items()
    ]


def growth(stored: Sequence[Record]) -> float:
    """Return p of time = c N^p, by least squares on logarithms, of one implementation."""
    N = np.log([r["n_hidden"] for r in stored])
    return float(np.polyfit(N, np.log([r["milliseconds"] for r in stored]), 1)[0])


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    scale, sizes = paper()["forgetting_cost"]["scale"], paper()["latency"]
    cases = [
        ("paper", scale * n, scale * N) for N, n in product(sizes["n_hidden"], sizes["n_features"])
    ]
    cases += [("growth", GROWTH_FEATURES, N) for N in GROWTH_HIDDEN]
    found = []
    for case in cases:
        new = measure(*case)
        found += new
        times = ", ".join(f"{r['implementation']} {r['milliseconds']:.2f} ms" for r in new)
        print(f"n = {case[1]}, N = {case[2]}: {times}", file=sys.stderr, flush=True)
    replace("forgetting_cost", found, ("part", "implementation"))


if __name__ == "__main__":
    main()
