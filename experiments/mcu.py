"""The monitor of a microcontroller: what it costs on emulated chips, and how well it detects.

    python -m experiments.mcu cost          # QEMU; needs the compilers that .ci/run installs
    python -m experiments.mcu variants      # the same of fixed point and of seeded layers
    python -m experiments.mcu profile       # where fixed point spends its instructions
    python -m experiments.mcu precision     # the same beside float64, and exports beside Monitor
    python -m experiments.mcu judged        # exports beside Monitor, made anew at each tick
    python -m experiments.mcu detection     # the benchmark's streams; needs ONLAD_BENCHMARK
    python -m experiments.mcu seeds         # where one stream is all, with several random layers
    python -m experiments.mcu table         # from the records alone

Instructions are counted, not cycles: with ``-icount`` an instruction is a nanosecond of virtual
time. Counts are the same in every run.
"""

from __future__ import annotations

from experiments import one_thread  # noqa: F401  (before NumPy loads its BLAS)

# isort: split
import copy
import hashlib
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmark.tables import SCORED
from experiments.pages import markdown
from experiments.records import Record, append, latest, origin
from onlad import Monitor
from onlad.instance import GROUPS, HIDDEN, RIDGE, WIDEST
from onlad.mcu import PortableMonitor, export
from onlad.mcu.convert import from_monitor
from onlad.mcu.layout import DELAY, HEADER, VERDICT, Sizes
from onlad.mode import MEMORY, PRIOR, PRIOR_SQUARE
from onlad.reference import Array
from onlad.verdict import Verdicts
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
NEAR = 1.25  # a score within this factor of its threshold is near it
STRETCH = 1_024  # rows after which float64 goes on from the state that float32 has
VARIANTS = {  # of the monitor, each with the boards on which it is measured
    "fixed": ({"arithmetic": "fixed"}, ("m0-wide", "rv32")),
    "seeded": ({"layer": "seeded"}, ("m4f",)),
}
PARTS = {  # of a row in fixed point: what functions are for, by how their names begin
    "rank-one updates": "learn_factor|move_beta",
    "predictions": "projected|left_over|look|narrow|squash",
    "numbers of a column": (
        "multiplied|to_multiplier|number|float_in|added|inverse|shrunk|highest|__divsi3"
    ),
    "divisions of floats": "__aeabi_fdiv",
    "other soft float": r"__aeabi_[fiu]|__\w+sf|__clz|\w*sqrtf|__aeabi_cf",
}
WHY = {  # an export differs from its `Monitor`: reasons in `apart`, and in words
    "threshold": "by the threshold",
    "score": "by the score",
    "mode": "after a mode at another row",
}
LIMITS = {(3, 16): (6, 12, 25_000), (8, 32): (16, 12, 80_000), (32, 64): (64, 12, 400_000)}
COLLECTIONS = {name: row for name, row in SCORED.items() if name != "records"}


class Unburnt(Monitor):
    """A `Monitor` without a burn-in, as a chip keeps no rows to start with anew."""

    def _begin(self, X: Array, scale: tuple[Array, Array] | None = None) -> None:
        super()._begin(X, scale)
        self._burn_in = None


KINDS: dict[str, Callable[[], Monitor | PortableMonitor]] = {
    "monitor": Monitor,
    "unburnt": Unburnt,
    "chip": PortableMonitor,
    "large": lambda: PortableMonitor(hidden=GROUPS * HIDDEN, modes=MODES + 1),
    "long": lambda: PortableMonitor(warmup=1_536),
}

ALONE = ("smd", "gecco")  # collections of one stream
SEEDED = {"monitor": Monitor, "unburnt": Unburnt, "chip": PortableMonitor}


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


def measure(features: int, hidden: int, board: str, level: str = "-Os", **settings: Any) -> Record:
    """Export, build at a level of optimisation, run; return bytes and instructions."""
    monitor = PortableMonitor(hidden=hidden, **settings)
    monitor.names = tuple(range(features))
    X = stream(ROWS, features)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export.write(monitor, folder)
        X.tofile(folder / "rows.bin")
        qemu, build = folder / "qemu", folder / "qemu" / "build" / board
        make = ["make", "-s", "-C", str(qemu), f"BOARD={board}", f"ROWS={folder}/rows.bin"]
        subprocess.run([*make, f"O={level}", "run"], check=True, stdout=subprocess.DEVNULL)
        verdicts = np.fromfile(build / "verdicts.bin", [*VERDICT, ("instructions", "<u4")])
        ram, stack = np.fromfile(build / "figures.bin", "<u4").tolist()
        counts = verdicts["instructions"] * float((build / "ns").read_text())
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


def profile() -> None:
    """Count the instructions of fixed point by what they are for, and what -O2 saves."""
    monitor = _after(PortableMonitor(hidden=32, arithmetic="fixed"), stream(ROWS, 8)[:700])
    few, many = (_counted(monitor, stream(ROWS, 8)[700 : 700 + rows]) for rows in (4, 20))
    found: dict[str, float] = dict.fromkeys((*PARTS, "rest"), 0.0)
    for name, count in (many - few).items():  # without those of the start of the program
        part = next((part for part, names in PARTS.items() if re.match(names, name)), "rest")
        found[part] += count / 16
    fast = {
        board: {key: measured[key] for key in ("typical", "code", "equal")}
        for board in VARIANTS["fixed"][1]
        for measured in [measure(8, 32, board, "-O2", arithmetic="fixed")]
    }
    record = {"features": 8, "hidden": 32, "board": "m0-wide", "source": source(), "fast": fast,
              "parts": {part: round(count) for part, count in found.items()}}  # fmt: skip
    from_where = origin("python -m experiments.mcu profile", "experiments/mcu.py")
    append("mcu/profile", [record | from_where])
    print(record)


def _counted(monitor: PortableMonitor, X: Array) -> Counter[str]:
    """Return the instructions of each function, from a trace of every one."""
    with tempfile.TemporaryDirectory() as name:
        folder, build = Path(name), Path(name) / "qemu" / "build" / "m0-wide"
        export.write(monitor, folder)
        subprocess.run(["make", "-s", "-C", folder / "qemu", "BOARD=m0-wide"], check=True)
        X.tofile(build / "rows.bin")
        run = ["qemu-system-arm", "-M", "mps2-an385", "-display", "none", "-kernel", "watch.elf",
               "-semihosting-config", "enable=on,target=native", "-singlestep",
               "-d", "exec,nochain", "-D", "/dev/stdout"]  # fmt: skip
        found: Counter[str] = Counter()
        with subprocess.Popen(run, cwd=build, stdout=subprocess.PIPE, text=True) as trace:
            assert trace.stdout
            found.update(line.split()[-1] for line in trace.stdout if line.startswith("Trace"))
    return found


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
    for size in SIZES:
        for board in BOARDS if size in LIMITS else ("m4f",):
            _store("mcu/cost", {}, size, board, {})


def variants() -> None:
    """Measure fixed point and seeded layers as `cost` measures the monitor without them."""
    for variant, (settings, on) in VARIANTS.items():
        for size in LIMITS:
            for board in on:
                _store("mcu/variants", {"variant": variant}, size, board, settings)


def _store(
    name: str, keys: Record, size: tuple[int, int], board: str, settings: dict[str, Any]
) -> None:
    keys = {**keys, "features": size[0], "hidden": size[1], "board": board, "source": source()}
    if any(keys.items() <= record.items() for record in latest(name, *keys)):
        return
    command = f"python -m experiments.{name.replace('/', ' ')}"
    record = keys | measure(*size, board, **settings) | origin(command, "experiments/mcu.py")
    append(name, [record])
    print(record, flush=True)


def stored() -> dict[tuple[int, int, str], Record]:
    """Return the costs of the monitor by features, hidden units and board."""
    keys = ("features", "hidden", "board")
    return {tuple(r[key] for key in keys): r for r in latest("mcu/cost", *keys)}  # type: ignore[misc]


def detection() -> None:
    """Compare with `Monitor` on the labelled streams."""
    from experiments.benchmark import collections, measures, methods  # noqa: PLC0415

    warnings.simplefilter("ignore", RuntimeWarning)
    for collection in collections.LABELLED:
        if collection.name not in COLLECTIONS or collection.missing():
            continue
        _, name, _ = COLLECTIONS[collection.name]
        found: dict[str, list[float]] = {key: [] for key in (*KINDS, "fitted", "exported")}
        for series_name in collection.names():
            series = collection.load(series_name)
            said = {key: [make().observe_many(series.X)] for key, make in KINDS.items()}
            history, rest = np.split(series.X.astype("float32"), [series.history])
            fitted = Monitor().fit(history) if len(history) else None
            if fitted is not None and _fits(fitted):
                for key, one in (("fitted", fitted), ("exported", from_monitor(fitted))):
                    known = copy.deepcopy(one)  # VUS-PR counts all rows
                    said[key] = [known.observe_many(history), one.observe_many(rest)]
            for key, parts in said.items():
                found[key].append(measures.measure(series, methods.outcome(*parts))[name])
        record = {
            "collection": collection.name,
            "series": len(found["chip"]),
            "exports": len(found["exported"]),
            **{key: round(float(np.mean(each)), 4) for key, each in found.items() if each},
        }
        from_where = origin("python -m experiments.mcu detection", "experiments/mcu.py")
        append("mcu/detection", [record | {"source": source(), **from_where}])
        print(record, flush=True)


def seeds() -> None:
    """Measure the streams that are a collection by themselves with several random layers."""
    from experiments.benchmark import collections, measures, methods  # noqa: PLC0415

    for collection in collections.LABELLED:
        if collection.name not in ALONE or collection.missing():
            continue
        series = collection.load(collection.names()[0])
        found: Record = {"collection": collection.name}
        for key, make in SEEDED.items():
            said = [methods.outcome(make(seed=seed).observe_many(series.X)) for seed in range(8)]
            name = COLLECTIONS[collection.name][1]
            found[key] = [round(measures.measure(series, each)[name], 4) for each in said]
        from_where = origin("python -m experiments.mcu seeds", "experiments/mcu.py")
        append("mcu/seeds", [found | {"source": source(), **from_where}])
        print(found, flush=True)


def precision() -> None:
    """Compare verdicts in float32 with float64 and fixed point, and exports with `Monitor`."""
    from experiments.benchmark import collections  # noqa: PLC0415

    warnings.simplefilter("ignore", RuntimeWarning)
    for collection in collections.LABELLED:
        if collection.name not in COLLECTIONS or collection.missing():
            continue
        alone, same, fixed, monitor, exact = (Compared() for _ in range(5))
        streams: dict[str, Record] = {}  # of exports beside their `Monitor`
        for name in collection.names():
            series = collection.load(name)
            X = series.X.astype("float32")
            chip = PortableMonitor()
            here = chip.observe_many(X)
            near = rounding(chip.sizes())
            alone.add(here, in_float64(PortableMonitor(), X), near)
            same.add(here, in_float64(PortableMonitor(), X, STRETCH), near)
            fixed.add(here, PortableMonitor(arithmetic="fixed").observe_many(X).is_anomaly)
            fitted = Monitor().fit(X[: series.history])
            if _fits(fitted):
                X, chip = X[series.history :], from_monitor(fitted)
                exact_said, near = in_float64(chip, X), rounding(chip.sizes())
                said, wanted = chip.observe_many(X), fitted.observe_many(X)
                monitor.add(said, wanted.is_anomaly)
                exact.add(said, exact_said, near)
                streams[name] = apart(said, wanted)
        record = {
            "collection": collection.name,
            "stretch": STRETCH,
            "fresh": {"same": same.record(), "float64": alone.record(), "fixed": fixed.record()},
            "exported": {
                "monitor": monitor.record(),
                "float64": exact.record(),
                "streams": streams,
            },
        }
        from_where = origin("python -m experiments.mcu precision", "experiments/mcu.py")
        append("mcu/precision", [record | {"source": source(), **from_where}])
        print(record, flush=True)


def judged() -> None:
    """Compare exports with the `Monitor` that they are made of, anew at each tick.

    Both begin a tick with the same state. In it `Monitor` learns nothing, the chip a row each row.
    """
    from experiments.benchmark import collections  # noqa: PLC0415

    warnings.simplefilter("ignore", RuntimeWarning)
    for collection in collections.LABELLED:
        if collection.name not in COLLECTIONS or collection.missing():
            continue
        compared = Compared()
        for name in collection.names():
            series = collection.load(name)
            history, rest = np.split(series.X.astype("float32"), [series.history])
            monitor = Monitor().fit(history)
            if _fits(monitor):
                compared.add(*by_tick(monitor, rest))
        record = {"collection": collection.name, **compared.record()}
        from_where = origin("python -m experiments.mcu judged", "experiments/mcu.py")
        append("mcu/judged", [record | {"source": source(), **from_where}])
        print(record, flush=True)


def by_tick(monitor: Monitor, X: Array) -> tuple[Verdicts, Array]:
    """Return verdicts of exports made anew at each tick, and the anomalies of the `Monitor`."""
    said, wanted = Verdicts(monitor.names, len(X)), np.zeros(len(X), bool)
    for tick in (slice(at, at + DELAY) for at in range(0, len(X), DELAY)):
        here = from_monitor(monitor).observe_many(X[tick])
        for column in ("score", "threshold", "is_anomaly"):
            getattr(said, column)[tick] = getattr(here, column)
        wanted[tick] = monitor.observe_many(X[tick]).is_anomaly
    return said, wanted


def apart(said: Verdicts, wanted: Verdicts) -> Record:
    """Return on how many rows an export differs from its `Monitor`, and why.

    From the row on at which only one of them confirms a mode, they have other models. Before it,
    the threshold is the reason if the score of the export gives the verdict of `Monitor` with the
    threshold of `Monitor`; else it is the score.
    """
    differ = said.is_anomaly != wanted.is_anomaly
    first = int(np.argmax(np.append(said.drift != wanted.drift, True)))
    by_threshold = differ & ((said.score > wanted.threshold) == wanted.is_anomaly)
    return {
        "rows": len(differ),
        "differ": int(differ.sum()),
        "threshold": int(by_threshold[:first].sum()),
        "score": int((differ & ~by_threshold)[:first].sum()),
        "mode": int(differ[first:].sum()),
    }


class Compared:
    """Verdicts of the chip beside others: how many differ, and how near the threshold they are."""

    def __init__(self) -> None:
        self.series = self.rows = self.differ = self.near = 0
        self.first: list[Record] = []  # row of each series that differs, and how near it is

    def add(self, said: Verdicts, others: Array, near: float = NEAR) -> None:
        """Take one series more."""
        differ = np.flatnonzero(said.is_anomaly != others)
        self.series, self.rows = self.series + 1, self.rows + len(others)
        with np.errstate(divide="ignore"):
            apart = np.exp(np.abs(np.log(said.score[differ] / said.threshold[differ])))
        self.differ += len(differ)
        self.near += int((apart < near).sum())
        if len(differ):
            self.first.append({"row": int(differ[0]), "factor": float(apart[0]), "near": near})

    def record(self) -> Record:
        """Return the number of rows that differ, of those that are near, and the first ones."""
        counts = {key: getattr(self, key) for key in ("series", "rows", "differ", "near")}
        return counts | {"first": self.first}


def rounding(sizes: Sizes) -> float:
    """Return the factor by which a score in float32 may be off: what is near, but for rounding.

    Rounding, times the root of the condition of the sums (the chip keeps roots of them), in
    deviations as small as a baseline allows. A square is off by twice as much.
    """
    condition = MEMORY * sizes.inputs / RIDGE  # of values of about one unit
    least = PRIOR * PRIOR_SQUARE / (MEMORY + PRIOR)  # a baseline: the square of a deviation
    return float(1 + 2 * 2.0**-24 * np.sqrt(condition / least))


def _fits(monitor: Monitor) -> bool:
    said = monitor.describe()
    return bool(said["ordered"]) and said["features"] * said["window"] <= WIDEST


WATCH = """
#include <stdio.h>
#include <stdlib.h>
#include "onlad.h"
static onlad_monitor monitor;
int main(int argc, char** argv) {
    float x[ONLAD_FEATURES], word;
    double row[ONLAD_FEATURES];
    int k;
    long row_of_stretch = 0, stretch = atol(argv[1]);
    FILE* states = fopen("states", "rb");
    onlad_init(&monitor);
    while (fread(x, sizeof x, 1, stdin)) {
        onlad_verdict v;
        if (row_of_stretch++ % stretch == 0 &&
            fread(monitor.count, 4, ONLAD_COUNTS, states) == ONLAD_COUNTS)
            for (k = 0; k < ONLAD_FLOATS && fread(&word, 4, 1, states); ++k)
                monitor.memory[k] = word;
        for (k = 0; k < ONLAD_FEATURES; ++k) row[k] = x[k];
        onlad_observe(&monitor, row, &v);
        putchar(v.is_anomaly);
    }
    return 0;
}
"""


def in_float64(monitor: PortableMonitor, X: Array, stretch: int | None = None) -> Array:
    """Return which rows are anomalies for the C source with every number in double precision.

    It goes on from the state of `monitor`; after each `stretch` rows from that which float32 has
    there.
    """
    here = PortableMonitor.resumed(
        monitor.settings(), monitor.learned(), monitor.names or tuple(range(X.shape[1]))
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export.write(PortableMonitor.resumed(here.settings(), names=here.names), folder)
        for part in ("onlad.h", "onlad.c"):
            (folder / part).write_text(in_double((folder / part).read_text()))
        header = (folder / "onlad_model.h").read_text()
        ram = re.sub(r"ONLAD_RAM \d+", "ONLAD_RAM sizeof(onlad_monitor)", header)
        (folder / "onlad_model.h").write_text(ram)
        (folder / "watch.c").write_text(WATCH)
        build = ["gcc", "-std=c99", "-O2", "-ffp-contract=off", "watch.c", "onlad.c", "-lm"]
        subprocess.run([*build, "-o", "watch"], cwd=folder, check=True)
        with open(folder / "states", "wb") as states:
            for first in range(0, len(X), stretch) if stretch else [0]:
                states.write(here.dump()[HEADER.size : -4])
                if stretch:
                    here.observe_many(X[first : first + stretch])
        rows = np.ascontiguousarray(X, "<f4").tobytes()
        command = ["./watch", str(stretch or len(X))]
        run = subprocess.run(command, cwd=folder, input=rows, capture_output=True, check=True)
    return np.frombuffer(run.stdout, "uint8").astype(bool)


def in_double(text: str) -> str:
    """Return C source with double for float, but for the random layer and the bits of a float.

    Examples
    --------
    >>> in_double("static float half(float x) { return 0.5f * sqrtf(x); }")
    'static double half(double x) { return 0.5 * sqrt(x); }'
    """
    single = {  # what stays, and what it becomes
        "typedef float onlad_weight": "typedef float onlad_weight",
        "memcpy(&word, &x, 4);": "float y = (float)x; memcpy(&word, &y, 4);",
        "float x;\n    memcpy(&x, &word, 4);": "float x; memcpy(&x, &word, 4);",
    }
    for place, old in enumerate(single):
        text = text.replace(old, f"@{place}@")
    text = re.sub(r"\bfloat\b", "double", text).replace("sqrtf", "sqrt")
    text = re.sub(r"\b(\d+(?:\.\d*)?(?:e[-+]?\d+)?)f\b", r"\1", text)
    for place, new in enumerate(single.values()):
        text = text.replace(f"@{place}@", new)
    return text


def costs() -> str:
    """Return the table of what a row costs on a Cortex-M4F, with the limits that were set."""
    found = []
    for r in stored().values():
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
    found, known = [], stored()
    for board, words in BOARDS.items():
        cells = [known.get((*size, board)) for size in LIMITS]
        shown = [f"{cell['typical']:,}" if cell else "" for cell in cells]
        equal = "yes" if all(cell is None or cell["equal"] for cell in cells) else "NO"
        found.append([words, *shown, equal])
    return markdown(["processor", *(f"{n}, {N}" for n, N in LIMITS), "equal to Python"], found)


def soft_float() -> str:
    """Return how many times as many instructions a row takes without an FPU, in words."""
    typical = {key: record["typical"] for key, record in stored().items()}
    pairs = (("m0-wide", "m4f"), ("rv32", "rv32f"))
    found = [typical[(*n, soft)] / typical[(*n, hard)] for soft, hard in pairs for n in LIMITS]
    return f"{int(min(found))} to {int(max(found)) + 1}"


def fixed() -> str:
    """Return the table of fixed point beside soft float."""
    found, soft = [], stored()
    for r in latest("mcu/variants", "variant", "features", "hidden", "board"):
        if r["variant"] == "fixed":
            before = soft[r["features"], r["hidden"], r["board"]]["typical"]
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


def profiled() -> str:
    """Return what shares of a row in fixed point are for what, in words."""
    parts: dict[str, int] = latest("mcu/profile", "board")[0]["parts"]
    whole = sum(parts.values())
    return ", ".join(f"{name} {100 * count / whole:.0f} %" for name, count in parts.items())


def fast() -> str:
    """Return what -O2 saves in fixed point and what it costs, in words."""
    keys = ("variant", "features", "hidden", "board")
    small = {tuple(r[key] for key in keys): r for r in latest("mcu/variants", *keys)}
    found = []
    for board, r in latest("mcu/profile", "board")[0]["fast"].items():
        before = small["fixed", 8, 32, board]
        saved, more = 1 - r["typical"] / before["typical"], r["code"] - before["code"]
        words = BOARDS[board].removesuffix(", soft float")
        found.append(f"{100 * saved:.0f} % on a {words} (for {more:,} bytes of code)")
    return " and ".join(found)


def precise() -> str:
    """Return the table of verdicts that float64 or fixed point changes."""
    found = []
    for r in latest("mcu/precision", "collection"):
        one, others = r["fresh"]["same"], [r["fresh"][key] for key in ("same", "float64", "fixed")]
        shares = [cell for each in others for cell in _shares(each)]
        found.append([_title(r), f"{one['series']}", f"{one['rows']:,}", *shares])
    near = "of these near the threshold"
    heads = ["data", "series", "rows", "float64 from the same state differs", near,
             "float64 by itself differs", near, "fixed point differs", near]  # fmt: skip
    return markdown(heads, found)


def rounded(key: str) -> str:
    """Return on how many rows float64 says something else, in words: `same` or `float64`."""
    return _in_words([r["fresh"][key] for r in latest("mcu/precision", "collection")])


def parted(collection: str) -> str:
    """Return the first row at which float32 and float64 differ by themselves, in words."""
    stored = {r["collection"]: r for r in latest("mcu/precision", "collection")}
    (first,) = stored[collection]["fresh"]["float64"]["first"]
    return f"{first['row']:,}"


def exported() -> str:
    """Return the table of exports beside the `Monitor` that each was made of."""
    found = []
    anew = {r["collection"]: r for r in latest("mcu/judged", "collection")}
    for r in latest("mcu/precision", "collection"):
        one, other = r["exported"]["monitor"], r["exported"]["float64"]
        if one["rows"]:
            reasons = [sum(each[why] for each in r["exported"]["streams"].values()) for why in WHY]
            shares = _shares(anew[r["collection"]]) + _shares(one)
            first = [_title(r), f"{one['series']}", f"{one['rows']:,}", *shares]
            found.append([*first, *(f"{rows:,}" for rows in reasons), _shares(other)[0]])
    near = "of these near the threshold"
    heads = ["data", "series", "rows", "exported at each tick: `Monitor` differs", near,
             "exported once: `Monitor` differs", near, *WHY.values(),
             "the export in float64 differs"]  # fmt: skip
    return markdown(heads, found)


def judged_alike() -> str:
    """Return on how many rows an export made anew at each tick differs, in words."""
    return _in_words(latest("mcu/judged", "collection"))


def _in_words(found: list[Record]) -> str:
    differ, near, rows = (sum(r[key] for r in found) for key in ("differ", "near", "rows"))
    share = f" ({near:,} of them near the threshold)" if differ else ""
    return f"{differ:,} of {rows:,}{share}"


def far_apart() -> str:
    """Return the table of the streams on which exports differ on more than a hundredth of rows."""
    found = []
    for r in latest("mcu/precision", "collection"):
        for name, each in r["exported"]["streams"].items():
            if 100 * each["differ"] > each["rows"]:
                share = f"{100 * each['differ'] / each['rows']:.1f} %"
                reasons = [f"{each[why]:,}" for why in WHY]
                found.append([f"{_title(r)} {name}", f"{each['rows']:,}", share, *reasons])
    return markdown(["stream", "rows", "`Monitor` differs", *WHY.values()], found)


def _title(record: Record) -> str:
    return COLLECTIONS[record["collection"]][0]


def _shares(found: Record) -> tuple[str, str]:
    near = f"{found['near']:,} of {found['differ']:,}" if found["differ"] else ""
    return f"{100 * found['differ'] / found['rows']:.3f} %", near


def seeded() -> str:
    """Return what a seeded layer saves and costs at the largest size, in words."""
    keys = ("variant", "features", "hidden", "board")
    drawn = {tuple(r[k] for k in keys): r for r in latest("mcu/variants", *keys)}
    r = drawn["seeded", 32, 64, "m4f"]
    kept = stored()[32, 64, "m4f"]
    saved = kept["code"] + kept["constants"] - r["code"] - r["constants"]
    return f"{saved:,} bytes of flash and costs {r['typical'] - kept['typical']:,} instructions"


def detected() -> str:
    """Return the table of detection beside `Monitor`."""
    stored = {r["collection"]: r for r in latest("mcu/detection", "collection")}
    found = []
    for name, (title, _, measured) in COLLECTIONS.items():
        if name in stored:
            r = stored[name]
            scores = [f"{r[key]:.3f}" for key in KINDS]
            told = [f"{r[key]:.3f}" if key in r else "" for key in ("fitted", "exported")]
            found.append([title, str(r["series"]), measured, *scores, str(r["exports"]), *told])
    large = KINDS["large"]()
    assert isinstance(large, PortableMonitor)
    sizes = f"with `hidden={large.hidden}, modes={large.modes}`"
    heads = ["data", "series", "measure", "`Monitor()`", "without burn-in", "`PortableMonitor()`",
             sizes, "with `warmup=1536`", "series fitted", "`Monitor().fit`",
             "its export"]  # fmt: skip
    return markdown(heads, found)


def spread(collection: str) -> str:
    """Return mean, least and largest over several random layers of one stream, in words."""
    stored = {r["collection"]: r for r in latest("mcu/seeds", "collection")}
    names = {"monitor": "`Monitor()`", "unburnt": "without burn-in", "chip": "`PortableMonitor()`"}
    return ", ".join(
        f"{name} {np.mean(one):.2f} ({min(one):.2f} to {max(one):.2f})"
        for name, one in ((names[key], stored[collection][key]) for key in SEEDED)
    )


def tables() -> dict[str, str]:
    """Return the tables of docs/howto/microcontroller.md."""
    return {
        "mcu_cost": costs(),
        "mcu_boards": boards(),
        "mcu_fixed": fixed(),
        "mcu_precision": precise(),
        "mcu_exported": exported(),
        "mcu_far_apart": far_apart(),
        "mcu_detection": detected(),
    }


def table() -> None:
    print("\n\n".join(tables().values()))


if __name__ == "__main__":
    {
        "cost": cost,
        "variants": variants,
        "profile": profile,
        "precision": precision,
        "judged": judged,
        "detection": detection,
        "seeds": seeds,
        "table": table,
    }[sys.argv[1]]()
