"""`Rows`: rows of many devices that are judged together. `Said`: their verdicts, as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from onlad.fleet.tensors.pool import FLOAT
from onlad.fleet.verdicts import COLUMNS, ON_GPU


class Rows(NamedTuple):
    """Rows to be judged, (devices, rows, n), and which of them are there (None: all)."""

    devices: Any  # slice or indices
    X: Any
    there: Any
    place: Any  # of the first among those of two ticks, or of each
    paused: Any  # (devices,)
    number: Any  # (devices, rows) among those given
    gaps: bool  # whether a value is missing

    def part(self, some: Any, times: slice = slice(None)) -> Rows:
        """Return some devices, by slice or indices, and some of their rows."""
        place = self.place
        if isinstance(place, int):
            place += times.start or 0
        else:
            place = place[some][:, times]
        return Rows(
            chosen(self.devices, some),
            self.X[some][:, times],
            None if self.there is None else self.there[some][:, times],
            place,
            self.paused[some],
            self.number[some][:, times],
            self.gaps,
        )


class Found(NamedTuple):
    """What the judge found, (devices, rows)."""

    score: Any
    mode: Any
    run: Any
    means: Any  # (devices, 4) after the last row
    leans: Any  # (devices, 2, n)
    current: Any  # (devices,)
    errors: Any  # (devices, 2, rows, n) in usual deviations
    made: Any  # (devices, rows, n) predictions, in units of the mode


class Details(NamedTuple):
    """What is wide, of some rows. `row` is the number of a row among those given."""

    row: Any  # (k,)
    wide: Any  # (k, 3, n): shares, expected values, half widths of bands, as `FleetVerdicts` has


class Said:
    """Verdicts of rows as tensors, (devices, rows); `details` are of alarms alone, or of all."""

    details: Details

    if TYPE_CHECKING:  # a column

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, devices: int, rows: int, features: int, device: str) -> None:
        for name in ON_GPU:
            kind, first = COLUMNS[name]
            made = torch.full((devices, rows), first, dtype=getattr(torch, kind), device=device)
            setattr(self, name, made)
        wide = torch.empty(0, 3, features, dtype=FLOAT, device=device)
        self.details = Details(torch.empty(0, dtype=torch.int64, device=device), wide)
        self._parts: list[Details] = []

    def add(self, details: Details) -> None:
        """Keep the details of more rows."""
        self._parts.append(details)

    def close(self) -> Said:
        """Put all details together, in the order of their rows."""
        if self._parts:
            row, wide = (torch.cat(part) for part in zip(*self._parts, strict=True))
            order = row.argsort()
            self.details = Details(row[order], wide[order])
            self._parts = []
        return self


def chosen(devices: Any, some: Any) -> Any:
    """Return some of the devices; both are slices or indices."""
    if not isinstance(devices, slice):
        return devices[some]
    if isinstance(some, slice):
        stop = devices.stop if some.stop is None else min(devices.start + some.stop, devices.stop)
        return slice(devices.start + (some.start or 0), stop)
    return some + devices.start


def count(devices: Any) -> int:
    """Return how many devices a slice, or indices, name."""
    return devices.stop - devices.start if isinstance(devices, slice) else len(devices)


def indices(devices: Any, device: str) -> Any:
    """Return a slice as indices."""
    if isinstance(devices, slice):
        return torch.arange(devices.start, devices.stop, device=device)
    return devices
