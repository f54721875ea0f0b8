"""From a configuration to a service that runs until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from onlad.samples import listed
from onlad.serve import logs
from onlad.serve.alarm import key
from onlad.serve.checkpoint import StateError
from onlad.serve.disk import AT_STOP
from onlad.serve.service import Service
from onlad.serve.tables import Config
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.mqtt import Mqtt

SWITCH = 0.0005  # seconds that samples wait for a thread that writes a model
DRAIN = 0.5  # seconds at the end for what waits; what is not acknowledged then comes again
TURN, PAUSE = 0.05, 0.002  # seconds after which a start lets others have their turn, and how long


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT; then checkpoint and leave."""
    logs.setup(config.service.log, config.service.level)
    sys.setswitchinterval(SWITCH)

    async def until_signal() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        service = Service(config)
        service.quarantine.watch_faults()
        await run(service, stop)
        gc.freeze()  # it ends with the process: looking through it takes as long as all the rest

    asyncio.run(until_signal())


def forget(config: Config, stream: str, device: str) -> str:
    """Forget a device of a service that is stopped; return the file to undo it with."""
    with _stopped(config) as service:
        return asyncio.run(service.orders.forget(_watcher(service, stream, device)))


def undo(config: Config, file: str) -> str:
    """Put a forgotten device of a service that is stopped back; return its name."""
    with _stopped(config) as service:
        return asyncio.run(service.orders.restore(file)).key


def revert(config: Config, stream: str, device: str, file: str | None, again: bool) -> list[str]:
    """Go back to a snapshot of a device of a service that is stopped; without one, list them."""
    with _stopped(config) as service:
        watcher = _watcher(service, stream, device)
        if file is None:
            return service.store.snapshots(watcher.number)
        asyncio.run(service.orders.revert(watcher, file, by="onlad revert", again=again))
        return []


def _watcher(service: Service, stream: str, device: str) -> Watcher:
    watcher = service.watchers.get((stream, device))
    if watcher is None:
        there = sorted(w.key for w in service.watchers.values())
        known = listed(there, 20)
        raise StateError(f"there is no device {key(stream, device)}; there are: {known}")
    return watcher


@contextlib.contextmanager
def _stopped(config: Config) -> Iterator[Service]:
    """Open the state of a service that is stopped."""
    logs.setup(config.service.log, "warning")
    with contextlib.closing(Service(config)) as service:
        for _ in service.resume():
            pass
        yield service


async def run(service: Service, stop: asyncio.Event) -> None:
    """Run a service until it is asked to stop; then checkpoint, and release its folder."""
    try:
        await _run(service, stop)
    finally:
        gc.unfreeze()
        service.close()
    logs.info("stopped")


async def _run(service: Service, stop: asyncio.Event) -> None:
    config = service.config
    mqtt = http = None
    tasks: list[asyncio.Future[Any]] = []
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    # What is not asked for is not imported: on a small machine a second of start is a second.
    if config.mqtt is not None:
        from onlad.serve.mqtt import Mqtt  # noqa: PLC0415

        mqtt = Mqtt(service, config.mqtt)
    if config.http is not None:
        from onlad.serve.http import Http  # noqa: PLC0415

        http = Http(service, config.http, mqtt)
        tasks.append(asyncio.ensure_future(http.run()))  # it answers while the journal is replayed
    try:
        await _resume(service, stop)
        if not stop.is_set():
            tasks += [asyncio.ensure_future(job()) for job in _jobs(service, mqtt)]
            gc.freeze()  # what is here stays: looking through it takes tens of milliseconds
            logs.info("started", streams=len(service.streams), watchers=len(service.watchers))
            # None of the tasks ends by itself, so the first to end has failed, or is `stopping`.
            await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        service.ending = True
        failed = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        if http is not None:
            http.stop()
            await asyncio.wait(tasks[:1], timeout=5)
        if service.resumed and not service.broken:
            await service.drain(DRAIN)
        if mqtt is not None:
            await mqtt.stop()
        # Between two steps and two checkpoints: half of one would be lost, or in the way.
        async with service.disk.lock, service.turn:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
    if service.resumed:
        await service.disk.checkpoint(until=time.monotonic() + AT_STOP)
    for error in failed:
        if error is not None:
            raise error


async def _resume(service: Service, stop: asyncio.Event) -> None:
    """Go on where the last service was, and let others have their turn."""
    trouble, since = service.health.trouble, time.monotonic()
    for done in service.resume():
        if time.monotonic() - since > TURN:
            trouble["start"] = done
            await asyncio.sleep(PAUSE)
            since = time.monotonic()
            if stop.is_set():  # the journal has all of it
                return
    trouble.pop("start", None)


def _jobs(service: Service, mqtt: Mqtt | None) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the service does."""
    config = service.config
    jobs = [service.pump, service.disk.keep_synced, service.disk.keep_checkpoints]
    if any(stream.silent_after is not None for stream in config.streams):
        jobs.append(service.keep_listening)
    if mqtt is not None:
        jobs.append(mqtt.run)
    if config.webhook is not None:
        from onlad.serve.webhook import Webhook  # noqa: PLC0415

        jobs.append(Webhook(config.webhook, service).run)
    service.outbox.begin()
    return jobs
