"""Rows in Python: those of many devices, to the bank of monitors in which they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import types as st
from pyspark.sql.streaming import StatefulProcessor

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.monitors import MonitorBank
from onlad.fleet.verdicts import FleetVerdicts
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names

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


class Kept(NamedTuple):
    """The state of a bucket: a bank in bytes, and of each of its devices key and times."""

    bank: bytes
    keys: list[Any]
    last: list[Any]  # time of the last row
    heard: list[int]  # when it came, in milliseconds of Spark's clock


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
            .add("bank", "binary")
            .add("keys", st.ArrayType(key))
            .add("last", st.ArrayType(clock or st.LongType()))
            .add("heard", st.ArrayType(st.LongType()))
        )
        self.expire = None if expire is None else int(expire.total_seconds() * 1000)

    # -- what Spark calls ---------------------------------------------------------------------

    def init(self, handle: Any) -> None:
        """Say what the state of a bucket is."""
        self.state = handle.getValueState("bank", self.schema, self.expire)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Answer the rows of one bucket in a micro-batch."""
        found = self.state.get()
        kept = None if found is None else Kept(*found)
        answered, state = self.answer(pd.concat(list(rows)), kept, self._now(timerValues))
        if state is not None:
            self.state.update(tuple(state))
        yield answered

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        """Take over models of another checkpoint."""
        found = self.state.get()
        fleet = Fleet(self, None if found is None else Kept(*found))
        fleet.take_over(initialState, self._now(timerValues))
        self.state.update(tuple(fleet.kept()))

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
        said = _Said(self.names, watched)
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


def bank_of(data: bytes, name: str) -> MonitorBank:
    """Return the bank in the state of a bucket; `name` is what an error calls it."""
    return MonitorBank.from_bytes(bytes(data), name, threads=1, trusted=True)


class Fleet:
    """The devices of a bucket."""

    def __init__(self, keeper: Keeper, kept: Kept | None) -> None:
        self._names, self._renew, self._expire = keeper.names, keeper.renew, keeper.expire
        self._start: Monitor = persist.from_bytes(keeper.start)
        self._features: Names = self._start.names or self._names
        self._kept = kept
        self._bank: MonitorBank | None = None
        self._keys: list[Any] = [] if kept is None else list(kept.keys)
        self._last: list[Any] = [] if kept is None else list(kept.last)
        self._heard: list[int] = [] if kept is None else list(kept.heard)
        self._place = {key: at for at, key in enumerate(self._keys)}

    @property
    def bank(self) -> MonitorBank:
        """The monitors, which are made of the state when they are needed."""
        if self._bank is None:
            if self._kept is None:
                self._bank = MonitorBank(self._start, 0, names=self._features, threads=1)
            else:
                name = f"the state of {self._keys[0]} and {len(self._keys) - 1} more"
                self._bank = bank_of(self._kept.bank, name)
        return self._bank

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
        found = said.wide[:, :, : len(names)].copy()
        for mine, order in rows.values():
            found[np.ix_(mine, np.arange(3), np.array(order))] = said.wide[mine, :, : len(names)]
        return said, found

    def noted(self, places: Sequence[int], times: Sequence[Any], now: int) -> Kept:
        """Note the last rows of devices, and return the new state."""
        for at, time in zip(places, times, strict=True):
            self._last[at], self._heard[at] = time, now
        return self.kept()

    def take_over(self, models: pd.DataFrame, now: int) -> None:
        """Add devices with their models, or replace them."""
        for row in models.itertuples(index=False):
            monitor: Monitor = persist.from_bytes(bytes(row.model), f"the model of {row.key}")
            self._remove({self._place[row.key]} if row.key in self._place else set())
            self.bank.grow(1, monitor, monitor.names or self._features)
            self._note([row.key], [row.time], now)

    def kept(self) -> Kept:
        """Return the state."""
        return Kept(self.bank.to_bytes(), self._keys, self._last, self._heard)

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

    def __init__(self, names: tuple[str, ...], watched: Array) -> None:
        self._names, self._watched = names, watched
        self.columns: dict[str, Array] = {}
        for name in NUMBERS:
            self.columns[name] = np.full(len(watched), np.nan)  # which Spark reads as null
        for name in (*FLAGS, "causes", "bands", "drifting"):
            self.columns[name] = np.full(len(watched), None, object)

    def fill(self, said: FleetVerdicts, wide: Array) -> None:
        """Put in the verdicts on the rows that were watched; `wide` are shares and bands."""
        shares = wide[:, 0]
        for name in NUMBERS + FLAGS:
            self.columns[name][self._watched] = getattr(said, name)
        order = np.argsort(-shares, axis=1, kind="stable")
        counts = np.count_nonzero(shares > 0, axis=1).tolist()
        rows = zip(
            np.flatnonzero(self._watched).tolist(), order.tolist(), counts,
            np.take_along_axis(shares, order, axis=1).tolist(), strict=True,
        )  # fmt: skip
        names, causes = self._names, self.columns["causes"]
        for at, features, count, parts in rows:
            causes[at] = [
                {"feature": names[j], "share": share}
                for j, share in zip(features[:count], parts[:count], strict=True)
            ]
        at = np.flatnonzero(said.drifting >= 0)
        drifting = [said[i].drifting for i in at.tolist()]
        self.columns["drifting"][np.flatnonzero(self._watched)[at]] = drifting
        for at, (_, expected, half) in zip(
            np.flatnonzero(self._watched).tolist(), wide.tolist(), strict=True
        ):
            self.columns["bands"][at] = [
                {"feature": name, "expected": value, "low": value - width, "high": value + width}
                for name, value, width in zip(names, expected, half, strict=True)
                if not np.isnan(value)
            ]
