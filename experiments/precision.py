"""How far float32 is from float64 where hidden units outnumber what the data excite.

    python -m experiments.precision        # results/precision.jsonl, one record per case and level

The lives are those of `tests/test_long_life.py`: 20,000 drifting samples, 64 hidden units, AUC over
the last fifth. Two sensors that one cause drives excite few of the units, sixteen excite them all.
Each case runs at every instruction level that the processor has: sums are taken in another order.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from experiments import records
from experiments.latency import replace
from experiments.records import Record
from onlad.kernel import BACKEND

FEATURES, FACTORS = (2, 16), (0.9, 0.95, 0.99, 0.999, 1.0)
ROWS, SEEDS = 20_000, 16
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
DTYPES = ("float64", "float32")


def measure() -> Iterator[Record]:
    """Yield a record for each case, at the level of this process."""
    from test_long_life import live  # noqa: PLC0415  (tests/ is on the path of this process alone)

    for n, a in product(FEATURES, FACTORS):
        aucs = {d: [live(n, a, ROWS, seed, d)[1] for seed in range(SEEDS)] for d in DTYPES}
        yield {
            "n_features": n,
            "n_hidden": 64,
            "forgetting": a,
            "rows": ROWS,
            "level": BACKEND,
            "auc": {d: [round(value, 5) for value in found] for d, found in aucs.items()},
            "command": "python -m experiments.precision",
            "machine": records.machine(),
            "commit": records.commit("experiments/precision.py", "tests/test_long_life.py"),
        }


def differences(record: Record) -> np.ndarray:
    """Return AUC in float32 less that in float64, one for each seed."""
    return np.subtract(record["auc"]["float32"], record["auc"]["float64"])


def largest(n_features: int, mean: bool = False) -> str:
    """Return how far a run, or the mean over seeds, is from float64 at most, rounded up."""
    found = [differences(r) for r in records.read("precision") if r["n_features"] == n_features]
    apart = max(abs(off.mean()) if mean else abs(off).max() for off in found)
    return f"{np.ceil(1000 * apart) / 1000:.3f}"


def main(arguments: Sequence[str]) -> None:
    if arguments:  # in a process of its own, at its level
        for record in measure():
            print(json.dumps(record), flush=True)
        return
    found = {}
    for level in LEVELS if BACKEND in LEVELS else (BACKEND,):
        environment = os.environ | {"ONLAD_LEVEL": level, "PYTHONPATH": "tests"}
        command = [sys.executable, "-m", "experiments.precision", "here"]
        done = subprocess.run(
            command, env=environment, cwd=records.ROOT.parent, stdout=subprocess.PIPE, check=True
        )
        new = [json.loads(line) for line in done.stdout.splitlines()]
        found[new[0]["level"]] = new  # a processor that has less gives what it has again
        print(f"{new[0]['level']}: {len(new)} cases", file=sys.stderr, flush=True)
    replace("precision", [r for new in found.values() for r in new], ("machine", "level"))


if __name__ == "__main__":
    main(sys.argv[1:])
