"""Rows in Python: those of many devices, to the bank of monitors in which they are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import types as st
from pyspark.sql.streaming import StatefulProcessor

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.monitors import MonitorBank
from onlad.fleet.spark.kept import FOLDED, Kept, bank_of, memory
from onlad.fleet.verdicts import FleetVerdicts
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names

# What is said of a row, besides its key, its time and the columns that are kept.
NUMBERS = ("score", "threshold", "p_value", "severity")
FLAGS = ("ready", "is_anomaly", "learned", "drift")
# Arrays of features cross as arrays of numbers: Spark would convert each struct of them by itself.
WIDE: dict[str, st.DataType] = {
    "order": st.IntegerType(),  # of the features, by their shares
    "shares": st.DoubleType(),  # in this order
    "expected": st.DoubleType(),
    "half": st.DoubleType(),  # of the width of a band
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

    Parameters
    ----------
    names
        Of the features; their columns are x0, x1, ...
    start
        The model file that a device starts with.
    key
        Type of the key.
    clock
        Type of the time, or None when there is no time.
    expire
        How long a device without rows is kept.
    renew
        Whether a model of other features is replaced.
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
    ) -> None:
        self.names, self.start, self.renew = names, start, renew
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
        said = _Said(watched)
        state = None
        if watched.any():
            sent = np.unique(code[watched])
            place = np.zeros(len(keys), "int64")
            place[sent] = fleet.places([keys[k] for k in sent.tolist()], now)
            X = rows[[f"x{j}" for j in range(len(self.names))]].to_numpy("float64")[watched]
            said.fill(*fleet.observe(place[code[watched]], X))
            ends = np.append(np.flatnonzero(np.diff(code[watched])), watched.sum() - 1)
            newest = told["time"][watched][ends].tolist()
            state = fleet.noted(place[code[watched][ends]].tolist(), newest, now)
        return pd.DataFrame(told | said.columns | {"note": note}), state

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


class Fleet:
    """The devices of a bucket."""

    def __init__(self, keeper: Keeper, kept: Kept | None) -> None:
        self._names, self._renew, self._expire = keeper.names, keeper.renew, keeper.expire
        self._start: Monitor = persist.from_bytes(keeper.start)
        self._features: Names = self._start.names or self._names
        self._keeper, self._kept = keeper, kept
        self._bank: MonitorBank | None = None
        self._size = 0  # of its file
        self._keys: list[Any] = [] if kept is None else list(kept.keys)
        self._last: list[Any] = [] if kept is None else list(kept.last)
        self._heard: list[int] = [] if kept is None else list(kept.heard)
        self._place = {key: at for at, key in enumerate(self._keys)}
        self._changed = kept is None  # other devices than in the bank that was written
        self._devices, self._rows = (b"", b"") if kept is None else (kept.devices, kept.rows)

    @property
    def bank(self) -> MonitorBank:
        """The monitors, which are made of the state when they are needed."""
        if self._bank is None:
            self._bank, self._size = self._made()
        return self._bank

    def _made(self) -> tuple[MonitorBank, int]:
        """Return the bank of the state, and its bytes in the store."""
        kept = self._kept
        if kept is None:
            return MonitorBank(self._start, 0, names=self._features, threads=1), 0
        known = memory.take(kept.mark)
        if known is not None:
            return known
        data = self._keeper.stored() if kept.bank is None else kept.bank
        name = f"the state of {self._keys[0]} and {len(self._keys) - 1} more"
        return bank_of(kept._replace(bank=data), name), len(data)

    def last_of(self, keys: Sequence[Any], now: int) -> list[Any]:
        """Return the time of the last row of each device; None if it has none."""
        places = (self._place.get(key) for key in keys)
        return [None if at is None or self._expired(at, now) else self._last[at] for at in places]

    def places(self, keys: Sequence[Any], now: int) -> list[int]:
        """Return where devices are in the bank; those that are new, or are renewed, are added."""
        bank, gone = self.bank, [at for at in range(len(self._keys)) if self._expired(at, now)]
        for key in keys:
            at = self._place.get(key)
            if at is None or set(bank.names_of(at)) == set(self._names):
                continue
            if not self._renew:
                raise OnladError(
                    f"the model of {key} knows {list(bank.names_of(at))}, but features are "
                    f"{list(self._names)}. Start with a new checkpoint, or with renew=True to "
                    "let each such key learn again from nothing"
                )
            gone.append(at)
        self._remove(set(gone))
        new = [key for key in keys if key not in self._place]
        self._changed |= bool(new)
        bank.grow(len(new), self._start, self._features)
        self._note(new, [None] * len(new), now)
        return [self._place[key] for key in keys]

    def observe(self, places: Array, X: Array) -> tuple[FleetVerdicts, Array]:
        """Return verdicts on rows of devices; of `names`, shares, expected values and bands."""
        bank, names = self.bank, self._names
        wide = np.full((len(X), bank.widest), np.nan)
        wide[:, : len(names)] = X
        others = [shape for shape in bank.shapes if shape != names and set(shape) == set(names)]
        rows = {}
        for shape in others:  # the same features in another order
            is_it = np.array([bank.names_of(at) == shape for at in range(len(bank))])
            order = [names.index(str(name)) for name in shape]
            rows[shape] = is_it[places], order
            wide[rows[shape][0], : len(names)] = X[rows[shape][0]][:, order]
        said = bank.observe_rows(places, wide, details="all")
        self._devices += places.astype("int32").tobytes()
        self._rows += wide.tobytes()
        found = said.wide[:, :, : len(names)].copy()
        for mine, order in rows.values():
            found[np.ix_(mine, np.arange(3), np.array(order))] = said.wide[mine, :, : len(names)]
        return said, found

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
            self.bank.grow(1, monitor, monitor.names or self._features)
            self._changed = True
            self._note([row.key], [row.time], now)

    def kept(self, now: int) -> Kept:
        """Return the state."""
        mark, bank, kept = os.urandom(16), self.bank, self._kept
        if kept is None or self._due(kept.written, now):
            data = bank.to_bytes()
            kept, self._size = Kept(data, [], [], [], written=now), len(data)
        else:
            kept = kept._replace(devices=self._devices, rows=self._rows)
        memory.put(mark, bank, self._size)
        return kept._replace(keys=self._keys, last=self._last, heard=self._heard, mark=mark)

    def _due(self, written: int, now: int) -> bool:
        """Return whether the bank has to be written."""
        old = self._expire is not None and now - written >= self._expire
        return old or self._changed or len(self._devices) // 4 > FOLDED * len(self._keys)

    def _expired(self, at: int, now: int) -> bool:
        return self._expire is not None and now - self._heard[at] >= self._expire

    def _note(self, keys: Sequence[Any], times: Sequence[Any], now: int) -> None:
        """Note devices that were added to the bank."""
        self._place |= {key: at for at, key in enumerate(keys, len(self._keys))}
        self._keys += keys
        self._last += times
        self._heard += [now] * len(keys)

    def _remove(self, gone: set[int]) -> None:
        if not gone:
            return
        self._changed = True
        self.bank.remove(sorted(gone))
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


class _Said:
    """The columns of verdicts, in the rows that were watched, else null.

    Spark wants columns, so this is beside `onlad.report.record` by design.
    """

    def __init__(self, watched: Array) -> None:
        self._watched = watched
        self.columns: dict[str, Array] = {}
        for name in NUMBERS:
            self.columns[name] = np.full(len(watched), np.nan)  # which Spark reads as null
        for name in (*FLAGS, *WIDE, "drifting"):
            self.columns[name] = np.full(len(watched), None, object)

    def fill(self, said: FleetVerdicts, wide: Array) -> None:
        """Put in the verdicts on the rows that were watched; `wide` are shares and bands."""
        shares, rows = wide[:, 0], np.flatnonzero(self._watched)
        for name in NUMBERS + FLAGS:
            self.columns[name][rows] = getattr(said, name)
        order = np.argsort(-shares, axis=1, kind="stable").astype("int32")
        arrays = order, np.take_along_axis(shares, order, axis=1), wide[:, 1], wide[:, 2]
        for name, array in zip(WIDE, arrays, strict=True):
            column = self.columns[name]
            for at, each in zip(rows.tolist(), array, strict=True):
                column[at] = each
        at = np.flatnonzero(said.drifting >= 0)
        self.columns["drifting"][rows[at]] = [said[i].drifting for i in at.tolist()]
