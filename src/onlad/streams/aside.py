"""Calls that may block for long, in threads that the end of the process does not wait for.

asyncio waits at its end for the threads of `asyncio.to_thread`, and a host that takes a connection
and never answers would hold it up.
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

    def tell(put: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(lambda: None if answer.done() else put(what))

    def work() -> None:
        try:
            found = call(*arguments)
        except Exception as error:
            tell(answer.set_exception, error)
        else:
            tell(answer.set_result, found)

    threading.Thread(target=work, daemon=True).start()
    return await answer
