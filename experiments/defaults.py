"""Which defaults of `Monitor`: measured on real streams with labelled anomalies.

Each variant changes one thing of the default. Beside it run River's detectors, scaled as their
documentation asks. A stream is watched from its first row; scores are taken before learning.

    ONLAD_STREAMS=... python -m experiments.defaults run      # resumable: skips stored runs
    python -m experiments.defaults table                      # from the records alone

Streams: `skab_valve1.npz`, `smd_machine_1_6.npz`, `nab.npz` in the folder ONLAD_STREAMS, the pump
of the demo, and the first 6,000 rows of the paper's online testbed on validation data of the five
datasets in ONLAD_DATA. AUC counts rows from 400 (SKAB), after 5,000 rows of normal operation
(SMD), after the first 15 % (NAB), after the initial data (classes). Quiet streams, in which every
alarm is false: SKAB's anomaly_free at 1 Hz, and the last 12,000 minutes of SMD's training part.
Alarms less than ten rows apart are one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import metrics
from experiments.score_choice import PAPER, online
from experiments.streams import METHODS as OTHERS
from experiments.streams import QUIET, Stream, labelled, make, quiet, watch
from onlad import Detector, Gate, Monitor, scaler, threshold
from onlad.demo.machine import record
from onlad.evidence import N_EVIDENCES, RING, Yardstick
from onlad.reference import Array

RESULTS = Path(__file__).parent / "results" / "defaults.jsonl"
SEEDS = (0, 1, 2)
CLASS_ROWS = 6_000


@lru_cache
def streams() -> tuple[Stream, ...]:
    found = [*labelled()]
    if os.environ.get("ONLAD_DATA"):  # classes that change: the paper's online testbed, X_valid
        for dataset in PAPER:
            first, X, y, _ = online(dataset, 0)
            X, y = X[:CLASS_ROWS], y[:CLASS_ROWS]
            y = np.r_[np.zeros(len(first)), y]
            found.append(make(f"class {dataset}", np.vstack([first, X]), y, len(first), 0))
    for seed in range(2):  # the pump of the demo: faults in one sensor, known to the sample
        pump = record(seed=seed)
        y = np.zeros(len(pump.values))
        for fault in pump.faults:
            y[fault.start : fault.stop] = 1
        found.append(make(f"pump {seed}", pump.values, y, 1_500, 0))
    return (*found, *quiet())


def detector(seed: int, **changes: Any) -> Detector:
    return Detector(**(Monitor(seed=seed).detector.settings() | changes))


@contextmanager
def only_evidence(*kept: int) -> Iterator[None]:
    """Leave evidences out: with a centre beyond all measure they are never the highest."""
    refresh = Yardstick.refresh

    def without(self: Yardstick) -> None:
        refresh(self)
        out = [k for k in range(N_EVIDENCES) if k not in kept]
        self.levels[0, out] = 1e9
        recent = self.ring[: min(self.n_ring, RING)]
        z = (recent - self.levels[0]) / self.levels[1]
        self.scores = np.sort(z.max(axis=1))

    Yardstick.refresh = without  # type: ignore[method-assign]
    try:
        yield
    finally:
        Yardstick.refresh = refresh  # type: ignore[method-assign]


EVIDENCE = {
    "errors alone": (0,),
    "errors and their means": (0, 1),
    "errors, means, trend": (0, 1, 4),
    "gaps alone": (2,),
    "gaps and their means": (2, 3),
    "all but the trend": (0, 1, 2, 3),
}

VARIANTS: dict[str, Callable[[int], Monitor]] = {
    "default": lambda s: Monitor(seed=s),
    "16 hidden": lambda s: Monitor(detector=detector(s, n_hidden=16)),
    "32 hidden": lambda s: Monitor(detector=detector(s, n_hidden=32)),
    "128 hidden": lambda s: Monitor(detector=detector(s, n_hidden=128)),
    "sigmoid": lambda s: Monitor(detector=detector(s, activation="sigmoid")),
    "identity": lambda s: Monitor(detector=detector(s, activation="identity")),
    "uniform weights": lambda s: Monitor(detector=detector(s, weights="uniform")),
    "forgetting 0.99": lambda s: Monitor(detector=detector(s, forgetting=0.99)),
    "forgetting 0.999": lambda s: Monitor(detector=detector(s, forgetting=0.999)),
    "forgetting 1": lambda s: Monitor(detector=detector(s, forgetting=1.0)),
    "ridge 0.001": lambda s: Monitor(detector=detector(s, ridge=1e-3)),
    "ridge 10": lambda s: Monitor(detector=detector(s, ridge=10.0)),
    "no leverage": lambda s: Monitor(detector=detector(s, score="reconstruction")),
    "float32": lambda s: Monitor(detector=detector(s, dtype="float32")),
    "window 1": lambda s: Monitor(window=1, seed=s),
    "window 2": lambda s: Monitor(window=2, seed=s),
    "window 8": lambda s: Monitor(window=8, seed=s),
    "window 16": lambda s: Monitor(window=16, seed=s),
    "clip 8": lambda s: Monitor(scaler=scaler.Standard(clip=8.0), seed=s),
    "min-max scaler": lambda s: Monitor(scaler=scaler.MinMax(), seed=s),
    "no gate": lambda s: Monitor(gate=None, seed=s),
    "no gate, forgetting 0.99": lambda s: Monitor(gate=None, detector=detector(s, forgetting=0.99)),
    "gate 3": lambda s: Monitor(gate=Gate(deviations=3.0), seed=s),
    "gate 4": lambda s: Monitor(gate=Gate(deviations=4.0), seed=s),
    "gate 6": lambda s: Monitor(gate=Gate(deviations=6.0), seed=s),
    "patience 256": lambda s: Monitor(gate=Gate(patience=0, shortest=256), seed=s),
    "threshold Deviation(5)": lambda s: Monitor(threshold=threshold.Deviation(5.0), seed=s),
    "threshold Deviation(8)": lambda s: Monitor(threshold=threshold.Deviation(8.0), seed=s),
    "threshold Quantile": lambda s: Monitor(threshold=threshold.Quantile(), seed=s),
    "threshold Tail": lambda s: Monitor(threshold=threshold.Tail(), seed=s),
    "warm-up 512": lambda s: Monitor(warmup=512, seed=s),
}


def watch_with(kept: tuple[int, ...], seed: int, X: Array) -> tuple[Array, Array]:
    with only_evidence(*kept):
        return watch(Monitor(seed=seed), X)


METHODS: dict[str, Callable[[int, Array], tuple[Array, Array]]] = {
    **{
        name: (lambda seed, X, build=build: watch(build(seed), X))
        for name, build in VARIANTS.items()
    },
    **{
        name: (lambda seed, X, kept=kept: watch_with(kept, seed, X))
        for name, kept in EVIDENCE.items()
    },
    **{
        name: OTHERS[name]  # their alarms are scores above the 0.999 quantile so far
        for name in ("River HalfSpaceTrees", "River OneClassSVM")
    },
}


def measure(stream: Stream, score: Array, alarms: Array) -> dict[str, Any]:
    y, score, alarms = (part[stream.start :] for part in (stream.y, score, alarms))
    if stream.name in QUIET:
        false = metrics.false_alarms(y, alarms)
        return {"alarms_a_day": round(false / len(y) * QUIET[stream.name], 3)}
    area = {"auc": round(metrics.auc(y, score), 4)}
    if stream.name.startswith("class"):  # anomalies are single rows among others
        return area
    faults, delays = metrics.delays(y, alarms)
    found = area | {"faults": faults, "found": len(delays)}
    return found | ({"delays": delays} if stream.name.startswith("skab") else {})


def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.open()] if RESULTS.exists() else []


def run(only: str | None) -> None:
    done = {(r["method"], r["stream"], r["seed"]) for r in records()}
    for name, method in METHODS.items():
        if only and only != name:
            continue
        seeds = SEEDS[:1] if name.startswith("River") else SEEDS
        for seed in seeds:
            for stream in streams():
                if (name, stream.name, seed) in done:
                    continue
                result = measure(stream, *method(seed, stream.X))
                record = {"method": name, "stream": stream.name, "seed": seed, **result}
                with RESULTS.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            print(f"{name}, seed {seed}", file=sys.stderr)


def rows() -> Iterator[str]:
    yield (
        "| variant | AUC: SKAB | SMD | NAB | pump | classes | found: SKAB | SMD | NAB | pump "
        "| delay: SKAB | false alarms a day: SKAB | SMD |"
    )
    yield "|---|" + "---|" * 12
    stored = records()
    for name in METHODS:
        mine = [r for r in stored if r["method"] == name]
        if not mine:
            continue

        def mean(key: str, prefix: str, mine: list[dict[str, Any]] = mine) -> float:
            return float(
                np.mean([r[key] for r in mine if r["stream"].startswith(prefix) and key in r])
            )

        def found(prefix: str, mine: list[dict[str, Any]] = mine) -> str:
            these = [r for r in mine if r["stream"].startswith(prefix) and "found" in r]
            return f"{sum(r['found'] for r in these) / sum(r['faults'] for r in these):.0%}"

        skab = [d for r in mine if r["stream"].startswith("skab") for d in r.get("delays", [])]
        kinds = ("skab", "smd", "nab", "pump")
        cells = [f"{mean('auc', kind):.3f}" for kind in (*kinds, "class")]
        cells += [found(kind) for kind in kinds]
        cells += [f"{np.median(skab):.0f}" if skab else "-"]
        cells += [
            f"{mean('alarms_a_day', 'skab quiet'):.0f}",
            f"{mean('alarms_a_day', 'smd quiet'):.1f}",
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--only", help="one variant")
    args = parser.parse_args()
    if args.command == "run":
        RESULTS.parent.mkdir(exist_ok=True)
        run(args.only)
    else:
        print("\n".join(rows()))


if __name__ == "__main__":
    main()
