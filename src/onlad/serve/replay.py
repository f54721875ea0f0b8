"""The samples of a device out of the journal, once more through a model.

With it a model goes on from a snapshot as if what came in between had been left out, or had not
been lost. What people did in between is not done again. `tried` judges the samples of the last days
with another budget of false alarms, by the oldest snapshot before them or a new model, and keeps
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from onlad.incident import Incident, Incidents
from onlad.monitor import Monitor
from onlad.serve.checkpoint import StateError, Store
from onlad.serve.frames import Rows
from onlad.serve.history import History
from onlad.serve.watcher import Watcher

BLOCK = 4096  # rows that are judged at a time
#: What was done to a model between two rows, and is done again by `Watcher.apply`.
REDONE = ("named", "maintenance", "reverted", "label", "false_alarms")


def rows(store: Store, watcher: Watcher, first: int, end: int, since: int = 0) -> Iterator[Rows]:
    """Yield the rows `first` to `end` of a device in blocks, or raise `StateError`.

    They are in the segments of the journal from `since` on.
    """
    if watcher.lost:
        raise StateError(f"{watcher.key}: the journal lost rows, so its samples cannot be replayed")
    following, block = first, list[Rows]()
    for record in store.journal.rows(watcher.number, since):
        known = following - record.first
        if known < 0 or known >= len(record.X) or following >= end:
            continue
        few = slice(known, known + end - following)
        new = record._replace(first=following, X=record.X[few], times=record.times[few])
        other = block and (block[0].paused != new.paused or block[0].X.shape[1] != new.X.shape[1])
        if other or len(block) >= BLOCK:
            yield _joined(block)
            block = []
        block.append(new)
        following += len(new.X)
    if following < end:
        raise StateError(
            f"{watcher.key}: the journal no longer has its sample {following}. `archive` in the "
            "configuration says how much is kept"
        )
    if block:
        yield _joined(block)


def _joined(block: list[Rows]) -> Rows:
    X, times = (np.concatenate(part) for part in zip(*((b.X, b.times) for b in block), strict=True))
    return block[0]._replace(X=X, times=times)


def replayed(
    store: Store,
    watcher: Watcher,
    model: Monitor,
    left_out: tuple[int, int] = (0, 0),
    since: int = 0,
) -> Monitor:
    """Return a model that saw all samples of a device since; those left out were not learned.

    The samples are in the segments of the journal from `since` on.
    """
    timed = watcher.stream.patterns
    for part in rows(store, watcher, model.n_seen, watcher.monitor.n_seen, since):
        widen(model, watcher, part)
        edges = [np.clip(edge - part.first, 0, len(part.X)) for edge in left_out]
        for a, b in ((0, edges[0]), (edges[0], edges[1]), (edges[1], len(part.X))):
            model.paused = part.paused or (a, b) == (edges[0], edges[1])
            if b > a:
                watcher.rules.observe(model, part.X[a:b], part.times[a:b], timed=timed)
    model.paused = watcher.paused
    return model


def widen(model: Monitor, watcher: Watcher, part: Rows) -> None:
    """Let a model watch sensors that came later, from the rows on that have them."""
    new = watcher.names[len(model.names) : part.X.shape[1]]
    if new:
        model.widen(new)


def before(store: Store, watcher: Watcher, fresh: Monitor, row: int) -> Monitor:
    """Return the newest model of a device that had not seen a row: a snapshot, or a new one."""
    for name in reversed(store.snapshots(watcher.number)):
        model = store.snapped(watcher.number, name)
        if model.n_seen <= row:
            return model
    return begun(fresh, watcher)


def begun(fresh: Monitor, watcher: Watcher) -> Monitor:
    """Return a model as a device started with it."""
    first = watcher.monitor.first_names
    return Monitor.resumed(fresh.settings(), fresh.learned(), first)


# -- what if ----------------------------------------------------------------------------------

DAYS = 7.0


class Tried(NamedTuple):
    """The last days, judged with another budget."""

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
    for part in rows(store, watcher, max(first, model.n_seen), end):
        widen(model, watcher, part)
        model.paused = part.paused
        verdicts = watcher.rules.observe(model, part.X, part.times, timed=timed)
        numbers = part.first + np.arange(len(part.X))
        found += incidents.add(verdicts, numbers, part.times.tolist())
        recent = part.times >= since
        if recent.any():
            begin = min(begin, float(part.times[recent][0]))
            at = int(recent.argmax())
            rest = verdicts.part(verdicts.names, slice(at, None))
            history.add(part.first + at, part.times[at:], rest)
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
    return begun(fresh, watcher)
