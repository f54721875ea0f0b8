"""`Rows`: rows of many devices that are judged together, and what is found in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


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
    means: Any  # (devices, 4) after the last row
    leans: Any  # (devices, 2, n)
    current: Any  # (devices,)
    errors: Any  # (devices, 2, rows, n) in usual deviations
    made: Any  # (devices, rows, n) predictions, in units of the mode


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
