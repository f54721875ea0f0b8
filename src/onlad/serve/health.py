"""The health of a service: what is wrong now, and counts since its start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from onlad.reference import Array
from onlad.samples import listed
from onlad.serve import logs
from onlad.serve.devices import SHOWN

if TYPE_CHECKING:
    from onlad.serve.service import Service

BUCKETS = np.array([0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0])  # seconds


class Health:
    """Troubles and counts of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.trouble: dict[str, str] = {}  # what is wrong now, by part
        self.dropped: Counter[str] = Counter()  # messages and verdicts, by what
        self.bad: dict[str, int] = dict.fromkeys(service.streams, 0)
        self.duplicates = 0
        self.webhook_failures = 0
        self.latency = np.zeros(len(BUCKETS) + 1, int)
        self.latency_sum = 0.0

    def fail(self, part: str, what: str, why: str | None) -> None:
        """Note that something cannot be done."""
        self.trouble[part] = f"{what}: {why}"
        logs.warning(what, error=why)

    def waited(self, seconds: Array) -> None:
        """Count how long messages took from their arrival to their acknowledgement."""
        np.add.at(self.latency, np.searchsorted(BUCKETS, seconds), 1)
        self.latency_sum += float(seconds.sum())

    def problems(self) -> list[str]:
        """Return why the service is not ready, or nothing."""
        service = self._service
        age, limit = service.disk.checkpoint_age, 5 * service.config.service.checkpoint + 60
        late = [f"the last checkpoint is {age:.0f} s old"] if age > limit else []
        failed = [w.key for w in service.watchers.values() if w.failed]
        if failed:
            why = "set aside until a restart, because the monitor failed"
            late.append(f"{why}: {listed(failed, SHOWN)}")
        return [*self.trouble.values(), *late]

    def totals(self) -> dict[str, dict[str, Any]]:
        """Return counts since the start, by stream."""
        names = ("samples", "anomalies", "n_alarms", "suppressed", "drifts", "excluded")
        states = ("paused", "silent", "failed")
        zero: dict[str, Any] = dict.fromkeys((*names, "devices", *states), 0)
        sums = {name: zero | {"bad": bad} for name, bad in self.bad.items()}
        for watcher in self._service.watchers.values():
            one = sums[watcher.stream.name]
            for name in names:
                one[name] += getattr(watcher, name)
            for name in states:
                one[name] += bool(getattr(watcher, name))
            one["devices"] += 1
        return sums
