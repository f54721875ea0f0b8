"""`Herd`: the devices of a bucket. `Kept`: what Spark keeps of them. `herd_of`: their bank."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.monitors import MonitorBank
from onlad.fleet.verdicts import FleetVerdicts
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names
from onlad.verdict import Verdicts

if TYPE_CHECKING:
    from onlad.fleet.spark.keeper import Keeper

NUMBERS = ("score", "threshold", "p_value", "severity")
FLAGS = ("ready", "is_anomaly", "learned", "drift")

FOLDED = 16  # rows of each device since a bank was written, above which it is written again
REMEMBERED = 2**28  # bytes of banks that a process remembers, so that it need not read them


class Kept(NamedTuple):
    """The state of a bucket: a bank, the rows since, and of each device key and times.

    A bank is large and changes little with a row, so it is written now and then. Who reads the
    state lets it see the rows that came since.
    """

    bank: bytes | None  # None: it is in the store, as it was
    keys: list[Any]
    last: list[Any]  # time of the last row
    heard: list[int]  # when it came, in milliseconds of Spark's clock
    devices: bytes = b""  # of the rows since, int32
    rows: bytes = b""  # float64; before them time and pause, if the query has times
    mark: bytes = b""  # no other state has it
    written: int = 0  # when the bank was


def herd_of(kept: Kept, name: str) -> MonitorBank:
    """Return the bank in the state of a bucket; `name` is what an error calls it."""
    assert kept.bank is not None
    herd = MonitorBank.from_bytes(bytes(kept.bank), name, threads=1, trusted=True)
    if kept.devices:
        devices = np.frombuffer(kept.devices, "int32")
        rows = np.frombuffer(kept.rows).reshape(len(devices), -1)
        times = pause = None
        if rows.shape[1] > herd.widest:
            times, pause, rows = rows[:, 0], rows[:, 1] > 0, rows[:, 2:]
            times = None if np.isnan(times).any() else times
        herd.observe_rows(devices, rows, times=times, pause=pause, details="none")
    return herd


class Memory:
    """Banks that this process has made, by the marks of the states that they are.

    Where Spark gives the rows of a bucket to the process that had them last, nothing is read.
    """

    def __init__(self) -> None:
        self._banks: dict[bytes, tuple[MonitorBank, int]] = {}

    def take(self, mark: bytes) -> tuple[MonitorBank, int] | None:
        """Return a bank and its bytes. It is then forgotten here: it will change."""
        return self._banks.pop(bytes(mark), None)

    def put(self, mark: bytes, bank: MonitorBank, size: int) -> None:
        """Remember a bank and its size in bytes; others are dropped for it, at random."""
        while self._banks and size + sum(each for _, each in self._banks.values()) > REMEMBERED:
            del self._banks[random.choice([*self._banks])]
        if size <= REMEMBERED:
            self._banks[mark] = bank, size


memory = Memory()


@lru_cache(maxsize=8)
def _monitor(data: bytes) -> Monitor:
    """Return the monitor that devices start with, which is never modified.

    Its file is read once in a process, not in each micro-batch of each bucket.
    """
    monitor: Monitor = persist.from_bytes(data)
    return monitor


class Seen(NamedTuple):
    """The last row of a device."""

    time: Any  # None if it has none
    heard: int  # when it came, in milliseconds of Spark's clock


class Herd:
    """The devices of a bucket, in the order of their bank."""

    def __init__(self, keeper: Keeper, kept: Kept | None) -> None:
        self._keeper, self._start = keeper, _monitor(keeper.start)
        self._features: Names = self._start.names or keeper.names
        self._changed = kept is None  # other devices than in the bank that was written
        self._kept = kept = kept or Kept(None, [], [], [])
        self._size = 0  # of the file of the bank
        own = zip(kept.keys, kept.last, kept.heard, strict=True)
        self._seen = {key: Seen(time, heard) for key, time, heard in own}
        self._devices, self._rows = kept.devices, kept.rows

    @cached_property
    def bank(self) -> MonitorBank:
        """The monitors, which are made of the state when they are needed."""
        kept = self._kept
        if not kept.keys:
            fresh = Monitor.resumed(self._start.settings(), names=self._features)
            return MonitorBank(fresh, 0, threads=1)
        known = memory.take(kept.mark)
        if known is None:
            data = self._keeper.stored() if kept.bank is None else kept.bank
            name = f"the state of {kept.keys[0]} and {len(kept.keys) - 1} more"
            known = herd_of(kept._replace(bank=data), name), len(data)
        bank, self._size = known
        return bank

    def last_of(self, keys: Sequence[Any], now: int) -> list[Any]:
        """Return the time of the last row of each device; None if it has none."""
        found = (None if self._expired(key, now) else self._seen.get(key) for key in keys)
        return [None if seen is None else seen.time for seen in found]

    def places(self, keys: Sequence[Any], now: int) -> list[int]:
        """Return where devices are in the bank; those that are new, or are renewed, are added.

        Features that came later are watched from here on, and those that are gone are missing.
        """
        gone, wanted = {key for key in self._seen if self._expired(key, now)}, set(keys)
        for at, key in enumerate(self._seen):
            if key in wanted and set(self.bank.names_of(at)) != set(self._keeper.names):
                if self._keeper.renew:
                    gone.add(key)
                else:
                    self._widen(key, at)
        self._remove(gone)
        new = [key for key in keys if key not in self._seen]
        if new:
            self._changed = True
            self.bank.grow(len(new), self._start, self._features)
            self._seen |= dict.fromkeys(new, Seen(None, now))
        place = {key: at for at, key in enumerate(self._seen)}
        return [place[key] for key in keys]

    def _widen(self, key: Any, at: int) -> None:
        """Let a device watch features that came later."""
        known, names = self.bank.names_of(at), self._keeper.names
        later = tuple(name for name in names if name not in known)
        try:
            if len(later) == len(names):
                raise ValueError("none of them is known")
            if later:
                self.bank.widen(at, later)
                self._changed = True
        except ValueError as error:
            raise OnladError(
                f"the model of {key} knows {list(known)}, but features are {list(names)}: "
                f"{error}. Start with a new checkpoint, or with renew=True to let each such key "
                "learn again from nothing"
            ) from None

    def observe(self, places: Array, X: Array, seconds: Array | None) -> dict[str, Any]:
        """Return columns of verdicts on rows of devices, all but the note."""
        bank, names, rules = self.bank, self._keeper.names, self._keeper.rules
        times, pause = None, np.zeros(len(X), bool)
        if seconds is not None:
            pause = rules.calendar.during(seconds)
            times = rules.calendar.local(seconds) if self._keeper.patterns else None
        if times is None and np.isin(places, bank.timed).any():
            raise OnladError("a model has learned patterns of time: give `patterns` again")
        wide = np.full((len(X), bank.widest), np.nan)
        own = [bank.names_of(at) for at in range(len(bank))]
        rows = {}  # by the features of a device: which rows, and the columns of the features there
        for shape in {own[at] for at in np.unique(places).tolist()}:
            mine = np.array([each == shape for each in own])[places]
            at = np.array([(j, names.index(str(n))) for j, n in enumerate(shape) if n in names])
            rows[shape] = mine, at
            wide[np.ix_(mine, at[:, 0])] = X[np.ix_(mine, at[:, 1])]
        said = bank.observe_rows(places, wide, times=times, pause=pause, details="all")
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
        verdicts = Verdicts(self._keeper.names, len(X))
        verdicts.values, verdicts.shares = X, np.nan_to_num(shares)
        verdicts.expected[:], verdicts.is_anomaly = expected, said.is_anomaly
        self._keeper.rules.apply(verdicts, seconds)
        return verdicts.shares

    def noted(self, keys: Sequence[Any], times: Sequence[Any], now: int) -> Kept:
        """Note the last rows of devices, and return the new state."""
        self._seen |= {key: Seen(time, now) for key, time in zip(keys, times, strict=True)}
        return self.kept(now)

    def take_over(self, models: pd.DataFrame, now: int) -> None:
        """Add devices with their models, or replace them."""
        for row in models.itertuples(index=False):
            monitor: Monitor = persist.from_bytes(bytes(row.model), f"the model of {row.key}")
            self._remove({row.key} & self._seen.keys())
            self.bank.grow(1, monitor, monitor.names or self._features)
            self._changed = True
            self._seen[row.key] = Seen(row.time, now)

    def kept(self, now: int) -> Kept:
        """Return the state."""
        mark, bank = os.urandom(16), self.bank
        if self._due(now):
            data = bank.to_bytes()
            kept, self._size = Kept(data, [], [], [], written=now), len(data)
        else:
            kept = self._kept._replace(devices=self._devices, rows=self._rows)
        memory.put(mark, bank, self._size)
        seen = self._seen.values()
        times, heard = [each.time for each in seen], [each.heard for each in seen]
        return kept._replace(keys=[*self._seen], last=times, heard=heard, mark=mark)

    def _due(self, now: int) -> bool:
        """Return whether the bank has to be written."""
        expire = self._keeper.expire
        old = expire is not None and now - self._kept.written >= expire
        return old or self._changed or len(self._devices) // 4 > FOLDED * len(self._seen)

    def _expired(self, key: Any, now: int) -> bool:
        expire, seen = self._keeper.expire, self._seen.get(key)
        return expire is not None and seen is not None and now - seen.heard >= expire

    def _remove(self, gone: set[Any]) -> None:
        if gone:
            self._changed = True
            self.bank.remove([at for at, key in enumerate(self._seen) if key in gone])
            self._seen = {key: seen for key, seen in self._seen.items() if key not in gone}
