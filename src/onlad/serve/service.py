"""`Service`: takes samples in, keeps them safe, watches them, and tells others.

What others build on, in this process and on this event loop:

- ``service.watchers``: every device of every stream, by (stream, device). Of a `Watcher`: ``key``,
  ``state`` ("learning", "normal", "alarm", "paused", "silent", "failed"), ``history`` (of its
  last samples), ``alarms`` (the last `Alarm`s with causes, newest last), ``alarm`` (the open one),
  ``last`` (what was `Said`), ``paused``, ``samples``, ``bad``, ``names``.
- ``service.listen(listener)``: a `Listener` hears of each batch, alarm and forgotten device.
- ``service.orders``: what a person does to a device.
- ``service.health``: what is wrong, and what was counted.

The way of a sample: intake -> journal -> monitor -> listeners and outbox -> acknowledgement. One
thread does all of it, in steps: whatever waits is one batch. A checkpoint is taken between two
steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Collection, Iterator

from onlad.serve import logs
from onlad.serve.alarm import Alarm
from onlad.serve.audit import Audit
from onlad.serve.checkpoint import Store
from onlad.serve.devices import Devices, kept_by, kept_lines
from onlad.serve.disk import Disk
from onlad.serve.frames import Fact
from onlad.serve.health import Health
from onlad.serve.intake import Item
from onlad.serve.listener import Listener, Outbox
from onlad.serve.marks import Marks
from onlad.serve.orders import Orders
from onlad.serve.quarantine import Quarantine
from onlad.serve.resume import resume
from onlad.serve.step import step
from onlad.serve.tables import Config
from onlad.serve.watcher import Watcher

GATHER = 0.001  # seconds that a batch waits for company: a block costs a fifth of single samples
BATCH, BYTES = 500, 250_000  # messages of one step: others must not wait for a backlog


class Service:
    """Streams, watched. It has seen nothing until `resume`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.devices = Devices(config)
        self.store = Store(config.service.state, config.service.archive * 1_000_000)
        self.streams, self.watchers = self.devices.streams, self.devices.watchers
        self.quarantine = Quarantine(config.service.state)
        self.audit = Audit(config.service.state)
        self.listeners: list[Listener] = []
        self.outbox = Outbox(self._delivered, config.service.alarms_per_hour)
        self.health = Health(self)
        self.orders = Orders(self)
        self.disk = Disk(self, self.store)
        self.marks = Marks()
        self.turn = asyncio.Lock()  # held by a step and by whatever must not see half of one
        self.broken = False  # in the middle of a step: then only the journal is right
        self.resumed = False
        self.ending = False  # nothing more is taken from where it can wait
        self._pending: deque[tuple[Item, ...]] = deque()
        self._wake = asyncio.Event()

    def resume(self) -> Iterator[str]:
        """Go on where the last service in the folder was; yield how far that is, for others."""
        self.health.trouble["start"] = "the state is read"
        yield from resume(self)
        self.settle(self.watchers.values())
        alarms = (alarm for watcher in self.watchers.values() for alarm in watcher.alarms)
        self.outbox.remember(alarm.time for alarm in alarms if alarm.reported)
        self.health.trouble.pop("start")
        self.resumed = True

    def starting(self) -> str:
        """Return how far the start is, or nothing if the service takes requests."""
        return "" if self.resumed else self.health.trouble.get("start", "the service starts")

    def settle(self, watchers: Collection[Watcher]) -> None:
        """Let the configuration take effect on what devices have learned, or say it cannot."""
        wanted = {name: template.settings() for name, template in self.devices.templates.items()}
        changed: list[Fact] = []
        for watcher in watchers:
            want = wanted[watcher.stream.name]
            rate = want.false_alarms
            if watcher.settle({"false_alarms": rate}):
                changed.append(watcher.fact("false_alarms", rate=rate))
                with contextlib.suppress(OSError):
                    self.audit.note("false_alarms", sync=False, device=watcher.key, rate=rate)
            watcher.kept = kept_by(watcher.stream, want, watcher.monitor)
        if changed:
            self._journal(changed)  # else a crash is replayed with the old rate
        for line in kept_lines((w.stream.name, w.key, w.kept) for w in watchers):
            logs.warning(line)

    def listen(self, listener: Listener) -> None:
        """Tell a listener what happens; a courier also gets alarms to deliver."""
        self.listeners.append(listener)
        if listener.courier:
            self.outbox.couriers.append(listener)

    # -- samples in ---------------------------------------------------------------------------

    def submit(self, *items: Item) -> bool:
        """Let items wait for the next step, all of them; False if too many wait already."""
        if len(self._pending) >= self.config.service.queue:
            self.health.dropped["intake"] += 1
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
        return len(self._pending) >= min(2 * BATCH, self.config.service.queue)

    def new_session(self) -> None:
        """Forget which messages came: the broker has forgotten which it sent."""
        if len(self.marks):
            self.marks.clear()
            self._journal([Fact("session", {})])

    async def pump(self) -> None:
        """Work off what comes in."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER if len(self._pending) < BATCH else 0)
            await self._next_step()
            if not self._pending:
                self._wake.clear()

    async def drain(self, seconds: float = float("inf")) -> None:
        """Work off what waits, as far as there is time for it."""
        until = time.monotonic() + seconds
        while self._pending and time.monotonic() < until:
            await self._next_step()

    async def _next_step(self) -> None:
        async with self.turn:
            few: list[Item] = []
            size = 0
            while self._pending and len(few) < BATCH and size < BYTES:
                few += self._pending.popleft()
                size += len(few[-1].payload)
            try:
                await step(self, few)
            except BaseException:
                self.broken = True
                raise

    # -- what is reported ---------------------------------------------------------------------

    def set_aside(self, watcher: Watcher, error: Exception) -> None:
        """Judge nothing more of a device: its monitor failed, and is half of something now.

        At the next start the journal's rows are judged again, those that fail one by one.
        """
        logs.error("a monitor failed", error, device=watcher.key)
        self.outbox.add(watcher.fail(error))

    async def keep_listening(self) -> None:
        """Report devices that have fallen silent."""
        waits = [s.silent_after for s in self.config.streams if s.silent_after is not None]
        while True:
            await asyncio.sleep(min([1.0, *(wait / 4 for wait in waits)]))
            async with self.turn:
                for watcher in filter(Watcher.falls_silent, self.watchers.values()):
                    self._silence(watcher)

    def _silence(self, watcher: Watcher) -> None:
        message, reported = watcher.silence(), self.outbox.allows()
        self._journal(
            [watcher.fact("silent", reported=reported)]
        )  # else a crash reports it once more
        logs.warning("silent", **watcher.where)
        if reported:
            self.outbox.add(message)
        else:
            watcher.suppressed += 1

    def tell(self, watcher: Watcher, alarm: Alarm) -> None:
        """Report an alarm that began, unless there were too many of all devices."""
        if self.outbox.allows():
            logs.warning("alarm", **alarm.message())
            self.outbox.add(alarm.message())
            return
        watcher.suppress(alarm)
        logs.info("suppressed", id=alarm.id)
        # Else it is reported after a crash.
        self._journal([watcher.fact("suppressed", alarm=alarm.id)])

    def _delivered(self, alarm: str) -> None:
        self._journal([Fact("delivered", {"id": alarm})])  # else it is delivered once more

    def _journal(self, facts: list[Fact]) -> None:
        """Write what can be reported again if the disk takes nothing."""
        with contextlib.suppress(OSError):
            self.store.journal.append(facts)

    def close(self) -> None:
        """Let go of the state folder."""
        self.quarantine.close()
        self.store.close()
