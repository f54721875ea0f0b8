"""What a person does to a device. Each of it is in the journal before it is done.

All of it raises `DiskError`, and changes nothing, when the journal cannot be written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.rules import Rules
from onlad.serve import logs, replay
from onlad.serve.alarm import LABELS, Alarm, key
from onlad.serve.checkpoint import StateError
from onlad.serve.devices import need_columns
from onlad.serve.frames import Fact
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.service import Service


LONGEST = 500  # letters of a comment
MOST_WINDOWS = 100  # times of maintenance of a device


class DiskError(OnladError):
    """What a person wanted was not done, because it could not be kept."""


class UnknownError(OnladError):
    """There is no such device or alarm."""


class _Ahead(NamedTuple):
    """A model that has seen the samples of a device once more, up to a moment ago."""

    model: Monitor
    since: int  # segment of the journal with what came then
    rows: tuple[int, int]  # that were left out


class Orders:
    """What may be done to the devices of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def found(self, stream: str, device: str) -> Watcher:
        """Return a device, or raise `UnknownError`."""
        watcher = self._service.watchers.get((stream, device))
        if watcher is None:
            raise UnknownError("there is no such device")
        return watcher

    async def pause(self, watcher: Watcher, paused: bool, by: str = "") -> None:
        """Stop learning from a device, or go on with it. It outlives a restart."""
        async with self._service.turn:
            self._do(watcher, [watcher.fact("paused", paused=paused)], by)

    async def label(
        self, watcher: Watcher, alarm: str, label: str, comment: str = "", by: str = ""
    ) -> int:
        """Note what a person says that an alarm was.

        Return how many samples were learned, or taken back if it was a fault. An empty label undoes
        what the last one did.
        """
        ahead = await self._without(watcher, alarm) if label == "fault" else None
        async with self._service.turn:
            found = _alarm(watcher, alarm)
            if label not in LABELS:
                raise StateError(f"label must be one of {', '.join(LABELS[1:])}, or empty")
            undo, marked, taken = found.undo, found.marked, 0
            back = ""  # the snapshot that the model goes back to
            if label == "" and undo:
                back, undo, marked = undo, "", False
            if marked and label != "normal":
                raise StateError("the samples of this alarm were learned as normal")
            if label == "normal" and not marked:
                known = watcher.monitor.describe()
                if not known["ready"]:  # it has gone back to its warm-up
                    raise StateError(f"the model of {watcher.key} is not ready yet: {known['why']}")
                undo = self._keep(watcher, watcher.monitor)
            if ahead is not None and found.label != "fault":
                taken = _learned_of(watcher, found)
                back = self._keep(watcher, await self._rest_without(watcher, found, ahead))
                undo = self._keep(watcher, watcher.monitor)
            said = {"alarm": alarm, "label": label, "comment": comment[:LONGEST], "undo": undo}
            facts = [watcher.fact("reverted", file=back)] if back else []
            return self._do(watcher, [*facts, watcher.fact("label", **said)], by) or taken

    async def _without(self, watcher: Watcher, name: str) -> _Ahead | None:
        """Return a model that has seen all but an alarm, made while others have their turn.

        None if nothing of it was learned, or the journal lacks samples.
        """
        alarm = _alarm(watcher, name)
        if not _learned_of(watcher, alarm):
            return None
        try:
            return await asyncio.to_thread(self._seen_without, watcher, alarm)
        except StateError as error:  # the label counts all the same
            logs.warning("what was learned of a fault stays", why=str(error))
            return None

    def _seen_without(self, watcher: Watcher, alarm: Alarm) -> _Ahead:
        store, fresh = self._service.store, self._service.devices.fresh(watcher.stream)
        since, rows = store.journal.number, watcher.rows_of(alarm)
        start = replay.before(store, watcher, fresh, alarm.row)
        return _Ahead(replay.replayed(store, watcher, start, rows), since, rows)

    async def _rest_without(self, watcher: Watcher, alarm: Alarm, ahead: _Ahead) -> Monitor:
        """Return the model of `_without` when it has seen what came meanwhile."""
        rows, store = watcher.rows_of(alarm), self._service.store
        if rows != ahead.rows and ahead.rows[1] < ahead.model.n_seen:  # rows between were learned
            ahead = await asyncio.to_thread(self._seen_without, watcher, alarm)
        rest = (store, watcher, ahead.model, rows, ahead.since)
        return await asyncio.to_thread(replay.replayed, *rest)

    async def snapshot(self, watcher: Watcher, by: str = "") -> str:
        """Keep the model of a device as it is now; return the name of the snapshot."""
        async with self._service.turn:
            return self._keep(watcher, watcher.monitor, by)

    def _keep(self, watcher: Watcher, model: Monitor, by: str = "") -> str:
        """Keep a model of a device as a snapshot; the trail has its digest."""
        with _written("the snapshot"):
            file = self._service.store.snapshot(watcher.number, model)
            self.note_snapshot(watcher, file, model.n_seen, by=by)
        return file

    def note_snapshot(
        self, watcher: Watcher, file: str, seen: int, *, by: str = "", sync: bool = True
    ) -> None:
        """Put a snapshot into the audit trail, with its digest."""
        learned = watcher.samples - watcher.excluded
        counts = {"seen": seen, "learned": learned, "excluded": watcher.excluded}
        digest = self._service.store.digest(file)
        said = {"device": watcher.key, "file": file, "sha256": digest, **counts}
        said |= {"by": by} if by else {}
        self._service.audit.note("snapshot", sync=sync, **said)

    async def revert(
        self, watcher: Watcher, file: str, by: str = "", *, again: bool = False
    ) -> None:
        """Go back to a snapshot: what was learned since is gone.

        Unless the samples since then are learned `again`, as the model of then would.
        """
        store = self._service.store
        since, model = store.journal.number, store.snapped(watcher.number, file)
        if again:  # most of it while others have their turn
            model = await asyncio.to_thread(replay.replayed, store, watcher, model)
        async with self._service.turn:
            if again:
                rest = (store, watcher, model, (0, 0), since)
                file = self._keep(watcher, await asyncio.to_thread(replay.replayed, *rest))
            self._do(watcher, [watcher.fact("reverted", file=file)], by)

    async def maintain(self, watcher: Watcher, windows: tuple[str, ...], by: str = "") -> None:
        """Neither tell nor learn what a device sends at these times, besides those of the file."""
        async with self._service.turn:
            try:
                Rules(maintenance=windows, zone=watcher.stream.zone)
            except ValueError as error:
                raise StateError(str(error)) from None
            if len(windows) > MOST_WINDOWS:
                raise StateError(f"at most {MOST_WINDOWS} times of maintenance are kept")
            self._do(watcher, [watcher.fact("maintenance", windows=list(windows))], by)

    async def tried(
        self, watcher: Watcher, rate: float | None = None, days: float = replay.DAYS
    ) -> replay.Tried:
        """Return the incidents that the last days would have had with another budget."""
        service = self._service
        fresh = service.devices.fresh(watcher.stream)
        return await asyncio.to_thread(replay.tried, service.store, watcher, fresh, rate, days)

    async def forget(self, watcher: Watcher, by: str = "") -> str:
        """Forget a device: its next sample begins a new one. Return the file to undo it with."""
        service = self._service
        async with service.turn:
            if watcher.gone:
                raise UnknownError("there is no such device")
            with _written("the undo file"):
                file = service.store.keep_forgotten(watcher)
            self._note([watcher.fact("forgotten")], watcher, by)
            service.devices.remove(watcher)
        logs.info("forgotten", **watcher.where, undo=file)
        for listener in service.listeners:
            listener.forgotten(watcher)
        return file

    async def restore(self, file: str, by: str = "") -> Watcher:
        """Put a device back that was forgotten."""
        service, devices = self._service, self._service.devices
        async with service.turn:
            saved, model, alarms = service.store.forgotten(file)
            name = key(saved.stream, saved.device)
            if saved.stream not in devices.streams:
                raise StateError(f"{name}: there is no stream {saved.stream}")
            if (saved.stream, saved.device) in devices.watchers:
                raise StateError(f"{name} is watched again. Forget that one first")
            if devices.full:
                raise StateError(devices.rule)
            need_columns(devices.streams[saved.stream], model)
            number = devices.next
            facts = {"number": number, "stream": saved.stream, "file": file}
            self._note([Fact("restored", facts)], by=by)
            watcher = devices.resurrect(saved._replace(number=number), model, alarms)
            service.settle([watcher])  # settings may have changed since
            return watcher

    async def model_bytes(self, watcher: Watcher) -> bytes:
        """Return the model of a device as the bytes of a file that `onlad.load` reads."""
        async with self._service.turn:
            twin = watcher.twin()
        return await asyncio.to_thread(persist.to_bytes, twin)

    def _do(self, watcher: Watcher, facts: list[Fact], by: str) -> int:
        """Do what a person wants, once it is written; return how many samples were learned."""
        files = (fact.values["file"] for fact in facts if fact.kind == "reverted")
        models = {file: self._service.store.snapped(watcher.number, file) for file in files}
        self._note(facts, watcher, by)
        return sum(watcher.apply(fact, models.__getitem__) for fact in facts)

    def _note(self, facts: list[Fact], watcher: Watcher | None = None, by: str = "") -> None:
        """Put what a person does into the audit trail and the journal before it is done."""
        audit, where = self._service.audit, watcher.where if watcher is not None else {}
        end = audit.end
        with _written("the journal"):
            try:
                for fact in facts:
                    audit.note(fact.kind, **fact.values | where, by=by)
                self._service.store.journal.append(facts)
            except OSError:
                audit.take_back(end)
                raise


@contextlib.contextmanager
def _written(what: str) -> Iterator[None]:
    """Raise `DiskError` if the disk does not take something."""
    try:
        yield
    except OSError as error:
        why = f"{what} cannot be written: {error.strerror}"
        raise DiskError(f"{why}. Nothing was changed; try again when there is space") from None


def _alarm(watcher: Watcher, name: str) -> Alarm:
    """Return the alarm of that name, if a person may still say something about it."""
    found = next((alarm for alarm in watcher.alarms if alarm.id == name), None)
    if found is None:
        raise UnknownError("there is no such alarm, or it is no longer kept")
    if watcher.failed:
        raise StateError(watcher.failed)
    return found


def _learned_of(watcher: Watcher, alarm: Alarm) -> int:
    """Return how many samples of an alarm were learned, at least; 0 if none was."""
    first, end = watcher.rows_of(alarm)
    known = alarm.learned[alarm.before : alarm.before + end - first]
    return sum(known) or (len(known) < end - first)
