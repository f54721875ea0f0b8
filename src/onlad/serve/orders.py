"""What a person does to a device. Each of it is in the journal before it is done.

All of it raises `DiskError`, and changes nothing, when the journal cannot be written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from onlad import persist
from onlad.errors import OnladError
from onlad.monitor import Monitor
from onlad.rules import Rules
from onlad.serve import checkpoint, logs, replay, whatif
from onlad.serve.checkpoint import StateError
from onlad.serve.frames import Fact
from onlad.serve.watcher import LABELS, Alarm, Watcher, key
from onlad.serve.whatif import Tried

if TYPE_CHECKING:
    from onlad.serve.service import Service


LONGEST = 500  # letters of a comment
MOST_WINDOWS = 100  # times of maintenance of a device


class DiskError(OnladError):
    """What a person wanted was not done, because it could not be kept."""


class UnknownError(OnladError):
    """There is no such device or alarm."""


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
            self._note("paused", watcher, by, number=watcher.number, paused=paused)
            watcher.paused = paused

    async def label(
        self, watcher: Watcher, alarm: str, label: str, comment: str = "", by: str = ""
    ) -> int:
        """Note what a person says that an alarm was; return how many samples were learned.

        An empty label takes it back, as long as nothing was learned.
        """
        async with self._service.turn:
            found = _alarm(watcher, alarm)
            if label not in LABELS:
                raise StateError(f"label must be one of {', '.join(LABELS[1:])}, or empty")
            if label == "" and found.undo:
                self._revert(watcher, found.undo, by)
                found.marked, found.undo = False, ""
            if found.marked and label != "normal":
                raise StateError("the samples of this alarm were learned as normal")
            if label == "normal" and not found.marked:
                found.undo = self._snapshot(watcher)
            taken = 0
            if label == "fault" and found.label != "fault":
                taken = await self._take_back(watcher, found, by)
            said: dict[str, Any] = {"alarm": alarm, "label": label}
            said["comment"] = comment[:LONGEST]
            said |= {"undo": found.undo, "row": watcher.journaled}
            self._note("label", watcher, by, number=watcher.number, **said)
            return watcher.put_label(found, label, comment[:LONGEST]) or taken

    async def _take_back(self, watcher: Watcher, alarm: Alarm, by: str) -> int:
        """Let the model be as if it had never learned from an alarm; return of how many samples.

        The samples since the newest snapshot before it go through the model once more, without
        those of the alarm.
        """
        store, fresh = self._service.store, self._service.devices.fresh(watcher.stream)
        alarm_rows = watcher.rows_of(alarm)
        learned = alarm.learned[alarm.before : alarm.before + alarm_rows[1] - alarm_rows[0]]
        if not any(learned) and len(learned) == alarm_rows[1] - alarm_rows[0]:
            return 0  # nothing of it was learned

        def work() -> Monitor:
            start = replay.before(store, watcher, fresh, alarm.row)
            return replay.replayed(store, watcher, start, alarm_rows)

        try:
            model = await asyncio.to_thread(work)
        except StateError as error:  # the label counts all the same
            logs.warning("what was learned of a fault stays", why=str(error))
            return 0
        alarm.undo = self._snapshot(watcher)
        self._revert(watcher, self._keep(watcher, model), by)
        return sum(learned)

    async def snapshot(self, watcher: Watcher, by: str = "") -> str:
        """Keep the model of a device as it is now; return the name of the snapshot."""
        async with self._service.turn:
            return self._keep(watcher, watcher.monitor, by)

    def _snapshot(self, watcher: Watcher) -> str:
        return self._keep(watcher, watcher.monitor)

    def _keep(self, watcher: Watcher, model: Monitor, by: str = "") -> str:
        """Keep a model of a device as a snapshot; the trail has its digest."""
        store = self._service.store
        try:
            file = store.snapshot(watcher.number, model)
            counts = {"seen": model.n_seen, "learned": watcher.samples - watcher.excluded,
                      "excluded": watcher.excluded}  # fmt: skip
            self._service.audit.note(
                "snapshot", device=watcher.key, file=file, sha256=store.digest(file), **counts,
                **({"by": by} if by else {}),
            )  # fmt: skip
        except OSError as error:
            what = f"the snapshot cannot be written: {error.strerror}"
            raise DiskError(f"{what}. Nothing was changed") from None
        return file

    async def revert(
        self, watcher: Watcher, file: str, by: str = "", *, again: bool = False
    ) -> None:
        """Go back to a snapshot: what was learned since is gone.

        Unless the samples since then are learned `again`, as the model of then would.
        """
        store = self._service.store
        async with self._service.turn:
            if again:
                model = store.snapped(watcher.number, file)
                model = await asyncio.to_thread(replay.replayed, store, watcher, model)
                file = self._keep(watcher, model)
            self._revert(watcher, file, by)

    async def maintain(self, watcher: Watcher, windows: tuple[str, ...], by: str = "") -> None:
        """Neither tell nor learn what a device sends at these times, besides those of the file."""
        async with self._service.turn:
            try:
                Rules(maintenance=windows, zone=watcher.stream.zone)
            except ValueError as error:
                raise StateError(str(error)) from None
            if len(windows) > MOST_WINDOWS:
                raise StateError(f"at most {MOST_WINDOWS} times of maintenance are kept")
            row = watcher.journaled
            self._note("maintenance", watcher, by, number=watcher.number, row=row,
                       windows=list(windows))  # fmt: skip
            watcher.serve_at(windows)

    def _revert(self, watcher: Watcher, file: str, by: str) -> None:
        model = self._service.store.snapped(watcher.number, file)
        row = watcher.journaled
        self._note("reverted", watcher, by, number=watcher.number, file=file, row=row)
        watcher.revert(model)

    async def tried(
        self, watcher: Watcher, rate: float | None = None, days: float = whatif.DAYS
    ) -> Tried:
        """Return what would have been said of the last days with another budget."""
        service = self._service
        fresh = service.devices.fresh(watcher.stream)
        return await asyncio.to_thread(whatif.tried, service.store, watcher, fresh, rate, days)

    async def forget(self, watcher: Watcher, by: str = "") -> str:
        """Forget a device: its next sample begins a new one. Return the file to undo it with."""
        service = self._service
        async with service.turn:
            if self.found(watcher.stream.name, watcher.device) is not watcher:
                raise UnknownError("there is no such device")
            try:
                saved = checkpoint.entry(watcher)
                saved = saved._replace(alarms=checkpoint.alarms_of(watcher))
                file = service.store.keep_forgotten(saved, watcher.monitor)
            except OSError as error:
                what = f"the undo file cannot be written: {error.strerror}"
                raise DiskError(f"{what}. Nothing was changed") from None
            self._note("forgotten", watcher, by, number=watcher.number)
            service.remove(watcher)
        logs.info("forgotten", stream=watcher.stream.name, device=watcher.device, undo=file)
        for listener in service.listeners:
            listener.forgotten(watcher)
        return file

    async def restore(self, file: str, by: str = "") -> Watcher:
        """Put a device back that was forgotten."""
        service, devices = self._service, self._service.devices
        async with service.turn:
            saved, _ = service.store.forgotten(file)
            name = key(saved.stream, saved.device)
            if saved.stream not in devices.streams:
                raise StateError(f"{name}: there is no stream {saved.stream}")
            if (saved.stream, saved.device) in devices.watchers:
                raise StateError(f"{name} is watched again. Forget that one first")
            number = devices.next
            self._note("restored", by=by, number=number, stream=saved.stream, file=file)
            return devices.put_back(number, file)

    async def model_bytes(self, watcher: Watcher) -> bytes:
        """Return the model of a device as the bytes of a file that `onlad.load` reads."""
        async with self._service.turn:
            twin = watcher.twin()
        return await asyncio.to_thread(persist.to_bytes, twin)

    def _note(self, kind: str, watcher: Watcher | None = None, by: str = "", **values: Any) -> None:
        """Put what a person does into the audit trail and the journal before it is done."""
        told = dict(values)
        if watcher is not None:
            told |= {"stream": watcher.stream.name, "device": watcher.device}
        try:
            self._service.audit.note(kind, **told, by=by)
            try:
                self._service.store.journal.append([Fact(kind, values)])
            except OSError:
                self._service.audit.take_back()
                raise
        except OSError as error:
            what = f"the journal cannot be written: {error.strerror}"
            raise DiskError(f"{what}. Nothing was changed; try again when there is space") from None


def _alarm(watcher: Watcher, name: str) -> Alarm:
    """Return the alarm of that name, if a person may still say something about it."""
    found = next((alarm for alarm in watcher.alarms if alarm.id == name), None)
    if found is None:
        raise UnknownError("there is no such alarm, or it is no longer kept")
    if watcher.failed:
        raise StateError(watcher.failed)
    return found
