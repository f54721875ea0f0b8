"""Proof that the models on the disk are those that the log leads to, bit for bit.

A walk through the journal begins with the birth of a device, or with its oldest snapshot whose next
samples are still there. It observes each sample, does again what people did, and has to arrive at
each snapshot, and at the model of the last checkpoint. Where it does not, the model was changed by
something that is not in the log; the walk goes on from there. A service may use the folder
meanwhile: nothing is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from onlad import persist
from onlad.monitor import Monitor
from onlad.serve import audit, checkpoint, replay
from onlad.serve.checkpoint import Saved, StateError
from onlad.serve.frames import Fact, Record, Rows
from onlad.serve.journal import Journal
from onlad.serve.tables import Config
from onlad.serve.watcher import Watcher

TRIES = 3  # to read a checkpoint
PEOPLE = ("paused", "label", "reverted", "maintenance")  # facts that the trail has too


class Proved(NamedTuple):
    """What was found out about a device."""

    text: str
    wrong: bool  # something is not what the log leads to


class _Target(NamedTuple):
    """A file of a model, at which the walk has to arrive."""

    name: str
    model: Monitor
    seen: int  # rows


def prove(folder: Path, config: Config) -> Iterator[Proved]:
    """Yield what is found out about each device of the last checkpoint in a state folder."""
    streams = {stream.name: stream for stream in config.streams}
    trail = [said for _, said in audit.verify(folder)]
    journal = Journal(folder / "journal")
    for saved, model in _checkpoint(folder):
        if saved.stream not in streams:
            yield Proved(f"{saved.stream}: the configuration has no such stream", wrong=False)
            continue
        targets = [
            *_snapshots(folder, saved.number),
            _Target(f"models/{saved.file}", model, model.n_seen),
        ]
        stream = streams[saved.stream]
        walk = _Walk(Watcher(saved.number, stream, saved.device, stream.monitor(), 1), targets)
        walk.trail = [each for each in trail if each.get("number") == saved.number]
        for record in journal.of(saved.number):
            walk.take(record)
        yield walk.end()


def _checkpoint(folder: Path) -> list[tuple[Saved, Monitor]]:
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError):  # a service replaces it just now
            devices = checkpoint.peek(folder)
            return [(each, checkpoint.monitor(folder / "models" / each.file)) for each in devices]
    raise StateError(f"{folder}: a model of the last checkpoint is missing")


def _snapshots(folder: Path, number: int) -> Iterator[_Target]:
    for path in checkpoint.snapshots(folder, number):
        with contextlib.suppress(OSError):  # it is removed just now
            model = checkpoint.monitor(path)
            yield _Target(f"snapshots/{path.name}", model, model.n_seen)


@dataclass
class _Walk:
    watcher: Watcher
    targets: list[_Target]  # those that are ahead
    trail: list[dict[str, Any]] = field(default_factory=list)
    begun: bool = False
    since: int = 0  # row with which it began
    reached: int = 0  # targets
    wrong: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    why: str = ""  # what could not be done again since the last target, if anything

    def __post_init__(self) -> None:
        self._files = {target.name: target.model for target in self.targets}
        self._early: list[Fact] = []  # of rows at which the walk has not been

    def take(self, record: Record) -> None:
        """Go on with a record of the journal."""
        if isinstance(record, Rows):
            self._observe(record)
        elif record.kind == "birth":
            fresh = self.watcher.stream.template()
            names = () if fresh.n_seen else tuple(record.values["names"])
            self._start(Monitor.resumed(fresh.settings(), fresh.learned(), names), 0)
        else:
            if record.kind in PEOPLE and not any(_tells(said, record) for said in self.trail):
                self.wrong.append(f"the journal has a {record.kind!r} that the trail lacks")
            if record.kind == "lost":
                self.why = "the journal lost rows"
            self._redo(record)

    def _start(self, model: Monitor, row: int) -> None:
        self.begun, self.since, self.watcher.monitor = True, row, model
        self.targets = [target for target in self.targets if target.seen >= row]
        self._compare()

    def _observe(self, rows: Rows) -> None:
        if not self.begun or rows.first > self.watcher.monitor.n_seen:
            self._jump(rows.first)
        own, end = self.watcher, rows.first + len(rows.X)
        while self.begun and own.monitor.n_seen < end:
            self._leave()
            first = own.monitor.n_seen
            stop = min([end, *(target.seen for target in self.targets if target.seen > first)])
            part, own.paused = slice(first - rows.first, stop - rows.first), rows.paused
            own.observe(rows.X[part], rows.times[part])
            self._compare()

    def _jump(self, row: int) -> None:
        """Begin with the first target from which there are rows on.

        Those before are not proved, nor are older ones that had seen as many rows.
        """
        ahead = [target for target in self.targets if target.seen >= row]
        self.begun = bool(ahead)
        if ahead:
            first = min(target.seen for target in ahead)
            start = [target for target in ahead if target.seen == first][-1]
            self.targets = [start, *(target for target in ahead if target.seen > first)]
            self._start(_copy(start.model), first)
            early, self._early = self._early, []
            for fact in early:
                self._redo(fact)

    def _compare(self) -> None:
        """Strike out the targets that the walk has arrived at."""
        here = [each for each in self.targets if each.seen == self.watcher.monitor.n_seen]
        if not here:
            return
        data = persist.to_bytes(self.watcher.monitor)
        for target in here:
            if persist.to_bytes(target.model) == data:
                self.targets.remove(target)
                self.reached, self.why = self.reached + 1, ""

    def _leave(self) -> None:
        """Go on from the last of the targets here that the walk did not arrive at."""
        for target in [each for each in self.targets if each.seen <= self.watcher.monitor.n_seen]:
            self.targets.remove(target)
            if self.why:
                self.unsure.append(f"{target.name} cannot be proved: {self.why}")
            else:
                self.wrong.append(f"{target.name} is not what the log leads to")
            self.watcher.monitor, self.why = _copy(target.model), ""

    def _redo(self, fact: Fact) -> None:
        """Do again what was done, when the walk is where it was done."""
        values, own = fact.values, self.watcher
        if fact.kind not in replay.REDONE:
            return
        if not self.begun or values["row"] != own.monitor.n_seen:
            self._early.append(fact)  # the walk may have to jump there
            return
        unknown = values.get("alarm", "") not in ("", *(alarm.id for alarm in own.alarms))
        if unknown and values["label"] == "normal":
            self.why = f"the alarm {values['alarm']} began before the samples that are kept"
        try:
            own.apply(fact, self._snapped)
        except StateError as error:
            self.why = str(error)
        self._compare()

    def _snapped(self, file: str) -> Monitor:
        if f"snapshots/{file}" not in self._files:
            raise StateError(f"the snapshot {file} is gone")
        return _copy(self._files[f"snapshots/{file}"])

    def end(self) -> Proved:
        """Return what was found out."""
        if self.begun:
            self._leave()
        gone = [f"{target.name} is ahead of the journal" for target in self.targets]
        own, wrong = self.watcher, self.wrong + (gone if self.begun else [])
        said = [
            f"rows {self.since:,} to {own.monitor.n_seen:,} replayed, {self.reached} files proved"
            if self.begun
            else "the journal has none of its samples",
            *wrong,
            *self.unsure,
        ]
        return Proved(f"{own.key}: {'; '.join(said)}", wrong=bool(wrong))


def _copy(model: Monitor) -> Monitor:
    return Monitor.resumed(model.settings(), model.learned())


def _tells(said: dict[str, Any], fact: Fact) -> bool:
    """Return whether a line of the trail says what a fact of the journal does."""
    same = (said.get(name) == value for name, value in fact.values.items())
    return said["kind"] == fact.kind and all(same)
