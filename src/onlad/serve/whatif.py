"""What if: the samples of the last days, judged with another budget of false alarms.

The samples come from the journal. They are judged by the oldest snapshot before them, or by a new
model, and nothing is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onlad.incident import Incident, Incidents
from onlad.monitor import Monitor
from onlad.serve import replay
from onlad.serve.checkpoint import StateError, Store
from onlad.serve.history import History
from onlad.serve.watcher import Watcher

DAYS = 7.0


class Tried(NamedTuple):
    """What would have been said of the last days."""

    incidents: list[Incident]  # with the times of their samples
    history: History  # of the samples
    since: float  # time of the first of them


def tried(
    store: Store, watcher: Watcher, fresh: Monitor, rate: float | None = None, days: float = DAYS
) -> Tried:
    """Judge the samples of the last days with a budget of false alarms, by default its own."""
    rate = watcher.monitor.false_alarms if rate is None else rate
    if not 0 < rate < 1:
        raise StateError(f"false_alarms must be in (0, 1), got {rate}")
    last = watcher.last.time if watcher.last is not None else 0.0
    since, first, end = last - 86_400 * days, _first(store, watcher), watcher.monitor.n_seen
    model = _start(store, watcher, fresh, first)
    model.false_alarms = rate
    history, incidents = History(max(1, end - max(first, model.n_seen))), Incidents(watcher.key)
    found: list[Incident] = []
    begin, timed = last, watcher.stream.patterns
    for part in replay.rows(store, watcher, max(first, model.n_seen), end):
        replay.widen(model, watcher, part)
        model.paused = part.paused
        verdicts = watcher.rules.observe(model, part.X, part.times, timed=timed)
        rows = part.first + np.arange(len(part.X))
        found += incidents.add(verdicts, rows, part.times.tolist())
        recent = part.times >= since
        if recent.any():
            begin = min(begin, float(part.times[recent][0]))
            at = int(recent.argmax())
            history.add(
                part.first + at, part.times[at:], verdicts.part(verdicts.names, slice(at, None))
            )
    found += incidents.finish()
    return Tried([each for each in found if each.times[0] >= since], history, begin)


def _first(store: Store, watcher: Watcher) -> int:
    """Return the first row of a device that the journal still has."""
    for record in store.journal.rows(watcher.number):
        return record.first
    raise StateError(f"{watcher.key}: the journal has none of its samples")


def _start(store: Store, watcher: Watcher, fresh: Monitor, first: int) -> Monitor:
    """Return the model that can judge the most of what the journal has."""
    if first > 0:
        for name in store.snapshots(watcher.number):
            model = store.snapped(watcher.number, name)
            if first <= model.n_seen:
                return model
    return replay.begun(fresh, watcher)
