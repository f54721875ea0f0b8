"""How fast `onlad watch` gets through a CSV file: python -m benchmarks.csv [--rows N].

The whole command in a separate process on one core, and its parts alone: reading the file,
reading it and writing alarms, and the monitor. Also the command's peak memory at two sizes of file.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):  # before NumPy loads its BLAS
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from onlad import Monitor
from onlad.report.lines import jsonl
from onlad.streams.source import Reading
from onlad.streams.stop import Stop

FEATURES = 16
ANOMALIES = 1000  # rows per anomaly


def write(path: Path, rows: int) -> None:
    """Write a stream with a time, 16 sensors in 6 significant digits, and spikes."""
    rng = np.random.default_rng(0)
    part = 50_000
    with path.open("w") as file:
        file.write("time," + ",".join(f"sensor_{j}" for j in range(FEATURES)) + "\n")
        for first in range(0, rows, part):
            n = min(part, rows - first)
            t = first + np.arange(n)[:, None]
            wave = np.sin(t / 50 + np.arange(FEATURES)) * 10.0 + 100.0
            X = wave + rng.normal(size=(n, FEATURES))
            X[::ANOMALIES, rng.integers(FEATURES)] += 40.0
            lines = [
                f"{1_700_000_000 + first + i}," + ",".join(f"{v:.6g}" for v in row)
                for i, row in enumerate(X.tolist())
            ]
            file.write("\n".join(lines) + "\n")


PROGRAM = """
import re, sys
from onlad.cli import main
status = main(sys.argv[1:])
print(re.search("VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(status)
"""


def command(path: Path) -> tuple[float, float]:
    """Return seconds and peak memory in MiB of the whole command, start-up included."""
    began = time.perf_counter()
    program = [sys.executable, "-c", PROGRAM, "watch", str(path), "--output", "jsonl"]
    done = subprocess.run(
        program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    return time.perf_counter() - began, int(done.stderr.split()[-1]) / 1024


def parts(path: Path) -> dict[str, float]:
    """Return microseconds of processor time a row of each part alone, in this process."""
    seconds = {}
    with Stop() as stop:

        def blocks():  # type: ignore[no-untyped-def]
            return Reading().open(str(path), lambda _: (), stop, print).blocks

        began = time.process_time()
        n = sum(len(block.values) for block in blocks())
        seconds["read"] = time.process_time() - began
        monitor, watching, writing = Monitor(), 0.0, 0.0
        for block in blocks():
            began = time.process_time()
            verdicts = monitor.observe_many(block.values)
            middle = time.process_time()
            jsonl(block, verdicts, np.flatnonzero(verdicts.is_anomaly).tolist())
            watching += middle - began
            writing += time.process_time() - middle
    seconds |= {"watch": watching, "write": writing}
    return {name: 1e6 * value / n for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="7,500,000 are about 1 GB")
    rows = parser.parse_args().rows
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.csv"), Path(folder, "large.csv")
        write(small, rows // 10)
        write(large, rows)
        _, little = command(small)
        seconds, much = command(large)
        record = {
            "rows": rows,
            "megabytes": round(large.stat().st_size / 1e6),
            "rows_per_second": round(rows / seconds),
            "cpu_us_per_row": {name: round(us, 2) for name, us in parts(small).items()},
            "peak_mib": [round(little, 1), round(much, 1)],
            "load": os.getloadavg()[0],
        }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
