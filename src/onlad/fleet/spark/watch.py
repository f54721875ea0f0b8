"""`watch`: rows in, verdicts out, one monitor per key. `models`: the monitors of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.spark.columns import Columns
from onlad.fleet.spark.keeper import Keeper, answers
from onlad.fleet.spark.session import PROVIDER, ROCKSDB
from onlad.monitor import Monitor


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
        Start again where a key's model has other features than `features`; else that is an error.
    """
    columns, start = Columns(key, tuple(features), time, tuple(keep)), monitor or Monitor()
    columns.check(df)
    if start.names and set(start.names) != set(columns.features):
        raise ValueError(f"monitor knows {list(start.names)}, but features are {list(features)}")
    if expire is not None and expire <= timedelta(0):
        raise ValueError(f"expire must be above 0, got {expire!r}")
    rows = columns.prepared(df)
    clock = None if time is None else rows.schema["time"].dataType
    keeper = Keeper(columns.features, persist.to_bytes(start), clock, expire, renew)
    keys, schema = rows.groupBy("key"), answers(rows.schema)
    if not df.isStreaming:
        return columns.named(
            keys.applyInPandas(lambda all_rows: keeper.answer(all_rows)[0], schema), df
        )
    if df.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise OnladError(
            f"the state of a monitor needs RocksDB: call spark.conf.set({PROVIDER!r}, {ROCKSDB!r})"
        )
    mode = "None" if expire is None else "ProcessingTime"
    return columns.named(keys.transformWithStateInPandas(keeper, schema, "Append", mode), df)


def models(spark: SparkSession, checkpoint: str, operator: int = 0) -> DataFrame:
    """Return the models in the checkpoint of a streaming query: key, time of its last row, model.

    ``model`` holds the bytes of a model file: write them to a file for `onlad.load`, or give them
    to `onlad.persist.from_bytes`. `operator` counts the stateful steps of a query that has more.
    """
    reader = spark.read.format("statestore").option("operatorId", operator)
    state = reader.option("stateVarName", "model").load(checkpoint)
    return state.select("key.key", sf.col("value.last").alias("time"), "value.model")
