"""`watch`: rows in, verdicts out, one monitor per key. `models`: the monitors of a checkpoint.

Spark's cost of a state is shared by many devices: a state holds a bank of them, a bucket by the
hash of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from onlad import persist, samples
from onlad.errors import OnladError
from onlad.fleet.spark.columns import Columns, bucket
from onlad.fleet.spark.herd import Kept, herd_of
from onlad.fleet.spark.keeper import NONE, Keeper, answers
from onlad.fleet.spark.session import PROVIDER, ROCKSDB
from onlad.monitor import Monitor
from onlad.rules import Rules

BUCKETS = 32  # enough for some ten thousand devices


def watch(
    df: DataFrame,
    key: str,
    features: Sequence[str],
    time: str | None = None,
    monitor: Monitor | None = None,
    *,
    keep: Sequence[str] = (),
    expire: timedelta | None = None,
    renew: bool = False,
    patterns: bool = False,
    rules: Rules = NONE,
    buckets: int = BUCKETS,
    models: DataFrame | None = None,
) -> DataFrame:
    """Return the verdict on each row of `df`, with one monitor for each value of `key`.

    Each row has exactly one answer. `docs/howto/spark.md` says what becomes of rows that are late,
    repeated or no measurement: `note` names it, and the verdict is null.

    Parameters
    ----------
    df
        A streaming data frame (the monitors live in the state store) or a batch one.
    key
        The column of the device, text or whole numbers.
    features
        The columns of the sensors, numbers; null and NaN are missing values.
    time
        The column that orders the rows of a key: whole numbers, float, date or timestamp. Without
        it rows are taken in the order of the data frame, which a failure may change.
    monitor
        What each key starts with: settings, or a monitor that has watched a typical device.
    keep
        More columns of `df` to stand beside the verdict.
    expire
        Forget a key that sent nothing for this long, by Spark's clock. Streaming only.
    renew
        Start again where a key's model has other features than `features`. Else those that came
        later are watched from there on, without relearning, and those that are gone are missing.
    patterns
        Learn patterns of a day and of a week from `time`, by the clock of the zone of `rules`.
        Numbers are in s, ms, us or ns since 1970. It is for new keys, which then take longer.
    rules
        Deadbands, sides and roles of sensors, and times of maintenance (`onlad.rules.Rules`).
    buckets
        States among which the keys are shared out: one for each hundred or two of them. A
        checkpoint keeps its number.
    models
        What `models` returned of another checkpoint, from which its keys go on: with another number
        of buckets, or on another number of partitions. Streaming only, and for a new checkpoint.
    """
    start, seconds = monitor or Monitor(), patterns or bool(rules.maintenance)
    columns = Columns(key, tuple(features), time, tuple(keep), seconds)
    columns.check(df)
    if rules.incidents_per_day is not None:
        raise ValueError("rows have no incidents: rules cannot have incidents_per_day here")
    if start.n_seen and start.timed != patterns:
        raise ValueError("a monitor that has learned patterns of time needs `patterns`, no other")
    if start.names and set(start.names) != set(columns.features):
        raise ValueError(f"monitor knows {list(start.names)}, but features are {list(features)}")
    if expire is not None and expire <= timedelta(0):
        raise ValueError(f"expire must be above 0, got {expire!r}")
    rows = columns.prepared(df, samples.whole("buckets", buckets, 1))
    clock = None if time is None else rows.schema["time"].dataType
    kind = rows.schema["key"].dataType
    data = persist.to_bytes(start)
    keeper = Keeper(
        columns.features, data, kind, clock, expire=expire, renew=renew, patterns=patterns,
        rules=rules,
    )  # fmt: skip
    keys, schema = rows.groupBy("bucket"), answers(rows.schema)
    if not df.isStreaming:
        if models is not None:
            raise ValueError("models are for a streaming data frame")
        return columns.named(
            keys.applyInPandas(lambda all_rows: keeper.answer(all_rows)[0], schema), df
        )
    if df.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise OnladError(
            f"the state of a monitor needs RocksDB: call spark.conf.set({PROVIDER!r}, {ROCKSDB!r})"
        )
    mode = "None" if expire is None else "ProcessingTime"
    first = None
    if models is not None:
        of = bucket(sf.col("key"), buckets).alias("bucket")
        first = models.select(of, "key", "time", "model").groupBy("bucket")
    answered = keys.transformWithStateInPandas(keeper, schema, "Append", mode, first)
    return columns.named(answered, df)


def models(spark: SparkSession, checkpoint: str, operator: int = 0) -> DataFrame:
    """Return the models in the checkpoint of a streaming query: key, time of its last row, model.

    ``model`` holds the bytes of a model file: write them to a file for `onlad.load`, or give them
    to `onlad.persist.from_bytes`. `operator` counts the stateful steps of a query that has more.
    """
    reader = spark.read.format("statestore").option("operatorId", operator)
    banks, since = (
        reader.option("stateVarName", name).load(checkpoint).select("key", "value.*")
        for name in ("bank", "since")
    )
    state = banks.join(since, "key").drop("key")
    key, time = (state.schema[name].dataType.elementType for name in ("keys", "last"))
    schema = st.StructType().add("key", key).add("time", time).add("model", "binary")
    return state.mapInPandas(_files, schema)


def _files(states: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield the devices of each bucket."""
    for frame in states:
        for state in frame.itertuples(index=False):
            herd = herd_of(Kept(*state), "the state of a bucket")
            files = [persist.to_bytes(herd[at]) for at in range(len(herd))]
            yield pd.DataFrame({"key": state.keys, "time": state.last, "model": files})
