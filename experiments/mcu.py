"""The monitor of a microcontroller: what it costs on emulated chips, and how well it detects.

    python -m experiments.mcu cost          # QEMU; needs the compilers that .ci/run installs
    python -m experiments.mcu detection     # the benchmark's streams; needs ONLAD_BENCHMARK
    python -m experiments.mcu table         # from the records alone

Instructions are counted, not cycles: with ``-icount`` an instruction is a nanosecond of virtual
time. Counts are the same in every run.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import hashlib
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.benchmark.tables import SCORED
from experiments.pages import markdown
from experiments.records import Record, append, latest, origin
from onlad import Monitor
from onlad.instance import WIDEST
from onlad.mcu import PortableMonitor, export
from onlad.mcu.convert import from_monitor
from onlad.reference import Array

ROWS = 7_000  # the anchor is there after some 2,600
SIZES = ((3, 16), (8, 32), (32, 64), (8, 16), (16, 32), (16, 64))
BOARDS = {
    "m4f": "Cortex-M4F",
    "m33": "Cortex-M33",
    "m0-wide": "Cortex-M0, soft float",
    "rv32f": "RV32IMAFC",
    "rv32": "RV32IMAC, soft float",
}
LIMITS = {(3, 16): (6, 12, 25_000), (8, 32): (16, 12, 80_000), (32, 64): (64, 12, 400_000)}
COLLECTIONS = {name: row for name, row in SCORED.items() if name != "records"}
KINDS: dict[str, Callable[[], Monitor | PortableMonitor]] = {
    "monitor": Monitor,
    "chip": PortableMonitor,
    "long": lambda: PortableMonitor(warmup=1_536),
}


def stream(rows: int, features: int) -> Array:
    """Return a machine with three sources, gaps, a sensor that sticks, and a second mode."""
    rng = np.random.default_rng(0)
    t = np.arange(rows)
    sources = np.array([np.sin(t / period + i) for i, period in enumerate((20, 47, 133))]).T
    X = sources @ rng.normal(size=(3, features)) + 0.1 * rng.normal(size=(rows, features))
    X[-rows // 3 :] = 1.5 * X[-rows // 3 :, ::-1]
    X[rng.random(X.shape) < 0.01] = np.nan
    X[rows // 4 : rows // 4 + 60, 1] = X[rows // 4, 0]
    X[rows // 3 : rows // 3 + 100, -1] = np.nan
    return X.astype("float32")


def source() -> str:
    """Return a digest of the C source: what is stored for another one is measured again."""
    folder = Path(export.__file__).parent / "c"
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def measure(features: int, hidden: int, board: str) -> Record:
    """Export, build, run; return bytes and instructions."""
    monitor = PortableMonitor(hidden=hidden)
    monitor.names = tuple(range(features))
    X = stream(ROWS, features)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export.write(monitor, folder)
        X.tofile(folder / "rows.bin")
        qemu, build = folder / "qemu", folder / "qemu" / "build" / board
        make = ["make", "-s", "-C", str(qemu), f"BOARD={board}", f"ROWS={folder}/rows.bin", "run"]
        subprocess.run(make, check=True)
        words = np.fromfile(build / "verdicts.bin", "<u4").reshape(ROWS, -1)
        ram, stack = np.fromfile(build / "figures.bin", "<u4").tolist()
        counts = words[:, 5] * float((build / "ns").read_text())
        equal = (build / "state.bin").read_bytes() == _after(monitor, X).dump()
        code, constants = _sizes(build, board)
    # A row of the start looks and learns twice, then measures: parts of a row follow from these.
    part = 2 * monitor.warmup // 12
    look_learn = float(np.median(counts[part : 2 * part])) / 2
    look = float(np.median(counts[2 * part : 3 * part])) - look_learn
    return {
        "ram": ram,
        "stack": stack,
        "code": code,
        "constants": constants,
        "typical": round(float(np.median(counts[monitor.warmup :]))),
        "worst": round(float(counts.max())),
        "judge": round(look),
        "learn": round(look_learn - look),
        "equal": equal,
    }


def _after(monitor: PortableMonitor, X: Array) -> PortableMonitor:
    monitor.observe_many(X.astype("float64"))
    return monitor


def _sizes(build: Path, board: str) -> tuple[int, int]:
    """Return bytes of code and of constants of the monitor in the program, from its map."""
    text = (build / "watch.map").read_text().split("Linker script and memory map")[1]
    found = re.findall(r"^ (\.text|\.s?rodata)\S*\s+0x\w+\s+0x(\w+) \S*onlad\.o$", text, re.M)
    sizes = {".text": 0, "rest": 0}
    for name, size in found:
        sizes[".text" if name == ".text" else "rest"] += int(size, 16)
    assert sizes[".text"], board
    return sizes[".text"], sizes["rest"]


def cost() -> None:
    """Measure what is not stored for the source as it is."""
    digest = source()
    done = [
        (r["features"], r["hidden"], r["board"])
        for r in latest("mcu/cost", "features", "hidden", "board")
        if r["source"] == digest
    ]
    for features, hidden in SIZES:
        for board in BOARDS if (features, hidden) in LIMITS else ("m4f",):
            if (features, hidden, board) in done:
                continue
            record = {"features": features, "hidden": hidden, "board": board}
            record |= measure(features, hidden, board)
            from_where = origin("python -m experiments.mcu cost", "experiments/mcu.py")
            append("mcu/cost", [record | {"source": digest, **from_where}])
            print(record, flush=True)


def detection() -> None:
    """Compare with `Monitor` on the labelled streams, and in float32 with what it becomes."""
    from experiments.benchmark import collections, measures, methods  # noqa: PLC0415

    warnings.simplefilter("ignore", RuntimeWarning)
    for collection in collections.LABELLED:
        if collection.name not in COLLECTIONS or collection.missing():
            continue
        _, name, _ = COLLECTIONS[collection.name]
        found: dict[str, list[float]] = {key: [] for key in (*KINDS, "differ")}
        for series_name in collection.names():
            series = collection.load(series_name)
            for key, make in KINDS.items():
                outcome = methods._outcome(make().observe_many(series.X))
                found[key].append(measures.measure(series, outcome)[name])
            found["differ"] += _differ(series.X, series.history)
        record = {
            "collection": collection.name,
            "series": len(found["chip"]),
            **{key: round(float(np.mean(found[key])), 4) for key in KINDS},
            "differ": round(float(np.mean(found["differ"])), 5) if found["differ"] else None,
        }
        from_where = origin("python -m experiments.mcu detection", "experiments/mcu.py")
        append("mcu/detection", [record | {"source": source(), **from_where}])
        print(record, flush=True)


def _differ(X: Array, history: int) -> list[float]:
    """Return whether the verdict of each row differs between a fitted monitor and its copy."""
    monitor = Monitor().fit(X[:history])
    said = monitor.describe()
    if not said["ordered"] or said["features"] * said["window"] > WIDEST:
        return []
    chip = from_monitor(monitor)
    here, there = monitor.observe_many(X[history:]), chip.observe_many(X[history:])
    return list((here.is_anomaly != there.is_anomaly).astype(float))


def costs() -> str:
    """Return the table of what a row costs on a Cortex-M4F, with the limits that were set."""
    found = []
    for r in latest("mcu/cost", "features", "hidden", "board"):
        if r["board"] != "m4f":
            continue
        ram, _, most = LIMITS.get((r["features"], r["hidden"]), (0, 0, 0))
        limit = f" (of {ram} kB)" if ram else ""
        steps = f" (of {most:,})" if most else ""
        found.append(
            [
                f"{r['features']}, {r['hidden']}",
                f"{r['ram']:,} + {r['stack']}{limit}",
                f"{r['code']:,} + {r['constants']:,}",
                f"{r['typical']:,}{steps}",
                f"{r['worst'] / r['typical']:.2f}",
                f"{r['judge']:,}",
                f"{r['learn']:,}",
            ]
        )
    found.sort(key=lambda row: [int(n) for n in row[0].split(", ")])
    heads = ["features, hidden", "RAM + stack, bytes", "code + constants, bytes",
             "instructions per row", "worst row", "to judge by one mode", "to learn"]  # fmt: skip
    return markdown(heads, found)


def boards() -> str:
    """Return the table of instructions per row by processor."""
    stored = {
        (r["features"], r["hidden"], r["board"]): r
        for r in latest("mcu/cost", "features", "hidden", "board")
    }
    found = []
    for board, words in BOARDS.items():
        cells = [stored.get((*size, board)) for size in LIMITS]
        shown = [f"{cell['typical']:,}" if cell else "" for cell in cells]
        equal = "yes" if all(cell is None or cell["equal"] for cell in cells) else "NO"
        found.append([words, *shown, equal])
    return markdown(["processor", *(f"{n}, {N}" for n, N in LIMITS), "equal to Python"], found)


def soft_float() -> str:
    """Return how many times as many instructions a row takes without an FPU, in words."""
    stored = {
        (r["board"], r["features"], r["hidden"]): r["typical"]
        for r in latest("mcu/cost", "features", "hidden", "board")
    }
    pairs = (("m0-wide", "m4f"), ("rv32", "rv32f"))
    found = [stored[(soft, *n)] / stored[(hard, *n)] for soft, hard in pairs for n in LIMITS]
    return f"{int(min(found))} to {int(max(found)) + 1}"


def detected() -> str:
    """Return the table of detection beside `Monitor`."""
    stored = {r["collection"]: r for r in latest("mcu/detection", "collection")}
    found = []
    for name, (title, _, measured) in COLLECTIONS.items():
        if name in stored:
            r = stored[name]
            differ = "" if r["differ"] is None else f"{100 * r['differ']:.2f} %"
            scores = [f"{r[key]:.3f}" for key in KINDS]
            found.append([title, str(r["series"]), measured, *scores, differ])
    heads = ["data", "series", "measure", "`Monitor()`", "`PortableMonitor()`",
             "with `warmup=1536`", "verdicts that differ"]  # fmt: skip
    return markdown(heads, found)


def tables() -> dict[str, str]:
    """Return the tables of docs/howto/microcontroller.md."""
    return {"mcu_cost": costs(), "mcu_boards": boards(), "mcu_detection": detected()}


def table() -> None:
    print("\n\n".join(tables().values()))


if __name__ == "__main__":
    {"cost": cost, "detection": detection, "table": table}[sys.argv[1]]()
