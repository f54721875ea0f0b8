"""`Service`: takes samples in, keeps them safe, watches them, and tells others.

What others build on (the HTTP interface in `http`, the page in `page`, both in this process and on
this event loop):

- ``service.watchers``: every device of every stream, by (stream, device). Of a `Watcher`: ``key``,
  ``state`` ("learning", "normal", "alarm", "paused"), ``history`` (the last `Point`s: row, time,
  score, threshold, is_anomaly, drift), ``alarms`` (the last `Alarm`s with causes, newest last),
  ``alarm`` (the open one), ``last`` (a `Verdict`), ``paused``, ``samples``, ``bad``, ``names``.
- ``await service.pause(watcher, True | False)``: stop learning, or go on with it.
- ``await service.mark_normal(watcher, alarm_id)``: the model learns the alarm's samples. When this
  returns, the model with them is on the disk.
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
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.reference import Array
from onlad.serve import checkpoint, logs
from onlad.serve.checkpoint import Checkpoint, Saved, StateError, Store
from onlad.serve.config import Config, StreamTable
from onlad.serve.intake import Answer, Batch, Item, Part
from onlad.serve.journal import Fact, Mark, Record, Rows
from onlad.serve.outbox import Outbox
from onlad.serve.watcher import Alarm, Watcher
from onlad.verdict import Verdicts

Listener: TypeAlias = Callable[[Watcher, int, Array, Verdicts], None]

GATHER = 0.003  # seconds that a batch waits for company: a block costs a fifth of single samples
BATCH = 500  # messages of one step: others must not wait for a backlog
LONGEST_DEVICE = 200  # letters of its name
SLICE = 256  # rows after which others get their turn
MARKS = 10_000  # messages that a broker may send again
BUCKETS = np.array([0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0])  # seconds


class Service:
    """Streams, watched."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.streams: dict[str, StreamTable] = {s.name: s for s in config.streams}
        self.watchers: dict[tuple[str, str], Watcher] = {}
        self.listeners: list[Listener] = []
        self.after_step: list[Callable[[], None]] = []
        self.outbox = Outbox(self._delivered)
        self.trouble: dict[str, str] = {}  # what is wrong now, by part
        self.dropped: dict[str, int] = {}
        self.bad: dict[str, int] = dict.fromkeys(self.streams, 0)
        self.duplicates = 0
        self.latency = np.zeros(len(BUCKETS) + 1, int)
        self.latency_sum = 0.0
        self.checkpoint_time = time.time()
        self.store = Store(config.service.state)
        self._absent: list[Saved] = []  # watchers of streams that the configuration lacks now
        self._saved: dict[int, tuple[int, str]] = {}  # by number: changes, file
        self._born: set[int] = set()
        self._covered = (-1, -1)  # by the last checkpoint: bytes of the journal, changes
        self._next = 1
        self._recent: OrderedDict[int, int] = OrderedDict()
        self._pending: deque[tuple[Item, ...]] = deque()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # held by a step and by whatever must not see half of one
        self._disk = asyncio.Lock()  # held while a segment may be closed or synced
        try:
            self._resume()
        except BaseException:
            self.close()
            raise

    # -- the start ----------------------------------------------------------------------------

    def _resume(self) -> None:
        """Load the last checkpoint and replay the journal from there."""
        point = self.store.read()
        for saved in point.watchers:
            self._next = max(self._next, saved.number + 1)
            if saved.stream not in self.streams:
                self._absent.append(saved)
                continue
            watcher = self._add(saved.number, saved.stream, saved.device, self.store.model(saved))
            watcher.alarms.extend(saved.alarms)
            watcher.paused = saved.paused
            self._saved[saved.number] = (watcher.changes, saved.file)
        for message in point.outbox:
            self.outbox.waiting[message["id"]] = (message, set())
        self._note(list(point.marks))
        replayed = 0
        for record in self.store.journal.replay(point.segment):
            replayed += self._redo(record)
        self.store.journal.open(max([point.segment, *self.store.journal.segments()]))
        for watcher in self.watchers.values():
            watcher.begin_counts()
        if self.watchers:
            logs.info("resumed", watchers=len(self.watchers), replayed=replayed)

    def _redo(self, record: Record) -> int:
        """Do what a record says if the checkpoint is from before it; return how many rows."""
        if isinstance(record, Rows):
            self._note(record.marks)
            watcher = next((w for w in self.watchers.values() if w.number == record.watcher), None)
            if watcher is None:  # of a stream that the configuration lacks now
                return 0
            known = watcher.monitor.n_seen - record.first
            if known < 0:
                raise StateError(f"the journal lacks rows of {watcher.key}. Restore it from a copy")
            if known >= len(record.X):
                return 0
            was, watcher.paused = watcher.paused, record.paused
            _, alarms = watcher.observe(record.X[known:], record.times[known:])
            watcher.paused = was
            for alarm in alarms:
                self.outbox.waiting[alarm.id] = (alarm.message(), set())
            return len(record.X) - known
        if record.kind == "birth":
            number, name, device = (record.values[k] for k in ("number", "stream", "device"))
            self._next = max(self._next, number + 1)
            if name in self.streams and (name, device) not in self.watchers:
                watcher = self._add(number, name, device, self._fresh(self.streams[name]))
                watcher.names = tuple(record.values["names"])
        elif record.kind == "delivered":
            self.outbox.waiting.pop(record.values["id"], None)
        elif record.kind == "paused":
            for watcher in self.watchers.values():
                if watcher.number == record.values["number"]:
                    watcher.paused = record.values["paused"]
        elif record.kind == "session":
            self._recent.clear()
        return 0

    def _fresh(self, stream: StreamTable) -> Monitor:
        if stream.model is None:
            return stream.monitor()
        model = persist.load(stream.model)
        if not isinstance(model, Monitor):
            raise StateError(f"{stream.model} holds no monitor, which stream {stream.name} needs")
        return model

    def _add(self, number: int, name: str, device: str, monitor: Monitor) -> Watcher:
        stream = self.streams[name]
        if stream.columns and monitor.names and set(stream.columns) != set(monitor.names):
            raise StateError(
                f"stream {name} has learned the columns {list(monitor.names)}, and the "
                f"configuration says {list(stream.columns)}. Give the stream another name"
            )
        watcher = Watcher(number, stream, device, monitor, self.config.service.history)
        self.watchers[name, device] = watcher
        self._born.add(number)
        return watcher

    def _note(self, marks: list[Mark]) -> None:
        for mark in marks:
            self._recent.pop(mark.mid, None)
            self._recent[mark.mid] = mark.digest
        while len(self._recent) > MARKS:
            self._recent.popitem(last=False)

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

    def seen(self, mark: Mark) -> bool:
        """Whether a message that the broker sends again is in the journal already."""
        return self._recent.get(mark.mid) == mark.digest

    def new_session(self) -> None:
        """Forget which messages came: the broker has forgotten which it sent."""
        if self._recent:
            self._recent.clear()
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
        async with self._turn:
            few = [self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))]
            await self._step([item for items in few for item in items])

    async def _step(self, items: list[Item]) -> None:
        batch = self._read(items)
        try:
            self._write(batch)
        except OSError as error:
            self._refuse(batch, error)
            return
        self.trouble.pop("journal", None)
        said = {number: await self._watch(part) for number, part in batch.parts.items()}
        if self.config.service.sync == 0 and batch.parts and not await self._sync():
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
        batch, now = Batch(), time.time()
        taken: dict[Mark, Mark] = {}
        for item in items:
            if item.mark is not None and self._known(item.mark, item.again, taken):
                self.duplicates += 1
                batch.answers.append((item, Answer()))
                continue
            watcher = self.watchers.get((item.stream.name, item.device))
            if watcher is None:
                watcher = self._birth(item)
            if watcher is None:
                most = self.config.service.devices
                rule = f"at most {most} devices with names of {LONGEST_DEVICE} letters are watched"
                answer = Answer(bad=[(0, rule)])
                batch.answers.append((item, answer))
            else:
                answer = batch.take(item, watcher, now)
                watcher.bad += len(answer.bad)
            if answer.bad:
                self.bad[item.stream.name] += len(answer.bad)
                index, why = answer.bad[0]
                facts = {"stream": item.stream.name, "device": item.device, "index": index}
                logs.warning("skipped a sample", **facts, why=why)
        return batch

    def _known(self, mark: Mark, again: bool, taken: dict[Mark, Mark]) -> bool:
        """Whether a message is in the journal, or in this batch by an earlier connection."""
        first = taken.setdefault(mark, mark)
        # Items of one message, for several streams, share the very same mark.
        return again and (first is not mark or self.seen(mark))

    def _birth(self, item: Item) -> Watcher | None:
        if len(self.watchers) >= self.config.service.devices or len(item.device) > LONGEST_DEVICE:
            return None
        watcher = self._add(self._next, item.stream.name, item.device, self._fresh(item.stream))
        self._born.discard(self._next)  # until the journal has it
        self._next += 1
        return watcher

    def _write(self, batch: Batch) -> None:
        """Journal a batch before anything is learned of it."""
        records: list[Record] = []
        for part in batch.parts.values():
            w = part.watcher
            if w.number not in self._born:
                facts = {"number": w.number, "stream": w.stream.name, "device": w.device}
                records.append(Fact("birth", facts | {"names": list(w.names)}))
            records.append(part.record())
        if records:
            self.store.journal.append(records)
        for part in batch.parts.values():
            self._born.add(part.watcher.number)
            self._note(part.marks)

    def _refuse(self, batch: Batch, error: OSError) -> None:
        """Say that nothing of a batch was taken: the disk is full, or gone."""
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
        said = []
        for start in range(0, len(X), SLICE):
            if start:
                await asyncio.sleep(0)
            few, when = X[start : start + SLICE], times[start : start + SLICE]
            first = watcher.monitor.n_seen
            verdicts, alarms = watcher.observe(few, when)
            said.append(verdicts)
            for alarm in alarms:
                logs.warning("alarm", **alarm.message())
                self.outbox.add(alarm.message())
            for listener in self.listeners:
                listener(watcher, first, when, verdicts)
        return said

    def _delivered(self, alarm: str) -> None:
        with contextlib.suppress(OSError):  # then it is delivered once more after a crash
            self.store.journal.append([Fact("delivered", {"id": alarm})])

    # -- to the disk --------------------------------------------------------------------------

    async def _sync(self) -> bool:
        """Bring the journal to the disk; return whether it is there."""
        async with self._disk:
            try:
                await asyncio.to_thread(self.store.journal.sync)
            except OSError as error:
                self.trouble["disk"] = f"the disk takes nothing: {error.strerror}"
                logs.warning("the disk takes nothing", error=error.strerror)
                return False
        self.trouble.pop("disk", None)
        return True

    async def keep_synced(self) -> None:
        """Bring the journal to the disk every `sync` seconds, for ever."""
        while True:
            await asyncio.sleep(self.config.service.sync or 1.0)
            if self.store.journal.synced < self.store.journal.written:
                await self._sync()

    async def keep_checkpoints(self) -> None:
        """Checkpoint every `checkpoint` seconds, for ever."""
        while True:
            await asyncio.sleep(self.config.service.checkpoint)
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Write the models that changed and start a new segment of the journal."""
        async with self._disk:
            now = (self.store.journal.written, sum(w.changes for w in self.watchers.values()))
            if self._covered == now:
                self.checkpoint_time = time.time()
                return
            async with self._turn:
                try:
                    number = self.store.journal.number + 1
                    old = self.store.journal.open(number)
                except OSError as error:
                    self._no_checkpoint(error)
                    return
                marks = tuple(Mark(*pair) for pair in self._recent.items())
                state = [(checkpoint.entry(w, ""), w) for w in self.watchers.values()
                         if w.number in self._born]  # fmt: skip
                changes = {w.number: w.changes for _, w in state}
                covered = (self.store.journal.written, sum(changes.values()))
            # Rows that come from here on are in the new segment, and say which row they are: a
            # model that is copied a moment later just has some of them already.
            try:
                await asyncio.to_thread(self.store.journal.finish, old)
                entries = [await self._save(entry, w, changes[w.number]) for entry, w in state]
                outbox = tuple(message for message, _ in self.outbox.waiting.values())
                point = Checkpoint(number, (*entries, *self._absent), outbox, marks)
                await asyncio.to_thread(self.store.commit, point)
            except (OSError, OnladError) as error:
                self._no_checkpoint(error)
                return
            self._covered = covered
        self.checkpoint_time = time.time()
        self.trouble.pop("checkpoint", None)

    async def _save(self, entry: Saved, watcher: Watcher, changes: int) -> Saved:
        saved, file = self._saved.get(watcher.number, (-1, ""))
        if saved != changes:
            async with self._turn:
                changes, twin = watcher.changes, watcher.twin()
                # Together with the model: an alarm's row must be one that the model has seen.
                entry = checkpoint.entry(watcher, "")
            file = await asyncio.to_thread(self.store.save_model, watcher.number, twin)
            self._saved[watcher.number] = (changes, file)
        return entry._replace(file=file)

    def _no_checkpoint(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else str(error)
        self.trouble["checkpoint"] = f"no checkpoint can be written: {why}"
        logs.warning("no checkpoint can be written", error=why)

    # -- what a person does -------------------------------------------------------------------

    async def pause(self, watcher: Watcher, paused: bool) -> None:
        """Stop learning from a device, or go on with it. It outlives a restart."""
        async with self._turn:
            facts = {"number": watcher.number, "paused": paused}
            self.store.journal.append([Fact("paused", facts)])
            watcher.paused = paused

    async def mark_normal(self, watcher: Watcher, alarm: str) -> int:
        """Learn the samples of an alarm that was none; return how many were learned."""
        async with self._turn:
            found: Alarm | None = next((a for a in watcher.alarms if a.id == alarm), None)
            if found is None:
                raise KeyError(alarm)
            count = watcher.mark_normal(found)
        # What was learned here is in no sample that could be replayed, so it is saved at once.
        await self.checkpoint()
        return count

    async def model_bytes(self, watcher: Watcher) -> bytes:
        """Return the model of a device as the bytes of a file that `onlad.load` reads."""
        async with self._turn:
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
        age, limit = time.time() - self.checkpoint_time, 5 * self.config.service.checkpoint + 60
        late = [f"the last checkpoint is {age:.0f} s old"] if age > limit else []
        return [*self.trouble.values(), *late]

    def totals(self) -> dict[str, dict[str, Any]]:
        """Return counts since the start, by stream."""
        names = ("samples", "anomalies", "n_alarms", "drifts", "held_out")
        zero: dict[str, Any] = dict.fromkeys((*names, "devices", "paused"), 0)
        sums = {name: zero | {"bad": self.bad[name]} for name in self.streams}
        for watcher in self.watchers.values():
            one = sums[watcher.stream.name]
            for name in names:
                one[name] += getattr(watcher, name)
            one["devices"] += 1
            one["paused"] += watcher.paused
        return sums

    def close(self) -> None:
        """Let go of the state folder."""
        self.store.close()
