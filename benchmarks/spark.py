"""Time keyed streams on Spark beside the plain loop on one core: `python -m benchmarks.spark`.

Rows per second of: the plain loop (`observe` per sample, one core), the loop in blocks
(`observe_many` per device and micro-batch), a bank of detectors with as many inputs, memory (a sum
of as many numbers as a row has to be multiplied with), a batch query and a streaming query on 1, 2,
... cores.
For the streaming query also the processor time of Java and Python together, and where it goes: the
model, its file (bytes and back), the state store (get and update, as far as it is Python), pandas,
and all that is Spark's: reading, shuffle, Arrow, state, commit. Each number of cores has a Java of
its own. The first micro-batches are left out: Java compiles. Enough are timed that each bank is
written once if a device sends one row in each. `--page` makes four runs of the page, and `--dense`
the fifth, of micro-batches with many rows, for which Java compiles all it can.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from experiments.records import machine
from rich.console import Console
from rich.table import Table

from benchmarks.monitor import numbers
from benchmarks.monitors import seconds
from benchmarks.records import commit, read, write
from onlad import Detector, Monitor, persist
from onlad.fleet import Bank, MonitorBank
from onlad.fleet import spark as fleet
from onlad.fleet.spark import keeper
from onlad.fleet.spark.herd import FOLDED
from onlad.kernel import BACKEND

FEATURES = [f"x{j}" for j in range(8)]
PAGE = Path(__file__).parents[1] / "docs" / "howto" / "spark.md"
BEGIN = "<!-- capacity: python -m benchmarks.spark --paper -->"
END = "<!-- end of capacity -->"
ROWS = (1, 100)  # of a device in a micro-batch
FULL = 200  # devices of a bucket
WARM = 3  # micro-batches that are left out: Java compiles what it runs
LOOPS = 4  # micro-batches of the loops
WRITES = FOLDED + 1  # rows of each device after which a bank is written
RUNS = ((600, 1), (3000, 1), (600, WRITES), (600, 100))  # devices and rows, for the page
# The last run again, as the page says for such micro-batches: Java compiles all it can.
DENSE, DENSE_BATCHES, JAVA = RUNS[3], WARM + 10, "-XX:+UseSerialGC"
COMMAND = "python -m benchmarks.spark"
RECORD = Path(__file__).parent / "results" / "spark.jsonl"
PARTS = ("model", "file", "state", "pandas")
CORE, STATE, WRITTEN = "core seconds a row", "state bytes a device", "written bytes a device"


class Timed(keeper.Keeper):
    """A keeper that adds up where its time goes, and leaves it in a file."""

    folder = ""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        spent = self.__dict__.setdefault("spent", dict.fromkeys(PARTS, 0.0))
        bank, clock, begin = MonitorBank, time.process_time, time.process_time()
        before = sum(spent.values())
        own = {
            "model": ("observe_rows",),
            "file": ("from_bytes", "to_bytes"),
        }
        kept = {name: vars(bank).get(name) for names in own.values() for name in names}

        def timed(part: str, work: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                begin = clock()
                found = work(*args, **options)
                spent[part] += clock() - begin
                return found

            return call

        for part, names in own.items():
            for name in names:
                setattr(bank, name, timed(part, getattr(bank, name)))
        stores = self.banks, self.since
        self.banks, self.since = (_TimedState(each, timed) for each in stores)
        try:
            yield from super().handleInputRows(key, rows, timerValues)
        finally:
            self.banks, self.since = stores
            for name, work in kept.items():
                if work is None:  # it is inherited
                    delattr(bank, name)
                else:
                    setattr(bank, name, work)
        spent["pandas"] += clock() - begin - (sum(spent.values()) - before)

    def close(self) -> None:
        if getattr(self, "spent", None):
            name = f"{time.time_ns()}-{os.getpid()}.json"
            Path(self.folder, name).write_text(json.dumps(self.spent), encoding="utf-8")


class _TimedState:
    """A state whose `get` and `update` are timed."""

    def __init__(self, state: Any, timed: Any) -> None:
        self.get, self.update = timed("state", state.get), timed("state", state.update)


def rows_of(devices: int, batch: int, rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(batch)
    frame = pd.DataFrame(rng.normal(size=(devices * rows, len(FEATURES))), columns=FEATURES)
    frame["device"] = np.tile([f"device-{k}" for k in range(devices)], rows)
    frame["time"] = batch * rows + np.repeat(np.arange(rows), devices)
    return frame


def typical() -> Monitor:
    """Return what each device starts with, so that no state is smaller than it will be."""
    rows = rows_of(1, 99, 3000)
    cause = np.sin(rows["time"].to_numpy() / 20)[:, None]
    return Monitor().fit(rows[FEATURES] + 2 * cause)


def plain(devices: int, rows: int, batches: int, *, block: bool) -> float:
    """Return rows per second of a loop on one core, after a first round that warms up."""
    start, monitors = persist.to_bytes(typical()), {}
    spent = 0.0
    for batch in range(batches):
        for device, part in rows_of(devices, batch, rows).groupby("device"):
            X, monitor = part[FEATURES], monitors.get(device) or persist.from_bytes(start)
            monitors[device] = monitor
            samples = X.to_dict("records")
            begin = time.perf_counter()
            if block:
                monitor.observe_many(X)
            else:
                for x in samples:
                    monitor.observe(x)
            spent += (time.perf_counter() - begin) * (batch > 0)
    return devices * rows * (batches - 1) / spent


def others(devices: int) -> dict[str, float]:
    """Return rows per second of a bank of detectors, and of memory, on one core."""
    n, window = len(FEATURES), typical().describe()["window"]
    detectors = Bank(Detector(n_hidden=64), devices, n_features=n * window, threads=1)
    inputs = np.random.default_rng(0).normal(size=(devices, n * window))
    walk = np.ones((devices, numbers(n, n * window)[0]))
    works = {
        "detectors rows/s": lambda: detectors.update(inputs),
        "memory rows/s": lambda: walk.sum(axis=1),
    }
    return {name: devices / median(seconds(work) for _ in range(9)) for name, work in works.items()}


def processor_seconds() -> float:
    """Return the processor time of this process and all that it started: Java, and its Python."""
    ticks: dict[int, tuple[int, int]] = {}  # its parent, and its time with that of dead children
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            rest = path.read_text().rpartition(")")[2].split()
            ticks[int(path.parent.name)] = int(rest[1]), sum(map(int, rest[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in ticks.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[pid][1] for pid in mine) / os.sysconf("SC_CLK_TCK")


def child(cores: int, folder: str, batches: int, devices: int, java: str | None) -> dict[str, Any]:
    """Measure a batch and a streaming query with `cores` cores, in a separate process."""
    settings = {} if java is None else {"spark__driver__extraJavaOptions": java}
    spark, buckets = fleet.session(cores, **settings), max(cores, devices // FULL)
    schema = ", ".join(["device string", "time long", *(f"{name} double" for name in FEATURES)])
    times = Path(tempfile.mkdtemp(dir=folder))
    Timed.folder = str(times)
    fleet.watch.__globals__["Keeper"] = Timed
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    options: dict[str, Any] = {"time": "time", "monitor": typical(), "buckets": buckets}
    said = fleet.watch(source.parquet(f"{folder}/in"), "device", FEATURES, **options)
    writer = said.writeStream.format("parquet").option("checkpointLocation", f"{times}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{times}/said")
    while query.isActive and len(query.recentProgress) < WARM:
        time.sleep(0.01)
    begun = processor_seconds()
    query.awaitTermination()
    core_seconds = processor_seconds() - begun
    later = [p for p in query.recentProgress if p["numInputRows"] and p["batchId"] >= WARM]
    seconds = sum(p["durationMs"]["triggerExecution"] for p in later) / 1000
    spent = dict.fromkeys(PARTS, 0.0)
    for path in sorted(times.glob("*.json"))[-cores * len(later) :]:  # a file a task
        for part, value in json.loads(path.read_text(encoding="utf-8")).items():
            spent[part] += value
    shares = {part: value / core_seconds for part, value in spent.items()}
    written = [
        p["stateOperators"][0]["customMetrics"]["rocksdbTotalBytesWritten"] / devices
        for p in query.recentProgress
        if p["numInputRows"]
    ]
    fleet.watch.__globals__["Keeper"] = keeper.Keeper
    batch = fleet.watch(spark.read.parquet(f"{folder}/in"), "device", FEATURES, **options)
    batch.write.format("noop").mode("overwrite").save()  # compiles
    begin = time.perf_counter()
    batch.write.format("noop").mode("overwrite").save()
    return {
        "batch rows/s": sum(p["numInputRows"] for p in later)
        * batches
        / len(later)
        / (time.perf_counter() - begin),
        "stream rows/s": sum(p["numInputRows"] for p in later) / seconds,
        "core seconds a row": core_seconds / sum(p["numInputRows"] for p in later),
        "shares": shares | {"spark": 1 - sum(shares.values())},
        STATE: max(written),
        WRITTEN: sum(written[-len(later) :]) / len(later),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=WARM + WRITES, help="micro-batches, above 3")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="at most")
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="of a device")
    parser.add_argument("--json", help="append the numbers to this file")
    parser.add_argument("--java", help="options of Java, instead of those of fleet.session")
    parser.add_argument("--page", action="store_true", help="four runs of the page, and its table")
    parser.add_argument("--dense", action="store_true", help="the fifth, and the table")
    parser.add_argument("--paper", action="store_true", help="only the table, of the record")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        found = child(int(args.child[0]), args.child[1], args.batches, args.devices, args.java)
        print(json.dumps(found))
        return 0
    console = Console()
    if args.page:
        runs = [
            measure(devices, rows, WARM + max(WRITES // rows, 4), 1, console)
            | {"command": f"{COMMAND} --page"}
            for devices, rows in RUNS
        ]
        write(RECORD, [*runs, *(r for r in records() if "java" in r)])
    if args.dense:
        dense = measure(*DENSE, DENSE_BATCHES, 1, console, java=JAVA)
        runs = [r for r in records() if "java" not in r]
        write(RECORD, [*runs, dense | {"command": f"{COMMAND} --dense"}])
    if args.page or args.dense or args.paper:
        head, mark, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        table = f"{head}{mark}\n\n{paper(records())}\n\n{END}"
        PAGE.write_text(table + rest.partition(END)[2], encoding="utf-8")
        return 0
    for rows in args.rows:
        record = measure(args.devices, rows, args.batches, args.cores, console, java=args.java)
        show(console, record)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return 0


def measure(
    devices: int,
    rows: int,
    batches: int,
    most_cores: int,
    console: Console,
    *,
    java: str | None = None,
) -> dict[str, Any]:
    """Return the record of one number of rows per device and micro-batch."""
    record: dict[str, Any] = {
        "benchmark": "spark",
        "machine": machine(),
        "backend": BACKEND,
        "devices": devices,
        "rows": rows,
        "features": len(FEATURES),
        "batches": batches,
        "loop rows/s": plain(devices, rows, LOOPS, block=False),
        "blocks rows/s": plain(devices, rows, LOOPS, block=True),
        **others(devices),
        "load": round(os.getloadavg()[0], 1),
        "commit": commit(),
        "cores": {},
    } | ({} if java is None else {"java": java})
    command = [sys.executable, "-m", "benchmarks.spark"]
    command += ["--batches", str(batches), "--devices", str(devices)]
    command += [] if java is None else [f"--java={java}"]
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/in")
        for batch in range(batches):
            path = f"{folder}/in/{batch:04d}.parquet"
            rows_of(devices, batch, rows).to_parquet(path)
            os.utime(path, (1_700_000_000 + batch,) * 2)
        cores = 1
        while cores <= most_cores:
            console.print(f"{rows} row(s) a key, Spark on {cores} core(s) ...", style="dim")
            run = subprocess.run(
                [*command, "--child", str(cores), folder],
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode:
                raise SystemExit(run.stderr[-4000:])
            record["cores"][str(cores)] = json.loads(run.stdout.strip().splitlines()[-1])
            cores *= 2
    return record


def records() -> list[dict[str, Any]]:
    """Return the records of the runs of the page."""
    return read(RECORD)


def costs(runs: list[dict[str, Any]]) -> tuple[float, float, float, float]:
    """Return the core seconds of a micro-batch, of a device, of writing its model, and of a row.

    Four runs give the four: one row of few devices, of many, and of few as many rows as make the
    models be written, and more.
    """
    seconds = {
        (r["devices"], r["rows"]): r["devices"] * r["rows"] * r["cores"]["1"][CORE]
        for r in runs
        if "java" not in r
    }
    few, many, writes, most = (seconds[run] for run in RUNS)
    devices = RUNS[0][0]
    row = (most - writes) / devices / (RUNS[3][1] - WRITES)
    write = ((writes - few) / devices - (WRITES - 1) * row) * WRITES / (WRITES - 1)
    each = (many - few) / (RUNS[1][0] - devices)
    return few - devices * each, each - write / WRITES - row, write, row


def of_a_hundred(runs: list[dict[str, Any]]) -> float:
    """Return the core seconds of a row, a hundred of each device in a micro-batch."""
    (found,) = (r["cores"]["1"][CORE] for r in runs if "java" in r)
    return float(found)


def paper(runs: list[dict[str, Any]]) -> str:
    """Return the table that carries the runs on to many devices, on paper."""
    base, each, write, row = costs(runs)
    size, log = runs[0]["cores"]["1"][STATE], 8 * runs[0]["features"] + 4
    lines = [
        f"A micro-batch costs a core {base:.1f} s, each device in it {each * 1e3:.2f} ms more, "
        f"each row {row * 1e3:.3f} ms, and the writing of a model {write * 1e3:.2f} ms. A device "
        f"takes {size / 1000:.0f} kB of state. With {DENSE[1]} rows of each of {DENSE[0]} devices "
        f"in a micro-batch, and Java's own compiler, all that takes "
        f"{of_a_hundred(runs) * 1e3:.3f} ms per row.",
        "",
        "| devices, one row per minute each | trigger | cores | state | written |",
        "|---|---|---|---|---|",
    ]
    for devices in (10_000, 1_000_000, 100_000_000):
        for minutes in (1, 10, 60):
            share = min(1.0, minutes / WRITES)  # of the micro-batches that write a model
            used = base + devices * (each + share * write + minutes * row)
            written = devices * (share * size + (1 - share) * log * WRITES / 2)
            lines.append(
                f"| {devices:,} | {minutes} min | {used / (60 * minutes):,.2f} "
                f"| {devices * size / 1e9:,.1f} GB | {written / (60 * minutes) / 1e6:,.1f} MB/s |"
            )
    return "\n".join(lines)


def show(console: Console, record: dict[str, Any]) -> None:
    loop = record["loop rows/s"]
    title = "{devices} devices, {rows} rows per micro-batch, {features} features".format(**record)
    table = Table(title=title)
    for heading in ("", "rows/s", "of the loop", *PARTS, "spark"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("plain loop, 1 core", f"{loop:,.0f}", "1.00")
    for name, what in (("blocks", "in blocks"), ("detectors", "detectors"), ("memory", "memory")):
        rate = record[f"{name} rows/s"]
        table.add_row(f"{what}, 1 core", f"{rate:,.0f}", f"{rate / loop:.2f}")
    for cores, result in record["cores"].items():
        batch, stream = result["batch rows/s"], result["stream rows/s"]
        table.add_row(f"batch, {cores} core(s)", f"{batch:,.0f}", f"{batch / loop:.2f}")
        shares = [f"{result['shares'][part]:.0%}" for part in (*PARTS, "spark")]
        table.add_row(f"stream, {cores} core(s)", f"{stream:,.0f}", f"{stream / loop:.2f}", *shares)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
