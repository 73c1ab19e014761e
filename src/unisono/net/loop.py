"""The event loop of our own processes: uvloop where it is installed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run."""
    try:
        import uvloop
    except ImportError:  # the default install is small
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def in_thread(work: Callable[[], T]) -> T:
    """As asyncio.to_thread, but the end of the process does not wait for it: for calls of the
    system that may last, and cannot be interrupted."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return  # nobody waits any more
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result, problem = None, None
        try:
            result = work()
        except Exception as error:
            problem = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=call, daemon=True).start()
    return await done
