"""`Service`: takes samples in, keeps them safe, watches them, and tells others.

What others build on (the HTTP interface in `http`, the page in `page`, both in this process and on
this event loop):

- ``service.watchers``: every device of every stream, by (stream, device). Of a `Watcher`: ``key``,
  ``state`` ("learning", "normal", "alarm", "paused", "silent"), ``history`` (the last `Point`s:
  row, time, score, threshold, is_anomaly, drift), ``alarms`` (the last `Alarm`s with causes, newest
  last), ``alarm`` (the open one), ``last`` (what was `Said`), ``paused``, ``samples``, ``bad``,
  ``names``.
- ``await service.pause(watcher, True | False)``: stop learning, or go on with it.
- ``await service.mark_normal(watcher, alarm_id)``: the model learns the alarm's samples.
- ``await service.forget(watcher)``: as if the device had never been; returns the file from which
  ``await service.restore(file)`` puts it back.
- All of these raise `DiskError`, and change nothing, when the journal cannot be written.
- ``await service.model_bytes(watcher)``: the model as a file's bytes, for a download.
- ``service.listeners``: functions (watcher, first row, times, verdicts) called after each batch.
- ``service.problems()``: why the service is not ready; empty if it is.

The way of a sample: intake -> journal -> monitor -> listeners and outbox -> acknowledgement. One
thread does all of it, in steps: whatever waits is one batch. A step journals before it learns, so
a model is never ahead of what can be replayed; and a checkpoint is taken between two steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.serve import checkpoint, logs, payload, settings
from onlad.serve.checkpoint import Saved, StateError, Store
from onlad.serve.config import Config, StreamTable
from onlad.serve.disk import Disk
from onlad.serve.intake import Answer, Batch, Item, Part
from onlad.serve.journal import Fact, Mark, Record
from onlad.serve.marks import Marks
from onlad.serve.outbox import Outbox
from onlad.serve.quarantine import WATCHING, Quarantine
from onlad.serve.resume import resume
from onlad.serve.watcher import Alarm, Watcher, key
from onlad.verdict import Verdicts

Taken: TypeAlias = dict[Mark | tuple[str, int], Mark]  # messages of a batch
Listener: TypeAlias = Callable[[Watcher, int, Array, Verdicts], None]

GATHER = 0.001  # seconds that a batch waits for company: a block costs a fifth of single samples
BATCH = 500  # messages of one step: others must not wait for a backlog
LONGEST_DEVICE = 200  # letters of its name
SLICE = 256  # rows after which others get their turn
BUCKETS = np.array([0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0])  # seconds


def _template(stream: StreamTable) -> Monitor:
    try:
        return stream.template()
    except ValueError as error:
        raise StateError(f"stream {stream.name}: {error}") from None


class DiskError(OnladError):
    """What a person wanted was not done, because it could not be kept."""


class UnknownError(OnladError):
    """There is no such device or alarm."""


class Service:
    """Streams, watched."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.streams: dict[str, StreamTable] = {s.name: s for s in config.streams}
        self.watchers: dict[tuple[str, str], Watcher] = {}
        self.listeners: list[Listener] = []
        self.forgetting: list[Callable[[Watcher], None]] = []  # called with each forgotten device
        self.after_step: list[Callable[[], None]] = []
        self.outbox = Outbox(self._delivered)
        self.trouble: dict[str, str] = {}  # what is wrong now, by part
        self.dropped: dict[str, int] = {}
        self.bad: dict[str, int] = dict.fromkeys(self.streams, 0)
        self.duplicates = 0
        self.webhook_failures = 0
        self.latency = np.zeros(len(BUCKETS) + 1, int)
        self.latency_sum = 0.0
        # Read once: a file that changes or goes later must not end what is being watched.
        self.templates = {s.name: _template(s) for s in config.streams}
        self.store = Store(config.service.state)
        self.quarantine = Quarantine(config.service.state)
        self.disk = Disk(self, self.store)
        self.marks = Marks()
        self.born: set[int] = set()  # devices that the journal knows, by number
        self.turn = asyncio.Lock()  # held by a step and by whatever must not see half of one
        self.broken = False  # in the middle of a step: then only the journal is right
        self._next = 1
        self._pending: deque[tuple[Item, ...]] = deque()
        self._wake = asyncio.Event()
        try:
            resume(self)
            self._settle()
        except BaseException:
            self.close()
            raise

    def _settle(self) -> None:
        """Let changes of the configuration take effect on what was learned, or say they cannot."""
        wanted = {name: template.settings() for name, template in self.templates.items()}
        for watcher in self.watchers.values():
            rate = wanted[watcher.stream.name]["false_alarms"]
            if watcher.settle({"false_alarms": rate}):
                with contextlib.suppress(OSError):  # then a crash is replayed with the old rate
                    facts = {"number": watcher.number, "row": watcher.journaled, "rate": rate}
                    self.store.journal.append([Fact("false_alarms", facts)])
        devices = ((w.stream.name, w.device, w.monitor) for w in self.watchers.values())
        for line in settings.kept_by(wanted, devices):
            logs.warning(line)

    # -- devices -------------------------------------------------------------------------------

    def fresh(self, stream: StreamTable) -> Monitor:
        """Return the monitor that a new device of a stream starts with."""
        template = self.templates[stream.name]
        return Monitor(**template.settings()).resume(template.learned())

    def add(self, number: int, name: str, device: str, monitor: Monitor) -> Watcher:
        """Watch a device that the journal or a checkpoint knows."""
        stream = self.streams[name]
        if stream.columns and monitor.names and set(stream.columns) != set(monitor.names):
            raise StateError(
                f"stream {name} has learned the columns {list(monitor.names)}, and the "
                f"configuration says {list(stream.columns)}. Give the stream another name"
            )
        watcher = Watcher(number, stream, device, monitor, self.config.service.history)
        self.watchers[name, device] = watcher
        self.born.add(number)
        return watcher

    def forget_all(self) -> None:
        """Be a service that has seen nothing again."""
        self.watchers.clear()
        self.born.clear()
        self.marks.clear()
        self.outbox.waiting.clear()
        self.disk = Disk(self, self.store)

    def take_number(self, number: int) -> None:
        """Give this number to no device that is born later."""
        self._next = max(self._next, number + 1)

    # -- samples in ---------------------------------------------------------------------------

    def submit(self, *items: Item) -> bool:
        """Let items wait for the next step, all of them; False if too many wait already."""
        if len(self._pending) >= self.config.service.queue:
            self.drop("intake")
            return False
        self._pending.append(items)
        self._wake.set()
        return True

    @property
    def queue(self) -> int:
        """Return how many messages wait."""
        return len(self._pending)

    @property
    def busy(self) -> bool:
        """Whether so much waits that no more should be read from where it can wait as well."""
        return len(self._pending) >= 2 * BATCH

    def new_session(self) -> None:
        """Forget which messages came: the broker has forgotten which it sent."""
        if len(self.marks):
            self.marks.clear()
            with contextlib.suppress(OSError):
                self.store.journal.append([Fact("session", {})])

    def drop(self, what: str, count: int = 1) -> None:
        """Count what had to be thrown away."""
        self.dropped[what] = self.dropped.get(what, 0) + count

    async def pump(self) -> None:
        """Work off what comes in, for ever."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER if len(self._pending) < BATCH else 0)
            await self._next_step()
            if not self._pending:
                self._wake.clear()

    async def drain(self) -> None:
        """Work off what waits now."""
        while self._pending:
            await self._next_step()

    async def _next_step(self) -> None:
        async with self.turn:
            few = [self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))]
            try:
                await self._step([item for items in few for item in items])
            except BaseException:
                self.broken = True
                raise

    async def _step(self, items: list[Item]) -> None:
        batch = self._read(items)
        try:
            self._write(batch)
        except OSError as error:
            self._refuse(batch, error)
            return
        self.trouble.pop("journal", None)
        said = {number: await self._watch(part) for number, part in batch.parts.items()}
        if self.config.service.sync == 0 and batch.parts and not await self.disk.sync():
            for item, _ in batch.answers:
                if item.refused is not None:
                    item.refused()
            return
        for item, answer in batch.answers:
            if answer.rows and answer.watcher is not None:
                answer.verdicts = said[answer.watcher.number]
            if item.done is not None:
                item.done()
            if item.reply is not None:
                item.reply(answer)
        for finish in self.after_step:
            finish()
        now = time.perf_counter()
        waited = np.array([now - item.arrived for item, answer in batch.answers if answer.rows])
        np.add.at(self.latency, np.searchsorted(BUCKETS, waited), 1)
        self.latency_sum += float(waited.sum())

    def _read(self, items: list[Item]) -> Batch:
        batch = Batch()
        taken: Taken = {}
        for item in items:
            answer = self._take(batch, item, taken)
            batch.answers.append((item, answer))
            if answer.bad:
                self.bad[item.stream.name] += len(answer.bad)
                index, why = answer.bad[0]
                facts = {"stream": item.stream.name, "device": item.device, "index": index}
                logs.warning("skipped a sample", **facts, why=why)
        return batch

    def _take(self, batch: Batch, item: Item, taken: Taken) -> Answer:
        """Read an item into a batch, unless it is known, or has ended a process."""
        if item.mark is not None and self._known(item.mark, item.again, taken):
            self.duplicates += 1
            return Answer()
        if why := self.quarantine.read(item):
            return Answer(bad=[(0, why)])
        watcher = self.watchers.get((item.stream.name, item.device))
        if watcher is None:
            names = self.templates[item.stream.name].names or item.stream.columns
        else:
            names = watcher.names
        found = payload.read(item.stream, item.payload, names, batch.now)
        self.quarantine.drop()
        if found.timed and item.mark is not None and self._known_by_time(item, item.mark, taken):
            self.duplicates += 1
            return Answer()
        if watcher is None and found.rows:  # a device begins with a sample that could be read
            watcher = self._birth(item)
            if watcher is None:
                most = self.config.service.devices
                rule = f"at most {most} devices with names of {LONGEST_DEVICE} letters are watched"
                return Answer(bad=[(0, rule)])
        if watcher is None:
            return Answer(bad=found.bad)
        watcher.bad += len(found.bad)
        return batch.add(item, watcher, found)

    def _known(self, mark: Mark, again: bool, taken: Taken) -> bool:
        """Whether a message is in the journal, or in this batch by an earlier connection."""
        first = taken.setdefault(mark, mark)
        # Items of one message, for several streams, share the very same mark.
        return again and (first is not mark or mark in self.marks)

    def _known_by_time(self, item: Item, mark: Mark, taken: Taken) -> bool:
        """Whether a message whose samples have times was taken, under whatever identifier."""
        first = taken.setdefault((item.stream.name, mark.digest), mark)
        return first is not mark or self.marks.has_timed(mark, item.stream.name)

    def _birth(self, item: Item) -> Watcher | None:
        if len(self.watchers) >= self.config.service.devices or len(item.device) > LONGEST_DEVICE:
            return None
        watcher = self.add(self._next, item.stream.name, item.device, self.fresh(item.stream))
        self.born.discard(self._next)  # until the journal has it
        self._next += 1
        return watcher

    def _write(self, batch: Batch) -> None:
        """Journal a batch before anything is learned of it."""
        records: list[Record] = []
        for part in batch.parts.values():
            w = part.watcher
            if w.number not in self.born:
                facts = {"number": w.number, "stream": w.stream.name, "device": w.device}
                records.append(Fact("birth", facts | {"names": list(w.names)}))
            records.append(part.record())
        if records:
            self.store.journal.append(records)
        for part in batch.parts.values():
            self.born.add(part.watcher.number)
            stream = part.watcher.stream
            self.marks.add(part.marks, stream.name if stream.time else None)

    def _refuse(self, batch: Batch, error: OSError) -> None:
        """Say that nothing of a batch was taken: the disk is full, or gone."""
        for watcher in [w for w in self.watchers.values() if w.number not in self.born]:
            self.remove(watcher)
        self.trouble["journal"] = f"the journal cannot be written: {error.strerror}"
        logs.warning("the journal cannot be written", error=error.strerror)
        for item, answer in batch.answers:
            if item.refused is not None:
                item.refused()
            else:
                self.drop("disk")
            if item.reply is not None:
                answer.watcher, answer.rows = None, 0
                item.reply(answer)

    async def _watch(self, part: Part) -> list[Verdicts]:
        watcher, X, times = part.watcher, np.array(part.rows), np.array(part.times)
        said, row = [], watcher.journaled
        for start in range(0, len(X), SLICE):
            if start:
                await asyncio.sleep(0)
            few, when = X[start : start + SLICE], times[start : start + SLICE]
            first = watcher.monitor.n_seen
            self.quarantine.hold(WATCHING, watcher.number, row)
            verdicts, alarms = watcher.observe(few, when)
            self.quarantine.drop()
            watcher.hear(part.seen)
            said.append(verdicts)
            for alarm in alarms:
                logs.warning("alarm", **alarm.message())
                self.outbox.add(alarm.message())
            for listener in self.listeners:
                listener(watcher, first, when, verdicts)
        return said

    async def keep_listening(self) -> None:
        """Tell of devices that have fallen silent, for ever."""
        waits = [s.silent_after for s in self.config.streams if s.silent_after is not None]
        while True:
            await asyncio.sleep(min([1.0, *(wait / 4 for wait in waits)]))
            async with self.turn:
                for watcher in self.watchers.values():
                    if watcher.falls_silent():
                        self._silence(watcher)

    def _silence(self, watcher: Watcher) -> None:
        watcher.silent = True
        message = watcher.silence()
        with contextlib.suppress(OSError):  # then it is told once more after a crash
            facts = {"number": watcher.number, "row": watcher.journaled}
            self.store.journal.append([Fact("silent", facts)])
        logs.warning("silent", stream=watcher.stream.name, device=watcher.device)
        self.outbox.add(message)

    def _delivered(self, alarm: str) -> None:
        with contextlib.suppress(OSError):  # then it is delivered once more after a crash
            self.store.journal.append([Fact("delivered", {"id": alarm})])

    # -- what a person does -------------------------------------------------------------------

    async def pause(self, watcher: Watcher, paused: bool) -> None:
        """Stop learning from a device, or go on with it. It outlives a restart."""
        async with self.turn:
            self._note("paused", number=watcher.number, paused=paused)
            watcher.paused = paused

    async def mark_normal(self, watcher: Watcher, alarm: str) -> int:
        """Learn the samples of an alarm that was none; return how many were learned."""
        async with self.turn:
            found: Alarm | None = next((a for a in watcher.alarms if a.id == alarm), None)
            if found is None:
                raise UnknownError("there is no such alarm, or it is no longer kept")
            self._note("normal", number=watcher.number, alarm=alarm)
            return watcher.mark_normal(found)

    async def forget(self, watcher: Watcher) -> str:
        """Forget a device: its next sample begins a new one. Return the file to undo it with."""
        async with self.turn:
            if self.watchers.get((watcher.stream.name, watcher.device)) is not watcher:
                raise UnknownError("there is no such device")
            try:
                file = self.store.keep_forgotten(checkpoint.entry(watcher, ""), watcher.monitor)
            except OSError as error:
                what = f"the undo file cannot be written: {error.strerror}"
                raise DiskError(f"{what}. Nothing was changed") from None
            self._note("forgotten", number=watcher.number)
            self.remove(watcher)
        logs.info("forgotten", stream=watcher.stream.name, device=watcher.device, undo=file)
        for tell in self.forgetting:
            tell(watcher)
        return file

    def remove(self, watcher: Watcher) -> None:
        """Watch a device no more."""
        del self.watchers[watcher.stream.name, watcher.device]
        self.born.discard(watcher.number)
        self.disk.saved.pop(watcher.number, None)

    async def restore(self, file: str) -> Watcher:
        """Put a device back that was forgotten."""
        async with self.turn:
            saved, _ = self.store.forgotten(file)
            name = key(saved.stream, saved.device)
            if saved.stream not in self.streams:
                raise StateError(f"{name}: there is no stream {saved.stream}")
            if (saved.stream, saved.device) in self.watchers:
                raise StateError(f"{name} is watched again. Forget that one first")
            number = self._next
            self._note("restored", number=number, stream=saved.stream, file=file)
            return self.put_back(number, file)

    def put_back(self, number: int, file: str) -> Watcher:
        """Watch a device again, under a new number."""
        saved, model = self.store.forgotten(file)
        self.take_number(number)
        return self.resurrect(saved._replace(number=number), model)

    def resurrect(self, saved: Saved, model: Monitor) -> Watcher:
        """Watch a device as it was saved."""
        watcher = self.add(saved.number, saved.stream, saved.device, model)
        watcher.alarms.extend(saved.alarms)
        watcher.paused, watcher.lost, watcher.last = saved.paused, saved.lost, saved.last
        watcher.seen, watcher.silent = saved.seen, saved.silent
        return watcher

    def _note(self, kind: str, **values: Any) -> None:
        """Journal what a person does before it is done."""
        try:
            self.store.journal.append([Fact(kind, values)])
        except OSError as error:
            what = f"the journal cannot be written: {error.strerror}"
            raise DiskError(f"{what}. Nothing was changed; try again when there is space") from None

    async def model_bytes(self, watcher: Watcher) -> bytes:
        """Return the model of a device as the bytes of a file that `onlad.load` reads."""
        async with self.turn:
            twin = watcher.twin()

        def write() -> bytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onlad"
                persist.save(twin, path)
                return path.read_bytes()

        return await asyncio.to_thread(write)

    # -- how it is ----------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return why the service is not ready, or nothing."""
        age, limit = self.disk.checkpoint_age, 5 * self.config.service.checkpoint + 60
        late = [f"the last checkpoint is {age:.0f} s old"] if age > limit else []
        return [*self.trouble.values(), *late]

    def totals(self) -> dict[str, dict[str, Any]]:
        """Return counts since the start, by stream."""
        names = ("samples", "anomalies", "n_alarms", "drifts", "held_out")
        zero: dict[str, Any] = dict.fromkeys((*names, "devices", "paused", "silent"), 0)
        sums = {name: zero | {"bad": self.bad[name]} for name in self.streams}
        for watcher in self.watchers.values():
            one = sums[watcher.stream.name]
            for name in names:
                one[name] += getattr(watcher, name)
            one["devices"] += 1
            one["paused"] += watcher.paused
            one["silent"] += watcher.silent
        return sums

    def close(self) -> None:
        """Let go of the state folder."""
        self.quarantine.close()
        self.store.close()
