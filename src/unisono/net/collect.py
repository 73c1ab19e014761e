"""From a bus into a journal: subscribe, append, flush, for as long as asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from unisono.core.events import Delivery
from unisono.errors import EnvironmentLacks
from unisono.journal.journal import Journal
from unisono.net.bus import Bus

AGAIN_S = 1.0  # between attempts to write
BATCH = 4096  # notifications that are written together, at most


async def collect(
    bus: Bus,
    journal: Journal,
    topics: Sequence[str],
    stop: asyncio.Event,
    where: str | None = None,
    subscribed: Callable[[], None] = lambda: None,
    trouble: Callable[[str], None] = lambda text: None,
) -> None:
    """Write all notifications of these topics until told to stop; then what has come so far.

    A flush takes as long as the disk does, and is tried again while that is full; meanwhile
    notifications wait in the bus, which reads no further when they are too many.
    """
    await bus.subscribe(*topics, where=where)
    subscribed()
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while bus.waiting or not stopping.done():
            if not bus.waiting:
                coming = asyncio.ensure_future(bus.notify())
                await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    continue
                journal.append([coming.result()])
            batch: list[Delivery] = []
            while bus.waiting and len(batch) < BATCH:
                batch.append(await bus.notify())
            journal.append(batch)
            await _flush(journal, stopping, trouble)
    finally:
        stopping.cancel()


async def _flush(
    journal: Journal, stopping: asyncio.Future[Any], trouble: Callable[[str], None]
) -> None:
    """Until it is written; or, once told to stop, once."""
    said = ""
    while True:
        try:
            await asyncio.to_thread(journal.flush)
            return
        except EnvironmentLacks as error:
            if stopping.done():
                raise
            if str(error) != said:
                said = str(error)
                trouble(said)
            await asyncio.wait((stopping,), timeout=AGAIN_S)
