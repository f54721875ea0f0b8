"""Watch a million simulated pumps for a simulated hour on one GPU: `python -m benchmarks.million`.

Each has eight sensors and sends a row per second. Load, speed and the weather move them, each pump
by its own, and each sensor has its own tolerance. All start from the history of one pump of their
type, and the hour begins after ten minutes with their own. In a thousandth of them a fault begins
at some time and stays. The pumps are simulated on the GPU as well.
Written down are how many faults were found and after how long, false alarms, and seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.records import commit
from onlad import Monitor
from onlad.fleet import MonitorBank
from onlad.fleet.tensors import bank as tensors

HOUR, BLOCK = 3_600, 64
SETTLING = 640  # rows before the hour
HISTORY = 6 * HOUR  # rows of the pump from which all start
FAULTY = 1_000  # one pump in this many has a fault
KINDS = ("offset", "drift", "stuck", "loose")
SENSORS, NOISE = 8, 0.02
TOLERANCE = 0.002  # of a sensor
EPISODE = 60  # rows without an alarm, after which another one begins a new episode


class Pumps:
    """Simulated pumps: all rows of a block at once, block by block."""

    def __init__(self, count: int, seed: int, device: str) -> None:
        self.random = torch.Generator(device).manual_seed(seed)
        self.made = {"generator": self.random, "device": device, "dtype": torch.float64}
        self.phase = 2 * torch.pi * torch.rand(count, 1, 4, **self.made)
        self.tolerance = 1 + TOLERANCE * (2 * torch.rand(count, 1, SENSORS, **self.made) - 1)
        self.walk = torch.randn(count, **self.made)
        self.other = torch.randn(count, **self.made)
        self.t, self.device = -SETTLING, device
        self.kind = torch.full((count,), -1, device=device)
        self.begins = torch.full((count,), HOUR, device=device)
        self.sensor = torch.zeros(count, dtype=torch.int64, device=device)
        self.last = torch.zeros(count, dtype=torch.float64, device=device)

    def break_some(self, every: int) -> None:
        """Let a fault begin in one pump of FAULTY, in the second to the fifth sixth."""
        which = torch.arange(0, len(self.kind), every, device=self.device)
        size = (len(which),)
        random = {"generator": self.random, "device": self.device}
        self.kind[which] = torch.arange(len(which), device=self.device) % len(KINDS)
        self.begins[which] = torch.randint(HOUR // 6, 5 * HOUR // 6, size, **random)
        self.sensor[which] = torch.randint(0, SENSORS, size, **random)

    def rows(self, count: int) -> Any:
        """Return the next rows of all pumps, (pumps, rows, sensors)."""
        t = torch.arange(self.t, self.t + count, device=self.device, dtype=torch.float64)
        time = t[None, :, None]
        periods = torch.tensor([900.0, 113.0, 3600.0, 37.0], device=self.device).double()
        waves = torch.sin(2 * torch.pi * time / periods + self.phase)
        walk, other = self._walks("walk", count), self._walks("other", count)
        load = 0.6 * waves[..., 0] + 0.2 * waves[..., 1] + 0.2 * walk
        speed = 1.0 + 0.25 * load + 0.03 * waves[..., 3]
        weather = 0.3 * waves[..., 2]
        flow, head = speed, speed**2 - 0.3 * load
        power = speed * head
        parts = [speed, flow, head, power, power / (0.3 + speed), weather + 0.5 * power,
                 weather + 0.2 * speed, 0.4 * head + 0.3 * load]  # fmt: skip
        X = torch.stack(parts, 2) * self.tolerance
        X += NOISE * torch.randn(X.shape, **self.made)
        self._spoil(X, other)
        self.t += count
        return X

    def _walks(self, name: str, count: int) -> Any:
        """Return a random walk that comes back to 0, of deviation 1."""
        now = getattr(self, name)
        found = torch.randn(count, len(now), **self.made)
        for row in found:
            row.mul_(0.1).add_(now, alpha=0.995)
            now = row
        setattr(self, name, now.clone())
        return found.T

    def _spoil(self, X: Any, other: Any) -> None:
        """Give sensors their faults."""
        which = (self.kind >= 0).nonzero()[:, 0]
        if len(which) == 0:
            return
        sensor, kind = self.sensor[which], self.kind[which, None]
        own = X[which, :, sensor]
        since = torch.arange(self.t, self.t + X.shape[1], device=self.device)
        since = since - self.begins[which, None]
        before = torch.cat((self.last[which, None], own[:, :-1]), 1)
        at = (-since[:, 0]).clamp(0, X.shape[1] - 1)
        frozen = before.gather(1, at[:, None])
        begun = since[:, :1] > 0
        frozen = torch.where(begun, self.last[which, None], frozen)
        spoilt = torch.where(kind == 0, own + 8 * NOISE, own)
        spoilt = torch.where(kind == 1, own + 20 * NOISE * since / 1_200, spoilt)
        spoilt = torch.where(kind == 2, frozen, spoilt)
        mean = own.mean(1, keepdim=True)
        spoilt = torch.where(kind == 3, mean + 0.15 * other[which], spoilt)
        own = torch.where(since >= 0, spoilt, own)
        X[which, :, sensor] = own
        self.last[which] = own[:, -1]


def watch(start: Monitor, count: int, seed: int, device: str) -> dict[str, Any]:
    """Watch pumps for an hour; return what was found."""
    pumps = Pumps(count, seed, device)
    pumps.break_some(FAULTY)
    begun = time.perf_counter()
    bank = MonitorBank(start, count, device="cuda")
    spent = {"start": time.perf_counter() - begun, "simulation": 0.0, "monitors": 0.0}
    begins, kind = pumps.begins.cpu().numpy(), pumps.kind.cpu().numpy()
    last, found = np.full(count, -HOUR), np.full(count, -1)
    false = np.zeros(count, "int64")
    confirmed = 0
    for first in range(-SETTLING, HOUR, BLOCK):
        rows = min(BLOCK, HOUR - first)
        a = now(device)
        X = pumps.rows(rows)
        b = now(device)
        said = bank.observe_many(X)
        pairs = said.is_anomaly.nonzero().cpu().numpy()
        confirmed += int(said.drift.sum())
        spent["simulation"] += b - a
        spent["monitors"] += now(device) - b
        pairs[:, 1] += first
        for who, t in pairs.tolist():
            if t >= begins[who]:
                found[who] = t if found[who] < 0 else found[who]
            elif t >= 0 and t - last[who] > EPISODE:
                false[who] += 1
            last[who] = t
    assert bank._gpu
    faulty = kind >= 0
    delay = (found - begins)[faulty & (found >= 0)]
    return {
        "pumps": count,
        "faults": int(faulty.sum()),
        "found": int((found[faulty] >= 0).sum()),
        "by kind": {
            name: [int((found[kind == k] >= 0).sum()), int((kind == k).sum())]
            for k, name in enumerate(KINDS)
        },
        "delays": delay.tolist(),
        "false episodes": int(false.sum()),
        "pumps with a false alarm": int((false > 0).sum()),
        "modes confirmed": confirmed,
        "seconds": spent,
        "bytes per pump": bank._gpu.nbytes() / count,
    }


def now(device: str) -> float:
    """Return the time when all that was asked for is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("--pumps", type=int, default=1_000_000)
    parser.add_argument("--at-once", type=int, default=1_000_000, help="pumps in memory")
    parser.add_argument("--false-alarms", type=float, default=1e-6, help="of the monitors")
    parser.add_argument("--json", help="also write the numbers to this file")
    parser.add_argument("--trial", action="store_true", help="on the processor, without a GPU")
    args = parser.parse_args()
    device = "cpu" if args.trial else "cuda"
    if args.trial:
        tensors.device = lambda: "cpu"
    history = Pumps(1, 1, "cpu").rows(HISTORY)[0].numpy()
    start = Monitor(false_alarms=args.false_alarms).fit(history)
    parts = []
    for first in range(0, args.pumps, args.at_once):
        some = min(args.at_once, args.pumps - first)
        parts.append(watch(start, some, 2 + first, device))
        print(json.dumps(parts[-1] | {"delays": []}), file=sys.stderr, flush=True)
    total = {
        name: sum(part[name] for part in parts)
        for name in (
            "pumps", "faults", "found", "false episodes", "pumps with a false alarm",
            "modes confirmed",
        )
    }  # fmt: skip
    delays = [delay for part in parts for delay in part["delays"]]
    seconds = {name: sum(part["seconds"][name] for part in parts) for name in parts[0]["seconds"]}
    rows = total["pumps"] * (HOUR + SETTLING)
    record = total | {
        "rows": rows,
        "by kind": {
            name: [sum(part["by kind"][name][i] for part in parts) for i in (0, 1)]
            for name in KINDS
        },
        "median delay, rows": median(delays) if delays else None,
        "false episodes per million rows": 1e6 * total["false episodes"] / total["pumps"] / HOUR,
        "budget per million rows": 1e6 * args.false_alarms,
        "seconds": {name: round(each, 1) for name, each in seconds.items()},
        "million rows per second": round(rows / seconds["monitors"] / 1e6, 2),
        "bytes per pump": round(parts[0]["bytes per pump"]),
        "at once": args.at_once,
        "machine": "the processor" if args.trial else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "command": "python -m benchmarks.million",
        "commit": commit(),
    }
    print(json.dumps(record, indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
