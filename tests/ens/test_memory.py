"""The embedded bus, beyond the contract of all event services."""

from __future__ import annotations

import asyncio

from unisono.ens.memory import MemoryService


def test_a_reader_that_goes_frees_who_waits_for_it() -> None:
    async def scene() -> None:
        async def take(topic: str, frame: bytes) -> None:
            pass

        def ignore(*what: object) -> None:
            pass

        one, two = (MemoryService("full", delay_ms=60_000) for _ in range(2))
        for service in (one, two):
            await service.open(take, ignore, ignore)
        await two.subscribe("t")

        async def publish() -> None:
            for _ in range(2000):
                await one.publish("t", b"")

        publishing = asyncio.create_task(publish())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not publishing.done()  # the lane of the reader is full
        await two.close()
        async with asyncio.timeout(30):
            await publishing
        await one.close()

    asyncio.run(scene())
