"""Rows in Python: those of many devices, to the bank of monitors in which they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import types as st
from pyspark.sql.streaming import StatefulProcessor

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.monitors import MonitorBank
from onlad.fleet.spark.herd import FOLDED, Kept, herd_of, memory
from onlad.fleet.verdicts import FleetVerdicts
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.rules import Rules
from onlad.verdict import Verdicts

NONE = Rules()
NUMBERS = ("score", "threshold", "p_value", "severity")
FLAGS = ("ready", "is_anomaly", "learned", "drift")

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
        fleet, now = Fleet(self, self._kept()), self._now(timerValues)
        fleet.take_over(initialState, now)
        self._keep(fleet.kept(now))

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
        fleet = Fleet(self, kept)
        if self.timed:
            _mark(note, code, told["time"], fleet.last_of(keys, now))
        watched = pd.isna(note)
        said: dict[str, Any] = {name: () for name in VERDICT.names if name != "note"}
        state = None
        if watched.any():
            sent = np.unique(code[watched])
            place = np.zeros(len(keys), "int64")
            place[sent] = fleet.places([keys[k] for k in sent.tolist()], now)
            X = rows[[f"x{j}" for j in range(len(self.names))]].to_numpy("float64")[watched]
            seconds = rows["seconds"].to_numpy()[watched] if "seconds" in rows else None
            said = fleet.observe(place[code[watched]], X, seconds)
            ends = np.append(np.flatnonzero(np.diff(code[watched])), watched.sum() - 1)
            newest = told["time"][watched][ends].tolist()
            state = fleet.noted(place[code[watched][ends]].tolist(), newest, now)
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


@lru_cache(maxsize=8)
def _monitor(data: bytes) -> Monitor:
    """Return the monitor that devices start with, which is never modified.

    Its file is read once in a process, not in each micro-batch of each bucket.
    """
    monitor: Monitor = persist.from_bytes(data)
    return monitor


class Fleet:
    """The devices of a bucket."""

    def __init__(self, keeper: Keeper, kept: Kept | None) -> None:
        self._names, self._renew, self._expire = keeper.names, keeper.renew, keeper.expire
        self._start = _monitor(keeper.start)
        self._features: Names = self._start.names or self._names
        self._keeper, self._kept = keeper, kept
        self._herd: MonitorBank | None = None
        self._size = 0  # of its file
        self._keys: list[Any] = [] if kept is None else list(kept.keys)
        self._last: list[Any] = [] if kept is None else list(kept.last)
        self._heard: list[int] = [] if kept is None else list(kept.heard)
        self._place = {key: at for at, key in enumerate(self._keys)}
        self._changed = kept is None  # other devices than in the bank that was written
        self._devices, self._rows = (b"", b"") if kept is None else (kept.devices, kept.rows)

    @property
    def herd(self) -> MonitorBank:
        """The monitors, which are made of the state when they are needed."""
        if self._herd is None:
            self._herd, self._size = self._made()
        return self._herd

    def _made(self) -> tuple[MonitorBank, int]:
        """Return the bank of the state, and its bytes in the store."""
        kept = self._kept
        if kept is None:
            fresh = Monitor.resumed(self._start.settings(), names=self._features)
            return MonitorBank(fresh, 0, threads=1), 0
        known = memory.take(kept.mark)
        if known is not None:
            return known
        data = self._keeper.stored() if kept.bank is None else kept.bank
        name = f"the state of {self._keys[0]} and {len(self._keys) - 1} more"
        return herd_of(kept._replace(bank=data), name), len(data)

    def last_of(self, keys: Sequence[Any], now: int) -> list[Any]:
        """Return the time of the last row of each device; None if it has none."""
        places = (self._place.get(key) for key in keys)
        return [None if at is None or self._expired(at, now) else self._last[at] for at in places]

    def places(self, keys: Sequence[Any], now: int) -> list[int]:
        """Return where devices are in the herd; those that are new, or are renewed, are added.

        Features that came later are watched from here on, and those that are gone are missing.
        """
        herd, gone = self.herd, [at for at in range(len(self._keys)) if self._expired(at, now)]
        for key in keys:
            at = self._place.get(key)
            if at is None or set(herd.names_of(at)) == set(self._names):
                continue
            if self._renew:
                gone.append(at)
            else:
                self._widen(key, at)
        self._remove(set(gone))
        new = [key for key in keys if key not in self._place]
        if new:
            self._changed = True
            herd.grow(len(new), self._start, self._features)
            self._note(new, [None] * len(new), now)
        return [self._place[key] for key in keys]

    def _widen(self, key: Any, at: int) -> None:
        """Let a device watch features that came later."""
        known = self.herd.names_of(at)
        later = tuple(name for name in self._names if name not in known)
        try:
            if len(later) == len(self._names):
                raise ValueError("none of them is known")
            if later:
                self.herd.widen(at, later)
                self._changed = True
        except ValueError as error:
            raise OnladError(
                f"the model of {key} knows {list(known)}, but features are {list(self._names)}: "
                f"{error}. Start with a new checkpoint, or with renew=True to let each such key "
                "learn again from nothing"
            ) from None

    def observe(self, places: Array, X: Array, seconds: Array | None) -> dict[str, Any]:
        """Return columns of verdicts on rows of devices, all but the note."""
        herd, names, rules = self.herd, self._names, self._keeper.rules
        times, pause = None, np.zeros(len(X), bool)
        if seconds is not None:
            pause = rules.calendar.during(seconds)
            times = rules.calendar.local(seconds) if self._keeper.patterns else None
        if times is None and np.isin(places, herd.timed).any():
            raise OnladError("a model has learned patterns of time: give `patterns` again")
        wide = np.full((len(X), herd.widest), np.nan)
        own = [herd.names_of(at) for at in range(len(herd))]
        rows = {}  # by the features of a device: which rows, and the columns of the features there
        for shape in {own[at] for at in np.unique(places).tolist()}:
            mine = np.array([each == shape for each in own])[places]
            at = np.array([(j, names.index(str(n))) for j, n in enumerate(shape) if n in names])
            rows[shape] = mine, at
            wide[np.ix_(mine, at[:, 0])] = X[np.ix_(mine, at[:, 1])]
        said = herd.observe_rows(places, wide, times=times, pause=pause, details="all")
        if seconds is not None:
            clock = np.full(len(X), np.nan) if times is None else times
            wide = np.column_stack((clock, pause, wide))
        before = len(self._devices) // 4  # rows, which may be kept in another way
        self._changed |= len(self._rows) != before * wide.strides[0]
        self._devices += places.astype("int32").tobytes()
        self._rows += wide.tobytes()
        found = np.full((len(X), 3, len(names)), np.nan)  # shares, expected, half widths of bands
        for mine, at in rows.values():
            every = np.arange(3)
            found[np.ix_(mine, every, at[:, 1])] = said.wide[np.ix_(mine, every, at[:, 0])]
        shares, expected, half = found.swapaxes(0, 1)
        shares = self._rule(said, X, shares, expected, seconds)
        drifting = zip(places.tolist(), said.drifting.tolist(), strict=True)
        order = np.argsort(-shares, axis=1, kind="stable").astype("int32")
        off = X - expected
        return {name: getattr(said, name) for name in NUMBERS + FLAGS} | {
            "drifting": [own[at][j] if j >= 0 else None for at, j in drifting],
            "order": order,
            "shares": np.take_along_axis(shares, order, axis=1),
            "expected": expected,
            "half": half,
            "side": np.where(np.abs(off) > half, np.sign(off), 0.0).astype("int32"),
        }

    def _rule(
        self, said: FleetVerdicts, X: Array, shares: Array, expected: Array, seconds: Array | None
    ) -> Array:
        """Take back anomalies that the rules do not want; return the shares that are left."""
        verdicts = Verdicts(self._names, len(X))
        verdicts.values, verdicts.shares = X, np.nan_to_num(shares)
        verdicts.expected[:], verdicts.is_anomaly = expected, said.is_anomaly
        self._keeper.rules.apply(verdicts, seconds)
        return verdicts.shares

    def noted(self, places: Sequence[int], times: Sequence[Any], now: int) -> Kept:
        """Note the last rows of devices, and return the new state."""
        for at, time in zip(places, times, strict=True):
            self._last[at], self._heard[at] = time, now
        return self.kept(now)

    def take_over(self, models: pd.DataFrame, now: int) -> None:
        """Add devices with their models, or replace them."""
        for row in models.itertuples(index=False):
            monitor: Monitor = persist.from_bytes(bytes(row.model), f"the model of {row.key}")
            self._remove({self._place[row.key]} if row.key in self._place else set())
            self.herd.grow(1, monitor, monitor.names or self._features)
            self._changed = True
            self._note([row.key], [row.time], now)

    def kept(self, now: int) -> Kept:
        """Return the state."""
        mark, herd, kept = os.urandom(16), self.herd, self._kept
        if kept is None or self._due(kept.written, now):
            data = herd.to_bytes()
            kept, self._size = Kept(data, [], [], [], written=now), len(data)
        else:
            kept = kept._replace(devices=self._devices, rows=self._rows)
        memory.put(mark, herd, self._size)
        return kept._replace(keys=self._keys, last=self._last, heard=self._heard, mark=mark)

    def _due(self, written: int, now: int) -> bool:
        """Return whether the bank has to be written."""
        old = self._expire is not None and now - written >= self._expire
        return old or self._changed or len(self._devices) // 4 > FOLDED * len(self._keys)

    def _expired(self, at: int, now: int) -> bool:
        return self._expire is not None and now - self._heard[at] >= self._expire

    def _note(self, keys: Sequence[Any], times: Sequence[Any], now: int) -> None:
        """Note devices that were added to the herd."""
        self._place |= {key: at for at, key in enumerate(keys, len(self._keys))}
        self._keys += keys
        self._last += times
        self._heard += [now] * len(keys)

    def _remove(self, gone: set[int]) -> None:
        if not gone:
            return
        self._changed = True
        self.herd.remove(sorted(gone))
        self._keys, self._last, self._heard = (
            [value for at, value in enumerate(values) if at not in gone]
            for values in (self._keys, self._last, self._heard)
        )
        self._place = {key: at for at, key in enumerate(self._keys)}


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
    if np.ndim(values) == 1 and getattr(values, "dtype", None) == "float64":
        column: Array = np.full(len(watched), np.nan)  # which Spark reads as null
        column[watched] = values
        return column
    column = np.full(len(watched), None, object)
    values = values.tolist() if getattr(values, "ndim", 0) == 1 else values
    for at, each in zip(np.flatnonzero(watched).tolist(), values, strict=True):
        column[at] = each
    return column
