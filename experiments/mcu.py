"""The monitor of a microcontroller: what it costs on emulated chips, and how well it detects.

    python -m experiments.mcu cost          # QEMU; needs the compilers that .ci/run installs
    python -m experiments.mcu variants      # the same of fixed point and of seeded layers
    python -m experiments.mcu precision     # float32 and fixed point beside float64, row by row
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
from typing import Any

import numpy as np

from experiments.benchmark.tables import SCORED
from experiments.pages import markdown
from experiments.records import Record, append, latest, origin
from onlad import Monitor
from onlad.instance import GROUPS, HIDDEN, WIDEST
from onlad.mcu import PortableMonitor, export
from onlad.mcu.convert import from_monitor
from onlad.mcu.definition import Definition
from onlad.reference import Array
from onlad.watching import MODES

ROWS = 7_000  # the anchor is there after some 2,600
SIZES = ((3, 16), (8, 32), (32, 64), (8, 16), (16, 32), (16, 64))
BOARDS = {
    "m4f": "Cortex-M4F",
    "m33": "Cortex-M33",
    "m0-wide": "Cortex-M0, soft float",
    "rv32f": "RV32IMAFC",
    "rv32": "RV32IMAC, soft float",
}
LONGEST = 3_000  # rows of a series, as the definition takes a millisecond per row
NEAR = 1.25  # a score within this factor of its threshold is near it
VARIANTS = {  # of the monitor, each with the boards on which it is measured
    "fixed": ({"arithmetic": "fixed"}, ("m0-wide", "rv32")),
    "seeded": ({"layer": "seeded"}, ("m4f",)),
}
LIMITS = {(3, 16): (6, 12, 25_000), (8, 32): (16, 12, 80_000), (32, 64): (64, 12, 400_000)}
COLLECTIONS = {name: row for name, row in SCORED.items() if name != "records"}


class Unburnt(Monitor):
    """A `Monitor` without a burn-in, as a chip keeps no rows to start with anew."""

    def _begin(self, X: Array, scale: tuple[Array, Array] | None = None) -> None:
        super()._begin(X, scale)
        self._kept = None


KINDS: dict[str, Callable[[], Monitor | PortableMonitor]] = {
    "monitor": Monitor,
    "unburnt": Unburnt,
    "chip": PortableMonitor,
    "large": lambda: PortableMonitor(hidden=GROUPS * HIDDEN, modes=MODES + 1),
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
    """Return a digest of the C source: what is stored for another one is measured again.

    Comments, white space and the values of the monitor's constants do not count.
    """
    found = hashlib.sha256()
    for name in ("onlad.h", "onlad.c", "onlad_fixed.h"):
        text = (Path(export.__file__).parent / "c" / name).read_text(encoding="utf-8")
        text = re.sub(r"/\* constants: .*?/\* end of constants \*/", "", text, flags=re.DOTALL)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        found.update("".join(text.split()).encode())
    return found.hexdigest()[:16]


def measure(features: int, hidden: int, board: str, **settings: Any) -> Record:
    """Export, build, run; return bytes and instructions."""
    monitor = PortableMonitor(hidden=hidden, **settings)
    monitor.names = tuple(range(features))
    X = stream(ROWS, features)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export.write(monitor, folder)
        X.tofile(folder / "rows.bin")
        qemu, build = folder / "qemu", folder / "qemu" / "build" / board
        make = ["make", "-s", "-C", str(qemu), f"BOARD={board}", f"ROWS={folder}/rows.bin", "run"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
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


def variants() -> None:
    """Measure fixed point and seeded layers as `cost` measures the monitor without them."""
    digest = source()
    keys = ("variant", "features", "hidden", "board")
    done = [
        tuple(r[key] for key in keys)
        for r in latest("mcu/variants", *keys)
        if r["source"] == digest
    ]
    for variant, (settings, on) in VARIANTS.items():
        for features, hidden in LIMITS:
            for board in on:
                if (variant, features, hidden, board) in done:
                    continue
                record = {"variant": variant, "features": features, "hidden": hidden}
                record |= {"board": board, **measure(features, hidden, board, **settings)}
                from_where = origin("python -m experiments.mcu variants", "experiments/mcu.py")
                append("mcu/variants", [record | {"source": digest, **from_where}])
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
                outcome = methods.outcome(make().observe_many(series.X))
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


def precision() -> None:
    """Compare verdicts in float32 with those in float64 and in fixed point, row by row."""
    from experiments.benchmark import collections  # noqa: PLC0415

    warnings.simplefilter("ignore", RuntimeWarning)
    for collection in collections.LABELLED:
        if collection.name not in COLLECTIONS or collection.missing():
            continue
        found: dict[str, list[float]] = {"float64": [], "fixed": [], "near": []}
        for name in collection.names():
            X = collection.load(name).X[:LONGEST].astype("float32")
            monitor = PortableMonitor()
            here = monitor.observe_many(X)
            fixed = PortableMonitor(arithmetic="fixed").observe_many(X)
            exact = Definition(monitor.sizes(), *monitor.layer())
            said = np.array([exact.observe(x)[:2] for x in X.astype("float64")])
            differ = here.is_anomaly != (said[:, 0] > said[:, 1])
            found["float64"] += differ.astype(float).tolist()
            found["fixed"] += (here.is_anomaly != fixed.is_anomaly).astype(float).tolist()
            ratio = here.score[differ] / here.threshold[differ]
            found["near"] += ((ratio > 1 / NEAR) & (ratio < NEAR)).astype(float).tolist()
        record = {
            "collection": collection.name,
            "series": len(collection.names()),
            "rows": len(found["fixed"]),
            "float64": round(float(np.mean(found["float64"])), 6),
            "fixed": round(float(np.mean(found["fixed"])), 6),
            "near": round(float(np.mean(found["near"])), 4) if found["near"] else None,
        }
        from_where = origin("python -m experiments.mcu precision", "experiments/mcu.py")
        append("mcu/precision", [record | {"source": source(), **from_where}])
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


def fixed() -> str:
    """Return the table of fixed point beside soft float."""
    soft = {
        (r["features"], r["hidden"], r["board"]): r["typical"]
        for r in latest("mcu/cost", "features", "hidden", "board")
    }
    found = []
    for r in latest("mcu/variants", "variant", "features", "hidden", "board"):
        if r["variant"] == "fixed":
            before = soft[r["features"], r["hidden"], r["board"]]
            found.append(
                [
                    BOARDS[r["board"]].removesuffix(", soft float"),
                    f"{r['features']}, {r['hidden']}",
                    f"{before:,}",
                    f"{r['typical']:,}",
                    f"{before / r['typical']:.1f}",
                    f"{r['worst'] / r['typical']:.2f}",
                    f"{r['ram']:,} + {r['stack']}",
                    f"{r['code']:,} + {r['constants']:,}",
                    "yes" if r["equal"] else "NO",
                ]
            )
    heads = ["processor", "features, hidden", "soft float", "fixed point", "times fewer",
             "worst row", "RAM + stack", "code + constants", "equal to Python"]  # fmt: skip
    return markdown(heads, sorted(found))


def precise() -> str:
    """Return the table of verdicts that float64 or fixed point changes."""
    found = []
    for r in latest("mcu/precision", "collection"):
        near = "" if r["near"] is None else f"{100 * r['near']:.0f} %"
        shares = [f"{100 * r[key]:.2f} %" for key in ("float64", "fixed")]
        found.append([COLLECTIONS[r["collection"]][0], str(r["series"]), f"{r['rows']:,}",
                      shares[0], near, shares[1]])  # fmt: skip
    heads = ["data", "series", "rows", "float64 differs", "of these near the threshold",
             "fixed point differs"]  # fmt: skip
    return markdown(heads, found)


def seeded() -> str:
    """Return what a seeded layer saves and costs at the largest size, in words."""
    keys = ("variant", "features", "hidden", "board")
    drawn = {tuple(r[k] for k in keys): r for r in latest("mcu/variants", *keys)}
    r = drawn["seeded", 32, 64, "m4f"]
    stored = {
        (s["features"], s["hidden"], s["board"]): s
        for s in latest("mcu/cost", "features", "hidden", "board")
    }[32, 64, "m4f"]
    saved = stored["code"] + stored["constants"] - r["code"] - r["constants"]
    return f"{saved:,} bytes of flash and costs {r['typical'] - stored['typical']:,} instructions"


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
    large = KINDS["large"]()
    assert isinstance(large, PortableMonitor)
    sizes = f"with `hidden={large.hidden}, modes={large.modes}`"
    heads = ["data", "series", "measure", "`Monitor()`", "without burn-in", "`PortableMonitor()`",
             sizes, "with `warmup=1536`", "verdicts that differ"]  # fmt: skip
    return markdown(heads, found)


def tables() -> dict[str, str]:
    """Return the tables of docs/howto/microcontroller.md."""
    return {
        "mcu_cost": costs(),
        "mcu_boards": boards(),
        "mcu_fixed": fixed(),
        "mcu_precision": precise(),
        "mcu_detection": detected(),
    }


def table() -> None:
    print("\n\n".join(tables().values()))


if __name__ == "__main__":
    {
        "cost": cost,
        "variants": variants,
        "precision": precision,
        "detection": detection,
        "table": table,
    }[sys.argv[1]]()
