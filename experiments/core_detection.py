"""Does fixed point cost detection? The emulated core beside the float64 detector, AUC against AUC.

Both start from one fit and see one stream, at the paper's settings. Online: each sample is scored,
then learned. Offline: each class is fitted, and only scored. Validation data alone, split as in
`experiments.score_choice`.

    ONLAD_DATA=... python -m experiments.core_detection run      # resumable: skips stored trials
    python -m experiments.core_detection table                   # from the records alone
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from experiments import core_source
from experiments.pages import markdown
from experiments.records import append, origin, read
from experiments.score_choice import PAPER, _kept, _load, _mix, online
from onlad import Detector
from onlad.hardware import Device, OnladCore
from onlad.hardware.packets import Status
from onlad.reference import Array

SEEDS = (0, 1)
VARIANTS = ((32, "stored"), (25, "stored"), (18, "stored"), (32, "narrow"), (32, "seeded"))
_CHUNK = 500


@dataclass(frozen=True)
class Trial:
    testbed: str
    dataset: str
    activation: Any
    n_hidden: int
    forgetting: float
    width: int
    alpha: Any
    seed: int


def trials() -> Iterator[Trial]:
    for width, alpha in VARIANTS:
        for seed in SEEDS if (width, alpha) == VARIANTS[0] else SEEDS[:1]:
            for dataset, testbeds in PAPER.items():
                for testbed, setting in testbeds.items():
                    yield Trial(testbed, dataset, *setting, width, alpha, seed)


def _core(t: Trial, n: int) -> OnladCore:
    kind = {"width": t.width, "alpha": t.alpha}
    return OnladCore(n, t.n_hidden, 8, t.activation, **kind)  # lanes do not change a bit


def _fit(t: Trial, core: OnladCore, X: Array) -> Detector:
    """Return a detector fitted as the paper does; with the core's own alpha if that is seeded."""
    settings = {
        "n_hidden": t.n_hidden, "activation": t.activation, "weights": "uniform", "ridge": 0.0,
        "forgetting": t.forgetting, "score": "reconstruction", "seed": t.seed,
    }  # fmt: skip
    detector = Detector(**settings).fit(X)
    if t.alpha == "seeded":
        alpha, b = core.detector().state.alpha, detector.state.b
        z = X @ alpha + b
        H = z if t.activation == "identity" else 1 / (1 + np.exp(-z))
        S = np.linalg.inv(np.linalg.cholesky(H.T @ H)).T
        trace, beta = float(np.sum(S * S)), S @ (S.T @ (H.T @ X))
        state = replace(
            detector.started(), alpha=alpha, S=S, beta=beta, trace=trace, trace_start=trace
        )
        return Detector.resumed(detector.settings(), state)
    return detector


def _watch(device: Device, X: Array, learns: bool) -> Array:
    step = device.update_many if learns else device.score_many
    return np.concatenate([step(X[k : k + _CHUNK]) for k in range(0, len(X), _CHUNK)])


def _found(device: Device, mine: Array, theirs: Array) -> dict[str, Any]:
    status = device.status()
    counts = {s.name.lower(): int(status[s]) for s in (Status.SINGULAR, Status.PAUSED)}
    error = np.abs(mine - theirs) / np.maximum(theirs, 1e-30)
    return counts | {
        "saturated": int(status[Status.SATURATED]),
        "error": float(f"{np.median(error):.3g}"),
    }


def _online(t: Trial) -> dict[str, Any]:
    init, X, labels, _ = online(t.dataset, t.seed)
    core = _core(t, X.shape[1])
    detector = _fit(t, core, init)
    device = core.emulate(detector)
    mine, theirs = _watch(device, X, learns=True), detector.update_many(X)
    return {
        "samples": len(X),
        "auc": roc_auc_score(labels, mine),
        "auc_float64": roc_auc_score(labels, theirs),
        **_found(device, mine, theirs),
    }


def _offline(t: Trial) -> dict[str, Any]:
    X, y = _kept(t.dataset, 0.8)
    rng = np.random.default_rng(t.seed)
    train, valid = np.split(rng.permutation(len(y)), [len(y) * 8 // 10])
    core, aucs, scores, samples = _core(t, X.shape[1]), [], [], 0
    for c in range(y.max() + 1):
        rows, labels = _mix(rng, valid[y[valid] == c], valid[y[valid] != c])
        detector = _fit(t, core, X[train[y[train] == c]])
        device = core.emulate(detector)
        pair = _watch(device, X[rows], learns=False), detector.score_many(X[rows])
        aucs.append([roc_auc_score(labels, each) for each in pair])
        scores.append(pair)
        samples += len(rows)
    mine, theirs = (np.concatenate(part) for part in zip(*scores, strict=True))
    auc, auc_float64 = np.mean(aucs, axis=0)
    found = {"samples": samples, "auc": float(auc), "auc_float64": float(auc_float64)}
    return found | _found(device, mine, theirs)


def measure(t: Trial) -> dict[str, Any]:
    """Return the AUC of the core and of float64, how far scores differ, and what was counted."""
    found = (_online if t.testbed == "online" else _offline)(t)
    return found | {k: round(found[k], 5) for k in ("auc", "auc_float64")}


def run() -> None:
    """Run what is not stored yet, and store each trial at once."""
    names, digest = list(Trial.__dataclass_fields__), core_source.model()
    done = {tuple(r[name] for name in names) for r in read("core_detection")}
    for t in trials():
        if tuple(asdict(t).values()) in done:
            continue
        begun = time.perf_counter()
        found = measure(t)
        source = {"dataset_sha256": _load(t.dataset)[2], "model": digest}
        source |= origin("make core-detection", "experiments/core_detection.py")
        append("core_detection", [{**asdict(t), **found, **source}])
        print(f"{time.perf_counter() - begun:5.1f} s  {t}  {found}", flush=True)


def rows() -> list[tuple[str, ...]]:
    """Return the table: one row per dataset and testbed, the largest difference of the seeds."""
    found = []
    for dataset, testbeds in PAPER.items():
        for testbed, (activation, n_hidden, a) in testbeds.items():
            here = [
                r
                for r in read("core_detection")
                if (r["dataset"], r["testbed"]) == (dataset, testbed)
            ]
            cells = [dataset, testbed, f"{activation}, {n_hidden}, {a:g}"]
            for width, alpha in VARIANTS:
                pairs = [r for r in here if (r["width"], r["alpha"]) == (width, alpha)]
                if not cells[3:]:
                    mean = np.mean([r["auc_float64"] for r in pairs]) if pairs else np.nan
                    cells.append(f"{mean:.4f}")
                differences = [r["auc"] - r["auc_float64"] for r in pairs]
                cells.append(f"{max(differences, key=abs):+.4f}" if pairs else "")
            found.append(tuple(cells))
    return found


HEAD = (
    "dataset", "testbed", "G, N, a", "AUC float64", "32 bits", "25 bits", "18 bits",
    "narrow alpha", "seeded alpha",
)  # fmt: skip


def table() -> None:
    print(markdown(HEAD, rows()))


if __name__ == "__main__":
    {"run": run, "table": table}[sys.argv[1]]()
