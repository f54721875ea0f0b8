"""Time a step beside its peers and beside the machine's limit: `make bench`.

One thread, one run. Each number is the median over repeats of the time a sample, in
microseconds; repeats of all columns are interleaved, so that a noisy neighbour hits them all
alike and the ratios hold. The limit is the time to copy the bytes that a step must move: alpha
once, beta and P read and written.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):  # before NumPy loads its BLAS
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import onlad
from onlad.kernel import BACKEND

SIZES = [(16, 64), (128, 64), (512, 64), (784, 64), (16, 8), (48, 16)]
FORGETTING = 0.99
ROWS = 512  # samples a repeat; their mean is one measurement
MANY = 4  # times as many in one call of update_many


def stream(n: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.clip(rng.normal(0.5, 0.15, (ROWS, n)), 0, 1).astype(dtype)


class ByHand:
    """The paper's step as one writes it in NumPy, with P kept symmetric."""

    def __init__(self, n: int, N: int, dtype: str) -> None:
        rng = np.random.default_rng(0)
        self.alpha = rng.uniform(-1, 1, (n, N)).astype(dtype)
        self.b = rng.uniform(-1, 1, N).astype(dtype)
        self.beta = np.zeros((N, n), dtype)
        self.P = np.eye(N, dtype=dtype) * dtype_scalar(dtype, 100)
        self.a2 = dtype_scalar(dtype, FORGETTING**2)

    def update_one(self, x: np.ndarray) -> float:
        h = 1 / (1 + np.exp(-(x @ self.alpha + self.b)))
        u = self.P @ h / self.a2
        d = 1 + h @ u
        e = x - h @ self.beta
        self.P = self.P / self.a2 - np.outer(u, u) / d
        self.beta += np.outer(u / d, e)
        return float(np.mean(e * e))


def dtype_scalar(dtype: str, value: float) -> Any:
    return np.dtype(dtype).type(value)


def each(call: Callable[[Any], object], rows: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for row in rows:
            call(row)

    return run


def copy_bytes(n: int, N: int, dtype: str) -> Callable[[], None]:
    """Read alpha; read and write beta and P: the traffic of a step and nothing else."""
    # Reading all of alpha and writing nothing cannot be had from NumPy at the speed of memory;
    # copying half of it moves as many bytes. A gap keeps source and target from lying a whole
    # number of pages apart, which makes some processors wait for stores that do not matter.
    size = n * N + N * N + n * N // 2
    memory = np.ones(2 * size + 1056 // np.dtype(dtype).itemsize, dtype)
    source, target = memory[:size], memory[-size:]

    def run() -> None:
        for _ in range(ROWS):
            np.copyto(target, source)

    return run


def half_space_trees(rows: list[dict[str, float]]) -> Callable[[], None]:
    from river import anomaly  # noqa: PLC0415  (optional)

    model = anomaly.HalfSpaceTrees(seed=0)

    def run() -> None:
        for row in rows:
            model.score_one(row)
            model.learn_one(row)

    return run


def river_adapter(rows: list[dict[str, float]], N: int, dtype: str) -> Callable[[], None]:
    from onlad.adapters.river import OnladDetector  # noqa: PLC0415  (optional)

    model = OnladDetector(n_hidden=N, dtype=dtype, seed=0)

    def run() -> None:
        for row in rows:
            model.score_one(row)
            model.learn_one(row)

    return run


def columns(n: int, N: int, dtype: str) -> dict[str, Callable[[], object]]:
    X = stream(n, dtype)
    rows = list(X)
    names = [f"sensor{j}" for j in range(n)]
    # A dict that a program has just made is in the processor's cache: so two, in turn.
    dicts = [dict(zip(names, row, strict=True)) for row in X[:2].tolist()] * (ROWS // 2)

    def detector() -> onlad.Detector:
        d = onlad.Detector(n_hidden=N, forgetting=FORGETTING, dtype=dtype)  # type: ignore[arg-type]
        d.learn_many(X)
        return d

    many, block = detector(), np.tile(X, (MANY, 1))
    return {
        "copy": copy_bytes(n, N, dtype),
        "update_one": each(detector().update_one, rows),
        "update_many": lambda: many.update_many(block),
        "score_one": each(detector().score_one, rows),
        "river adapter": river_adapter(dicts, N, dtype),
        "numpy by hand": each(ByHand(n, N, dtype).update_one, rows),
        "HalfSpaceTrees": half_space_trees(dicts),
    }


def product_rate(dtype: str, size: int = 1024) -> float:
    """Return the operations a second of one large matrix product."""
    A = np.ones((size, size), dtype)
    start = time.perf_counter()
    A @ A
    return 2 * size**3 / (time.perf_counter() - start)


def operations(n: int, N: int) -> int:
    """Return the operations that a step needs: x alpha, h beta, gain e', and S'h, Sf, gf'."""
    return 6 * n * N + 6 * N * N


def measure(n: int, N: int, dtype: str, repeats: int) -> dict[str, Any]:
    runs = columns(n, N, dtype)
    times: dict[str, list[float]] = {name: [] for name in runs}
    rates = []
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            samples = ROWS * MANY if name == "update_many" else ROWS
            times[name].append((time.perf_counter() - start) / samples * 1e6)
        rates.append(product_rate(dtype))
    us = {name: median(values) for name, values in times.items()}
    rate = operations(n, N) / us["update_many"] * 1e6
    return {
        "n": n,
        "N": N,
        "dtype": dtype,
        "us": us,
        "update_one / copy": us["update_one"] / us["copy"],
        "numpy / update_one": us["numpy by hand"] / us["update_one"],
        "many / one": us["update_many"] / us["update_one"],
        "many of product rate": rate / median(rates),
    }


def show(console: Console, results: list[dict[str, Any]], dtype: str) -> None:
    table = Table(title=f"{dtype}, one thread, {BACKEND}: microseconds per sample, and ratios")
    names = list(results[0]["us"])
    ratios = ["update_one / copy", "numpy / update_one", "many / one", "many of product rate"]
    for heading in ["(n, N)", *names, *ratios]:
        table.add_column(heading, justify="right")
    for result in results:
        us = [f"{result['us'][name]:.2f}" for name in names]
        table.add_row(
            f"({result['n']}, {result['N']})",
            *us,
            *[f"{result[r]:.2f}" for r in ratios[:3]],
            f"{result[ratios[3]]:.0%}",
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="at least 5 (default: 15)")
    parser.add_argument("--json", help="also write the numbers to this file")
    args = parser.parse_args()
    console = Console(width=220 if not sys.stdout.isatty() else None)
    stored = []
    for dtype in ("float32", "float64"):
        results = []
        for n, N in SIZES:
            print(f"{dtype} ({n}, {N}) ...", file=sys.stderr)
            results.append(measure(n, N, dtype, max(5, args.repeats)))
        show(console, results, dtype)
        stored += results
    if args.json:
        machine = {"machine": platform.machine(), "backend": BACKEND, "numpy": np.__version__}
        with open(args.json, "w", encoding="utf-8") as file:
            for result in stored:
                file.write(json.dumps(machine | result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
