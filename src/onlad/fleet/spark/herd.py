"""`Herd`: the monitors of a bucket of devices. `Kept`: what Spark keeps of it."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from onlad import persist
from onlad.errors import OnladError
from onlad.fleet.monitors import MonitorBank
from onlad.fleet.verdicts import FleetVerdicts
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.rows import Names

MAGIC = b"onlad herd"
FOLDED = 16  # rows of each device since a bank was written, above which it is written again
REMEMBERED = 2**28  # bytes of banks that a process remembers, so that it need not read them
_PART = struct.Struct("<qq")  # place of a device, or -1 for the bank; bytes


@dataclass
class Herd:
    """Monitors in a bank, but for those that no bank takes.

    These are ``alone``, by their place: they have times, features that came later, or rows in
    maintenance. A new monitor holds their place in the bank. New devices have times if the herd is
    ``timed``.
    """

    bank: MonitorBank
    timed: bool = False
    alone: dict[int, Monitor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.bank)

    def __getitem__(self, place: int) -> Monitor:
        """Return a device's monitor."""
        return self.alone[place] if place in self.alone else self.bank[place]

    def names_of(self, place: int) -> Names:
        """Return the features of a device."""
        return self.alone[place].names if place in self.alone else self.bank.names_of(place)

    @property
    def widest(self) -> int:
        """The most features that a device has."""
        return max([self.bank.widest, *(len(each.names) for each in self.alone.values())])

    def grow(self, devices: int, start: Monitor, names: Names) -> None:
        """Add devices at the end, which start as a monitor with these names."""
        first, is_alone = len(self), self.timed or start.timed or bool(start.widened)
        fresh = Monitor.resumed(start.settings(), names=names)
        self.bank.grow(devices, fresh if is_alone else start, names)
        if is_alone:
            for place in range(first, first + devices):
                self.alone[place] = Monitor.resumed(start.settings(), start.learned(), names)

    def widen(self, place: int, names: Names) -> None:
        """Let a device watch features that came later."""
        self._take_out(place).widen(names)

    def _take_out(self, place: int) -> Monitor:
        """Let a device be by itself from now on; return its monitor."""
        if place not in self.alone:
            self.alone[place] = self.bank[place]
            self.bank[place] = Monitor.resumed(self.alone[place].settings())
        return self.alone[place]

    def remove(self, places: set[int]) -> None:
        """Take devices out. Those after them move up."""
        kept = [place for place in range(len(self)) if place not in places]
        self.bank.remove(sorted(places))
        moved = {place: new for new, place in enumerate(kept)}
        self.alone = {moved[p]: monitor for p, monitor in self.alone.items() if p in moved}

    def observe(self, places: Array, X: Array, times: Array, pause: Array) -> FleetVerdicts:
        """Return what is said of rows, (rows, widest), each in the order of its device's names.

        `times` are NaN without patterns. Where `pause` is True a row is not learned. There are
        details of all rows.
        """
        names = [self.names_of(place) for place in range(len(self))]
        said = FleetVerdicts(places, names, np.zeros(len(self)), X.shape[1])
        for place in np.unique(places[pause]).tolist():
            self._take_out(place)
        by_itself = np.isin(places, list(self.alone))
        at = np.flatnonzero(~by_itself)
        if len(at):
            rows = X[at, : self.bank.widest]
            said.put(at, self.bank.observe_rows(places[at], rows, details="all"))
        for place in np.unique(places[by_itself]).tolist():
            at, monitor = np.flatnonzero(places == place), self.alone[place]
            n, is_timed = len(monitor.names), monitor.timed or (not monitor.n_seen and self.timed)
            if is_timed and np.isnan(times[at]).any():
                raise OnladError("a model has learned patterns of time: give `patterns` again")
            when = times[at] if is_timed else None
            said.take(at, monitor.observe_many(X[at, :n], pause=pause[at], times=when), "all")
        return said

    def to_bytes(self) -> bytes:
        """Return all of it for a store. Without a device by itself that is the file of the bank."""
        data = self.bank.to_bytes()
        if not self.alone:
            return data
        parts = [(-1, data), *((p, persist.to_bytes(m)) for p, m in self.alone.items())]
        return MAGIC + b"".join(_PART.pack(place, len(part)) + part for place, part in parts)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, *, timed: bool = False) -> Herd:
        """Return what was in the store; `name` is what an error calls it."""
        parts = {-1: data}
        at = len(MAGIC)
        while data.startswith(MAGIC) and at < len(data):
            place, size = _PART.unpack_from(data, at)
            at += _PART.size + size
            parts[place] = data[at - size : at]
        bank = MonitorBank.from_bytes(parts.pop(-1), name, threads=1, trusted=True)
        alone = {place: persist.from_bytes(part, name) for place, part in parts.items()}
        return cls(bank, timed, alone)


class Kept(NamedTuple):
    """The state of a bucket: a bank, the rows since, and of each device key and times.

    A bank is large and changes little with a row, so it is written now and then. Who reads the
    state lets it see the rows that came since.
    """

    bank: bytes | None  # of a herd; None: it is in the store, as it was
    keys: list[Any]
    last: list[Any]  # time of the last row
    heard: list[int]  # when it came, in milliseconds of Spark's clock
    devices: bytes = b""  # of the rows since, int32
    rows: bytes = b""  # float64; behind its time, and whether it is paused, if a device is alone
    mark: bytes = b""  # no other state has it
    written: int = 0  # when the bank was


def herd_of(kept: Kept, name: str, *, timed: bool = False) -> Herd:
    """Return the herd in the state of a bucket; `name` is what an error calls it."""
    assert kept.bank is not None
    herd = Herd.from_bytes(bytes(kept.bank), name, timed=timed)
    if kept.devices:
        devices = np.frombuffer(kept.devices, "int32")
        rows = np.frombuffer(kept.rows).reshape(len(devices), -1)
        if not herd.alone:
            rows = np.pad(rows, ((0, 0), (2, 0)))
        herd.observe(devices, rows[:, 2:], rows[:, 0], rows[:, 1] > 0)
    return herd


class Memory:
    """Banks that this process has made, by the marks of the states that they are.

    Where Spark gives the rows of a bucket to the process that had them last, nothing is read.
    """

    def __init__(self) -> None:
        self._banks: dict[bytes, tuple[Herd, int]] = {}

    def take(self, mark: bytes) -> tuple[Herd, int] | None:
        """Return a herd and its bytes. It is then forgotten here: it will change."""
        return self._banks.pop(bytes(mark), None)

    def put(self, mark: bytes, bank: Herd, size: int) -> None:
        """Remember a herd and its size in bytes; others are dropped for it, at random."""
        while self._banks and size + sum(each for _, each in self._banks.values()) > REMEMBERED:
            del self._banks[random.choice([*self._banks])]
        if size <= REMEMBERED:
            self._banks[mark] = bank, size


memory = Memory()
