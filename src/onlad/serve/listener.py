"""What a service reports to its listeners."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from onlad.reference import Array
from onlad.serve.watcher import Watcher
from onlad.verdict import Verdicts

Message: TypeAlias = dict[str, Any]  # an alarm, as it is sent


class Listener(Protocol):
    """Hears what happens in a service. A class that inherits from it overrides what it needs.

    All of it is called on the service's event loop, in the middle of a step.
    """

    courier: str = ""  # its name if it delivers alarms: each is kept until `Outbox.delivered`

    def judged(self, watcher: Watcher, first: int, times: Array, verdicts: Verdicts) -> None:
        """Take note that samples of a device were judged, from row `first` on."""
        return

    def alarmed(self, message: Message) -> None:
        """Deliver an alarm. Only couriers are asked."""
        return

    def stepped(self) -> None:
        """Take note that a step is done, and that its samples are safe."""
        return

    def forgotten(self, watcher: Watcher) -> None:
        """Take note that a device was forgotten."""
        return
