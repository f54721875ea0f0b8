"""A step: what waits is read, journaled, judged and reported, in this order.

The journal comes before the monitors, so that a model is never ahead of what can be replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from onlad.fleet.beside import observe_beside
from onlad.reference import Array
from onlad.serve import logs, payload
from onlad.serve.frames import Mark, Record
from onlad.serve.intake import Answer, Batch, Item, Part
from onlad.serve.listener import Listener
from onlad.serve.quarantine import REPLAYING, WATCHING
from onlad.verdict import Verdicts

if TYPE_CHECKING:
    from onlad.serve.alarm import Alarm
    from onlad.serve.service import Service

Taken: TypeAlias = dict[Mark | tuple[str, int], Mark]  # messages of a batch

SLICE = 256  # rows of a device after which others get their turn
TOGETHER = 128  # devices that are judged by one call
TURN = 0.01  # seconds after which they do, whatever the devices: a start takes that long
MOST_LATE = 100  # names of a device that are reported


async def step(service: Service, items: list[Item]) -> None:
    """Do all that is to be done with some items."""
    batch = _read(service, items)
    try:
        _write(service, batch)
    except OSError as error:
        for watcher in list(service.watchers.values()):
            if not watcher.born:
                service.devices.remove(watcher)
        service.health.fail("journal", "the journal cannot be written", error.strerror)
        _refuse(service, batch, service.health.trouble["journal"])
        return
    service.health.trouble.pop("journal", None)
    since = time.perf_counter()
    few, many = _sorted(batch)
    for part in many:
        await _watch(service, part)
        since = await _turn(since)
    for first in range(0, len(few), TOGETHER):
        _watch_beside(service, few[first : first + TOGETHER])
        since = await _turn(since)
    if service.config.service.sync == 0 and batch.parts and not await service.disk.sync():
        _refuse(service, batch, service.health.trouble["disk"])
        return
    _tell(service, batch)


async def _turn(since: float) -> float:
    """Let others have their turn, if they had none for a while; return when it was."""
    if time.perf_counter() - since <= TURN:
        return since
    await asyncio.sleep(0)
    return time.perf_counter()


def _read(service: Service, items: list[Item]) -> Batch:
    batch = Batch()
    taken: Taken = {}
    for item in items:
        try:
            answer = _take(service, batch, item, taken)
        except Exception as error:  # whatever it is, it belongs to this item and to no other
            answer = _failed(service, batch, item, error)
        batch.answers.append((item, answer))
        if answer.bad:
            service.health.bad[item.stream.name] += len(answer.bad)
            index, why = answer.bad[0]
            logs.warning("skipped a sample", **item.where, index=index, why=why)
    return batch


def _failed(service: Service, batch: Batch, item: Item, error: Exception) -> Answer:
    """Return the answer to an item on which the service stumbled; it leaves nothing behind."""
    service.quarantine.drop()
    watcher = service.watchers.get((item.stream.name, item.device))
    if watcher is not None and not watcher.born and watcher.number not in batch.parts:
        service.devices.remove(watcher)
    logs.error("a message could not be read", error, **item.where)
    return Answer(bad=[(0, payload.why(error))])


def _take(service: Service, batch: Batch, item: Item, taken: Taken) -> Answer:
    """Read an item into a batch, unless it is known, or has ended a process."""
    if item.mark is not None and _known(service, item.mark, item.again, taken):
        service.health.duplicates += 1
        return Answer()
    watcher = service.watchers.get((item.stream.name, item.device))
    why = watcher.failed if watcher is not None else ""
    if why := why or service.quarantine.read(item):
        return Answer(bad=[(0, why)])
    template = service.devices.templates[item.stream.name]
    names = watcher.names if watcher is not None else template.names or item.stream.columns
    grows = watcher is not None and watcher.grows
    found = payload.read(item.stream, item.payload, names, batch.now, grows=grows)
    service.quarantine.drop()
    if found.timed and item.mark is not None:  # under whatever identifier
        first = taken.setdefault((item.stream.name, item.mark.digest), item.mark)
        if first is not item.mark or service.marks.has_timed(item.mark, item.stream.name):
            service.health.duplicates += 1
            return Answer()
    if watcher is None and len(found.rows):  # a device begins with a sample that could be read
        watcher = service.devices.begin(item.stream, item.device)
        if watcher is None:
            return Answer(bad=[(0, service.devices.rule)])
    if watcher is None:
        return Answer(bad=found.bad)
    watcher.bad += len(found.bad)
    if grows and (new := found.names[len(names) :]):
        watcher.take(new)
        shown = ", ".join(map(str, new))
        logs.info("names came later, and are watched", **item.where, names=shown)
    for name in sorted(found.late - watcher.late)[: MOST_LATE - len(watcher.late)]:
        watcher.late.add(name)
        logs.warning("a name came later and is not watched", **item.where, name=name)
    return batch.add(item, watcher, found)


def _known(service: Service, mark: Mark, again: bool, taken: Taken) -> bool:
    """Whether a message is in the journal, or in this batch by an earlier connection."""
    first = taken.setdefault(mark, mark)
    # Items of one message, for several streams, share the very same mark.
    return again and (first is not mark or mark in service.marks)


def _write(service: Service, batch: Batch) -> None:
    """Journal a batch before anything is learned of it."""
    parts, records = batch.parts.values(), list[Record]()
    for w in (part.watcher for part in parts):
        if not w.born:
            records.append(w.fact("birth", **w.where, names=list(w.names)))
        elif w.unnamed:
            records.append(w.fact("named", names=list(w.unnamed)))
    # Rows of one width are written together.
    by_width = sorted((part.record() for part in parts), key=lambda rows: rows.X.shape[1])
    records += by_width
    if records:
        service.store.journal.append(records)
    for part in parts:
        part.watcher.born = True
        stream = part.watcher.stream
        service.marks.add(part.marks, stream.name if stream.time else None)


def _refuse(service: Service, batch: Batch, why: str) -> None:
    """Say that a batch is not on the disk, which is full or gone."""
    for item, answer in batch.answers:
        if item.refused is not None:
            item.refused()
        else:
            service.health.dropped["disk"] += 1
        if item.reply is not None:
            answer.refused, answer.rows = why, 0
            item.reply(answer)


def _sorted(batch: Batch) -> tuple[list[Part], list[Part]]:
    """Return the rows that may be judged beside each other, and those that are judged alone."""
    few: list[Part] = []
    many: list[Part] = []
    for part in batch.parts.values():
        watcher, rows = part.watcher, len(part.times)
        alone = rows > SLICE or bool(watcher.rules.maintenance)
        alone = alone or watcher.monitor.beside(rows) is None
        (many if alone else few).append(part)
    return few, many


def _watch_beside(service: Service, parts: list[Part]) -> None:
    """Judge the rows of devices by one call.

    Nothing comes between the call and what follows of it, so a checkpoint has all of it or nothing.
    """
    service.quarantine.hold(REPLAYING, 0, 0)  # the next start finds out which of them it was
    monitors, blocks = ([each.watcher.monitor for each in parts], [each.rows.X for each in parts])
    for part, verdicts in zip(parts, observe_beside(monitors, blocks), strict=True):
        try:
            if isinstance(verdicts, Exception):
                raise verdicts
            alarms = part.watcher.follow(part.rows.X, part.rows.times, verdicts)
        except Exception as error:  # some rows may be learned: the journal has them all
            service.set_aside(part.watcher, error)
            continue
        _say(service, part, part.rows.times, verdicts, alarms)
        part.verdicts = verdicts
    service.quarantine.drop()


async def _watch(service: Service, part: Part) -> None:
    """Judge the rows of a device; nothing of the rest if its monitor fails."""
    watcher, X, times, row = part.watcher, part.rows.X, part.rows.times, part.rows.first
    part.verdicts = Verdicts(watcher.names, len(X))
    for start in range(0, len(X), SLICE):
        if start:
            await asyncio.sleep(0)
        here = slice(start, start + SLICE)
        service.quarantine.hold(WATCHING, watcher.number, row)
        try:
            verdicts, alarms = watcher.observe(X[here], times[here])
        except Exception as error:  # half of these rows may be learned: the journal has them all
            service.set_aside(watcher, error)
            break
        finally:
            service.quarantine.drop()
        _say(service, part, times[here], verdicts, alarms)
        part.verdicts.put(slice(start, start + len(verdicts)), verdicts)


def _say(
    service: Service, part: Part, times: Array, verdicts: Verdicts, alarms: list[Alarm]
) -> None:
    """Pass the verdicts on rows of a device to all listeners."""
    watcher = part.watcher
    first = watcher.monitor.n_seen - len(verdicts)
    watcher.hear(part.seen)
    for i in np.flatnonzero(verdicts.drift).tolist() if verdicts.drift.any() else ():
        with contextlib.suppress(OSError):  # the journal says so when the disk is full
            service.audit.note("mode added", sync=False, device=watcher.key, row=first + i)
    for alarm in alarms:
        service.tell(watcher, alarm)
    _tell_all(service, lambda listener: listener.judged(watcher, first, times, verdicts))


def _tell(service: Service, batch: Batch) -> None:
    """Acknowledge and answer all items, whose samples are safe."""
    for item, answer in batch.answers:
        if answer.part is not None and answer.part.watcher.failed:
            answer.bad, answer.rows = [(0, answer.part.watcher.failed)], 0
        if item.done is not None:
            item.done()
        if item.reply is not None:
            item.reply(answer)
    _tell_all(service, lambda listener: listener.stepped())
    now = time.perf_counter()
    waits = [now - item.arrived for item, answer in batch.answers if answer.rows]
    service.health.waited(np.array(waits))


def _tell_all(service: Service, call: Callable[[Listener], None]) -> None:
    """Call each listener; one that fails must not fail the step."""
    for listener in service.listeners:
        try:
            call(listener)
        except Exception as error:
            logs.error("a listener failed", error)
