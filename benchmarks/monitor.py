"""What a monitor takes for a sample, beside a detector's step: `python -m benchmarks.monitor`.

`table` writes the table of the page from the record.

Four things take turns in one run: `Monitor.observe` of a dict, `Monitor.observe_many`,
`Detector.update_one` on as many inputs as the monitor looks at, and the limit: products of a row
with matrices of as many numbers as a row of the monitor must read (`numbers`), by NumPy's BLAS.
A row needs as many multiplications as numbers; a tick learns 64 rows and needs `tick_numbers`
for each of them. What counts are ratios: how fast the machine is hardly matters to them. All are
in processor time.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):  # before NumPy loads its BLAS
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import records
from onlad import Detector, Monitor, persist
from onlad.instance import GROUPS, HIDDEN, PROJECTED, WIDEST
from onlad.watching import TICK

FEATURES = (8, 64, 512)
START, ROWS, ROUNDS = 2_048, 2_048, 5
FILE = Path(__file__).parent / "results" / "monitor.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "fleet.md"
MARKS = "<!-- monitor: python -m benchmarks.monitor -->", "<!-- end of monitor -->"


def microseconds(work: Callable[[], object]) -> float:
    """Return what each of `ROWS` rows took."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) / ROWS * 1e6


def numbers(n: int, inputs: int) -> tuple[int, int]:
    """Return what a row must be multiplied with: when it is judged, and in its share of a tick."""
    groups = min(GROUPS, n)
    tanh, linear = groups * HIDDEN, PROJECTED + 1 if inputs > WIDEST else inputs + 1
    judged = n * tanh + HIDDEN * n + linear * n
    sums = groups * HIDDEN**2 // 2 + HIDDEN * n + linear**2 // 2
    solved = (groups * HIDDEN**3 + linear**3) // 6 + HIDDEN**2 * n + linear**2 * n
    if inputs > WIDEST:
        judged += inputs * PROJECTED
        sums += linear * n
    return judged, judged + sums + solved // TICK


def measure(n: int) -> dict[str, object]:
    """Return the medians over all rounds, in microseconds, and their ratios."""
    rng = np.random.default_rng(0)
    rows = START + ROUNDS * ROWS
    X = rng.normal(size=(rows, n)) + np.sin(np.arange(rows) / 20)[:, None]
    names = [f"sensor {j}" for j in range(n)]
    start = [dict(zip(names, row, strict=True)) for row in X[:START].tolist()]
    one, many = Monitor().fit(start), Monitor().fit(X[:START])
    inputs = n * many.describe()["window"]
    detector = Detector(n_hidden=64).fit(rng.normal(size=(256, inputs)))
    steps = rng.normal(size=(ROWS, inputs))
    judged, learned = numbers(n, inputs)
    matrix, vector = rng.normal(size=(judged // 64, 64)), rng.normal(size=64)
    taken: dict[str, list[float]] = {}
    for name in ("observe", "observe_many", "update_one", "limit"):
        taken[name] = []
    for k in range(ROUNDS):
        part = X[START + k * ROWS : START + (k + 1) * ROWS]
        samples = [dict(zip(names, row, strict=True)) for row in part.tolist()]
        taken["observe"].append(microseconds(lambda s=samples: [one.observe(x) for x in s]))
        taken["observe_many"].append(microseconds(lambda p=part: many.observe_many(p)))
        taken["update_one"].append(microseconds(lambda: [detector.update_one(x) for x in steps]))
        taken["limit"].append(microseconds(lambda: [matrix @ vector for _ in steps]))
    found = {name: round(median(each), 2) for name, each in taken.items()}
    return {
        "features": n,
        "inputs": inputs,
        **found,
        "numbers": judged,
        "tick_numbers": learned,
        "observe_ratio": round(found["observe"] / found["update_one"], 1),
        "observe_many_ratio": round(found["observe_many"] / found["update_one"], 1),
        "saved_kB": round(len(persist.to_bytes(many)) / 1e3, 1),
    }


def page(text: str) -> str:
    """Return the page with the table of the record."""
    lines = [
        "| features | inputs | `observe` of a dict | `observe_many`, per row "
        "| `Detector.update_one` | `observe` takes | saved |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in records.read(FILE):
        lines.append(
            f"| {r['features']} | {r['inputs']} | {r['observe']} us | {r['observe_many']} us "
            f"| {r['update_one']} us | {r['observe_ratio']} x | {r['saved_kB']:.0f} kB |"
        )
    return records.filled(text, MARKS, "\n".join(lines))


def main() -> None:
    if sys.argv[1:] != ["table"]:
        found = map(measure, FEATURES)
        records.write(FILE, records.measured("python -m benchmarks.monitor", found))
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
