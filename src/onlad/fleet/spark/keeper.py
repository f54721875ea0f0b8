"""Rows in Python: those of many devices, to the bank of monitors in which they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import types as st
from pyspark.sql.streaming import StatefulProcessor

from onlad.fleet.spark.herd import FLAGS, NUMBERS, Herd, Kept
from onlad.reference import Array
from onlad.rules import Rules

NONE = Rules()

# What is said of a row, besides its key, its time and the columns that are kept.
# Arrays of features cross as arrays of numbers: Spark would convert each struct of them by itself.
WIDE: dict[str, st.DataType] = {
    "order": st.IntegerType(),  # of the features, by their shares
    "shares": st.DoubleType(),  # in this order
    "expected": st.DoubleType(),
    "half": st.DoubleType(),  # of the width of a band
    "side": st.IntegerType(),  # 1 above the band, -1 below
}
VERDICT = st.StructType(
    [
        *(st.StructField(name, st.DoubleType()) for name in NUMBERS),
        *(st.StructField(name, st.BooleanType()) for name in FLAGS),
        *(st.StructField(name, st.ArrayType(kind)) for name, kind in WIDE.items()),
        st.StructField("drifting", st.StringType()),
        st.StructField("note", st.StringType()),
    ]
)


def answers(rows: st.StructType) -> st.StructType:
    """Return the columns that a keeper answers prepared rows with."""
    return st.StructType([*(rows[name] for name in ("key", "time", "kept")), *VERDICT.fields])


class Keeper(StatefulProcessor):
    """Answers the rows of a bucket of devices.

    The features `names` are the columns x0, x1, ... A device starts with the model file `start`.
    `key` and `clock` are the types of the key and of the time, None when there is no time. The rest
    is as `onlad.fleet.spark.watch` has it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        start: bytes,
        key: st.DataType,
        clock: st.DataType | None,
        *,
        expire: timedelta | None = None,
        renew: bool = False,
        patterns: bool = False,
        rules: Rules = NONE,
    ) -> None:
        self.names, self.start, self.renew = names, start, renew
        self.patterns, self.rules = patterns, rules
        self.timed = clock is not None
        self.schema = (
            st.StructType()
            .add("keys", st.ArrayType(key))
            .add("last", st.ArrayType(clock or st.LongType()))
            .add("heard", st.ArrayType(st.LongType()))
            .add("devices", "binary")
            .add("rows", "binary")
            .add("mark", "binary")
            .add("written", "long")
        )
        self.expire = None if expire is None else int(expire.total_seconds() * 1000)

    # -- what Spark calls ---------------------------------------------------------------------

    def init(self, handle: Any) -> None:
        """Say what the state of a bucket is."""
        # A bank is written again before it is as old as `expire`: it outlives the rest.
        twice = None if self.expire is None else 2 * self.expire
        self.banks = handle.getValueState("bank", st.StructType().add("bank", "binary"), twice)
        self.since = handle.getValueState("since", self.schema, self.expire)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Answer the rows of one bucket in a micro-batch."""
        now = self._now(timerValues)
        answered, state = self.answer(pd.concat(list(rows)), self._kept(), now)
        if state is not None:
            self._keep(state)
        yield answered

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        """Take over models of another checkpoint."""
        herd, now = Herd(self, self._kept()), self._now(timerValues)
        herd.take_over(initialState, now)
        self._keep(herd.kept(now))

    def stored(self) -> bytes:
        """Return the bank of the bucket as it was written."""
        return bytes(self.banks.get()[0])

    def _kept(self) -> Kept | None:
        found = self.since.get()
        return None if found is None else Kept(None, *found)

    def _keep(self, state: Kept) -> None:
        if state.bank is not None:
            self.banks.update((state.bank,))
        self.since.update(tuple(state[1:]))

    def close(self) -> None:
        """Do nothing: the state is Spark's."""

    def _now(self, timerValues: Any) -> int:
        return 0 if self.expire is None else int(timerValues.getCurrentProcessingTimeInMs())

    # -- rows ---------------------------------------------------------------------------------

    def answer(
        self, rows: pd.DataFrame, kept: Kept | None = None, now: int = 0
    ) -> tuple[pd.DataFrame, Kept | None]:
        """Return one answer per row, and the new state if a row was watched."""
        rows, code, keys = self.ordered(rows)
        # Plain arrays: pandas takes its time for each column.
        told = {name: rows[name].to_numpy() for name in ("key", "time", "kept")}
        note = rows["refused"].to_numpy(object, copy=True)
        herd = Herd(self, kept)
        if self.timed:
            _mark(note, code, told["time"], herd.last_of(keys, now))
        watched = pd.isna(note)
        said: dict[str, Any] = {name: () for name in VERDICT.names if name != "note"}
        state = None
        if watched.any():
            own = code[watched]
            sent = np.unique(own)
            present = [keys[k] for k in sent.tolist()]
            places = np.array(herd.places(present, now))[np.searchsorted(sent, own)]
            X = rows[[f"x{j}" for j in range(len(self.names))]].to_numpy("float64")[watched]
            seconds = rows["seconds"].to_numpy()[watched] if "seconds" in rows else None
            said = herd.observe(places, X, seconds)
            newest = told["time"][watched][np.searchsorted(own, sent, "right") - 1].tolist()
            state = herd.noted(present, newest, now)
        spread = {name: _spread(values, watched) for name, values in said.items()}
        return pd.DataFrame(told | spread | {"note": note}), state

    def ordered(self, rows: pd.DataFrame) -> tuple[pd.DataFrame, Array, list[Any]]:
        """Return rows by device and time, the number of each row's device, and their keys.

        Without a time they stay in the order of a batch data frame.
        """
        code, keys = pd.factorize(rows["key"], sort=True)  # a null is -1
        by = rows["time" if self.timed else "row"].to_numpy()
        order = np.lexsort((by, code))
        rows, code, by = rows.iloc[order], code[order], by[order]
        if self.timed and ((np.diff(by) == 0) & (np.diff(code) == 0)).any():
            # By content too: the one that is watched must be the same one after a restart.
            features = (f"x{j}" for j in range(len(self.names)))
            content = ["time", "refused", *features, "kept"]
            order = rows.assign(code=code).reset_index(drop=True)
            order = order.sort_values(["code", *content]).index.to_numpy()
            rows, code = rows.iloc[order], code[order]
        return rows, code, [key.item() if isinstance(key, np.generic) else key for key in keys]


def _mark(note: Array, code: Array, times: Array, last: Sequence[Any]) -> None:
    """Note which rows, in order of device and time, come after one that is later or as late."""
    fine = np.flatnonzero(pd.isna(note))
    own, now = code[fine], times[fine]
    again = np.zeros(len(now), bool)
    again[1:] = (now[1:] == now[:-1]) & (own[1:] == own[:-1])
    known = np.array([time is not None for time in last], bool)[own]
    before = np.array([0 if time is None else time for time in last], now.dtype)[own]
    again |= known & (now == before)
    note[fine[again]] = "repeated"
    note[fine[known & (now < before)]] = "late"


def _spread(values: Any, watched: Array) -> Array:
    """Return a column with values in the rows that were watched, and null in the others."""
    known = isinstance(values, np.ndarray)
    if known and values.ndim == 1 and values.dtype == "float64":
        column: Array = np.full(len(watched), np.nan)  # which Spark reads as null
        column[watched] = values
        return column
    # Lists of Python's numbers: Spark would take an array of NumPy apart number by number.
    column, own = np.full(len(watched), None, object), np.empty(len(values), object)
    own[:] = values.tolist() if known else values
    column[watched] = own
    return column
