"""A row in Spark: prepared for Python, and given its names and types again after.

Times cross as numbers and kept columns as JSON. pandas would round what does not fit into a float,
and it takes an hour in autumn for another.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from onlad.rows import LARGEST
from onlad.streams.times import LATEST

# Full precision, and the offset, so that no time has two readings.
JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}

# What is said of a row.
SAID = (
    "ready", "score", "threshold", "p_value", "severity", "is_anomaly", "causes", "bands",
    "learned", "drift", "drifting", "note",
)  # fmt: skip

WHOLE = (st.LongType, st.IntegerType, st.ShortType, st.ByteType)
NUMBER = (*WHOLE, st.FractionalType, st.BooleanType)
CLOCK = (*WHOLE, st.FractionalType, st.TimestampType, st.TimestampNTZType, st.DateType)


def number(name: str) -> Column:
    """Return a column as float64."""
    return sf.col(name).cast("double")


def bucket(key: Column, buckets: int) -> Column:
    """Return the number of the bucket that a device is in."""
    return sf.pmod(sf.xxhash64(key), sf.lit(buckets)).cast("int")


def need_types(df: DataFrame, names: tuple[str, ...], types: tuple[type, ...], what: str) -> None:
    """Refuse columns that hold something else than `what`, in words."""
    for name in names:
        found = _type(df, name)
        if not isinstance(found, types):
            raise TypeError(
                f"column {name!r} must hold {what}, got {found.simpleString()}. Cast it, for "
                "example with try_cast, which makes a missing value of what it cannot read"
            )


@dataclass(frozen=True)
class Columns:
    """Which column of a data frame is what; `onlad.fleet.spark.watch` has the words."""

    key: str
    features: tuple[str, ...]
    time: str | None
    keep: tuple[str, ...]
    seconds: bool = False  # whether times are needed as seconds too

    def check(self, df: DataFrame) -> None:
        """Refuse, before anything runs, what could not go well."""
        if not self.features:
            raise ValueError("features is empty")
        times = () if self.time is None else (self.time,)
        shown = (self.key, *times, *self.keep)
        for names in (self.features, shown):
            if len(set(names)) < len(names):
                raise ValueError(f"a column is named twice: {', '.join(names)}")
        taken = [name for name in shown if name in SAID]
        if taken:
            raise ValueError(f"{taken[0]!r} is a column of the verdict: rename that of df")
        need_types(df, (self.key,), (*WHOLE, st.StringType), "text or whole numbers")
        need_types(df, times, CLOCK, "numbers, dates or timestamps")
        if self.seconds and not times:
            raise ValueError("patterns and maintenance need a time")
        need_types(df, self.features, NUMBER, "numbers")

    def prepared(self, df: DataFrame, buckets: int) -> DataFrame:
        """Return bucket, key, time, row, refused, kept and x0, x1, ...: what a keeper takes.

        If they are needed, also seconds since 1970.
        """
        refused = sf.when(sf.col(self.key).isNull(), f"refused: {self.key} is null")
        clock = sf.lit(0).cast("long")
        if self.time is not None:
            clock = _clock(df, self.time)
            refused = refused.when(clock.isNull() | sf.isnan(clock), self._no_time)
        for name in self.features:
            x = number(name)
            said = sf.concat(sf.lit(f"refused: {name} is "), x.cast("string"))
            refused = refused.when((sf.abs(x) > LARGEST) & ~sf.isnan(x), said)
        row = sf.lit(0) if df.isStreaming else sf.monotonically_increasing_id()
        kept = sf.to_json(sf.struct(*self.keep), JSON) if self.keep else sf.lit(None)
        return df.select(
            bucket(sf.col(self.key), buckets).alias("bucket"),
            sf.col(self.key).alias("key"),
            sf.coalesce(sf.when(~sf.isnan(clock), clock), sf.lit(0)).alias("time"),
            row.cast("long").alias("row"),
            refused.alias("refused"),
            kept.cast("string").alias("kept"),
            *([_seconds(df, str(self.time), clock).alias("seconds")] if self.seconds else []),
            *(number(name).alias(f"x{j}") for j, name in enumerate(self.features)),
        )

    def named(self, answered: DataFrame, df: DataFrame) -> DataFrame:
        """Return what a keeper answered under the names and types of `df`."""
        columns = [sf.col("key").alias(self.key)]
        if self.time is not None:
            known = ~sf.col("note").eqNullSafe(self._no_time)
            columns.append(sf.when(known, _time(_type(df, self.time))).alias(self.time))
        if self.keep:
            schema = df.select(*self.keep).schema
            answered = answered.withColumn("kept", sf.from_json("kept", schema, JSON))
            columns += [sf.col("kept").getField(field.name).alias(field.name) for field in schema]
        said = {name: sf.col(name) for name in SAID}
        said |= {"causes": self._causes(), "bands": self._bands()}
        return answered.select(*columns, *(said[name].alias(name) for name in SAID))

    def _causes(self) -> Column:
        """Return features and their shares, the largest first."""

        def cause(j: Column, k: Column) -> Column:
            return sf.struct(self._name(j), sf.get("shares", k).alias("share"))

        return sf.filter(sf.transform("order", cause), lambda each: each["share"] > 0)

    def _bands(self) -> Column:
        """Return what was expected of each feature, and between which values it should lie."""

        def band(value: Column, j: Column) -> Column:
            half = sf.get("half", j)
            low, high = (value - half).alias("low"), (value + half).alias("high")
            side = sf.when(sf.get("side", j) > 0, "above").when(sf.get("side", j) < 0, "below")
            return sf.struct(
                self._name(j), value.alias("expected"), low, high, side.alias("direction")
            )

        def known(each: Column) -> Column:
            return each["expected"].isNotNull() & ~sf.isnan(each["expected"])

        return sf.filter(sf.transform("expected", band), known)

    def _name(self, j: Column) -> Column:
        return sf.get(sf.array(*map(sf.lit, self.features)), j).alias("feature")

    @property
    def _no_time(self) -> str:
        return f"refused: {self.time} is null"


def _clock(df: DataFrame, time: str) -> Column:
    """Return the time as a number: whole, but for times that are fractions themselves."""
    found, column = _type(df, time), sf.col(time)
    if isinstance(found, st.DateType):
        return sf.unix_date(column).cast("long")
    if isinstance(found, st.TimestampType):
        return sf.unix_micros(column)
    if isinstance(found, st.TimestampNTZType):
        return sf.timestamp_diff("MICROSECOND", _epoch(), column)
    return column.cast("double" if isinstance(found, st.FractionalType) else "long")


def _seconds(df: DataFrame, time: str, clock: Column) -> Column:
    """Return what `_clock` returned as seconds; a number is in s, ms, us or ns by its size."""
    found, value = _type(df, time), clock.cast("double")
    if isinstance(found, st.DateType):
        return value * 86_400.0
    if isinstance(found, (st.TimestampType, st.TimestampNTZType)):
        return value / 1e6
    size = sf.abs(value)
    unit = sf.when(size < LATEST, 1.0).when(size < 1e3 * LATEST, 1e3)
    return value / unit.when(size < 1e6 * LATEST, 1e6).otherwise(1e9)


def _time(found: st.DataType) -> Column:
    """Return the column `time`, a number, as what it was."""
    value = sf.col("time")
    if isinstance(found, st.DateType):
        return sf.date_from_unix_date(value.cast("int"))
    if isinstance(found, st.TimestampType):
        return sf.timestamp_micros(value)
    if isinstance(found, st.TimestampNTZType):
        return sf.timestamp_add("MICROSECOND", value, _epoch())
    return value.cast(found)


def _epoch() -> Column:
    return sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")


def _type(df: DataFrame, name: str) -> st.DataType:
    return df.select(sf.col(name)).schema[0].dataType
