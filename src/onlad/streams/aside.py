"""Blocking calls in daemon threads, for which the process does not wait at its end.

asyncio waits at its end for the threads of `asyncio.to_thread`. A host that accepts a connection
and never answers would then block the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(call: Callable[..., T], *arguments: Any) -> T:
    """Return what a call returns, or raise what it raises, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def answered(put: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(lambda: None if answer.done() else put(what))

    def work() -> None:
        try:
            found = call(*arguments)
        except Exception as error:
            answered(answer.set_exception, error)
        else:
            answered(answer.set_result, found)

    threading.Thread(target=work, daemon=True).start()
    return await answer
