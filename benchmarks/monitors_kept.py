"""What it costs that a bank keeps less: `python -m benchmarks.monitors_kept`.

On a GPU, and with ``storage="compact"``, a bank keeps its monitors in half, single and fixed
precision. Here it watches the simulated machines and the normal data of the benchmark
(`experiments.benchmark`), each stream after its history, beside a `Monitor` in float64. Counted
are rows with another alarm, episodes of alarms that only one of the two has, and the bytes of a
device. PyTorch runs on the processor, so that no GPU is needed. A compact bank packs and unpacks
its monitors in each call: it is given one row per call.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from experiments.benchmark import machines, normals
from experiments.benchmark.series import Series
from experiments.records import machine

from benchmarks.records import commit
from onlad import Monitor
from onlad.fleet import MonitorBank
from onlad.reference import Array

BANKS: dict[str, dict[str, Any]] = {"GPU": {"device": "cuda"}, "compact": {"storage": "compact"}}
FILE = Path(__file__).parent / "results" / "monitors-kept.json"
COLUMNS = {"score": float, "threshold": float, "is_anomaly": bool, "learned": bool, "drift": bool}
GAP = 60  # rows without an alarm, after which another one begins a new episode
NEAR = 2e-3  # of a threshold: a row is near it


def episodes(alarms: Array) -> list[tuple[int, int]]:
    """Return first and last row of each episode of alarms."""
    at = np.flatnonzero(alarms)
    new = np.flatnonzero(np.diff(at, prepend=-GAP - 1) > GAP)
    return [(int(part[0]), int(part[-1])) for part in np.split(at, new[1:])] if len(at) else []


def only(one: Array, other: Array) -> int:
    """Return how many episodes of one have no alarm of the other near them."""
    return sum(not other[max(0, a - GAP) : b + GAP + 1].any() for a, b in episodes(one))


def on_processor(how: dict[str, Any]) -> dict[str, Any]:
    """Return how a bank is made; let PyTorch run on the processor."""
    if "device" in how:
        from onlad.fleet.tensors import bank as tensors  # noqa: PLC0415  (an extra)

        tensors.device = lambda: "cpu"
    return how


def watched(bank: MonitorBank, rests: list[Array]) -> dict[str, list[Array]]:
    """Return columns of what the bank says of the rows of each device."""
    devices = np.repeat(np.arange(len(rests)), [len(X) for X in rests])
    rows, places = np.concatenate(rests), np.arange(len(devices))
    calls = [places]
    if bank.storage == "compact":
        time = np.concatenate([np.arange(len(X)) for X in rests])
        calls = [places[time == t] for t in range(time.max() + 1)]
    found = {name: np.zeros(len(rows), kind) for name, kind in COLUMNS.items()}
    for call in calls:
        said = bank.observe_rows(devices[call], rows[call], details="none")
        for name, column in found.items():
            column[call] = getattr(said, name)
    return {
        name: [column[devices == i] for i in range(len(rests))] for name, column in found.items()
    }


def compare(streams: list[Series], how: dict[str, Any]) -> Counter[str]:
    """Return what differs on streams with one number of features."""
    starts = [Monitor().fit(each.X[: each.history]) for each in streams]
    rests = [each.X[each.history :] for each in streams]
    bank = MonitorBank(starts[0], 0, **on_processor(how))
    for start in starts:
        bank.grow(1, start)
    alone = [monitor.observe_many(X) for monitor, X in zip(starts, rests, strict=True)]
    found = watched(bank, rests)
    total: Counter[str] = Counter()
    for i, expected in enumerate(alone):
        score, threshold, mine, learned, drift = (found[name][i] for name in COLUMNS)
        theirs = expected.is_anomaly
        differs = mine != theirs
        near = np.abs(expected.score / expected.threshold - 1) < NEAR
        apart = np.abs(score / np.maximum(expected.score, 1e-2) - 1)
        apart = np.where(expected.score < 1e-2, np.abs(score - expected.score), apart)
        limit = np.abs(threshold / expected.threshold - 1)
        total.update(
            {
                "streams": 1,
                "streams in which an alarm differs": int(differs.any()),
                "rows": len(theirs),
                "rows in alarm": int(theirs.sum()),
                "rows with another alarm": int(differs.sum()),
                "of them near the threshold": int((differs & near).sum()),
                "rows near the threshold": int(near.sum()),
                "episodes": len(episodes(theirs)),
                "episodes of the bank alone": only(mine, theirs),
                "episodes of the monitor alone": only(theirs, mine),
                "rows learned otherwise": int((learned != expected.learned).sum()),
                "new modes": int(expected.drift.sum()),
                "new modes of one alone": int((drift != expected.drift).sum()),
                "scores apart by more than 0.1 %": int((apart > 1e-3).sum()),
                "thresholds apart by more than 0.1 %": int((limit > 1e-3).sum()),
            }
        )
    return total


def by_features(streams: list[Series]) -> list[list[Series]]:
    found: dict[int, list[Series]] = defaultdict(list)
    for each in streams:
        found[each.X.shape[1]].append(each)
    return list(found.values())


def bytes_of(features: int, how: dict[str, Any], devices: int = 100) -> float:
    """Return the bytes of a device in a bank, started from a history."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4_096, features)) + np.sin(np.arange(4_096) / 20)[:, None]
    bank = MonitorBank(Monitor().fit(X), devices, **on_processor(how))
    total = bank._gpu.nbytes() if bank._gpu else sum(each.nbytes for each in bank._watching)
    return total / devices


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitors_kept", description=__doc__)
    parser.add_argument("bank", nargs="*", choices=[*BANKS, []], help="of the two; both by default")
    names = parser.parse_args().bank or [*BANKS]
    record: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names:
        how = BANKS[name]
        record[name] = {"bytes per device": {str(n): bytes_of(n, how) for n in (8, 64)}}
        for collection in (machines.COLLECTION, normals.COLLECTION):
            total: Counter[str] = Counter()
            for streams in by_features([collection.load(each) for each in collection.names()]):
                part = compare(streams, how)
                print(name, collection.name, streams[0].X.shape[1], dict(part), flush=True)
                total.update(part)
            record[name][collection.title] = dict(total)
        record[name] |= {
            "machine": machine(),
            "command": f"python -m benchmarks.monitors_kept {name}",
            "commit": commit(),
        }
        FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
