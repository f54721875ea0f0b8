"""Access control of the HTTP side: who may send what, how often, and how much.

It stands before everything, the page and its WebSockets too. Without a token the service listens
on loopback only, and a request must have been meant for it: a page of another site, open in
a browser on this machine, must not reach it by a trick of names.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onlad.serve.tables import LOOPBACK, HttpTable

OPEN = ("/healthz", "/readyz")  # they say one word, and those who ask have no token
DURING_START = (*OPEN, "/metrics")  # they answer while the service replays its journal
COOKIE = "onlad"
PATIENCE = 20.0  # seconds for a whole request to arrive
MOST_ADDRESSES = 10_000
LONGEST_USER = 100  # letters


class Guard:
    """Passes requests on to `app`, or refuses them with a reason."""

    def __init__(self, app: ASGIApp, table: HttpTable, starting: Callable[[], str] = str) -> None:
        self.app, self.table, self._starting = app, table, starting
        self.refused: Counter[int] = Counter()  # by status
        self._sockets: Counter[str] = Counter()  # WebSockets by address
        self._buckets: dict[str, tuple[float, float]] = {}  # address -> (left, when)
        token = table.token or ""
        # A browser keeps no token, and not every one sends a password with a WebSocket.
        self._cookie = hmac.new(token.encode(), b"onlad session", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Be an ASGI application."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        status, why = self._judge(scope, headers)
        if status:
            await self._refuse(scope, send, status, why)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            send = self._with_headers(scope, headers, send)
            await self.app(scope, self._counted(receive), send)

    def _judge(self, scope: Scope, headers: Headers) -> tuple[int, str]:
        """Return a status and why, or 0."""
        length = headers.get("content-length", "0")
        if scope["path"] != "/healthz" and not self._in_time(_address(scope)):
            return 429, "too many requests"
        if why := self._strange(headers):
            return 403, why
        if scope["path"] not in OPEN and not self._knows(headers):
            return 401, "a token is needed: Authorization: Bearer ..., or as a password"
        if scope["path"] not in DURING_START and (why := self._starting()):
            return 503, why
        if not length.isdecimal() or int(length[:20]) > self.table.body:
            return 413, f"a request has at most {self.table.body} bytes"
        return 0, ""

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket in, if there are not too many; half of them may come from one address."""
        address, most = _address(scope), self.table.clients
        if self._sockets.total() >= most or self._sockets[address] >= max(1, most // 2):
            await self._refuse(scope, send, 503, "there are too many WebSockets")
            return
        self._sockets[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._sockets[address] -= 1
            self._sockets += Counter()  # without those that have none

    def _strange(self, headers: Headers) -> str:
        """Return why a request was not meant for this service, or nothing."""
        try:
            host = urlsplit(f"//{headers.get('host', '')}")
            name, origin = host.hostname, headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != host.netloc:
                return "a page of another site may not do this"
        except ValueError:
            return "the Host header names no host"
        if self.table.token is None and name not in LOOPBACK:
            return f"this service is called {' or '.join(LOOPBACK)}"
        return ""

    def _knows(self, headers: Headers) -> bool:
        """Whether a request has the token: as bearer, as password of any user, as cookie."""
        if self.table.token is None:
            return True
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            value = _basic(headers)[1]
        if hmac.compare_digest(value.encode(), self.table.token.encode()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return hmac.compare_digest(cookie.encode(), self._cookie.encode())

    def _in_time(self, address: str) -> bool:
        """Take from the address's bucket; it holds two seconds of requests."""
        now, rate = time.monotonic(), self.table.rate
        left, when = self._buckets.pop(address, (2 * rate, now))
        left = min(2 * rate, left + (now - when) * rate)
        if len(self._buckets) >= MOST_ADDRESSES:
            self._buckets.pop(next(iter(self._buckets)))
        self._buckets[address] = (max(0.0, left - 1), now)  # the latest last
        return left >= 1

    def _counted(self, receive: Receive) -> Receive:
        """Return `receive` with a limit on bytes and time."""
        left, deadline = self.table.body, time.monotonic() + PATIENCE
        arrived = False

        async def counted() -> Message:
            nonlocal left, arrived
            # After the body only a disconnect is waited for, and that may take as long as it likes.
            timeout = None if arrived else max(0.0, deadline - time.monotonic())
            try:
                message = await asyncio.wait_for(receive(), timeout)
            except asyncio.TimeoutError:
                return {"type": "http.disconnect"}
            left -= len(message.get("body", b""))
            arrived = not message.get("more_body", False)
            return message if left >= 0 else {"type": "http.disconnect"}

        return counted

    def _with_headers(self, scope: Scope, headers: Headers, send: Send) -> Send:
        """Return `send` with what a browser must know: the cookie, and that nobody may frame us."""
        more = [(b"content-security-policy", b"frame-ancestors 'none'")]
        if self.table.token and "authorization" in headers and scope["path"] not in OPEN:
            cookie = f"{COOKIE}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"
            more.append((b"set-cookie", cookie.encode()))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return sending

    async def _refuse(self, scope: Scope, send: Send, status: int, why: str) -> None:
        self.refused[status] += 1
        if scope["type"] == "websocket":
            code = 1013 if status == 503 else 1008  # try again later, or do not
            await send({"type": "websocket.close", "code": code, "reason": why})
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="onlad"'))
        if status == 429:
            headers.append((b"retry-after", str(math.ceil(1 / self.table.rate)).encode()))
        if status == 503:  # programs and browsers come back
            headers += [(b"retry-after", b"5"), (b"refresh", b"5")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": f"{why}\n".encode()})


def user(headers: Mapping[str, str]) -> str:
    """Return the name that a person gave with the password, or nothing."""
    return _basic(headers)[0][:LONGEST_USER]


def _basic(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return user and password of a request, both empty if it has none."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    try:
        said = base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return "", ""
    name, _, password = said.partition(":")
    return (name, password) if kind.lower() == "basic" else ("", "")


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])
