"""Verdicts to WebSockets, each with a queue of its own that drops what a slow client misses."""

from __future__ import annotations

import asyncio
from collections import deque

import orjson
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket

from onlad.reference import Array
from onlad.serve.intake import messages
from onlad.serve.listener import Listener
from onlad.serve.service import Service
from onlad.serve.watcher import Watcher
from onlad.verdict import Verdicts

WAITING = 1000  # verdicts for one client


class _Client:
    def __init__(self, asked: QueryParams) -> None:
        self.stream, self.device = asked.get("stream"), asked.get("device")
        self.anomalies = asked.get("only") == "anomalies"
        self.queue: deque[bytes] = deque(maxlen=WAITING)
        self.wake = asyncio.Event()

    def wants(self, watcher: Watcher) -> bool:
        return self.stream in (None, watcher.stream.name) and self.device in (None, watcher.device)


class Live(Listener):
    """The clients that listen now."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.clients: set[_Client] = set()
        self._ending = asyncio.Event()
        service.listen(self)

    def judged(self, watcher: Watcher, first: int, times: Array, verdicts: Verdicts) -> None:
        """Queue verdicts for the clients that want them."""
        wanting = [client for client in self.clients if client.wants(watcher)]
        if not wanting:
            return
        every = any(not client.anomalies for client in wanting)
        which = range(len(verdicts)) if every else verdicts.is_anomaly.nonzero()[0].tolist()
        for said in messages(watcher, verdicts, which, first, times.tolist()):
            text = orjson.dumps(said)
            for client in wanting:
                if said["is_anomaly"] or not client.anomalies:
                    if len(client.queue) == WAITING:
                        self.service.health.dropped["websocket"] += 1
                    client.queue.append(text)
                    client.wake.set()

    async def serve(self, socket: WebSocket) -> None:
        """Send one client what it asked for, until it goes."""
        client = _Client(socket.query_params)
        await socket.accept()
        self.clients.add(client)
        waits = (self._until_gone(socket), self._send(socket, client), self._ending.wait())
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # It may have gone while something was sent, which is no error of ours.
            await asyncio.gather(*tasks, return_exceptions=True)
            self.clients.discard(client)

    def stop(self) -> None:
        """Close all clients, also those that do not read."""
        self._ending.set()

    @staticmethod
    async def _send(socket: WebSocket, client: _Client) -> None:
        while True:
            await client.wake.wait()
            client.wake.clear()
            while client.queue:
                await socket.send_text(client.queue.popleft().decode())

    @staticmethod
    async def _until_gone(socket: WebSocket) -> None:
        """Read what a client says, and ignore it, until it goes."""
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass
