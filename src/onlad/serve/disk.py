"""When what is in memory goes to the disk: the journal by `sync`, the models by `checkpoint`.

The disk is slow, so threads speak to it, and samples go on meanwhile. Two locks keep that in
order. A step holds ``turn``; a checkpoint takes it for as long as a copy takes. ``lock`` is held
while a segment may be closed or brought to the disk. Who holds both took ``lock`` first.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from onlad.errors import OnladError
from onlad.serve import checkpoint, logs
from onlad.serve.checkpoint import Checkpoint, Saved, StateError, Store
from onlad.serve.journal import Record
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service


class Disk:
    """The state folder of a service at work."""

    def __init__(self, service: Service, store: Store) -> None:
        self.service, self.store = service, store
        self._checkpointed = time.monotonic()  # a clock may jump
        # Of streams that the configuration lacks now: watchers, and what the journal has of them.
        self.absent: list[Saved] = []
        self.absent_records: list[Record] = []
        self.saved: dict[int, tuple[int, str]] = {}  # by number: changes, file
        self._covered = (-1, -1)  # by the last checkpoint: bytes of the journal, changes
        self.lock = asyncio.Lock()

    @property
    def checkpoint_age(self) -> float:
        """Return the seconds since the last checkpoint."""
        return time.monotonic() - self._checkpointed

    async def keep_synced(self) -> None:
        """Bring the journal to the disk every `sync` seconds, for ever."""
        while True:
            await asyncio.sleep(self.service.config.service.sync or 1.0)
            if self.store.journal.synced < self.store.journal.written:
                async with self.lock:
                    await self.sync()

    async def keep_checkpoints(self) -> None:
        """Checkpoint every `checkpoint` seconds, for ever."""
        while True:
            await asyncio.sleep(self.service.config.service.checkpoint)
            await self.checkpoint()

    async def sync(self) -> bool:
        """Bring the journal to the disk; return whether it is there.

        The caller holds a lock: during a step no segment is closed either.
        """
        trouble = self.service.trouble
        try:
            await asyncio.to_thread(self.store.journal.sync)
        except OSError as error:
            trouble["disk"] = f"the disk takes nothing: {error.strerror}"
            logs.warning("the disk takes nothing", error=error.strerror)
            return False
        trouble.pop("disk", None)
        return True

    async def checkpoint(self) -> None:
        """Write the models that changed and start a new segment of the journal."""
        async with self.lock:
            try:
                await self._checkpoint()
            except (OSError, OnladError) as error:
                why = error.strerror if isinstance(error, OSError) else str(error)
                self.service.trouble["checkpoint"] = f"no checkpoint can be written: {why}"
                logs.warning("no checkpoint can be written", error=why)
                return
        self._checkpointed = time.monotonic()
        self.service.trouble.pop("checkpoint", None)

    async def _checkpoint(self) -> None:
        service, journal = self.service, self.store.journal
        now = (journal.written, sum(w.changes for w in service.watchers.values()))
        if self._covered == now:
            return
        async with service.turn:
            if service.broken:
                raise StateError("a step has failed, and only the journal has all of its samples")
            number = journal.number + 1
            old = journal.open(number)
            if self.absent_records:  # the segments that have them are forgotten
                journal.append(self.absent_records)
            marks, timed = tuple(service.marks), service.marks.timed
            born = [w for w in service.watchers.values() if w.number in service.born]
            state = [(checkpoint.entry(w, ""), w, w.changes) for w in born]
            covered = (journal.written, sum(changes for _, _, changes in state))
        # Rows that come from here on are in the new segment, and say which row they are: a model
        # that is copied a moment later just has some of them already.
        await asyncio.to_thread(journal.finish, old)
        entries = [await self._save(entry, w, changes) for entry, w, changes in state]
        # After the last model: an alarm of rows that a model has seen is not raised by a replay.
        outbox = tuple(message for message, _ in service.outbox.waiting.values())
        point = Checkpoint(number, (*entries, *self.absent), outbox, marks, timed)
        await asyncio.to_thread(self.store.commit, point)
        self._covered = covered

    async def _save(self, entry: Saved, watcher: Watcher, changes: int) -> Saved:
        saved, file = self.saved.get(watcher.number, (-1, ""))
        if saved != changes:
            async with self.service.turn:
                changes, twin = watcher.changes, watcher.twin()
                # Together with the model: an alarm's row must be one that the model has seen.
                entry = checkpoint.entry(watcher, "")
            file = await asyncio.to_thread(self.store.save_model, watcher.number, twin)
            self.saved[watcher.number] = (changes, file)
        return entry._replace(file=file)
