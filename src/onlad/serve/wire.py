"""Many packets of MQTT in one call of the system.

paho reads a packet in four calls and writes each with one of its own: at thousands of messages a
second that is most of the work. `Buffered` reads all that is there at once. `acknowledgement` and
`publication` make the two packets that go out most often, which are then queued as one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

PUBACK = 0x40
PUBLISH = 0x30
CHUNK = 1 << 16


class Buffered:
    """A socket that reads ahead. aiomqtt reads until `pending` is 0, as it does for TLS.

    While `busy` says so nothing more is read: it waits in the system, and then in the broker.
    """

    def __init__(self, socket: Any, busy: Callable[[], bool]) -> None:
        self._socket, self._busy = socket, busy
        self._data, self._at = b"", 0
        self.blocked = False

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; raise what the socket raises when there are none."""
        if self._at == len(self._data):
            self.blocked = self._busy()
            if self.blocked:
                raise BlockingIOError
            self._data, self._at = self._socket.recv(CHUNK), 0
        part: bytes = self._data[self._at : self._at + size]
        self._at += len(part)
        return part

    def pending(self) -> int:
        """Return how many bytes were read from the system, or by TLS, and not taken yet."""
        below = self._socket.pending() if hasattr(self._socket, "pending") else 0
        if self._at == len(self._data) and self._busy():
            return 0
        return len(self._data) - self._at + int(below)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def acknowledgement(mid: int) -> bytes:
    """Return a PUBACK; that of MQTT 5 is the same when nothing is wrong."""
    return struct.pack("!BBH", PUBACK, 2, mid)


def publication(topic: bytes, payload: bytes, five: bool) -> bytes:
    """Return a PUBLISH of QoS 0."""
    properties = b"\0" if five else b""
    length = 2 + len(topic) + len(properties) + len(payload)
    size = b""
    while True:
        length, low = divmod(length, 128)
        size += bytes((low | 128 if length else low,))
        if not length:
            break
    return b"".join(
        (bytes((PUBLISH,)), size, struct.pack("!H", len(topic)), topic, properties, payload)
    )
