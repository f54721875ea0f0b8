"""A small fleet on the Spark of this machine: `make fleet-demo`.

Two thousand pumps, which start with what a typical one knows, send five micro-batches. Two of them
have a fault at the end; one sends rows that are no measurements. What is printed comes out of the
query.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

from onlad import Monitor, persist
from onlad.errors import OnladError
from onlad.fleet.spark.session import session
from onlad.fleet.spark.watch import models, watch

PUMPS, BATCHES, ROWS, HISTORY = 2000, 5, 30, 1500
BUCKETS = 8  # each with a bank of 250 pumps
FEATURES = ["flow", "power", "bearing"]
SCHEMA = "pump string, time long, flow double, power double, bearing double"
FAULT = BATCHES * ROWS - 20  # when pump-7 and pump-23 fail


def measured(pumps: int, rows: int, seed: int) -> pd.DataFrame:
    """Return what pumps measure while nothing is wrong."""
    rng = np.random.default_rng(seed)
    times = np.repeat(np.arange(rows), pumps)
    load = np.sin(times / 20 + np.tile(rng.uniform(0, 6, pumps), rows))
    noise = rng.normal(size=(3, len(times)))
    return pd.DataFrame(
        {
            "pump": np.tile([f"pump-{k}" for k in range(pumps)], rows),
            "time": times,
            "flow": 50 + 9 * load + 0.5 * noise[0],
            "power": 800 + 90 * load + 5 * noise[1],
            "bearing": 41 + 3 * load + 0.2 * noise[2],
        }
    )


def fleet() -> pd.DataFrame:
    """Return what all pumps measure."""
    frame = measured(PUMPS, BATCHES * ROWS, seed=0)
    late = frame["time"] >= FAULT
    frame.loc[late & (frame["pump"] == "pump-7"), "bearing"] += 8.0
    frame.loc[late & (frame["pump"] == "pump-23"), "power"] += 150.0
    frame.loc[late & (frame["pump"] == "pump-40"), "power"] = np.inf
    return frame


def run(spark: SparkSession, folder: str, console: Console) -> DataFrame:
    """Watch the fleet as a stream, say how far it is, and return all verdicts."""
    os.mkdir(f"{folder}/in")
    frame = fleet()
    for batch in range(BATCHES):
        path = f"{folder}/in/{batch}.parquet"
        frame[frame["time"] // ROWS == batch].to_parquet(path)
        os.utime(path, (1_700_000_000 + batch,) * 2)
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    typical = Monitor().fit(measured(1, HISTORY, seed=1)[FEATURES])
    verdicts = watch(
        source.parquet(f"{folder}/in"), "pump", FEATURES, "time", typical, buckets=BUCKETS
    )
    writer = verdicts.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{folder}/said")
    shown = 0
    while query.isActive or shown < len(query.recentProgress):
        for progress in query.recentProgress[shown:]:
            rate = progress["processedRowsPerSecond"]
            rows = progress["numInputRows"]
            console.print(
                f"micro-batch {shown + 1} of {BATCHES}: {rows:,} rows, {rate:,.0f} rows/s"
            )
            shown += 1
        time.sleep(0.1)
    query.awaitTermination()  # raises what went wrong
    return spark.read.parquet(f"{folder}/said")


def table(said: DataFrame) -> Table:
    """Return the pumps with most alarms, or with rows that were refused."""
    first_cause = sf.get("causes", 0)["feature"]
    shown = (
        said.groupBy("pump")
        .agg(
            sf.sum((sf.col("is_anomaly") & (sf.col("time") < FAULT)).cast("int")).alias("before"),
            sf.sum((sf.col("is_anomaly") & (sf.col("time") >= FAULT)).cast("int")).alias("after"),
            sf.mode(sf.when(sf.col("is_anomaly"), first_cause)).alias("cause"),
            sf.count("note").alias("refused"),
            sf.mode("note").alias("note"),
        )
        .orderBy(sf.desc(sf.coalesce("after", sf.lit(0)) + sf.col("refused")), "pump")
        .limit(5)
    )
    drawn = Table(title=f"{PUMPS:,} pumps; faults of pump-7, -23 and -40 begin at {FAULT}")
    for heading in ("pump", "alarms before", "since", "first cause", "refused", "why"):
        drawn.add_column(heading, justify="left" if heading in ("pump", "why") else "right")
    for row in shown.collect():
        drawn.add_row(*("" if value is None else str(value) for value in row))
    return drawn


def main() -> int:
    """Run the demo; 1 if it could not."""
    console = Console()
    try:
        console.print("starting Spark on this machine ...", style="dim")
        with quiet():
            spark = session()
    except OnladError as error:
        print(f"onlad: {error}", file=sys.stderr)
        return 1
    with spark, tempfile.TemporaryDirectory() as folder:
        console.print(table(run(spark, folder, console)))
        (row,) = models(spark, f"{folder}/checkpoint").filter("key = 'pump-7'").collect()
        monitor = persist.from_bytes(bytes(row["model"]), "the model of pump-7")
        size = len(row["model"]) / 1024
        console.print(
            f"the model of pump-7, out of the checkpoint: {size:.0f} KiB, "
            f"{monitor.n_seen} samples of {', '.join(monitor.names)}"
        )
    return 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let what is started here, a Java, write its chatter to nowhere."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
