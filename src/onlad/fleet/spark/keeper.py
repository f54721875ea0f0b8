"""A row in Python: with the other rows of its key, to the monitor of that key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import types as st
from pyspark.sql.streaming import StatefulProcessor

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.verdict import Verdicts

# What is said of a row, besides its key, its time and the columns that are kept.
NUMBERS = ("score", "threshold", "p_value", "severity")
FLAGS = ("ready", "is_anomaly", "learned", "drift")
BAND = st.StructType().add("feature", "string").add("expected", "double")
BAND = BAND.add("low", "double").add("high", "double")
CAUSE = st.StructType().add("feature", "string").add("share", "double")  # a map has no order
VERDICT = st.StructType(
    [
        st.StructField("ready", st.BooleanType()),
        *(st.StructField(name, st.DoubleType()) for name in NUMBERS),
        st.StructField("is_anomaly", st.BooleanType()),
        st.StructField("causes", st.ArrayType(CAUSE)),
        st.StructField("bands", st.ArrayType(BAND)),
        st.StructField("learned", st.BooleanType()),
        st.StructField("drift", st.BooleanType()),
        st.StructField("drifting", st.StringType()),
        st.StructField("note", st.StringType()),
    ]
)


def answers(rows: st.StructType) -> st.StructType:
    """Return the columns that a keeper answers prepared rows with."""
    return st.StructType([*(rows[name] for name in ("key", "time", "kept")), *VERDICT.fields])


class Keeper(StatefulProcessor):
    """Answers the rows of one key. Its state is a model file and the time of the last row.

    Parameters
    ----------
    names
        Of the features; their columns are x0, x1, ...
    start
        The model file that a key starts with.
    clock
        Type of the time, or None when there is no time.
    expire
        How long a key without rows is kept.
    renew
        Whether a model of other features is replaced.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        start: bytes,
        clock: st.DataType | None,
        expire: timedelta | None,
        renew: bool,
    ) -> None:
        self.names, self.start, self.renew = names, start, renew
        self.timed = clock is not None
        self.schema = st.StructType().add("model", "binary").add("last", clock or st.LongType())
        self.expire = None if expire is None else int(expire.total_seconds() * 1000)

    # -- what Spark calls ---------------------------------------------------------------------

    def init(self, handle: Any) -> None:
        """Say what the state of a key is."""
        self.state = handle.getValueState("model", self.schema, self.expire)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Answer the rows of one key in a micro-batch."""
        model, last = self.state.get() or (None, None)
        answered, state = self.answer(pd.concat(list(rows)), model, last)
        if state is not None:
            self.state.update(state)
        yield answered

    def close(self) -> None:
        """Do nothing: the state is Spark's."""

    # -- rows ---------------------------------------------------------------------------------

    def answer(
        self, rows: pd.DataFrame, model: bytes | None = None, last: Any = None
    ) -> tuple[pd.DataFrame, tuple[bytes, Any] | None]:
        """Return one answer per row, and the new state if a row was watched."""
        rows = self.ordered(rows)
        # Plain arrays: most calls have few rows, and pandas takes its time for each column.
        told = {name: rows[name].to_numpy() for name in ("key", "time", "kept")}
        note = rows["refused"].to_numpy(object, copy=True)
        if self.timed:
            _mark(note, told["time"], last)
        watched = pd.isna(note)
        if not watched.any():
            nothing = _said(watched, Verdicts(self.names, 0))
            return pd.DataFrame(told | nothing | {"note": note}), None
        monitor = self.monitor(model, told["key"][0])
        X: Any = rows[[f"x{j}" for j in range(len(self.names))]].to_numpy("float64")[watched]
        if monitor.names != self.names:
            X = pd.DataFrame(X, columns=list(self.names))
        said = _said(watched, monitor.observe_many(X))
        state = persist.to_bytes(monitor), told["time"][watched][-1].item()
        return pd.DataFrame(told | said | {"note": note}), state

    def ordered(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows by time, or without a time in the order of a batch data frame."""
        by = "time" if self.timed else "row"
        steps = np.diff(rows[by].to_numpy())
        if (steps < 0).any():
            rows = rows.sort_values(by, kind="stable")
            steps = np.diff(rows[by].to_numpy())
        if self.timed and (steps == 0).any():
            # By content too: the one that is watched must be the same one after a restart.
            features = (f"x{j}" for j in range(len(self.names)))
            rows = rows.sort_values(["time", "refused", *features, "kept"])
        return rows

    def monitor(self, model: bytes | None, key: Any) -> Monitor:
        """Return the monitor of a key: that of its state, or a new one."""
        if model is not None:
            monitor: Monitor = persist.from_bytes(bytes(model), f"the state of {key}")
            if set(monitor.names) == set(self.names):
                return monitor
            if not self.renew:
                raise OnladError(
                    f"the model of {key} knows {list(monitor.names)}, but features are "
                    f"{list(self.names)}. Start with a new checkpoint, or with renew=True to "
                    "let each such key learn again from nothing"
                )
        return persist.from_bytes(self.start)


def _mark(note: Array, times: Array, last: Any) -> None:
    """Note which of the rows, in order of time, come after a row that is later or as late."""
    fine = np.flatnonzero(pd.isna(note))
    now = times[fine]
    again = np.zeros(len(now), bool)
    again[1:] = now[1:] == now[:-1]
    if last is not None:
        again |= now == last
    note[fine[again]] = "repeated"
    if last is not None:
        note[fine[now < last]] = "late"


def _said(watched: Array, verdicts: Verdicts) -> dict[str, Array]:
    """Return the columns of the verdicts, in the rows that were watched, else null.

    Spark wants columns, so this is beside `onlad.report.record` by design.
    """
    columns: dict[str, Array] = {}
    for name in NUMBERS:
        columns[name] = np.full(len(watched), np.nan)  # which Spark reads as null
    for name in (*FLAGS, "causes", "bands", "drifting"):
        columns[name] = np.full(len(watched), None, object)
    for name in NUMBERS + FLAGS:
        columns[name][watched] = getattr(verdicts, name)
    for at, verdict in zip(np.flatnonzero(watched), verdicts, strict=True):
        causes = verdict.causes.items()
        columns["causes"][at] = [{"feature": name, "share": share} for name, share in causes]
        columns["drifting"][at] = verdict.drifting
    bands = (verdicts.expected, verdicts.low, verdicts.high)
    for i, at in enumerate(np.flatnonzero(watched).tolist()):
        rows = zip(verdicts.names, *(band[i].tolist() for band in bands), strict=True)
        columns["bands"][at] = [
            {"feature": name, "expected": expected, "low": low, "high": high}
            for name, expected, low, high in rows
            if not np.isnan(expected)
        ]
    return columns
