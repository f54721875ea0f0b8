"""A device against its peers: unusual for itself, unusual among its like, or both.

Peers are the devices of a stream with the same sensors. Of each sensor a device has the median of
its last samples; among its like it is unusual when that is far from the median of all devices, in
units of how far they usually are from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from onlad.reference import Array
from onlad.serve.watcher import Watcher

LOOKED_AT = 64  # of the last samples, spread over them: a median needs no more
FEWEST = 4  # devices that are like each other
FAR = 6.0  # deviations from the median that are unusual among so many sensors and devices
NORMAL = 1.4826  # times the median distance is a deviation, in normal data
LEAST = 0.01  # of the median: a smaller deviation is taken for this


class Peer(NamedTuple):
    """A device beside the others."""

    device: str
    state: str
    itself: bool  # unusual for itself: in alarm
    among: bool  # unusual among its like
    sensor: str  # that is farthest from the others
    value: float
    usual: float  # the median of all devices
    far: float  # in deviations

    def message(self) -> dict[str, Any]:
        """Return it as it is published."""
        return self._asdict() | {name: float(f"{getattr(self, name):.4g}") for name in NUMBERS}


NUMBERS = ("value", "usual", "far")


def peers(watchers: Iterable[Watcher]) -> list[Peer]:
    """Return the devices of a stream beside each other, the strangest first.

    Those with other sensors than most, those that sent nothing since the start, and streams of
    fewer than FEWEST devices are left out.
    """
    groups: dict[tuple[str, ...], dict[Watcher, Array]] = {}
    for watcher in watchers:
        names, values = tuple(map(str, watcher.names)), watcher.history.values(LOOKED_AT)
        if (
            values.shape[1] == len(names)
            and watcher.last is not None
            and watcher.last.ready
            and not watcher.failed
        ):
            groups.setdefault(names, {})[watcher] = values
    found: list[Peer] = []
    for names, group in groups.items():
        if len(group) < FEWEST:
            continue
        with np.errstate(all="ignore"):
            each = _median(np.array(list(group.values())).swapaxes(0, 1))
            usual = _median(each)
            spread = NORMAL * _median(np.abs(each - usual))
            far = np.abs(each - usual) / np.maximum(spread, LEAST * np.abs(usual) + 1e-12)
        far = np.nan_to_num(far)
        for i, watcher in enumerate(group):
            j = int(far[i].argmax())
            itself, among = watcher.alarm is not None, bool(far[i, j] > FAR)
            numbers = (float(each[i, j]), float(usual[j]), float(far[i, j]))
            found.append(Peer(watcher.device, watcher.state, itself, among, names[j], *numbers))
    return sorted(found, key=lambda peer: (-peer.itself - peer.among, -peer.far))


def _median(rows: Array) -> Array:
    if not np.isnan(rows).any():  # which is much faster
        return np.asarray(np.median(rows, axis=0))
    known = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
    return np.asarray(np.nanmedian(known, axis=0))
