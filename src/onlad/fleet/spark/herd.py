"""`Kept`: what Spark keeps of a bucket of devices. `herd_of`: the bank of monitors in it."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np

from onlad.fleet.monitors import MonitorBank

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
