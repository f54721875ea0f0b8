"""Many packets of MQTT in one call of the system.

paho reads a packet in four calls, makes a dozen objects of it, and writes each with a call of its
own: at thousands of messages a second that is most of the work. `Buffered` reads all that is there
at once, takes the messages out of it itself, and leaves the rest to paho. `acknowledgement` and
`publication` make the two packets that go out most often, which are then queued as one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

PUBACK = 0x40
PUBLISH = 0x30
CHUNK = 1 << 16  # read at once, and the largest message that is taken out here
# Properties of a message in MQTT 5: one of a varying length, some of so many bytes, some of so many
# texts.
SUBSCRIPTION = 0x0B
FIXED = {0x01: 1, 0x02: 4, 0x23: 2}
TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x26: 2}
_SHORT = struct.Struct("!H").unpack_from


class Publication(NamedTuple):
    """A message as the broker sent it."""

    topic: bytes
    payload: bytes
    qos: int
    mid: int  # 0 with QoS 0
    again: bool  # it may have been sent before
    retained: bool
    subscriptions: tuple[int, ...] = ()  # by their identifiers, where the broker tells them


class Buffered:
    """A socket that reads ahead. aiomqtt reads until `pending` is 0, as it does for TLS.

    Messages go to `take`; paho gets what else there is, and what is no plain message. While `busy`
    says so nothing more is read: it waits in the system, and then in the broker.
    """

    def __init__(
        self,
        socket: Any,
        busy: Callable[[], bool],
        take: Callable[[Publication], None],
        five: bool,
    ) -> None:
        self._socket, self._busy, self._take, self._five = socket, busy, take, five
        self._data, self._at = b"", 0
        self._owed = 0  # bytes of the packet that paho has begun to read
        self.blocked = False

    def recv(self, size: int) -> bytes:
        """Return up to `size` bytes; raise what the socket raises when there are none."""
        taken = False
        while self._owed == 0:  # between two packets
            whole = self._packet()
            if whole is not None:
                kind, start, stop = whole
                message = None
                if kind & 0xF0 == PUBLISH and stop - self._at <= CHUNK:
                    message = read(kind, self._data[start:stop], self._five)
                if message is None:
                    self._owed = stop - self._at
                else:
                    self._at = stop
                    self._take(message)
                    taken = True
            elif taken:  # others have their turn before the next chunk
                raise BlockingIOError
            elif not self._read_on():
                return b""
        if self._at == len(self._data) and not self._read_on():
            return b""
        part = self._data[self._at : self._at + min(size, self._owed)]
        self._at += len(part)
        self._owed -= len(part)
        return part

    def _packet(self) -> tuple[int, int, int] | None:
        """Return kind, start and end of the body of the packet here, or None if more is needed.

        Of a packet that is larger than a message taken out here the beginning is enough.
        """
        data, at = self._data, self._at
        length = shift = 0
        for here in range(at + 1, min(at + 5, len(data))):
            length |= (data[here] & 127) << shift
            shift += 7
            if data[here] < 128:
                stop = here + 1 + length
                if stop > len(data) and data[at] & 0xF0 == PUBLISH and stop - at <= CHUNK:
                    return None
                return data[at], here + 1, stop
        if len(data) - at >= 5:  # no length at all: paho knows what to do
            return 0, at, at + 5
        return None

    def _read_on(self) -> bool:
        """Read what the system has behind what is here; return whether the other side is there."""
        self.blocked = self._busy()
        if self.blocked:
            raise BlockingIOError
        more = self._socket.recv(CHUNK)
        self._data, self._at = self._data[self._at :] + more, 0
        return bool(more)

    def pending(self) -> int:
        """Return how many bytes were read from the system, or by TLS, and can be taken now."""
        below = self._socket.pending() if hasattr(self._socket, "pending") else 0
        if self._busy():
            below = 0
        here = len(self._data) - self._at
        if self._owed == 0 and self._packet() is None:  # the rest of it has still to come
            here = 0
        return here + int(below)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def read(kind: int, body: bytes, five: bool) -> Publication | None:
    """Return the message in the body of a PUBLISH, or None if it is none for us."""
    qos = kind >> 1 & 3
    if qos > 1 or len(body) < 2:
        return None
    at = 2 + _SHORT(body)[0]
    topic, mid = body[2:at], 0
    if qos:
        if len(body) < at + 2:
            return None
        mid = _SHORT(body, at)[0]
        at += 2
    subscriptions: tuple[int, ...] = ()
    if five:
        found = _properties(body, at)
        if found is None:
            return None
        at, subscriptions = found
    if at > len(body) or len(topic) == 0:
        return None
    again, retained = bool(kind & 8), bool(kind & 1)
    return Publication(topic, body[at:], qos, mid, again, retained, subscriptions)


def _properties(body: bytes, at: int) -> tuple[int, tuple[int, ...]] | None:
    """Return where the properties of a message end, and the subscriptions among them."""
    length, at = _varying(body, at)
    stop, found = at + length, []
    if length < 0 or stop > len(body):
        return None
    while at < stop:
        kind = body[at]
        at += 1
        if kind == SUBSCRIPTION:
            identifier, at = _varying(body, at)
            found.append(identifier)
        elif kind in FIXED:
            at += FIXED[kind]
        elif kind in TEXTS:
            for _ in range(TEXTS[kind]):
                if at + 2 > stop:
                    return None
                at += 2 + _SHORT(body, at)[0]
        else:
            return None
    return (stop, tuple(found)) if at == stop and -1 not in found else None


def _varying(body: bytes, at: int) -> tuple[int, int]:
    """Return a whole number of one to four bytes and where it ends; -1 if there is none."""
    value = shift = 0
    for here in range(at, min(at + 4, len(body))):
        value |= (body[here] & 127) << shift
        shift += 7
        if body[here] < 128:
            return value, here + 1
    return -1, at


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
