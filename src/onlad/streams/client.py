"""A connection to an MQTT broker, whose user decides when a message is acknowledged.

Client libraries acknowledge messages automatically, and need many calls per message. Here all bytes
that have arrived are read together, and all messages of a step are sent in one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from onlad.errors import OnladError
from onlad.streams import wire
from onlad.streams.aside import aside

PATIENCE = 20.0  # seconds for a connection, and for the broker's greeting
INFLIGHT = 5000  # messages of QoS 1 on their way at once
MOST_USED = 50_000  # messages of QoS 1 that the broker has not confirmed; more are dropped
LARGEST = 1 << 21  # bytes of a message; a larger one is not kept in memory
HEAD = 1 << 17  # bytes that contain everything before a payload


class BrokerError(OnladError):
    """There is no connection to the broker; the error says why."""


@dataclass(frozen=True)
class Calls:
    """What a connection calls."""

    take: Callable[[wire.Publication], None]  # with each message
    oversized: Callable[[wire.Publication, int], None]  # with the beginning of one, and its bytes
    arrived: Callable[[int], None]  # with the identifier of each message that the broker confirmed
    busy: Callable[[], bool]  # while True, no message is taken: they wait here and in the broker


class Client(asyncio.Protocol):
    """One connection, from its greeting to its end."""

    def __init__(self, calls: Calls, five: bool) -> None:
        self._calls, self._five = calls, five
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()  # says why the connection ended
        self._greeted: asyncio.Future[wire.Greeting] = loop.create_future()
        self._subscribed: dict[int, asyncio.Future[bytes]] = {}
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._more: list[bytes] = []  # what arrived after it
        self._missing = 0  # bytes until there is a whole packet
        self._skip = 0  # bytes of a packet that is left out
        self._open = False  # messages may follow the greeting at once
        self._paused = False
        self._last_received = self._last_sent = time.monotonic()
        self._greeting = wire.Greeting(0, False)
        self._mid = 0
        self._used: set[int] = set()  # identifiers of messages that the broker has not confirmed
        self._out = 0  # how many of these have been sent
        self._waiting: deque[bytes] = deque()  # the others, until the broker accepts them

    @classmethod
    async def connect(cls, login: wire.Login, calls: Calls) -> tuple[Client, bool]:
        """Return a connection, and whether the broker has kept the session."""
        try:
            client = await asyncio.wait_for(cls._reach(login, calls), PATIENCE)
        except (OSError, ValueError, asyncio.TimeoutError) as error:  # also of a certificate
            raise BrokerError(str(error) or "it does not answer") from None
        try:
            client.write(wire.connect(login))
            greeting = await asyncio.wait_for(client._greeted, PATIENCE)
            if greeting.code:
                raise BrokerError(_refusal(greeting.code))
        except asyncio.TimeoutError:
            client.abort()
            raise BrokerError("it does not answer the connection request") from None
        except BaseException:
            client.abort()
            raise
        client._greeting = greeting
        return client, greeting.session

    @classmethod
    async def _reach(cls, login: wire.Login, calls: Calls) -> Client:
        """Return a connection to the first address of the broker that takes one."""
        loop, name = asyncio.get_running_loop(), login.host if login.tls else None

        async def reach(address: str) -> Client:
            _, client = await loop.create_connection(
                lambda: cls(calls, login.five),
                address,
                login.port,
                ssl=login.tls,
                server_hostname=name,
            )
            return client

        found = await aside(socket.getaddrinfo, login.host, login.port, 0, socket.SOCK_STREAM)
        *others, last = dict.fromkeys(str(address[0]) for *_, address in found)
        for address in others:
            with contextlib.suppress(OSError):
                return await reach(address)
        return await reach(last)

    # -- what asyncio calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the reason to everyone who waits."""
        self._end(f"the connection was lost: {exc or 'the broker has closed it'}")

    def data_received(self, data: bytes) -> None:
        """Read packets from the bytes that came."""
        self._last_received = time.monotonic()
        cut = min(self._skip, len(data))
        self._skip -= cut
        self._more.append(data[cut:] if cut else data)
        self._missing -= len(data) - cut
        if self._missing <= 0:
            self.read_on()

    def read_on(self) -> None:
        """Read packets until the user is busy; call it again when that may have ended."""
        if self.lost.done() or self._transport is None:
            return
        try:
            self._take_all()
        except wire.WireError as error:
            self._end(f"the broker sent bytes that are not MQTT: {error}")
            self.abort()
            return
        busy = self._calls.busy()
        if busy and not self._paused:
            self._transport.pause_reading()
        elif self._paused and not busy:
            self._transport.resume_reading()
        self._paused = busy

    def _take_all(self) -> None:
        if self._more:
            self._data, self._more = b"".join((self._data, *self._more)), []
        data, at, busy = self._data, 0, self._calls.busy
        self._missing = 0
        try:
            while at < len(data) and not busy():
                found = wire.packet(data, at)
                if found is None:
                    break
                kind, start, stop = found
                if stop - at > LARGEST and kind & 0xF0 == wire.PUBLISH:
                    stop = min(stop, at + HEAD)
                if kind & 0xF0 == wire.PUBLISH and not self._open:
                    break
                if stop > len(data):
                    self._missing = stop - len(data)
                    break
                at = stop
                if stop != found[2]:  # too large
                    self._calls.oversized(
                        wire.read(kind, data[start:stop], self._five), found[2] - start
                    )
                    at = min(found[2], len(data))
                    self._skip = found[2] - at
                elif kind & 0xF0 == wire.PUBLISH:
                    self._calls.take(wire.read(kind, data[start:stop], self._five))
                else:
                    self._answer(kind, data[start:stop])
        finally:
            self._data = data[at:]

    def _answer(self, kind: int, body: bytes) -> None:
        """Handle any other packet."""
        if kind == wire.PUBACK:
            mid = wire.number(body)
            if mid in self._used:
                self._used.discard(mid)
                self._out -= 1
                self._calls.arrived(mid)
                self._send_waiting()
        elif kind == wire.CONNACK and not self._greeted.done():
            self._greeted.set_result(wire.greeting(body, self._five))
        elif kind == wire.SUBACK and (mid := wire.number(body)) in self._subscribed:
            if not self._subscribed[mid].done():
                self._subscribed[mid].set_result(wire.codes(body, self._five))
        elif kind == wire.DISCONNECT:
            self._end(f"the broker closed the connection: {_refusal(body[0] if body else 0)}")
        elif kind != wire.PINGRESP:
            raise wire.WireError(f"a packet of kind {kind:#x}")

    def _end(self, why: str) -> None:
        waiting: list[asyncio.Future[Any]] = [self.lost, self._greeted, *self._subscribed.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(BrokerError(why))
                future.exception()  # no warning if nobody reads it

    # -- what its user calls ------------------------------------------------------------------

    def open(self) -> None:
        """Take messages from now on."""
        self._open = True
        self.read_on()

    async def subscribe(self, topic: str, qos: int, identifier: int) -> None:
        """Subscribe; return when the broker has confirmed it."""
        mid = self._next()
        named = identifier if self._greeting.identifiers else None
        self._subscribed[mid] = asyncio.get_running_loop().create_future()
        self.write(wire.subscribe(mid, topic, qos, self._five, named))
        try:
            codes = await self._subscribed[mid]
        finally:
            del self._subscribed[mid]
        if not codes or codes[0] >= 0x80:
            why = _refusal(codes[0]) if codes and codes[0] > 0x80 else "it refuses"
            raise BrokerError(f"the broker refuses the subscription to {topic}: {why}")

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        """Send a message of QoS 1 as soon as the broker accepts it; return its identifier.

        It is 0 if the message is dropped, because too many are not confirmed yet.
        """
        if len(self._used) >= MOST_USED:
            return 0
        mid = self._next()
        self._used.add(mid)
        self._waiting.append(wire.publication(topic.encode(), payload, self._five, mid, retain))
        self._send_waiting()
        return mid

    def _send_waiting(self) -> None:
        most = min(INFLIGHT, self._greeting.receive_maximum)
        while self._waiting and self._out < most:
            self._out += 1
            self.write(self._waiting.popleft())

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._last_sent = time.monotonic()
            self._transport.write(data)

    def beat(self, keepalive: float) -> None:
        """Send a ping in time, and check that the broker is alive; to be called every second."""
        now = time.monotonic()
        if now - self._last_sent > keepalive / 2:
            self.write(wire.packed(wire.PINGREQ))
        if not self._paused and now - self._last_received > 1.5 * keepalive:
            self._end("the broker does not answer")
            self.abort()

    @property
    def owed(self) -> int:
        """Return how many bytes wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Disconnect properly, so that the will is not published."""
        self.write(wire.packed(wire.DISCONNECT))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _next(self) -> int:
        """Return an identifier that is not in use."""
        while True:
            self._mid = self._mid % 65535 + 1
            if self._mid not in self._used and self._mid not in self._subscribed:
                return self._mid


def _refusal(code: int) -> str:
    return wire.REFUSALS.get(code, f"code {code:#x}")
