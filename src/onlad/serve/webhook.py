"""Alarms as POST requests to one address, in order, each until it is taken."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from typing import Any

import orjson

from onlad.serve import logs
from onlad.serve.listener import Listener, Message
from onlad.serve.service import Service
from onlad.serve.tables import WebhookTable
from onlad.streams.aside import aside

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: an alarm would become an empty GET, and its token go to another host."""

    def redirect_request(self, *_: Any) -> None:
        """Make no new request of a redirect."""


class Webhook(Listener):
    """A courier of alarms. A slow or dead receiver keeps alarms waiting, and nothing else."""

    courier = "webhook"

    def __init__(self, table: WebhookTable, service: Service) -> None:
        self.table, self.service, self.outbox = table, service, service.outbox
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._wake = asyncio.Event()
        service.listen(self)

    def alarmed(self, _: Message) -> None:
        """Wake the delivery."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver what waits."""
        pause, health = FIRST_PAUSE, self.service.health
        while True:
            await self._wake.wait()
            self._wake.clear()
            for message in self.outbox.pending("webhook"):
                why = await aside(self._post, message)
                if why:
                    health.webhook_failures += 1
                    health.trouble["webhook"] = f"the webhook does not take alarms: {why}"
                    logs.warning("the webhook did not take an alarm", why=why, again_in=pause)
                    self._wake.set()
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    break
                self.outbox.delivered("webhook", message["id"])
                health.trouble.pop("webhook", None)
                pause = FIRST_PAUSE

    def _post(self, message: Message) -> str:
        """Return why the receiver did not take an alarm, or nothing."""
        body, kind = orjson.dumps(message), "application/json"
        if self.table.format == "text":
            body, kind = message["text"].encode(), "text/plain; charset=utf-8"
        headers = {"Content-Type": kind, "User-Agent": "onlad"}
        if self.table.token is not None:
            headers["Authorization"] = f"Bearer {self.table.token}"
        try:
            request = urllib.request.Request(self.table.url, body, headers)
            with self._opener.open(request, timeout=self.table.timeout):
                return ""
        except urllib.error.HTTPError as error:
            error.close()  # it is an open answer, too
            if 300 <= error.code < 400:
                to = error.headers.get("Location", "nowhere")
                return f"it redirects to {to}, which is not followed. Set url to what takes alarms"
            return str(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
