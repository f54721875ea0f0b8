"""How large P may get before the wind-up guard acts: AUC on validation streams, limit by limit.

    ONLAD_DATA=... python -m experiments.wind_up      # resumable: skips stored trials
    python -m experiments.numbers                     # its table, from the records alone

Streams, settings and the score are those of `experiments.score_choice`.
"""

from __future__ import annotations

import sys
from dataclasses import asdict

import numpy as np

from experiments import records, score_choice
from experiments.pages import markdown
from experiments.score_choice import Setting

LIMITS = (1e4, 1e6, 1e8)  # times the trace at the start
TRIALS = 3
CELLS = [  # dataset, activation, N, a
    ("drive_diagnosis", "sigmoid", 64, 0.9),
    ("drive_diagnosis", "sigmoid", 64, 0.95),
    ("drive_diagnosis", "sigmoid", 64, 0.97),
    ("drive_diagnosis", "tanh", 64, 0.95),
    ("letter_recognition", "sigmoid", 64, 0.9),
    ("letter_recognition", "sigmoid", 64, 0.95),
    ("smartphone_har", "sigmoid", 64, 0.95),
    ("smartphone_har", "identity", 16, 0.97),
    ("drive_diagnosis", "identity", 64, 0.95),
    ("drive_diagnosis", "identity", 64, 0.99),
    ("letter_recognition", "identity", 64, 0.95),
    ("letter_recognition", "identity", 64, 0.99),
    ("drive_diagnosis", "relu", 64, 0.95),
    ("letter_recognition", "relu", 64, 0.95),
    ("letter_recognition", "relu", 64, 0.99),
]


def run() -> None:
    done = {
        (r["dataset"], r["activation"], r["forgetting"], r["limit"], r["seed"])
        for r in records.read("wind_up")
    }
    for dataset, activation, N, a in CELLS:
        s = Setting("guard", "online", dataset, "limit", activation, N, a, 1e-2)
        for limit in LIMITS:
            for seed in range(TRIALS):
                if (dataset, activation, a, limit, seed) in done:
                    continue
                trial = score_choice.try_online(s, seed, limit)
                record = asdict(s) | {"limit": limit, "seed": seed} | trial
                source = records.origin(
                    "python -m experiments.wind_up run", "experiments/wind_up.py"
                )
                records.append("wind_up", [record | source])
                print(dataset, activation, a, f"{limit:g}", seed, trial["auc"], file=sys.stderr)


def table() -> str:
    """Return the AUC by limit, from the stored records."""
    found, rows = records.read("wind_up"), []
    for dataset, activation, N, a in CELLS:
        cells = [f"{dataset}, {activation}, N = {N}, a = {a}"]
        for limit in LIMITS:
            aucs = [
                r["auc"][score_choice.CHOSEN]
                for r in found
                if (r["dataset"], r["activation"], r["forgetting"], r["limit"])
                == (dataset, activation, a, limit)
            ]
            cells.append(f"{np.mean(aucs):.3f}")
        rows.append(cells)
    return markdown(("", *(f"limit {limit:.0e}" for limit in LIMITS)), rows)


if __name__ == "__main__":
    run()
