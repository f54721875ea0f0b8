"""Real streams with labelled anomalies: `Monitor()` as it comes, plain ONLAD, and the peers.

    ONLAD_STREAMS=... python -m experiments.streams run          # skips what is stored
    python -m experiments.streams table                          # from the records alone
    python -m experiments.streams csv FILE --label COLUMN        # any CSV; prints, stores nothing

A stream is watched from its first row, each row scored before it is learned. AUC counts rows from
400 (SKAB), after 5,000 rows of normal operation (SMD), after the first 15 % (NAB). False alarms are
those on quiet streams (SKAB's anomaly_free at 1 Hz; the last 12,000 minutes of SMD's training
part), and on the normal rows of NAB; alarms less than ten rows apart are one. Whatever has no
threshold of its own alarms above the 0.999 quantile of its last 2,048 scores.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import metrics, records, scaler
from experiments.methods import Method, peers
from experiments.records import Record
from experiments.testbeds import Array
from onlad import Detector, Monitor

SKAB_START, SMD_START, NAB_SHARE = 400, 5_000, 0.15
QUIET = {"skab quiet": 86_400, "smd quiet": 1_440}  # rows per day
WARMUP, RHYTHM, RECENT = 256, 32, 2_048  # rows: those of `Monitor`


@dataclass(frozen=True)
class Stream:
    name: str
    X: Array
    y: Array
    start: int  # first row that counts
    rows_a_day: float


def make(name: str, X: Array, y: Array | None, start: int, rows_a_day: float) -> Stream:
    """Return a stream; without `y` nothing in it is anomalous."""
    X = X.astype("float64").reshape(len(X), -1)
    labels = np.zeros(len(X), int) if y is None else y.astype(int)
    return Stream(name, X, labels, start, rows_a_day)


@lru_cache
def labelled() -> tuple[Stream, ...]:
    """Return the streams with anomalies in the folder ONLAD_STREAMS."""
    skab, smd, nab = (_file(name) for name in ("skab_valve1", "smd_machine_1_6", "nab"))
    found = [
        make(f"skab {k[2:]}", skab[k], skab[f"y_{k[2:]}"], SKAB_START, 86_400)
        for k in skab.files
        if k.startswith("X_valve1")
    ]
    X = np.vstack([smd["Xtrain"][-SMD_START:], smd["X"]])
    found.append(make("smd 1-6", X, np.r_[np.zeros(SMD_START), smd["y"]], SMD_START, 1_440))
    for k in (k[2:] for k in nab.files if k.startswith("X_")):
        y, t = nab[f"y_{k}"], nab[f"t_{k}"]
        day = 86_400 / float(np.median(np.diff(t)))
        found.append(make(f"nab {k}", nab[f"X_{k}"], y, int(NAB_SHARE * len(y)), day))
    return tuple(found)


@lru_cache
def quiet() -> tuple[Stream, ...]:
    """Return the streams in which every alarm is false."""
    skab, smd = _file("skab_valve1")["X_anomaly_free"], _file("smd_machine_1_6")["Xtrain"]
    return (
        make("skab quiet", skab, None, 0, QUIET["skab quiet"]),
        make("smd quiet", smd[-12_000:], None, 0, QUIET["smd quiet"]),
    )


@lru_cache
def _file(name: str) -> Any:
    folder = os.environ.get("ONLAD_STREAMS")
    if not folder:
        raise SystemExit("set ONLAD_STREAMS to the folder with the streams' npz files")
    return np.load(Path(folder) / f"{name}.npz")


def scaled(X: Array) -> Array:
    """Return the rows standardised by what came before."""
    policy, parts = scaler.Standard(), []
    memory = policy.start(X[:WARMUP])
    for start in range(0, len(X), RHYTHM):
        rows = X[start : start + RHYTHM]
        parts.append(scaler.scale(rows, policy.unit(memory), policy.clip))
        if start >= WARMUP:
            memory = policy.update(memory, rows)
    return np.concatenate(parts)


def quantile_alarms(scores: Array) -> Array:
    """Return which scores are above the 0.999 quantile of the recent ones."""
    alarms = np.zeros(len(scores), bool)
    for i in range(WARMUP, len(scores), RHYTHM):
        limit = np.quantile(scores[max(0, i - RECENT) : i], 0.999)
        alarms[i : i + RHYTHM] = scores[i : i + RHYTHM] > limit
    return alarms


def watch(monitor: Monitor, X: Array) -> tuple[Array, Array]:
    verdicts = monitor.observe_many(X)
    return verdicts.score, verdicts.is_anomaly


def plain(forgetting: float, seed: int, X: Array) -> tuple[Array, Array]:
    """Watch with the paper's algorithm and score on standardised rows."""
    detector = Detector(score="reconstruction", forgetting=forgetting, seed=seed)
    scores = detector.update_many(scaled(X))
    return scores, quantile_alarms(scores)


def peer(model: Method, X: Array) -> tuple[Array, Array]:
    scores = np.nan_to_num(model.stream(X))
    return scores, quantile_alarms(scores)


def half_space_trees(seed: int) -> peers.River:
    from river import anomaly, preprocessing  # noqa: PLC0415

    return peers.River(preprocessing.MinMaxScaler() | anomaly.HalfSpaceTrees(seed=seed))


METHODS: dict[str, Callable[[int, Array], tuple[Array, Array]]] = {
    "Monitor()": lambda seed, X: watch(Monitor(seed=seed), X),
    "plain ONLAD, a = 0.99": lambda seed, X: plain(0.99, seed, X),
    "plain ONLAD, a = 0.999": lambda seed, X: plain(0.999, seed, X),
    "River HalfSpaceTrees": lambda seed, X: peer(half_space_trees(seed), X),
    "River OneClassSVM": lambda seed, X: peer(peers.one_class_svm({}, X.shape[1], seed), X),
    "PySAD LODA": lambda seed, X: peer(peers.loda({}, 0, seed), scaled(X)),
    "PySAD KitNet": lambda seed, X: peer(peers.kitnet({}, 0, seed), X),
}
SEEDS = (0, 1, 2)
SEEDLESS = ("River OneClassSVM",)


def measure(stream: Stream, score: Array, alarms: Array) -> Record:
    """Return what the table needs of one stream."""
    y, score, alarms = (part[stream.start :] for part in (stream.y, score, alarms))
    false = {
        "false_alarms": metrics.false_alarms(y, alarms),
        "days": round(float(np.sum(y == 0)) / stream.rows_a_day, 5),
    }
    if not y.any():
        return false
    faults, delays = metrics.delays(y, alarms)
    return {
        "auc": round(metrics.auc(y, score), 5),
        "auc_pr": round(metrics.auc_pr(y, score), 5),
        "anomalous": round(float(np.mean(y)), 5),  # the AUC-PR of a guess
        "faults": faults,
        "found": len(delays),
        "delays": delays,
        **false,
    }


def run(seeds: Sequence[int] = SEEDS) -> None:
    """Watch what is not stored yet."""
    done = {(r["method"], r["stream"], r["seed"]) for r in records.read("streams")}
    for name, method in METHODS.items():
        for seed in seeds[:1] if name in SEEDLESS else seeds:
            for stream in (*labelled(), *quiet()):
                if (name, stream.name, seed) in done:
                    continue
                begun = time.perf_counter()
                found = measure(stream, *method(seed, stream.X))
                record = {
                    "method": name,
                    "stream": stream.name,
                    "seed": seed,
                    **found,
                    "rows": len(stream.X),
                    "seconds": round(time.perf_counter() - begun, 3),
                    "machine": records.machine(),
                    "commit": records.commit("experiments/streams.py"),
                }
                records.append("streams", [record])
            print(f"streams: {name}, seed {seed}", file=sys.stderr, flush=True)


def read_csv(path: Path, label: str, start: int | None, rows_a_day: float) -> Stream:
    """Return a CSV file of numbers with a header; `label` is not 0 where a row is anomalous."""
    with path.open() as file:
        names = file.readline().strip().split(",")
        if label not in names:
            raise SystemExit(f"{path} has no column {label!r}; it has {', '.join(names)}")
        rows = np.genfromtxt(file, delimiter=",")
    columns = [
        i for i, name in enumerate(names) if name != label and not np.isnan(rows[:, i]).all()
    ]
    y = rows[:, names.index(label)] != 0
    begin = int(NAB_SHARE * len(y)) if start is None else start
    return make(path.stem, rows[:, columns], y, begin, rows_a_day)


def table(stored: Sequence[Record]) -> list[str]:
    """Return the table of the stored records as Markdown."""
    kinds = {"skab": "SKAB", "smd": "SMD", "nab": "NAB"}
    heads = [f"{what}: {name}" for what in ("AUC", "AUC-PR") for name in kinds.values()]
    heads += [f"found: {name}" for name in kinds.values()]
    heads += ["delay: SKAB (s)", *(f"false alarms per day: {name}" for name in kinds.values())]
    lines = ["| method | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name in METHODS:
        mine = [r for r in stored if r["method"] == name]
        if not mine:
            continue
        by = {k: [r for r in mine if r["stream"].startswith(k) and "auc" in r] for k in kinds}
        cells = [
            f"{np.mean([r[key] for r in by[k]]):.3f}" for key in ("auc", "auc_pr") for k in kinds
        ]
        cells += [
            f"{sum(r['found'] for r in by[k]) / sum(r['faults'] for r in by[k]):.0%}" for k in kinds
        ]
        delays = [d for r in by["skab"] for d in r["delays"]]
        cells.append(f"{np.median(delays):.0f}" if delays else "-")
        still = {k: [r for r in mine if r["stream"] == f"{k} quiet"] or by[k] for k in kinds}
        cells += [
            f"{sum(r['false_alarms'] for r in still[k]) / sum(r['days'] for r in still[k]):.1f}"
            for k in kinds
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run")
    commands.add_parser("table")
    own = commands.add_parser("csv")
    own.add_argument("file", type=Path)
    own.add_argument("--label", required=True, help="column that is not 0 where rows are anomalous")
    own.add_argument("--start", type=int, help="first row that counts; default: after 15 %%")
    own.add_argument("--rows-a-day", type=float, default=86_400)
    args = parser.parse_args(arguments)
    if args.command == "run":
        run()
    elif args.command == "table":
        print("\n".join(table(records.read("streams"))))
    else:
        stream = read_csv(args.file, args.label, args.start, args.rows_a_day)
        for name, method in METHODS.items():
            print(json.dumps({"method": name} | measure(stream, *method(0, stream.X))), flush=True)


if __name__ == "__main__":
    main()
