"""Which `combined` score, which ridge, which wind-up guard: measured on validation data alone.

One pass over a stream gives each sample's loss and leverage, and all candidate scores follow.

    ONLAD_DATA=... python -m experiments.score_choice      # resumable: skips stored trials
    python -m experiments.numbers                          # its tables, from the records alone

The test part of every dataset (45 % online, 20 % offline, one fixed draw) is never read, not even
for its range; each trial splits the rest anew.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments import datasets, metrics
from experiments.pages import markdown
from experiments.records import append, origin, read
from experiments.settings import paper
from onlad import kernel, reference
from onlad.reference import Array
from onlad.state import DetectorState

PAPER = {  # tb:eval_online_hp and tb:eval_offline_hp: activation, N, a
    dataset: {
        testbed: tuple(paper()["settings"][testbed][dataset]["onlad"].values())
        for testbed in ("online", "offline")
    }
    for dataset in paper()["datasets"]
}
TRIALS = {"score": 10, "trend": 10, "ridge": 2, "guard": 3}
RIDGES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
GUARDS = (("none", 1e-2), ("pause", 1e-2), ("restore", 1e-2), ("restore", 1e-3))  # with the ridge
WIND_UP = 1e4  # the guard acts while trace(P) is above this many times its start
WINDOW, BEGINNING, STUCK = 256, 500, 5_000  # samples: memory of a score, a start, a dead sensor


def _past(values: Array) -> Array:
    """Return for each value the WINDOW values before it; the first stands for what is missing."""
    padded = np.concatenate([np.repeat(values[:1], WINDOW), values[:-1]])
    return np.lib.stride_tricks.sliding_window_view(padded, WINDOW)


def _rank(values: Array) -> Array:
    return (_past(values) < values[:, None]).mean(axis=1)


def _log_z(values: Array) -> Array:
    past = _past(np.log(values + 1e-12))
    return (np.log(values + 1e-12) - past.mean(axis=1)) / (past.std(axis=1) + 1e-3)


SCORES: dict[str, Callable[[Array, Array], Array]] = {  # loss e; d = 1 + l with the leverage l
    "e": lambda e, d: e,
    "l": lambda e, d: d - 1,
    "e sqrt(d)": lambda e, d: e * np.sqrt(d),
    "e d": lambda e, d: e * d,
    "e d^2": lambda e, d: e * d**2,
    "e sqrt(l)": lambda e, d: e * np.sqrt(d - 1),
    "combined": lambda e, d: reference.combine(e, d - 1, "combined"),  # e sqrt(l + 0.001)
    "e l": lambda e, d: e * (d - 1),
    "e l^2": lambda e, d: e * (d - 1) ** 2,
    "e (l + 0.01)": lambda e, d: e * (d - 0.99),
    "e (l + 0.1)": lambda e, d: e * (d - 0.9),
    "e l / d": lambda e, d: e * (d - 1) / d,
    "e log(d)": lambda e, d: e * np.log(d),
    "e / d": lambda e, d: e / d,
    "e / d^2": lambda e, d: e / d**2,  # the a posteriori error
    "e + l/1000": lambda e, d: e + (d - 1) / 1000,
    "e + l/100": lambda e, d: e + (d - 1) / 100,
    "max rank": lambda e, d: np.maximum(_rank(e), _rank(d)),
    "sum of log z": lambda e, d: _log_z(e) + _log_z(d - 1),
}
CHOSEN = "combined"
STORED = ("e", "e d", "combined", "e l")  # where the score is not the question


@dataclass(frozen=True)
class Setting:
    part: str  # the question: score, trend (nothing is forgotten), ridge, guard
    testbed: str  # online, offline; concept (the first alone); stuck and its never stuck twin
    dataset: str
    name: str
    activation: reference.Activation
    n_hidden: int
    forgetting: float
    ridge: float
    start: str = "fit"  # or nothing
    guard: str = "restore"  # the library's; or pause, none


def _settings(part: str) -> Iterator[Setting]:
    for dataset, rows in PAPER.items():
        if part == "score":
            for testbed, row in rows.items():
                yield Setting(part, testbed, dataset, "paper", *row, 0.0)
            for testbed, a in (("online", 0.99), ("online", 0.97), ("offline", 1), ("concept", 1)):
                yield Setting(part, testbed, dataset, f"default, a = {a}", "sigmoid", 64, a, 1e-2)
        if part == "trend":
            fixed = ("sigmoid", 64, 1.0, 1e-2, "nothing")
            yield Setting(part, "concept", dataset, "from nothing, a = 1", *fixed)
        if part == "ridge":
            for name, a in (("online, fit", 0.99), ("online, nothing", 0.99), ("offline, fit", 1)):
                testbed, start = name.split(", ")
                for ridge in RIDGES[start == "nothing" :]:
                    yield Setting(part, testbed, dataset, name, "sigmoid", 64, a, ridge, start)
        if part == "guard" and dataset in ("drive_diagnosis", "letter_recognition"):
            for activation, a in (("identity", 0.95), ("identity", 0.99), ("sigmoid", 0.95)):
                for testbed in ("online", "stuck", "twin") if a == 0.95 else ("online",):
                    for guard, ridge in GUARDS if testbed != "twin" else GUARDS[2:]:
                        name = f"{testbed}, {activation}, a = {a}"
                        fixed = (activation, 64, a, ridge, "fit", guard)
                        yield Setting(part, testbed, dataset, name, *fixed)


@lru_cache
def _load(dataset: str) -> tuple[Array, Array, str]:
    path = Path(os.environ["ONLAD_DATA"]) / f"{dataset}.npz"
    return *datasets.raw(dataset), hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _kept(dataset: str, share: float) -> tuple[Array, Array]:
    """Return the part that is not test data, with values in [0, 1]."""
    raw, y, _ = _load(dataset)
    rows = np.random.default_rng(0).permutation(len(y))[: round(share * len(y))]
    X = raw[rows].astype("float64", order="C")
    axis = None if raw.dtype == np.uint8 else 0  # integer columns share one unit
    X -= X.min(axis=axis)
    X /= np.maximum(X.max(axis=axis), 1e-30)
    return X, y[rows]


def _mix(rng: np.random.Generator, usual: Array, others: Array) -> tuple[Array, Array]:
    """Return the usual rows shuffled with a tenth as many others, and which are others."""
    order = rng.permutation(len(usual) + len(usual) // 10)
    rows = np.concatenate([usual, rng.choice(others, len(usual) // 10, replace=False)])
    return rows[order], order >= len(usual)


@lru_cache(maxsize=1)
def online(dataset: str, seed: int) -> tuple[Array, Array, Array, int]:
    """Return the initial data, the concepts, which are anomalies, and the first one's length."""
    X, y = _kept(dataset, 0.55)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(y))  # 10 : 40.5 : 4.5 of 55
    init, normal, pool = np.split(rows, [len(rows) * 20 // 110, len(rows) * 101 // 110])
    order = rng.permutation(y.max() + 1)
    concepts = [_mix(rng, normal[y[normal] == c], pool[y[pool] != c]) for c in order]
    rows, labels = (np.concatenate(part) for part in zip(*concepts, strict=True))
    return X[init[y[init] == order[0]]], X[rows], labels, len(concepts[0][0])


def _begin(s: Setting, X: Array, seed: int, wound: float = WIND_UP) -> kernel.Kernel:
    alpha, b = reference.draw(X.shape[1], s.n_hidden, "uniform", seed)
    X = X[: len(X) if s.start == "fit" else 0]
    H = reference.activate(X @ alpha + b, s.activation)
    S = np.linalg.inv(np.linalg.cholesky(H.T @ H + s.ridge * np.eye(s.n_hidden))).T
    trace = s.n_hidden / s.ridge if s.ridge else float(np.sum(S * S))
    limit = wound * trace if s.guard == "restore" else np.inf
    kinds = {"activation": s.activation, "score": "combined", "loss": "squared", "dtype": "float64"}
    beta = S @ (S.T @ (H.T @ X))
    memory = np.array([s.forgetting])
    state = DetectorState(S=S, alpha=alpha, b=b, beta=beta, memory=memory, trace_start=trace)
    return kernel.make(state, **kinds, trace_limit=limit)


def _learn(s: Setting, model: kernel.Kernel, X: Array) -> tuple[Array, Array, float]:
    """Return the losses, the leverages, and the share of steps that forgot nothing."""
    a, loss, leverage = np.full(len(X), s.forgetting, "float64"), np.empty(len(X)), np.empty(len(X))
    if s.guard == "pause":
        limit = WIND_UP * model.trace  # of P after the fit
        for t in range(len(X)):
            row = slice(t, t + 1)
            a[t] = 1.0 if model.trace > limit else s.forgetting
            model.update_many(X=X[row], a=a[row], loss=loss[row], leverage=leverage[row])
        return loss, leverage, float(np.mean(a == 1))
    model.update_many(X=X, a=a, loss=loss, leverage=leverage)
    return loss, leverage, model.paused / len(X)


def _aucs(s: Setting, loss: Array, leverage: Array, labels: Array) -> dict[str, float]:
    scores = {n: SCORES[n](loss, 1 + leverage) for n in (SCORES if s.part == "score" else STORED)}
    return {n: round(metrics.auc(labels, np.nan_to_num(v)), 4) for n, v in scores.items()}


def try_online(s: Setting, seed: int, wound: float = WIND_UP) -> dict[str, Any]:
    """Return what came of a trial in which the guard acts above `wound` times the first trace."""
    init, X, labels, first = online(s.dataset, seed)
    if s.testbed == "concept":
        X, labels = X[:first], labels[:first]
    judged = 0
    if s.testbed in ("stuck", "twin"):  # a tenth of the stream, its last value for long, the rest
        copies, cut = STUCK if s.testbed == "stuck" else 0, len(X) // 10
        X = np.concatenate([X[:cut], np.repeat(X[cut - 1 : cut], copies, axis=0), X[cut:]])
        labels, judged = labels[cut:], cut + copies
    model = _begin(s, init, seed, wound)
    loss, leverage, paused = _learn(s, model, X)
    found: dict[str, Any] = {"auc": _aucs(s, loss[judged:], leverage[judged:], labels)}
    if s.part == "ridge":
        rows = slice(0, BEGINNING)
        found["beginning"] = _aucs(s, loss[rows], leverage[rows], labels[rows])
    if s.part == "guard":
        found |= {"paused": round(paused, 5), "skipped": round(model.skipped / len(X), 5)}
    return found


def _try_offline(s: Setting, seed: int) -> dict[str, Any]:
    """Learn each class from 80 %, and score its other 20 % among anomalies; return the means."""
    X, y = _kept(s.dataset, 0.8)
    rng = np.random.default_rng(seed)
    train, valid = np.split(rng.permutation(len(y)), [len(y) * 8 // 10])
    classes = []
    for c in range(y.max() + 1):
        rows, labels = _mix(rng, valid[y[valid] == c], valid[y[valid] != c])
        loss, leverage = np.empty(len(rows)), np.empty(len(rows))
        _begin(s, X[train[y[train] == c]], seed).score_many(X[rows], 1.0, loss, leverage)
        classes.append(_aucs(s, loss, leverage, labels))
    return {"auc": {name: round(np.mean([c[name] for c in classes]), 4) for name in classes[0]}}


def run() -> None:
    """Run what is not stored yet, and store each trial at once."""
    done = {
        (r["seed"], *(r[name] for name in Setting.__dataclass_fields__))
        for r in read("score_choice")
    }
    for seed, s in ((k, s) for p, n in TRIALS.items() for k in range(n) for s in _settings(p)):
        if (seed, *asdict(s).values()) in done:
            continue
        begun = time.perf_counter()
        found = (_try_offline if s.testbed == "offline" else try_online)(s, seed)
        record = {**asdict(s), "seed": seed, "dataset_sha256": _load(s.dataset)[2], **found}
        append(
            "score_choice",
            [
                record
                | origin("python -m experiments.score_choice run", "experiments/score_choice.py")
            ],
        )
        print(f"{time.perf_counter() - begun:5.1f} s  seed {seed}  {s}", flush=True)


def _mean(values: list[float], interval: bool) -> str:
    mean = metrics.mean(values)
    return f"{mean.mean:.3f}" + f" ± {mean.half:.3f}" * interval


def _pivot(entries: list[tuple[str, str, float]], interval: bool = False) -> str:
    """Return the mean of the values of each row and column as Markdown."""
    columns = list(dict.fromkeys(column for _, column, _ in entries))
    rows = []
    for row in dict.fromkeys(row for row, _, _ in entries):
        cells = ([v for r, c, v in entries if (r, c) == (row, column)] for column in columns)
        rows.append((row, *(_mean(v, interval) if v else "" for v in cells)))
    return markdown(("", *columns), rows)


def tables() -> dict[str, str]:
    """Return every table, from the stored records."""
    means, wins, details, ridges, guards = [], [], [], [], []
    for r in read("score_choice"):
        bed, data, aucs = f"{r['testbed']}, {r['name']}", r["dataset"], r["auc"]
        if r["part"] in ("score", "trend"):
            shown = [n for n in ("e", "l", *STORED[1:]) if n in aucs]
            details += [(f"{bed}, {data}", n, aucs[n]) for n in shown]
        if r["part"] == "score":
            means += [(n, bed, auc) for n, auc in aucs.items()]
            wins += [(n, "all", auc) for n, auc in aucs.items()]
            wins += [(n, f"above {m}", v > aucs[m]) for n, v in aucs.items() for m in ("e", "e d")]
        elif r["part"] == "ridge":
            ridges.append((f"{r['name']}, r = {r['ridge']:g}", data, aucs[CHOSEN]))
            if "beginning" in r:
                row = f"{r['name']}, first {BEGINNING}, r = {r['ridge']:g}"
                ridges.append((row, data, r["beginning"][CHOSEN]))
                if (r["start"], r["ridge"]) == ("fit", 0.01):  # the default
                    details += [(f"{row}, {data}", n, v) for n, v in r["beginning"].items()]
        elif r["part"] == "guard":
            row, guard = f"{data}, {r['name']}", f"{r['guard']}, r = {r['ridge']:g}"
            guards.append((row, guard, aucs[CHOSEN]))
            guards += [(row, f"{guard}: paused", r["paused"])] * (r["guard"] != "none")
    ridges = sorted(ridges, key=lambda entry: entry[0].split(" = ")[0])
    return {
        "means": _pivot(means + wins),
        "details": _pivot(details, interval=True),
        "ridges": _pivot(ridges + [(row, "mean", v) for row, _, v in ridges]),
        "guards": _pivot(guards),
    }


if __name__ == "__main__":
    run()
