"""How long the plain recursion on P lasts under forgetting, beside the root of P.

    python -m experiments.plain_p run       # seconds
    python -m experiments.plain_p table     # from the records alone

A model has failed when d = a^2 + h'Ph, which no true P makes smaller than a^2, is below a^2 or not
finite. "Usual order" rounds P[i, j] and P[j, i] differently; "symmetric" does not.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from experiments import records
from experiments.pages import markdown
from onlad import Detector, reference

STEPS, FEATURES, HIDDEN = 12_000, 64, 64
CASES = [  # recursion, type, a, sensor
    ("P, usual order", "float64", 0.99, "moving"),
    ("P, symmetric", "float32", 0.99, "moving"),
    ("P, symmetric", "float32", 0.95, "moving"),
    ("P, symmetric", "float32", 0.9, "moving"),
    ("P, symmetric", "float64", 0.99, "stuck"),
    ("P, symmetric", "float64", 0.95, "stuck"),
    ("S, guarded", "float32", 0.99, "moving"),
    ("S, guarded", "float32", 0.95, "moving"),
    ("S, guarded", "float32", 0.9, "moving"),
    ("S, guarded", "float64", 0.99, "stuck"),
    ("S, guarded", "float64", 0.95, "stuck"),
]


def stream(sensor: str) -> np.ndarray:
    """Return samples that drift, or one sample again and again after the first hundred."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (STEPS, FEATURES)) + np.linspace(0, 1, STEPS)[:, None]
    if sensor == "stuck":
        X[100:] = X[100]
    return X


def plain(X: np.ndarray, order: str, dtype: str, a: float) -> int | None:
    """Return after how many samples the recursion on P fails, None if it does not."""
    alpha, b = reference.draw(FEATURES, HIDDEN, "uniform", 0)
    H = reference.activate(X @ alpha + b, "sigmoid").astype(dtype)
    P = (np.eye(HIDDEN) * 100).astype(dtype)
    forget = np.dtype(dtype).type(a * a)
    for t, h in enumerate(H):
        u = P @ h
        d = forget + h @ u
        if not (np.isfinite(d) and d >= forget):
            return t
        P = (P - (np.outer(u / d, u) if order == "P, usual order" else np.outer(u, u) / d)) / forget
    return None


def root(X: np.ndarray, dtype: Any, a: float) -> int | None:
    """Return after how many samples the detector's score is no number, None if it always is."""
    scores = Detector(n_hidden=HIDDEN, forgetting=a, dtype=dtype).update_many(X)
    bad = np.flatnonzero(~np.isfinite(scores))
    return int(bad[0]) if len(bad) else None


def run() -> None:
    (records.RESULTS / "plain_p.jsonl").unlink(missing_ok=True)
    for recursion, dtype, a, sensor in CASES:
        X = stream(sensor)
        with np.errstate(all="ignore"):
            failed = root(X, dtype, a) if "S" in recursion else plain(X, recursion, dtype, a)
        record = {"recursion": recursion, "dtype": dtype, "a": a, "sensor": sensor}
        made = {"machine": records.machine(), "commit": records.commit("experiments/plain_p.py")}
        records.append("plain_p", [record | {"failed_after": failed, "steps": STEPS} | made])


def table() -> str:
    """Return the table of the stored records."""
    rows = []
    for r in records.read("plain_p"):
        after = r["failed_after"]
        said = f"not in {r['steps']:,}" if after is None else f"after {after:,}"
        rows.append((r["recursion"], r["dtype"], f"{r['a']:g}", r["sensor"], said))
    return markdown(("recursion", "type", "$a$", "sensors", "fails, samples"), rows)


if __name__ == "__main__":
    {"run": run, "table": lambda: print(table())}[sys.argv[1]]()
