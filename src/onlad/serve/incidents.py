"""Incidents over all devices: alarms that began together are one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onlad.incident import together
from onlad.serve.alarm import Alarm
from onlad.serve.watcher import Watcher


@dataclass(frozen=True)
class Shared:
    """Alarms of devices that began within a minute of each other; the most severe comes first."""

    parts: list[tuple[Alarm, Watcher]]

    @property
    def worst(self) -> Alarm:
        """The most severe alarm, which says what there is to say."""
        return self.parts[0][0]

    @property
    def watchers(self) -> list[Watcher]:
        """The devices, each once."""
        return list({id(watcher): watcher for _, watcher in self.parts}.values())

    @property
    def is_open(self) -> bool:
        """Whether it goes on, on one of the devices."""
        return any(alarm is watcher.alarm for alarm, watcher in self.parts)

    @property
    def told(self) -> bool:
        """Whether one of the alarms was told; else all were too many."""
        return any(alarm.told for alarm, _ in self.parts)

    @property
    def named(self) -> Alarm:
        """The most severe alarm of which people have said what it was, or the worst."""
        alarms = [alarm for alarm, _ in self.parts]
        said = next((alarm for alarm in alarms if alarm.label), alarms[0])
        return next((alarm for alarm in alarms if alarm.comment), said)

    @property
    def seen(self) -> bool:
        """Whether people have said what each of the alarms was."""
        return all(alarm.label for alarm, _ in self.parts)

    def message(self) -> dict[str, Any]:
        """Return it as it is published: what is said of the worst, and where it was."""
        told = self.worst.message()
        for name in ("kind", "stream", "device", "row", "score", "threshold", "p_value"):
            del told[name]
        alarms = [alarm for alarm, _ in self.parts]
        devices = [{"stream": a.stream, "device": a.device, "alarm": a.id} for a in alarms]
        told |= {"label": self.named.label, "comment": self.named.comment, "told": self.told}
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
