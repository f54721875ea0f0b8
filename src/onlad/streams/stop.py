"""Signals stop a run between two blocks, never inside one, so a model is always whole."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from types import FrameType


class Stop:
    """Notes SIGINT and SIGTERM while it is entered; ``signal`` is the one that came, or 0.

    A second signal ends the process as it would have without this.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, object] = {}
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        self._restore()
        self._read.close()
        self._write.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}

    def wait(self, fd: int | None = None, seconds: float | None = None) -> bool:
        """Wait until `fd` can be read, or for `seconds`; return whether to stop."""
        if not self.signal:
            ours = self._read.fileno()
            watched = [ours] if fd is None else [ours, fd]
            with contextlib.suppress(InterruptedError):
                select.select(watched, [], [], seconds)
        return bool(self.signal)
