"""HTTP: samples in, verdicts by WebSocket out, metrics, health, and the page.

`create_app` makes the FastAPI application; `Http` runs it on the service's event loop. The page is
attached to the same application, behind the same `Guard`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket
from starlette.requests import ClientDisconnect

from onlad.errors import OnladError
from onlad.report.incidents import described
from onlad.serve import logs, replay
from onlad.serve.across import peers, shared
from onlad.serve.checkpoint import StateError
from onlad.serve.connection import Connection
from onlad.serve.guard import LONGEST_USER, Guard, user
from onlad.serve.intake import Answer, Item, messages
from onlad.serve.live import Live
from onlad.serve.metrics import Metrics
from onlad.serve.orders import DiskError, UnknownError
from onlad.serve.service import Service
from onlad.serve.tables import HttpTable
from onlad.serve.watcher import Watcher

if TYPE_CHECKING:
    from onlad.serve.mqtt import Mqtt

BUFFER = 2**17  # bytes that the system keeps for a client that does not read
_UVICORN = logging.getLogger("uvicorn.error")
BACKLOG = 2048  # connections that the system keeps until they are taken
ANSWER = 30.0  # seconds that a request waits for its verdicts


def create_app(service: Service) -> FastAPI:
    """Return the application without its guard and its metrics."""
    app = FastAPI(title="onlad", docs_url=None, redoc_url=None, openapi_url=None)
    live = app.state.live = Live(service)

    @app.post("/streams/{name}/samples")
    async def samples(name: str, request: Request, device: str = "") -> Response:
        stream = service.streams.get(name)
        if stream is None:
            return _refusal(404, f"there is no stream {name!r:.80}")
        body = await request.body()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        item = Item(stream, device, body, time.perf_counter())
        item.reply = lambda answer: None if future.done() else future.set_result(answer)
        if not service.submit(item):
            return _refusal(503, "too many samples wait", {"Retry-After": "1"})
        try:
            answer = await asyncio.wait_for(future, ANSWER)
        except asyncio.TimeoutError:
            return _refusal(503, "the verdict takes too long", {"Retry-After": "10"})
        if answer.refused:
            return _refusal(503, answer.refused, {"Retry-After": "10"})
        return _json(await _verdicts(answer), 200 if answer.rows else 422)

    @app.get("/streams")
    async def streams() -> Response:
        return _json([_described(watcher) for watcher in service.watchers.values()])

    _add_views(app, service)
    _add_person(app, service)

    @app.websocket("/live")
    async def listen(websocket: WebSocket) -> None:
        await live.serve(websocket)

    @app.get("/metrics")
    async def metrics() -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(app.state.metrics.text(), media_type=kind)

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("alive\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        problems = service.health.problems()
        return Response("".join(f"{p}\n" for p in problems) or "ready\n", 503 if problems else 200)

    return app


def _add_views(app: FastAPI, service: Service) -> None:
    """Add what a person may look at, besides the state of devices."""
    found, store = service.orders.found, service.store

    @app.get("/incidents")
    async def incidents(days: float = replay.DAYS) -> Response:
        recent = shared(service.watchers.values(), time.time() - 86_400 * days)
        return _json([each.message() for each in recent])

    @app.get("/budget")
    async def budget() -> Response:
        return _json(service.outbox.budget())

    @app.get("/streams/{name}/snapshots")
    async def snapshots(name: str, device: str = "") -> Response:
        return _json(store.snapshots(found(name, device).number))

    @app.get("/streams/{name}/backtest")
    async def backtest(
        name: str, device: str = "", false_alarms: float | None = None, days: float = replay.DAYS
    ) -> Response:
        tried = await service.orders.tried(found(name, device), false_alarms, days)
        told = [described(incident) for incident in tried.incidents]
        return _json({"since": tried.since, "incidents": told})

    @app.get("/streams/{name}/peers")
    async def beside(name: str) -> Response:
        return _json([peer._asdict() for peer in peers(service.devices.of(name))])

    @app.get("/streams/{name}/maintenance")
    async def windows(name: str, device: str = "") -> Response:
        return _json(found(name, device).windows)

    @app.get("/streams/{name}/model")
    async def model(name: str, device: str = "") -> Response:
        content = await service.orders.model_bytes(found(name, device))
        headers = {"Content-Disposition": f'attachment; filename="{name}.onlad"'}
        return Response(content, media_type="application/octet-stream", headers=headers)


def _add_person(app: FastAPI, service: Service) -> None:
    """Add what a person may do to a device."""
    orders = service.orders

    # After one of these errors nothing has changed.
    def refused(status: int) -> Callable[[Request, Exception], Response]:
        retry = {"Retry-After": "10"} if status == 503 else None
        return lambda _, error: _refusal(status, str(error), retry)

    # The guard cut it off, or the client is gone.
    too_large = _refusal(413, "the body is too large, or did not come in time")
    app.add_exception_handler(ClientDisconnect, lambda *_: too_large)
    kinds = ((UnknownError, 404), (StateError, 409), (_BodyError, 422), (DiskError, 503))
    for kind, status in kinds:
        app.add_exception_handler(kind, refused(status))

    def add(method: str, what: str, do: Callable[[Watcher, Any, str], Awaitable[Any]]) -> None:
        """Add an order: `do` gets the device, the body and the user, and returns the answer."""

        async def handle(name: str, request: Request, device: str = "") -> Response:
            watcher, body, said = orders.found(name, device), await request.body(), None
            with contextlib.suppress(ValueError):
                said = orjson.loads(body)
            return _json(await do(watcher, said, user(request.headers)))

        app.add_api_route(f"/streams/{{name}}/{what}", handle, methods=[method])

    async def learning(watcher: Watcher, wanted: Any, by: str) -> Any:
        _need(isinstance(wanted, bool), "true (learn) or false (pause)")
        await orders.pause(watcher, not wanted, by)
        return _described(watcher)

    async def normal(watcher: Watcher, alarm: Any, by: str) -> Any:
        _need(isinstance(alarm, str), "the id of an alarm, as a JSON text")
        return {"learned": await orders.label(watcher, alarm, "normal", by=by)}

    async def label(watcher: Watcher, said: Any, by: str) -> Any:
        rule = '{"alarm": ID, "label": TEXT, "comment": TEXT}'
        _need(isinstance(said, dict), rule)
        alarm, label, comment, who = (said.get(k, "") for k in ("alarm", "label", "comment", "by"))
        _need(all(isinstance(text, str) for text in (alarm, label, comment, who)), rule)
        by = who[:LONGEST_USER] or by
        samples = await orders.label(watcher, alarm, label, comment, by)
        return {"taken_back" if label == "fault" else "learned": samples}

    async def snapshot(watcher: Watcher, _: Any, by: str) -> Any:
        return {"file": await orders.snapshot(watcher, by)}

    async def revert(watcher: Watcher, said: Any, by: str) -> Any:
        said = {"file": said} if isinstance(said, str) else said
        known = isinstance(said, dict) and isinstance(said.get("file"), str)
        _need(known, 'the name of a snapshot, or {"file": NAME}')
        by, again = str(said.get("by") or "")[:LONGEST_USER] or by, said.get("replay") is True
        await orders.revert(watcher, said["file"], by, again=again)
        return _described(watcher)

    async def maintain(watcher: Watcher, said: Any, by: str) -> Any:
        known = isinstance(said, list) and all(isinstance(text, str) for text in said)
        _need(known, "a list of times, each a JSON text")
        await orders.maintain(watcher, tuple(said), by)
        return watcher.windows

    add("POST", "learning", learning)
    add("POST", "normal", normal)
    add("POST", "label", label)
    add("POST", "snapshots", snapshot)
    add("POST", "revert", revert)
    add("PUT", "maintenance", maintain)

    @app.delete("/streams/{name}/devices/{device:path}")
    async def forget(name: str, device: str, request: Request) -> Response:
        by = user(request.headers)
        return _json({"undo": await orders.forget(orders.found(name, device), by)})

    @app.post("/forgotten/{file}")
    async def undo(file: str, request: Request) -> Response:
        return _json(_described(await orders.restore(file, user(request.headers))))


class _BodyError(OnladError):
    """A body is not what it must be."""


def _need(right: bool, rule: str) -> None:
    if not right:
        raise _BodyError(f"the body must be {rule}")


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the service."""
        yield


class Http:
    """The server of one service."""

    def __init__(self, service: Service, table: HttpTable, mqtt: Mqtt | None) -> None:
        self._socket = _bound(table.host, table.port)
        self.port: int = self._socket.getsockname()[1]
        app = create_app(service)
        self._live: Live = app.state.live
        guard = Guard(app, table, service.starting)
        app.state.metrics = Metrics(service, mqtt, guard)
        if table.page:
            import_module("onlad.serve.page").attach(app, service)  # NiceGUI takes a second
        self._server = _Server(
            uvicorn.Config(
                guard,
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=table.clients,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=2,
                ws_max_size=table.body,
                ws_max_queue=4,
                ws_per_message_deflate=False,  # verdicts are small, and the processor is too
            )
        )

    async def run(self) -> None:
        """Serve until `stop`."""
        logs.info("listening", port=self.port)
        try:
            await self._server.serve([self._socket])
            if not self._server.should_exit or not self._server.started:
                raise OnladError("[http] the server ended by itself; the log says why")
        finally:
            _UVICORN.setLevel(logging.WARNING)

    def stop(self) -> None:
        """Let the running requests end, and no more come."""
        self._live.stop()
        _UVICORN.setLevel(logging.CRITICAL)  # it calls each client that does not go an error
        self._server.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # connections inherit it
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OnladError(f"[http] cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


async def _verdicts(answer: Answer) -> dict[str, Any]:
    said, part = list[dict[str, Any]](), answer.part
    if part is not None and part.verdicts is not None:
        which = range(answer.start, answer.start + answer.rows)
        for each in messages(part.watcher, part.verdicts, which, part.first, part.times):
            said.append(each)
            if len(said) % 100 == 0:
                await asyncio.sleep(0)
    bad = [{"index": index, "why": why} for index, why in answer.bad]
    return {"accepted": answer.rows, "bad": bad, "verdicts": said}


def _described(watcher: Watcher) -> dict[str, Any]:
    alarms = [alarm.message() | {"marked": alarm.marked} for alarm in watcher.alarms]
    more = {"skipped": watcher.bad, "kept": watcher.kept, "alarms": alarms}
    return watcher.where | watcher.status() | more


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def _refusal(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": why}, status, headers)
