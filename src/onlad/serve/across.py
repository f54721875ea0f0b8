"""What is seen over all devices: incidents that they share, and each device against its peers.

Alarms that began together are one incident. Peers are the devices of a stream with the same
sensors. Of each sensor a device has the median of its last samples. It is unusual beside the others
if that is far from the median of all devices, in units of how far they usually are from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onlad.incident import together
from onlad.reference import Array
from onlad.serve.alarm import Alarm
from onlad.serve.watcher import Watcher

LOOKED_AT = 64  # of the last samples, spread over them: a median needs no more
FEWEST = 4  # devices that are like each other
FAR = 6.0  # deviations from the median that are unusual among so many sensors and devices
NORMAL = 1.4826  # times the median distance is a deviation, in normal data
LEAST = 0.01  # of the median: a smaller deviation is taken for this


@dataclass(frozen=True)
class Shared:
    """Alarms of devices that began within a minute of each other; the most severe comes first."""

    parts: list[tuple[Alarm, Watcher]]

    @property
    def worst(self) -> Alarm:
        """The most severe alarm, which says what there is to say."""
        return self.parts[0][0]

    @property
    def firsts(self) -> list[tuple[Alarm, Watcher]]:
        """The devices, each once, with the most severe of its alarms."""
        found: dict[int, tuple[Alarm, Watcher]] = {}
        for part in self.parts:
            found.setdefault(id(part[1]), part)
        return list(found.values())

    @property
    def is_open(self) -> bool:
        """Whether it goes on, on one of the devices."""
        return any(alarm is watcher.alarm for alarm, watcher in self.parts)

    @property
    def reported(self) -> bool:
        """Whether one of the alarms was reported, and not suppressed."""
        return any(alarm.reported for alarm, _ in self.parts)

    @property
    def named(self) -> Alarm:
        """The most severe alarm that has a comment, else a label, else the worst."""
        alarms = [alarm for alarm, _ in self.parts]
        said = next((alarm for alarm in alarms if alarm.label), alarms[0])
        return next((alarm for alarm in alarms if alarm.comment), said)

    @property
    def seen(self) -> bool:
        """Whether each of the alarms has a label."""
        return all(alarm.label for alarm, _ in self.parts)

    def message(self) -> dict[str, Any]:
        """Return it as it is published: the worst alarm, and all devices."""
        told = self.worst.message()
        for name in ("kind", "stream", "device", "row", "score", "threshold", "p_value"):
            del told[name]
        alarms = [alarm for alarm, _ in self.parts]
        devices = [{"stream": a.stream, "device": a.device, "alarm": a.id} for a in alarms]
        told |= {
            "label": self.named.label,
            "comment": self.named.comment,
            "reported": self.reported,
        }
        begin, end = min(a.time for a in alarms), max(a.end for a in alarms)
        return told | {"time": begin, "end": end, "open": self.is_open, "devices": devices}


def shared(watchers: Iterable[Watcher], since: float = 0.0) -> list[Shared]:
    """Return the incidents of devices since a time, and those that are open, the newest first."""
    found = [
        (alarm, watcher)
        for watcher in watchers
        for alarm in watcher.alarms
        if alarm.time >= since or alarm is watcher.alarm
    ]
    found.sort(key=lambda pair: pair[0].time)
    parts = together([alarm.time for alarm, _ in found])[::-1]
    return [Shared(sorted(found[part], key=lambda pair: -pair[0].severity)) for part in parts]


# -- peers ------------------------------------------------------------------------------------


class Peer(NamedTuple):
    """A device beside the others."""

    device: str
    state: str
    itself: bool  # unusual beside its own past: in alarm
    among: bool  # unusual beside the others
    sensor: str  # that is farthest from the others
    value: float
    usual: float  # the median of all devices
    far: float  # in deviations


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
            numbers = (float(f"{x:.4g}") for x in (each[i, j], usual[j], far[i, j]))
            found.append(Peer(watcher.device, watcher.state, itself, among, names[j], *numbers))
    return sorted(found, key=lambda peer: (-peer.itself - peer.among, -peer.far))


def _median(rows: Array) -> Array:
    if not np.isnan(rows).any():  # which is much faster
        return np.asarray(np.median(rows, axis=0))
    known = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
    return np.asarray(np.nanmedian(known, axis=0))
