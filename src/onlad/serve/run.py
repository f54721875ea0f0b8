"""From a configuration to a service that runs until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any

from onlad.serve import logs
from onlad.serve.config import Config
from onlad.serve.service import Service


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT; then checkpoint and leave."""
    logs.setup(config.service.log, config.service.level)
    asyncio.run(_serve(config))


async def _serve(config: Config) -> None:
    service = Service(config)
    jobs: list[Coroutine[Any, Any, None]] = [
        service.pump(),
        service.keep_synced(),
        service.keep_checkpoints(),
    ]
    mqtt = None
    # What is not asked for is not imported: on a small machine a second of start is a second.
    if config.mqtt is not None:
        from onlad.serve.mqtt import Mqtt  # noqa: PLC0415

        mqtt = Mqtt(service, config.mqtt)
        jobs.append(mqtt.run())
    if config.webhook is not None:
        from onlad.serve.webhook import Webhook  # noqa: PLC0415

        jobs.append(Webhook(config.webhook, service.outbox).run())
    if config.http is not None:
        from onlad.serve.http import serve_http  # noqa: PLC0415

        jobs.append(serve_http(service, config.http, mqtt))
    service.outbox.begin()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks = [asyncio.ensure_future(job) for job in jobs]
    last = asyncio.ensure_future(stop.wait())
    logs.info("started", streams=len(service.streams), watchers=len(service.watchers))
    try:
        await asyncio.wait([*tasks, last], return_when=asyncio.FIRST_COMPLETED)
        await service.drain()
        if mqtt is not None:
            await mqtt.stop()
    finally:
        last.cancel()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await service.checkpoint()
        service.close()
    for outcome in ended:
        if isinstance(outcome, Exception):
            raise outcome
    with contextlib.suppress(asyncio.CancelledError):
        await last
    logs.info("stopped")
