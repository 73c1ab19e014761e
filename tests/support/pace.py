"""Publishing at a steady rate while processes are disturbed, and waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from unisono import Bus, Receipt

PATIENCE_S = 60
RATE = 200  # events a second


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - of other processes, so there is no event
            await asyncio.sleep(0.02)


async def publish(
    bus: Bus, topics: Sequence[str], seconds: float, enough: Callable[[], bool]
) -> list[Receipt]:
    """For so long, whatever happens to other processes; and until enough has happened to them."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    receipts: list[Receipt] = []
    async with asyncio.timeout(seconds + PATIENCE_S):
        while len(receipts) < seconds * RATE or not enough():
            await asyncio.sleep(max(0.0, start + len(receipts) / RATE - loop.time()))
            number = len(receipts)
            receipts.append(await bus.publish(topics[number % len(topics)], b"%d" % number))
    return receipts
