"""The start of a service: the last checkpoint, and then the journal from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onlad.serve import logs
from onlad.serve.checkpoint import StateError
from onlad.serve.journal import Fact, Rows
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service


def resume(service: Service) -> None:
    """Bring a service that has seen nothing to where the last one in its folder was."""
    store = service.store
    point = store.read()
    watchers: dict[int, Watcher] = {}
    for saved in point.watchers:
        service.take_number(saved.number)
        if saved.stream not in service.streams:
            service.disk.absent.append(saved)
            continue
        watcher = service.add(saved.number, saved.stream, saved.device, store.model(saved))
        watcher.alarms.extend(saved.alarms)
        watcher.paused = saved.paused
        watchers[saved.number] = watcher
        service.disk.saved[saved.number] = (watcher.changes, saved.file)
    for message in point.outbox:
        service.outbox.waiting[message["id"]] = (message, set())
    service.marks.add(point.marks)
    replayed = 0
    for record in store.journal.replay(point.segment):
        if isinstance(record, Rows):
            service.marks.add(record.marks)
            if record.watcher in watchers:  # else of a stream that the configuration lacks now
                replayed += _watch(service, watchers[record.watcher], record)
        else:
            _redo(service, watchers, record)
    store.journal.open(max([point.segment, *store.journal.segments()]))
    for watcher in watchers.values():
        watcher.begin_counts()
    if watchers:
        logs.info("resumed", watchers=len(watchers), replayed=replayed)


def _watch(service: Service, watcher: Watcher, record: Rows) -> int:
    """Watch the rows that the checkpoint does not cover; return how many."""
    known = watcher.monitor.n_seen - record.first
    if known < 0:
        raise StateError(f"the journal lacks rows of {watcher.key}. Restore it from a copy")
    if known >= len(record.X):
        return 0
    was, watcher.paused = watcher.paused, record.paused
    _, alarms = watcher.observe(record.X[known:], record.times[known:])
    watcher.paused = was
    for alarm in alarms:
        service.outbox.waiting[alarm.id] = (alarm.message(), set())
    return len(record.X) - known


def _redo(service: Service, watchers: dict[int, Watcher], fact: Fact) -> None:
    values = fact.values
    if fact.kind == "birth":
        number, name, device = values["number"], values["stream"], values["device"]
        service.take_number(number)
        if name in service.streams and number not in watchers:
            fresh = service.fresh(service.streams[name])
            watchers[number] = service.add(number, name, device, fresh)
            watchers[number].names = tuple(values["names"])
    elif fact.kind == "paused" and values["number"] in watchers:
        watchers[values["number"]].paused = values["paused"]
    elif fact.kind == "delivered":
        service.outbox.waiting.pop(values["id"], None)
    elif fact.kind == "session":
        service.marks.clear()
