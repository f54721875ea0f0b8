"""Time a bank of monitors on a GPU: `python -m benchmarks.monitors_gpu`.

`--json FILE` keeps the numbers, `--profile` shows where the time goes. Timed are blocks of rows and
one row per call, in tensors that are on the GPU; beside them in the same run a bank of detectors
with as many inputs, and the speed at which the machine copies memory. Verdicts are compared with
those of monitors on the processor.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.records import commit, write
from onlad import Detector, Monitor
from onlad.fleet import Bank, MonitorBank
from onlad.fleet.tensors import bank as tensors

SIZES = ((8, 262_144), (64, 32_768))  # features, devices
START, BLOCK, ROUNDS = 4_096, 128, 5  # a block is two ticks, and a period of the stream
HIDDEN = 64  # of the detectors
TICK = 64
NEAR = 2e-3  # of a threshold: a row is near it


def stream(devices: int, rows: int, n: int, seed: int, device: str) -> Any:
    """Return rows of devices, (devices, rows, n), that may be repeated without a jump."""
    random = torch.Generator(device).manual_seed(seed)
    made = {"generator": random, "device": device, "dtype": torch.float64}
    phase = torch.rand(devices, 1, 1, **made) * 2 * torch.pi
    t = torch.arange(rows, device=device, dtype=torch.float64)[None, :, None]
    X = torch.randn(devices, rows, n, **made)
    return X.add_(torch.sin(2 * torch.pi * t / BLOCK + phase))


def seconds(work: Callable[[], object], device: str) -> float:
    """Return how long work takes, by the clock."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    begun = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begun


def copy_rate(device: str, size: int) -> float:
    """Return the bytes per second, read and written, of a copy from memory to itself."""
    source = torch.ones(size, device=device)
    target = torch.empty_like(source)
    times = [seconds(lambda: target.copy_(source), device) for _ in range(7)]
    return 2 * source.nbytes / median(times)


def agreement(n: int, devices: int, rows: int) -> dict[str, float]:
    """Return how far a bank on a GPU is from a loop of monitors, with faults in the streams."""
    start = Monitor().fit(stream(1, START // 4, n, 0, "cpu")[0].numpy())
    X = stream(devices, rows, n, 1, "cpu").numpy()
    X[::4, rows // 2 :, 0] += 12.0
    X[1::4, rows // 2 :] = 25 - X[1::4, rows // 2 :]
    found = MonitorBank(start, devices, device="cuda").observe_many(X)
    alone = [Monitor.resumed(start.settings(), start.learned()) for _ in X]
    expected = [monitor.observe_many(x) for monitor, x in zip(alone, X, strict=True)]
    score, limit, alarm, learned, drift = (
        np.concatenate([getattr(each, name) for each in expected])
        for name in ("score", "threshold", "is_anomaly", "learned", "drift")
    )
    near = np.abs(score / limit - 1) < NEAR
    return {
        "rows": len(score),
        "alarms": int(alarm.sum()),
        "drifts": int(drift.sum()),
        "score, largest relative difference": float(
            np.max(np.abs(found.score - score) / np.maximum(score, 1e-3))
        ),
        "threshold, largest relative difference": float(
            np.max(np.abs(found.threshold / limit - 1))
        ),
        "share of rows with another alarm": float(np.mean(found.is_anomaly != alarm)),
        "share of rows near the threshold": float(np.mean(near)),
        "share of rows learned otherwise": float(np.mean(found.learned != learned)),
        "share of rows with another drift": float(np.mean(found.drift != drift)),
    }


def measure(n: int, devices: int, device: Any, *, profile: bool) -> dict[str, Any]:
    start = Monitor().fit(stream(1, START, n, 0, "cpu")[0].numpy())
    window = start.describe()["window"]
    bank = MonitorBank(start, devices, device="cuda")
    assert bank._gpu
    size = bank._gpu.nbytes() / devices
    X = stream(devices, BLOCK, n, 2, device)
    alarms = []

    def in_blocks() -> None:
        alarms.append(bank.observe_many(X).is_anomaly.float().mean())

    def one_by_one() -> None:
        for t in range(TICK):
            bank.observe(X[:, t])

    in_blocks()
    in_blocks()
    one_by_one()  # kernels are compiled for one row too
    times = {"in blocks": [seconds(in_blocks, device) / BLOCK for _ in range(ROUNDS)]}
    times["one row per call"] = [seconds(one_by_one, device) / TICK for _ in range(2)]
    if profile:
        show(in_blocks, device)
    arrays = seconds(lambda: bank.observe_many(X.cpu().numpy()), device) / BLOCK
    bank.remove(range(devices))
    detectors = Bank(Detector(n_hidden=HIDDEN), devices, n_features=n * window, device=device)
    inputs = torch.rand(devices, BLOCK, n * window, dtype=torch.float64, device=device)
    inputs = inputs if device == "cuda" else inputs.numpy()
    one = inputs[:, 0] + 0.0
    detectors.update_many(inputs)
    detectors.update(one)
    times["detectors in blocks"] = [
        seconds(lambda: detectors.update_many(inputs), device) / BLOCK for _ in range(ROUNDS)
    ]
    times["detectors, one row per call"] = [
        seconds(lambda: detectors.update(one), device) for _ in range(ROUNDS)
    ]
    rate = {name: devices / median(each) / 1e6 for name, each in times.items()}
    rate["in blocks, from arrays to arrays"] = devices / arrays / 1e6
    copy = copy_rate(device, 2**30 if device == "cuda" else 2**22)
    # All that a device has is read and written once per tick at least, and so is each row.
    least = 2 * size / TICK + 8 * n
    return {
        "features": n,
        "window": window,
        "devices": devices,
        "rows_per_block": BLOCK,
        "bytes_per_device": round(size),
        "million_rows_per_second": {name: round(each, 3) for name, each in rate.items()},
        "blocks_ratio_to_detectors": round(rate["in blocks"] / rate["detectors in blocks"], 3),
        "one_ratio_to_detectors": round(
            rate["one row per call"] / rate["detectors, one row per call"], 3
        ),
        "copy_GB_per_second": round(copy / 1e9, 1),
        "blocks_ratio_to_memory": round(rate["in blocks"] * 1e6 * least / copy, 4),
        "share_of_alarms": float(torch.stack(alarms).mean()),
    }


def show(work: Callable[[], object], device: str) -> None:
    """Print where the time goes."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=kinds) as found:
        work()
    order = "cuda_time_total" if device == "cuda" else "cpu_time_total"
    print(found.key_averages().table(sort_by=order, row_limit=40), file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitors_gpu", description=__doc__)
    parser.add_argument("--json", help="also write the numbers to this file, one line per size")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--devices", type=int, help="number of devices of each size, for a trial")
    parser.add_argument("--trial", action="store_true", help="on the processor, without a GPU")
    args = parser.parse_args()
    device, machine = "cuda", "the processor"
    if args.trial:
        device = "cpu"
        tensors.device = lambda: "cpu"
    else:
        machine = torch.cuda.get_device_name()
    records = []
    for n, devices in SIZES:
        count = args.devices or devices
        record = measure(n, count, device, profile=args.profile) | {
            "agreement": agreement(n, min(64, count), 2_560),
            "machine": machine,
            "torch": torch.__version__,
            "command": "python -m benchmarks.monitors_gpu",
            "commit": commit(),
        }
        print(json.dumps(record, indent=1), flush=True)
        records.append(record)
    if args.json:
        write(args.json, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
