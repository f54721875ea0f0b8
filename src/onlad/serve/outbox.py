"""Alarms on their way: each is kept until every courier has delivered it."""

from __future__ import annotations

from collections.abc import Callable

from onlad.serve.listener import Listener, Message

MOST = 10_000


class Outbox:
    """Alarms that are not delivered yet, the oldest first."""

    def __init__(self, done: Callable[[str], None]) -> None:
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
