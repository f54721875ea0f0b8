"""Time a bank: `python -m benchmarks.bank cpu` or `gpu`, and `--json FILE` to keep the numbers.

`python -m benchmarks.bank table` writes the capacity tables of the page from what was kept.

On the processor: two threads and one, in turn; the same for a walk through memory, which is what a
single step is; and a loop over detectors. On a GPU: one step a launch against the speed at which
the same machine copies memory, and blocks; the results are first compared with a float64 loop in
plain PyTorch.
The GPU half needs PyTorch, Triton and NumPy, and of onlad only `onlad.fleet.cuda`.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):  # before NumPy loads its BLAS
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.records import commit, filled, read, write

FORGETTING, RIDGE = 0.99, 1e-2
SIZES = [(512, 64), (64, 32), (16, 16)]
BYTES = 2**28  # of models on the processor: several times what its caches hold
GPU_BYTES = 5 * 2**30
BLOCK = 32  # samples per model and call, on the processor
GPU_BLOCK = 128


def a_model(n: int, N: int, size: int) -> int:
    """Return the bytes of one model: beta, S, five numbers and three counts."""
    return (n * N + N * N) * size + 8 * 8


# -- the tables of docs/howto/fleet.md ----------------------------------------------------------

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "fleet.md"
MARKS = "<!-- capacity: python -m benchmarks.bank table -->", "<!-- end of capacity -->"
GPU_MEMORY = 128 * 2**30  # of an H200's 139 GiB, for models


def short(number: float) -> str:
    """Return a number with two digits that count: 13 M, 0.46 M, 1,700."""
    if number >= 1e9:
        return f"{number / 1e9:.2g} G"
    if number >= 1e5:
        return f"{float(f'{number / 1e6:.2g}'):g} M"
    return f"{float(f'{number:.2g}'):,.0f}"


def tables(records: list[dict[str, Any]]) -> str:
    """Return the capacity of a core and of a GPU, measured, and what follows for many devices."""
    by = {(r["device"], r["n"], r["N"], r["dtype"]): r for r in records}
    lines = [
        "| (n, N) | type | bytes per model | a core: update | in blocks | two threads "
        "| a GPU: update | in blocks | models in a GPU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    paper = [
        "| devices | (n, N) | memory | cores | H200s |",
        "|---|---|---|---|---|",
    ]
    for (n, N), dtype in ((size, dtype) for dtype in ("float32", "float64") for size in SIZES):
        cpu, gpu = (by.get((device, n, N, dtype)) for device in ("cpu", "cuda"))
        size = a_model(n, N, np.dtype(dtype).itemsize)
        us = cpu and cpu["us an update"]
        rate = gpu and gpu["million updates a second"]
        lines.append(
            f"| ({n}, {N}) | {dtype} | {size:,} "
            f"| {short(1e6 / us['update, 1 threads']) if us else '-'} "
            f"| {short(1e6 / us['update_many, 1 threads']) if us else '-'} "
            f"| {_pair(cpu) if cpu else '-'} "
            f"| {short(rate['step, whole call'] * 1e6) if rate else '-'} "
            f"| {short(rate['block, whole call'] * 1e6) if rate else '-'} "
            f"| {short(GPU_MEMORY / size)} |"
        )
        for devices in (1e6, 1e8) if dtype == "float32" else ():
            cores = f"{-(-devices * us['update, 1 threads'] // 1e6):,.0f}" if us else "-"
            need = max(devices * size / GPU_MEMORY, devices / rate["step"] / 1e6) if rate else 0
            gpus = f"{-(-need // 1):,.0f}" if rate else "-"
            paper.append(
                f"| {short(devices)} | ({n}, {N}) | {devices * size / 2**30:,.0f} GiB | {cores} "
                f"| {gpus} |"
            )
    paper[2:] = sorted(paper[2:], key=lambda line: line.startswith("| 100 M"))
    names = sorted({r["machine"] for r in records})
    return "\n".join([f"Measured on: {'; '.join(names)}.", "", *lines, "", *paper])


def _pair(cpu: dict[str, Any]) -> str:
    """Return how much more two threads do than one, and what memory alone would allow."""
    pairs, limit = cpu["2 threads / 1 thread"], cpu["memory, 2 threads / 1 thread"]
    return f"{pairs['update']:.2f} x (memory {limit:.2f} x), {pairs['update_many']:.2f} x in blocks"


def kept() -> list[dict[str, Any]]:
    """Return the stored records."""
    return [record for path in sorted(RESULTS.glob("bank-*.jsonl")) for record in read(path)]


def page(text: str) -> str:
    """Return the text of the page with the tables as they should be."""
    return filled(text, MARKS, tables(kept()))


# -- the processor ------------------------------------------------------------------------------


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line for line in lines if line.startswith("model name"))
        return model.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.machine()


def memory(repeats: int) -> float:
    """Return how much faster two threads read and write all memory once than one thread does."""
    cells = np.ones(BYTES // 4, "float32")

    def walk(half: Any) -> None:
        for some in np.array_split(half, 32):
            np.multiply(some, np.float32(1), out=some)

    def both() -> None:
        other = threading.Thread(target=walk, args=(cells[len(cells) // 2 :],))
        other.start()
        walk(cells[: len(cells) // 2])
        other.join()

    return median(_seconds(lambda: walk(cells)) / _seconds(both) for _ in range(repeats))


def _seconds(run: Any) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measure_cpu(n: int, N: int, dtype: str, repeats: int) -> dict[str, Any]:
    from onlad import Detector  # noqa: PLC0415  (not on the machine with the GPU)
    from onlad.fleet import Bank  # noqa: PLC0415
    from onlad.kernel import BACKEND  # noqa: PLC0415

    size = np.dtype(dtype).itemsize
    models = BYTES // a_model(n, N, size)
    few = max(1, models // 4)  # whose calls take long beside the start of a thread
    X = np.random.default_rng(0).uniform(0, 1, (models, n)).astype(dtype)
    blocks = np.random.default_rng(1).uniform(0, 1, (few, BLOCK, n)).astype(dtype)
    detector = Detector(n_hidden=N, forgetting=FORGETTING, ridge=RIDGE, dtype=dtype)  # type: ignore[arg-type]
    alone = [Detector.resumed(detector.settings()).start(n) for _ in range(few)]
    banks = {k: Bank(detector, models, n_features=n, threads=k) for k in (1, 2)}
    small = {k: Bank(detector, few, n_features=n, threads=k) for k in (1, 2)}

    def loop() -> None:
        for one, x in zip(alone, X, strict=False):
            one.update_one(x)

    runs: dict[str, tuple[Any, int]] = {"detectors": (loop, few)}
    for k in (1, 2):
        runs[f"update, {k} threads"] = (lambda k=k: banks[k].update(X), models)
    for k in (1, 2):
        runs[f"update_many, {k} threads"] = (lambda k=k: small[k].update_many(blocks), few * BLOCK)
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = iter(runs)
    for kind in ([next(names)], [next(names), next(names)], [next(names), next(names)]):
        for repeat in range(repeats + 1):
            for name in kind:
                run, updates = runs[name]
                seconds = _seconds(run)
                if repeat:  # the first touches memory for the first time
                    times[name].append(seconds / updates * 1e6)
    us = {name: median(values) for name, values in times.items()}
    # A pair of neighbours in time: noise that lasts longer than a repeat hits both alike.
    pairs = {
        call: median(
            one / two
            for one, two in zip(
                times[f"{call}, 1 threads"], times[f"{call}, 2 threads"], strict=True
            )
        )
        for call in ("update", "update_many")
    }
    return {
        "machine": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "backend": BACKEND,
        "device": "cpu",
        "n": n,
        "N": N,
        "dtype": dtype,
        "models": models,
        "bytes a model": sum(part[0].nbytes for part in banks[1]._engine._padded),  # type: ignore[attr-defined]
        "us an update": us,
        "2 threads / 1 thread": pairs,
        "memory, 2 threads / 1 thread": memory(repeats),
        "models a core at 1 Hz": int(1e6 / us["update, 1 threads"]),
    }


# -- the GPU ------------------------------------------------------------------------------------


def float64_loop(X: Any, alpha: Any, b: Any, a: float) -> tuple[Any, Any, Any]:
    """Return losses, beta and P of each model after its samples, by the definition's equations."""
    import torch  # noqa: PLC0415  (an extra)

    X, alpha, b = X.double(), alpha.double(), b.double()
    M, T, n = X.shape
    N = alpha.shape[1]
    beta = torch.zeros(M, N, n, dtype=torch.float64, device=X.device)
    P = torch.eye(N, dtype=torch.float64, device=X.device).repeat(M, 1, 1) / RIDGE
    losses = []
    for t in range(T):
        x, h = X[:, t], torch.sigmoid(X[:, t] @ alpha + b)
        e = x - torch.einsum("mi,mij->mj", h, beta)
        u = torch.einsum("mij,mj->mi", P, h) / a**2
        d = 1 + (h * u).sum(1)
        P = P / a**2 - torch.einsum("mi,mj->mij", u, u) / d[:, None, None]
        beta = beta + torch.einsum("mi,mj->mij", u / d[:, None], e)
        losses.append((e * e).mean(1))
    return torch.stack(losses, 1), beta, P


def engine(n: int, N: int, dtype: str, models: int) -> Any:
    from onlad.fleet.cuda import CudaEngine  # noqa: PLC0415  (an extra)
    from onlad.fleet.models import Layer, Models  # noqa: PLC0415

    rng = np.random.default_rng(0)
    alpha, b = rng.uniform(-1, 1, (n, N)), rng.uniform(-1, 1, N)
    made = CudaEngine(Layer(alpha.astype(dtype), b.astype(dtype), "sigmoid", "squared"), models)
    numbers = np.array([[N / RIDGE, N / RIDGE, 1.0, 0.0, FORGETTING]])
    S = (np.eye(N) / np.sqrt(RIDGE)).astype(dtype)[None]
    made.put(slice(None), Models(np.zeros((1, n, N), dtype), S, numbers, np.zeros((1, 3), "int64")))
    return made


def errors(n: int, N: int, dtype: str) -> dict[str, float]:
    """Return how far steps and blocks lie from the float64 loop, as norm over norm."""
    import torch  # noqa: PLC0415

    X = torch.rand(64, 150, n, dtype=getattr(torch, dtype), device="cuda")
    found: dict[str, float] = {}
    for call in ("step", "many"):
        made = engine(n, N, dtype, len(X))
        samples, mask = made.samples(X, None)
        many = call == "many"
        losses = made.many(samples, mask)[0] if many else made.step(samples, mask, True)[0]
        expected, beta, P = float64_loop(X, made._alpha, made._b, FORGETTING)
        S = made._models.S.double()
        for name, mine, theirs in [
            ("loss", losses, expected),
            ("beta", made._models.beta.transpose(1, 2), beta),
            ("P", S @ S.transpose(1, 2), P),
        ]:
            found[f"{call} {name}"] = float((mine.double() - theirs).norm() / theirs.norm())
    return found


def copy_rate() -> float:
    """Return the bytes per second, read and written, of a copy from the GPU's memory to itself."""
    import torch  # noqa: PLC0415
    from triton.testing import do_bench  # noqa: PLC0415

    source = torch.empty(2**30, device="cuda").normal_()
    target = torch.empty_like(source)
    ms = do_bench(lambda: target.copy_(source), warmup=50, rep=300, return_mode="median")
    return 2 * source.nbytes / ms * 1e3


def measure_gpu(n: int, N: int, dtype: str) -> dict[str, Any]:
    import torch  # noqa: PLC0415
    import triton  # noqa: PLC0415
    from triton.testing import do_bench  # noqa: PLC0415

    size = np.dtype(dtype).itemsize
    models = GPU_BYTES // a_model(n, N, size) // 64 * 64
    few = max(64, models // 4)
    off = errors(n, N, dtype)
    copy = copy_rate()
    made, small = engine(n, N, dtype, models), engine(n, N, dtype, few)
    X = torch.rand(models, 1, n, dtype=getattr(torch, dtype), device="cuda")
    blocks = torch.rand(few, GPU_BLOCK, n, dtype=getattr(torch, dtype), device="cuda")

    def call(one: Any, X: Any, many: bool) -> Any:  # what Bank does with tensors
        samples, mask = one.samples(X, None)
        result = one.many(samples, mask) if many else one.step(samples, mask, True)
        return one.combine(*result, "combined")

    X, mask = made.samples(X, None)
    blocks, block_mask = small.samples(blocks, None)
    runs = {
        "step": (lambda: made.step(X, mask, True), models),
        "step, whole call": (lambda: call(made, X, False), models),
        "block": (lambda: small.many(blocks, block_mask), few * GPU_BLOCK),
        "block, whole call": (lambda: call(small, blocks, True), few * GPU_BLOCK),
    }
    rate = {
        name: updates / do_bench(run, warmup=50, rep=400, return_mode="median") / 1e3
        for name, (run, updates) in runs.items()
    }
    moved = 2 * (n * N + N * N) * size  # beta and S, read and written; samples come on top
    return {
        "machine": torch.cuda.get_device_name(),
        "device": "cuda",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "n": n,
        "N": N,
        "dtype": dtype,
        "models": models,
        "samples a block": GPU_BLOCK,
        "bytes a model": a_model(n, N, size),
        "copy, GB/s": copy / 1e9,
        "million updates a second": rate,
        "step / copy": rate["step"] * 1e6 * moved / copy,
        "step, whole call / copy": rate["step, whole call"] * 1e6 * moved / copy,
        "off the float64 loop": off,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bank", description=__doc__)
    parser.add_argument("device", choices=["cpu", "gpu", "table"])
    parser.add_argument("--repeats", type=int, default=31, help="on the processor (default: 31)")
    parser.add_argument("--json", help="also write the numbers to this file, one line per size")
    args = parser.parse_args()
    if args.device == "table":
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    records = []
    for dtype in ("float32", "float64"):
        for n, N in SIZES:
            record = (
                measure_gpu(n, N, dtype)
                if args.device == "gpu"
                else measure_cpu(n, N, dtype, max(3, args.repeats))
            )
            command = f"python -m benchmarks.bank {args.device}"
            record |= {"command": command, "commit": commit()}
            print(json.dumps(record, indent=1), flush=True)
            records.append(record)
    if args.json:
        write(args.json, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
