"""The start of a service: the last checkpoint, and then the journal from there.

Rows of the journal are gathered by device: a block costs a fraction of single samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.serve import logs, replay
from onlad.serve.checkpoint import StateError
from onlad.serve.disk import Disk
from onlad.serve.frames import Fact, Rows
from onlad.serve.quarantine import REPLAYING, WATCHING
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service

GATHERED = 1 << 16  # rows that are kept until they are watched
BLOCK = 64  # rows that are watched at a time


class _Failed(Exception):
    """A monitor raised, and is half of something now."""


def resume(service: Service) -> Iterator[str]:
    """Bring a service that has seen nothing to where the last one in its folder was.

    Yield often how far it is, so that others may have their turn.
    """
    failed: set[tuple[int, int]] = set()
    while True:
        resumption = _Resumption(service, failed)
        try:
            yield from resumption.run()
            return
        except _Failed:  # from the start again, and row by row where it failed
            for known in (service.watchers, service.marks, service.outbox.waiting):
                known.clear()
            service.disk = Disk(service, service.store)


class _Resumption:
    """One attempt. Blocks in `failed` are watched with care, by watcher and first row."""

    def __init__(self, service: Service, failed: set[tuple[int, int]]) -> None:
        self.service, self.failed, self.folder = service, failed, service.store.folder
        self.watchers: dict[int, Watcher] = {}
        self.absent: dict[int, int] = {}  # by number: the next row of the journal
        self.gathered: dict[int, list[Rows]] = {}
        self.waiting = 0  # rows in it
        self.delivered: set[str] = set()
        self.replayed = 0

    def run(self) -> Iterator[str]:
        """Load the checkpoint, and replay the journal."""
        service, store = self.service, self.service.store
        point = store.read()
        service.devices.take_number(point.next - 1)
        for count, saved in enumerate(point.watchers):
            yield f"the models are loaded: {count} of {len(point.watchers)}"
            if saved.stream not in service.streams:
                self.absent[saved.number] = 0
                service.disk.absent.append(saved)
                continue
            watcher = service.devices.resurrect(saved, store.model(saved), store.alarms(saved))
            self.watchers[saved.number] = watcher
            service.disk.loaded(watcher, saved, point.segment)
        for message in point.outbox:
            service.outbox.waiting[message["id"]] = (message, set())
        service.marks.add(point.marks)
        service.marks.timed = point.timed
        size = store.journal.size(point.segment)
        for record in store.journal.replay(point.segment, needed=not point.is_first):
            if isinstance(record, Fact):
                self._redo(record)
            else:
                self._gather(record)
            if self.waiting >= GATHERED:
                for _ in self._watch_all():
                    yield f"the journal is replayed: {100 * store.journal.replayed // size} %"
        for _ in self._watch_all():
            yield "the journal is replayed: the last rows"
        self._deliver()
        store.journal.open(max([point.segment, *store.journal.segments()]))
        service.disk.begin(point.segment)
        for watcher in self.watchers.values():
            watcher.begin_counts()
        if kept := len(service.disk.records):
            logs.warning("kept records of streams that the configuration lacks", records=kept)
        if self.watchers:
            logs.info("resumed", watchers=len(self.watchers), replayed=self.replayed)

    # -- rows ---------------------------------------------------------------------------------

    def _gather(self, record: Rows) -> None:
        """Take the rows that the checkpoint does not cover."""
        service = self.service
        watcher = self.watchers.get(record.number)
        if watcher is None:  # of a stream that the configuration lacks now, or forgotten
            service.marks.add(record.marks)
            if record.first >= self.absent.get(record.number, 1 << 62):  # else it is there twice
                self.absent[record.number] = record.first + len(record.X)
                service.disk.records.append(record)
            return
        service.marks.add(record.marks, watcher.stream.name if watcher.stream.time else None)
        group = self.gathered.get(record.number)
        last = group[-1] if group else None
        following = watcher.journaled if last is None else last.first + len(last.X)
        known = following - record.first
        if known < 0:
            way = f"Restore it from a copy, or salvage the rest: onlad repair {self.folder}"
            raise StateError(f"the journal lacks rows of {watcher.key}. {way}")
        if known >= len(record.X):
            return
        if service.quarantine.has_rows(record.number, record.first):
            self._watch_gathered(watcher)
            self._set_aside(watcher, record.X[known:], "it ended a process by a fault")
            return
        if service.quarantine.careful or (group and group[0].paused != record.paused):
            self._watch_gathered(watcher)
        X, times = record.X[known:], record.times[known:]
        new = record._replace(first=following, X=X, times=times)
        self.gathered.setdefault(record.number, []).append(new)
        self.waiting += len(new.X)
        if service.quarantine.careful:
            self._watch_gathered(watcher, record.first)

    def _watch_all(self) -> Iterator[None]:
        for number in list(self.gathered):
            yield from self._blocks(self.watchers[number])

    def _watch_gathered(self, watcher: Watcher, held: int | None = None) -> None:
        for _ in self._blocks(watcher, held):
            pass

    def _blocks(self, watcher: Watcher, held: int | None = None) -> Iterator[None]:
        """Watch the rows of a device that were gathered."""
        group = self.gathered.pop(watcher.number, [])
        if not group:
            return
        X = np.concatenate([rows.X for rows in group])
        times = np.concatenate([rows.times for rows in group])
        self.waiting -= len(X)
        was, watcher.paused = watcher.paused, group[0].paused
        for start in range(0, len(X), BLOCK):
            rows, when = X[start : start + BLOCK], times[start : start + BLOCK]
            if (watcher.number, watcher.journaled) in self.failed:
                for i in range(len(rows)):
                    self._row(watcher, rows[i : i + 1], when[i : i + 1])
            else:
                self._watch(watcher, rows, when, held)
            yield
        watcher.hear(group[-1].seen)
        watcher.paused = was

    def _watch(self, watcher: Watcher, X: Array, times: Array, held: int | None) -> None:
        quarantine, outbox, first = self.service.quarantine, self.service.outbox, watcher.journaled
        quarantine.hold(REPLAYING if held is None else WATCHING, watcher.number, held or first)
        try:
            _, alarms = watcher.observe(X, times)
        except OnladError:
            raise
        except Exception as error:
            self.failed.add((watcher.number, first))
            raise _Failed from error
        quarantine.drop()
        for alarm in alarms:
            outbox.waiting[alarm.id] = (alarm.message(), set())
        self.replayed += len(X)

    def _row(self, watcher: Watcher, X: Array, times: Array) -> None:
        """Watch one row, or set it aside if the monitor raises on it."""
        twin = watcher.twin()
        twin.paused = watcher.paused
        try:
            self._watch(watcher, X, times, None)
        except _Failed as failed:
            watcher.monitor = twin
            self._set_aside(watcher, X, repr(failed.__cause__))

    def _set_aside(self, watcher: Watcher, X: Array, why: str) -> None:
        first, key = watcher.journaled, watcher.key
        self.service.quarantine.put_rows(watcher.number, first, key, X, why)
        watcher.lost += len(X)

    # -- facts --------------------------------------------------------------------------------

    def _redo(self, fact: Fact) -> None:
        service, values = self.service, fact.values
        if fact.kind in ("birth", "restored"):
            self._birth(fact)
        elif fact.kind == "delivered":
            self.delivered.add(values["id"])
        elif fact.kind == "session":
            service.marks.clear()
        elif values["number"] in self.absent:  # once and in order
            records = service.disk.records
            records[:] = [*(record for record in records if record != fact), fact]
        elif values["number"] in self.watchers:  # else forgotten, and the checkpoint knows it
            self._change(self.watchers[values["number"]], fact)

    def _birth(self, fact: Fact) -> None:
        service, values = self.service, fact.values
        number, name = values["number"], values["stream"]
        service.devices.take_number(number)
        if name not in service.streams:
            if number not in self.absent:
                self.absent[number] = 0
                service.disk.records.append(fact)
        elif number in self.watchers:
            pass  # the checkpoint has it
        elif fact.kind == "restored":
            saved, model, alarms = service.store.forgotten(values["file"])
            if (name, saved.device) not in service.watchers:
                saved = saved._replace(number=number)  # a new one
                self.watchers[number] = service.devices.resurrect(saved, model, alarms)
        elif (name, values["device"]) not in service.watchers:  # else it was forgotten since
            fresh = service.devices.fresh(service.streams[name])
            watcher = service.devices.add(number, name, values["device"], fresh)
            if watcher.monitor.n_seen == 0:
                watcher.name(tuple(values["names"]))
            self.watchers[number] = watcher

    def _change(self, watcher: Watcher, fact: Fact) -> None:
        """Do again what was done to a device, unless the checkpoint covers it."""
        self._watch_gathered(watcher)
        values = fact.values
        if fact.kind == "forgotten":
            # One that is born later may have alarms of these names.
            self._deliver(f"{watcher.key}/")
            self.service.devices.remove(self.watchers.pop(values["number"]))
        elif fact.kind == "paused" or (
            fact.kind in replay.REDONE and watcher.journaled == values["row"]
        ):
            watcher.apply(fact, partial(self._snapped, watcher))
        elif fact.kind == "silent" and watcher.journaled == values["row"] and not watcher.silent:
            message = watcher.silence()
            if values["reported"]:
                self.service.outbox.waiting[message["id"]] = (message, set())
        elif fact.kind == "suppressed":
            self.service.outbox.waiting.pop(values["alarm"], None)
            for alarm in watcher.alarms:
                if alarm.id == values["alarm"]:
                    watcher.suppress(alarm)
        elif fact.kind == "lost" and watcher.journaled == values["first"]:  # `repair` wrote it
            watcher.lost += values["rows"]

    def _snapped(self, watcher: Watcher, file: str) -> Monitor:
        store = self.service.store
        try:
            return store.snapped(watcher.number, file)
        except StateError as error:
            what = f"{watcher.key} went back to a snapshot in {self.folder / 'snapshots'}: {error}"
            way = f"Restore it from a copy, or go on without it: onlad repair {self.folder}"
            raise StateError(f"{what}. {way}") from None

    def _deliver(self, prefix: str = "") -> None:
        """Take the alarms out that were delivered. Their rows have all been watched."""
        for alarm in [alarm for alarm in self.delivered if alarm.startswith(prefix)]:
            self.service.outbox.waiting.pop(alarm, None)
            self.delivered.discard(alarm)
