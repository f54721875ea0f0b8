"""When what is in memory goes to the disk: the journal by `sync`, the models by `checkpoint`.

The disk is slow, so threads speak to it, and samples go on meanwhile. Two locks keep that in
order. A step holds ``turn``; a checkpoint takes it for as long as a copy takes. ``lock`` is held
while a segment may be closed or brought to the disk. Who holds both took ``lock`` first.

Models are much larger than samples, and many of them would wear a card out. So a checkpoint writes
those that have waited longest, as many as RATE allows and one after the other over its time; the
journal keeps what the others lack. A model that is written and whose snapshot is due becomes one,
by a second name of its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.serve import checkpoint
from onlad.serve.checkpoint import Checkpoint, OnDisk, Saved, StateError, Store
from onlad.serve.frames import Record
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service

RATE = 80_000  # bytes of models in a second, on average: 5 MB in a minute
SIZE = 65_536  # bytes of a model that was not written yet, about
FEWEST = 8  # models that a checkpoint writes, whatever they take
AT_STOP, SURELY = 0.2, 8  # seconds for models at the end, and how many are written at least
SPREAD = 0.8  # share of the time between checkpoints over which models are written


class Disk:
    """The state folder of a service at work."""

    def __init__(self, service: Service, store: Store) -> None:
        self.service, self.store = service, store
        self._checkpointed = time.monotonic()  # a clock may jump
        # Of streams that the configuration lacks now: watchers, and what the journal has of them.
        # Also what it has of devices that are set aside, which get no new model.
        self.absent: list[Saved] = []
        self.records: list[Record] = []
        self._records_in = 0  # the first segment that has all of them
        self._covered = (-1, -1)  # by the last checkpoint: bytes of the journal, changes
        self.lock = asyncio.Lock()

    def begin(self, segment: int) -> None:
        """Note that all that is known was resumed from a segment on."""
        self._records_in = segment
        now, newest = time.monotonic(), self.store.newest_snapshots()
        for watcher in self.service.watchers.values():
            watcher.on_disk.since = watcher.on_disk.since or segment
            if watcher.number in newest:
                watcher.on_disk.snapped = now - max(0.0, time.time() - newest[watcher.number])

    def loaded(self, watcher: Watcher, saved: Saved, segment: int) -> None:
        """Note that a watcher is what the files say, and the journal goes on from a segment."""
        changes = (watcher.changes, watcher.n_alarm_changes)
        watcher.on_disk = OnDisk(max(segment, saved.since), *changes, saved)

    @property
    def checkpoint_age(self) -> float:
        """Return the seconds since the last checkpoint."""
        return time.monotonic() - self._checkpointed

    async def keep_synced(self) -> None:
        """Bring the journal to the disk every `sync` seconds."""
        while True:
            await asyncio.sleep(self.service.config.service.sync or 1.0)
            if self.store.journal.synced < self.store.journal.written:
                async with self.lock:
                    await self.sync()

    async def keep_checkpoints(self) -> None:
        """Checkpoint every `checkpoint` seconds."""
        period = self.service.config.service.checkpoint
        while True:
            started = time.monotonic()
            await asyncio.sleep(period * (1 - SPREAD))
            await self.checkpoint(over=period * SPREAD)
            await asyncio.sleep(max(0.0, started + period - time.monotonic()))

    async def sync(self) -> bool:
        """Bring the journal to the disk; return whether it is there.

        The caller holds a lock: during a step no segment is closed either.
        """
        try:
            await asyncio.to_thread(self.store.journal.sync)
        except OSError as error:
            self.service.health.fail("disk", "the disk takes nothing", error.strerror)
            return False
        self.service.health.trouble.pop("disk", None)
        return True

    async def checkpoint(self, over: float = 0.0, until: float = float("inf")) -> None:
        """Write models that changed, over some seconds, and start a new segment of the journal.

        After `until`, by the monotonic clock, no more are written; the journal has the rest.
        """
        try:
            await self._checkpoint(over, until)
        except (OSError, OnladError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.service.health.fail("checkpoint", "no checkpoint can be written", why)
            return
        self._checkpointed = time.monotonic()
        self.service.health.trouble.pop("checkpoint", None)

    async def _checkpoint(self, over: float, until: float) -> None:
        service, journal = self.service, self.store.journal
        watchers = service.watchers.values()
        if self._covered == (journal.written, sum(w.changes for w in watchers)):
            return
        async with self.lock:
            async with service.turn:
                if service.broken:
                    raise StateError("a step has failed, and only the journal has its samples")
                before, number = journal.number, journal.number + 1
                old = journal.open(number)
                # Rows that come from here on are in the new segment, and say which row they are: a
                # model that is copied a moment later just has some of them already.
                for watcher in watchers:
                    kept, has_all = watcher.on_disk, watcher.on_disk.changes == watcher.changes
                    kept.since = number if has_all else kept.since or before
            await asyncio.to_thread(journal.finish, old)
        await self._save_some(number, over, until)
        async with self.lock:
            await self._commit()

    async def _save_some(self, number: int, over: float, until: float) -> None:
        """Write the models that have waited longest."""
        allowed = RATE * self.service.config.service.checkpoint  # bytes
        if until < float("inf"):
            allowed = float("inf")
        chosen = self._chosen(allowed)
        began, pause = time.monotonic(), min(1.0, over / max(1, len(chosen)))
        for count, watcher in enumerate(chosen, 1):
            late = count > SURELY and time.monotonic() > until
            if late or (count > FEWEST and allowed < 0):  # models grow
                break
            allowed -= await self._save(watcher, number)
            if pause:
                await asyncio.sleep(max(0.0, began + count * pause - time.monotonic()))

    def _chosen(self, allowed: float) -> list[Watcher]:
        """Return the watchers whose models are written next, the one that waited longest first."""
        waiting = [
            (watcher.on_disk.since, watcher.on_disk.changes >= 0, watcher.number, watcher)
            for watcher in self.service.watchers.values()
            if watcher.on_disk.since and watcher.born and self._lacks(watcher)
        ]
        chosen: list[Watcher] = []
        for *_, watcher in sorted(waiting):
            allowed -= watcher.on_disk.size or SIZE
            if allowed < 0 and len(chosen) >= FEWEST:
                break
            chosen.append(watcher)
        return chosen

    async def _save(self, watcher: Watcher, number: int) -> int:
        """Write a model; return how many bytes were written."""
        kept = watcher.on_disk
        async with self.service.turn:
            if watcher.gone or watcher.failed:  # meanwhile
                return 0
            changes, alarms, twin = watcher.changes, watcher.n_alarm_changes, watcher.twin()
            # Together with the model: an alarm's row must be one that the model has seen.
            entry = checkpoint.entry(watcher, "", kept.saved.alarm_file if kept.saved else "")
            is_new = alarms != kept.alarms and bool(watcher.alarms)
            new = checkpoint.alarms_of(watcher) if is_new else None
        try:
            saved, size = await asyncio.to_thread(self.store.save, entry, twin, new)
        except OnladError as error:  # it could not be loaded again; the others can be saved
            self.service.set_aside(watcher, error)
            return 0
        kept.since, kept.changes, kept.alarms = number, changes, alarms
        kept.saved, kept.size = saved, size
        await self._snap(watcher, saved.file, twin)
        return size

    async def _snap(self, watcher: Watcher, saved: str, model: Monitor) -> None:
        """Let the model that was just written be a snapshot too, if one is due."""
        now, last = time.monotonic(), watcher.on_disk.snapped
        if last is not None and now - last < self.service.config.service.snapshots:
            return
        with contextlib.suppress(OSError):  # the journal says so when the disk is full
            file = await asyncio.to_thread(self.store.snapshot, watcher.number, model, saved)
            watcher.on_disk.snapped = now
            self.service.orders.note_snapshot(watcher, file, model.n_seen, sync=False)

    async def _commit(self) -> None:
        service, journal = self.service, self.store.journal
        for watcher in [w for w in service.watchers.values() if w.failed]:
            await self._extract(watcher)
        async with service.turn:
            entries = [self._entry(w) for w in service.watchers.values()]
            # After the models: an alarm of rows that a model has seen is not raised by a replay.
            outbox = tuple(message for message, _ in service.outbox.waiting.values())
            since = (w.on_disk.since or journal.number for w in service.watchers.values())
            segment = min([journal.number, *since])
            if self.records and segment > self._records_in:  # what has them is forgotten
                journal.append(self.records)
                self._records_in = journal.number
            watchers = (*(entry for entry in entries if entry is not None), *self.absent)
            marks, following = tuple(service.marks), service.devices.next
            point = Checkpoint(segment, watchers, outbox, marks, service.marks.timed, following)
            covered = (journal.written, sum(w.changes for w in service.watchers.values()))
            if any(self._lacks(w) for w in service.watchers.values()):
                covered = (-1, -1)
        await asyncio.to_thread(journal.sync)
        await asyncio.to_thread(self.store.commit, point)
        self._covered = covered

    def _lacks(self, watcher: Watcher) -> bool:
        """Return whether the model of a watcher is ahead of its file."""
        return not watcher.failed and watcher.on_disk.changes != watcher.changes

    def _entry(self, watcher: Watcher) -> Saved | None:
        """Return what a checkpoint says of a watcher: it goes with the model that is written."""
        kept, saved = watcher.on_disk, watcher.on_disk.saved
        if saved is None:
            return None
        if kept.changes == watcher.changes:
            saved = checkpoint.entry(watcher, saved.file, saved.alarm_file)
        # Of a device that is set aside the rows are written again, so it may need any segment.
        return saved._replace(since=0 if watcher.failed else kept.since)

    async def _extract(self, watcher: Watcher) -> None:
        """Keep what the journal has of a device that is set aside, so that the rest can go."""
        kept = watcher.on_disk
        if not 0 < kept.since <= self.store.journal.number:
            return
        found = self.store.journal.of(watcher.number, kept.since)
        self.records += await asyncio.to_thread(list, found)
        self._records_in = 0  # they are to be written again
        kept.since = 1 << 62
