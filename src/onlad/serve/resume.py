"""The start of a service: the last checkpoint, and then the journal from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onlad.errors import OnladError
from onlad.reference import Array
from onlad.serve import logs
from onlad.serve.checkpoint import StateError
from onlad.serve.journal import Fact, Rows
from onlad.serve.quarantine import WATCHING
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service


class _Failed(Exception):
    """A monitor raised, and is half of something now."""


def resume(service: Service) -> None:
    """Bring a service that has seen nothing to where the last one in its folder was."""
    failed: set[tuple[int, int]] = set()
    while True:
        resumption = _Resumption(service, failed)
        try:
            resumption.run()
            return
        except _Failed:  # from the start again, and row by row where it failed
            service.forget_all()


class _Resumption:
    """One attempt. Records in `failed` are watched with care, by watcher and first row."""

    def __init__(self, service: Service, failed: set[tuple[int, int]]) -> None:
        self.service, self.failed = service, failed
        self.watchers: dict[int, Watcher] = {}
        self.absent: dict[int, int] = {}  # by number: the next row of the journal
        self.replayed = 0

    def run(self) -> None:
        """Load the checkpoint, and replay the journal."""
        service, store = self.service, self.service.store
        point = store.read()
        for saved in point.watchers:
            service.take_number(saved.number)
            if saved.stream not in service.streams:
                self.absent[saved.number] = 0
                service.disk.absent.append(saved)
                continue
            watcher = service.resurrect(saved, store.model(saved))
            self.watchers[saved.number] = watcher
            service.disk.saved[saved.number] = (watcher.changes, saved.file)
        for message in point.outbox:
            service.outbox.waiting[message["id"]] = (message, set())
        service.marks.add(point.marks)
        service.marks.timed = point.timed
        for record in store.journal.replay(point.segment, needed=not point.is_first):
            if isinstance(record, Fact):
                self._redo(record)
            else:
                self._rows(record)
        store.journal.open(max([point.segment, *store.journal.segments()]))
        for watcher in self.watchers.values():
            watcher.begin_counts()
        if kept := service.disk.absent_records:
            logs.warning("kept records of streams that the configuration lacks", records=len(kept))
        if self.watchers:
            logs.info("resumed", watchers=len(self.watchers), replayed=self.replayed)

    def _rows(self, record: Rows) -> None:
        """Watch the rows that the checkpoint does not cover."""
        watcher = self.watchers.get(record.watcher)
        if watcher is None:  # of a stream that the configuration lacks now
            self.service.marks.add(record.marks)
            if record.first >= self.absent.get(record.watcher, 0):  # else it is there twice
                self.absent[record.watcher] = record.first + len(record.X)
                self.service.disk.absent_records.append(record)
            return
        self.service.marks.add(record.marks, watcher.stream.name if watcher.stream.time else None)
        known = watcher.journaled - record.first
        if known < 0:
            way = f"salvage the rest: onlad repair {self.service.store.folder}"
            what = f"the journal lacks rows of {watcher.key}"
            raise StateError(f"{what}. Restore it from a copy, or {way}")
        if known >= len(record.X):
            return
        was, watcher.paused = watcher.paused, record.paused
        X, times = record.X[known:], record.times[known:]
        if self.service.quarantine.has_rows(record.watcher, record.first):
            self._set_aside(watcher, X, "it ended a process by a fault")
        elif (record.watcher, record.first) in self.failed:
            for i in range(len(X)):
                self._row(watcher, X[i : i + 1], times[i : i + 1])
        else:
            self._watch(watcher, X, times, record.first)
        watcher.hear(record.seen)
        watcher.paused = was

    def _watch(self, watcher: Watcher, X: Array, times: Array, first: int) -> None:
        quarantine, outbox = self.service.quarantine, self.service.outbox
        quarantine.hold(WATCHING, watcher.number, first)
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
            self._watch(watcher, X, times, watcher.journaled)
        except _Failed as failed:
            watcher.monitor = twin
            self._set_aside(watcher, X, repr(failed.__cause__))

    def _set_aside(self, watcher: Watcher, X: Array, why: str) -> None:
        first, key = watcher.journaled, watcher.key
        self.service.quarantine.put_rows(watcher.number, first, key, X, why)
        watcher.lost += len(X)

    def _redo(self, fact: Fact) -> None:
        service, values = self.service, fact.values
        if fact.kind in ("birth", "restored"):
            self._birth(fact)
        elif fact.kind == "delivered":
            service.outbox.waiting.pop(values["id"], None)
        elif fact.kind == "session":
            service.marks.clear()
        elif values["number"] in self.absent:
            service.disk.absent_records.append(fact)
        elif values["number"] in self.watchers:  # else forgotten, and the checkpoint knows it
            self._change(self.watchers[values["number"]], fact)

    def _birth(self, fact: Fact) -> None:
        service, values = self.service, fact.values
        number, name = values["number"], values["stream"]
        service.take_number(number)
        if name not in service.streams:
            if number not in self.absent:
                self.absent[number] = 0
                service.disk.absent_records.append(fact)
        elif number in self.watchers:
            pass  # the checkpoint has it
        elif fact.kind == "restored":
            self.watchers[number] = service.put_back(number, values["file"])
        else:
            fresh = service.fresh(service.streams[name])
            self.watchers[number] = service.add(number, name, values["device"], fresh)
            self.watchers[number].names = tuple(values["names"])

    def _change(self, watcher: Watcher, fact: Fact) -> None:
        """Do again what was done to a device, unless the checkpoint covers it."""
        values = fact.values
        if fact.kind == "paused":
            watcher.paused = values["paused"]
        elif fact.kind == "forgotten":
            self.service.remove(self.watchers.pop(values["number"]))
        elif fact.kind == "normal":
            for alarm in watcher.alarms:
                if alarm.id == values["alarm"] and not alarm.marked:
                    watcher.mark_normal(alarm)
        elif fact.kind == "false_alarms" and watcher.journaled == values["row"]:
            watcher.settle({"false_alarms": values["rate"]})
        elif fact.kind == "silent" and watcher.journaled == values["row"] and not watcher.silent:
            watcher.silent, message = True, watcher.silence()
            self.service.outbox.waiting[message["id"]] = (message, set())
        elif fact.kind == "lost" and watcher.journaled == values["first"]:  # `repair` wrote it
            watcher.lost += values["rows"]
