"""Reading a bus in tests, with a bound on how long that may take."""

from __future__ import annotations

import asyncio

import unisono
from unisono import Bus

PATIENCE_S = 30


async def take(bus: Bus, count: int) -> list[unisono.Delivery]:
    """The next notifications."""
    async with asyncio.timeout(PATIENCE_S):
        return [await bus.notify() for _ in range(count)]
