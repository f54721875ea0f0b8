"""Connections of HTTP: those that send nothing are closed, and never keep others out.

uvicorn waits without end for the headers of a request, however many come, and for a client that
does not read its answer, and at its limit refuses everybody. Here all of it has a limit. When there
are too many, one that waits for its client is closed: the oldest of the address that has most.
While all are busy, twice as many may come in, so that `/healthz` answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEADERS, LONGEST_HEAD = 200, 65_536  # of a request, and bytes
HEADERS = 10.0  # seconds; a connection where nothing moves is closed after once to twice as many


class Connection(HttpToolsProtocol):
    """One connection. uvicorn makes it, with `limit_concurrency` as the most of them."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._most: int | None = self.config.limit_concurrency
        self.limit_concurrency = None  # it is kept here
        self._seen: Any = None  # the last request, at the last look
        self._head = 0  # bytes since the last head of a request, or piece of a body
        self._owed = 0  # bytes that the client had not read, at the last look
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, and close another one if there are too many."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(HEADERS, self._look)
        there = [c for c in self.connections if isinstance(c, Connection)]
        there = [c for c in there if not c.transport.is_closing()]  # a moment ago
        if self._most is not None and len(there) > self._most:
            by_address = Counter(c.address for c in there)
            waiting = [c for c in there if c.waits and c is not self]
            if waiting:
                max(waiting, key=lambda c: (by_address[c.address], -c._since))._leave()
            elif len(there) > 2 * self._most:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking at the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes; drop a head that does not end, which takes many times its size in memory."""
        self._head += len(data)
        super().data_received(data)
        if self._head > LONGEST_HEAD:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; too many are an invalid request."""
        if len(self.headers) >= MOST_HEADERS:
            raise ValueError(f"more than {MOST_HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that a body comes; the guard counts its bytes."""
        self._head = 0
        super().on_body(body)

    @property
    def address(self) -> str:
        """Return who is at the other end."""
        return self.client[0] if self.client else ""

    @property
    def waits(self) -> bool:
        """Whether the client has to go on: no request, half of one, or an answer to be read."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return True
        return self._unread > 0

    @property
    def _unread(self) -> int:
        """Return how many bytes of answers wait for the client here."""
        size: int = self.transport.get_write_buffer_size()
        return size

    def _look(self) -> None:
        """Close a connection on which nothing moved since the last look."""
        if self not in self.connections:  # it is a WebSocket now
            return
        idle = self.cycle is None or self.cycle.response_complete
        if self.cycle is self._seen and (idle or 0 < self._unread == self._owed):
            self._leave()
        self._seen, self._owed = self.cycle, self._unread
        self._timer = self.loop.call_later(HEADERS, self._look)

    def _leave(self) -> None:
        """Close it, also if the client never reads what it asked for."""
        if self._unread:
            self.transport.abort()
        else:
            self.transport.close()
