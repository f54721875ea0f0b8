"""`Listener`: what a service calls when something happens. `Outbox`: alarms to be delivered.

Each alarm is kept until every courier has delivered it. At most `per_hour` of them are reported in
an hour, whatever device they are of: a person can follow no more. The others are counted, and stay
with their devices.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from onlad.reference import Array
from onlad.serve.watcher import Watcher
from onlad.verdict import Verdicts

MOST = 10_000
HOUR = 3600.0  # seconds

Message: TypeAlias = dict[str, Any]  # an alarm, as it is sent


class Listener:
    """Hears what happens in a service. A class that inherits from it overrides what it needs.

    All of it is called on the service's event loop, in the middle of a step.
    """

    courier: str = ""  # its name if it delivers alarms: each is kept until `Outbox.delivered`

    def judged(self, watcher: Watcher, first: int, times: Array, verdicts: Verdicts) -> None:
        """Take note that samples of a device were judged, from row `first` on."""

    def alarmed(self, message: Message) -> None:
        """Deliver an alarm. Only couriers are asked."""

    def stepped(self) -> None:
        """Take note that a step is done, and that its samples are safe."""

    def forgotten(self, watcher: Watcher) -> None:
        """Take note that a device was forgotten."""


class Outbox:
    """Alarms that are not delivered yet, the oldest first."""

    def __init__(self, done: Callable[[str], None], per_hour: int | None = None) -> None:
        self.per_hour, self.suppressed = per_hour, 0
        self._times: deque[float] = deque()  # times of alarms, the oldest first
        self.couriers: list[Listener] = []
        self.waiting: dict[str, tuple[Message, set[str]]] = {}
        self.dropped = 0
        self._done = done

    def begin(self) -> None:
        """Hand alarms from before the start to all couriers, once they are known."""
        left = [message for message, _ in self.waiting.values()]
        self.waiting.clear()
        for message in left:
            self.add(message)

    @property
    def reported(self) -> int:
        """How many alarms were reported in the last hour."""
        while self._times and self._times[0] <= time.time() - HOUR:
            self._times.popleft()
        return len(self._times)

    def remember(self, times: Iterable[float]) -> None:
        """Count alarms that were reported before the start."""
        now = time.time()
        self._times = deque(sorted(when for when in times if now - HOUR < when <= now))

    def allows(self) -> bool:
        """Return whether one more alarm may be reported; count it either way."""
        if self.per_hour is not None and self.reported >= self.per_hour:
            self.suppressed += 1
            return False
        self._times.append(time.time())
        return True

    def budget(self) -> dict[str, int | None]:
        """Return what is allowed, and what became of alarms."""
        counts = {"reported_last_hour": self.reported, "suppressed": self.suppressed}
        return {"alarms_per_hour": self.per_hour, **counts}

    def add(self, message: Message) -> None:
        """Hand an alarm to all couriers."""
        if not self.couriers:
            return
        if len(self.waiting) >= MOST:
            del self.waiting[next(iter(self.waiting))]
            self.dropped += 1
        self.waiting[message["id"]] = (message, {courier.courier for courier in self.couriers})
        for courier in self.couriers:
            courier.alarmed(message)

    def delivered(self, name: str, alarm: str) -> None:
        """Note that a courier has delivered an alarm."""
        if alarm in self.waiting:
            left = self.waiting[alarm][1]
            left.discard(name)
            if not left:
                del self.waiting[alarm]
                self._done(alarm)

    def pending(self, name: str) -> list[Message]:
        """Return what a courier still has to deliver."""
        return [message for message, left in self.waiting.values() if name in left]
