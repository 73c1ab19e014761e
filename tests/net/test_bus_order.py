"""Total order by the bus: the embedded one hands every frame to all its readers in one step."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from support.buses import take
from support.servers import NatsServer

import unisono
from unisono import Bus, Limits, Total, Unsupported

_EVENTS = 2000
_TOPICS = "vwxyz"


def test_readers_of_the_same_topics_hear_one_order_also_when_one_is_slow() -> None:
    """Publishers wait for room at one reader or the other, in the middle of what they publish."""

    async def publish(bus: Bus, topics: str) -> None:
        for number in range(_EVENTS):
            await bus.publish(topics[number % len(topics)], b"%d" % number)

    async def read(bus: Bus, pause: int) -> list[str]:
        heard = []
        for number in range(len(_TOPICS) * _EVENTS):
            heard.append((await bus.notify()).id)
            if number % pause == 0:
                await asyncio.sleep(0)
        return heard

    async def scene() -> None:
        url = "memory://in-one-step?delay_ms=0.1&jitter_ms=0.2"
        total, small = Total(by="bus"), Limits(notifications=3)
        async with AsyncExitStack() as stack:
            opened = [unisono.connect(url, order=total, limits=small) for _ in range(8)]
            buses = [await stack.enter_async_context(connection) for connection in opened]
            readers, publishers = buses[:3], buses[3:]
            for reader in readers:
                await reader.subscribe(*_TOPICS)
            every = [_TOPICS[n:] + _TOPICS[:n] for n in range(len(_TOPICS))]
            pairs = zip(publishers, every, strict=True)
            async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                for bus, topics in pairs:
                    tasks.create_task(publish(bus, topics))
                pauses = zip(readers, (50, 7, 1), strict=True)
                reading = [tasks.create_task(read(*pair)) for pair in pauses]
            heard = [task.result() for task in reading]
            assert heard[0] == heard[1] == heard[2]
            for publisher in publishers:  # and each publisher's own order
                mine = [int(e.rpartition("-")[2]) for e in heard[0] if e.startswith(publisher.id)]
                assert mine == list(range(1, _EVENTS + 1))

    asyncio.run(scene())


def test_it_needs_no_other_process() -> None:
    async def scene() -> None:
        async with unisono.connect("memory://alone-in-order", order=Total(by="bus")) as bus:
            await bus.subscribe("a")
            await (await bus.publish("a", b"1"))
            (event,) = await take(bus, 1)
            assert event.in_order and bus.overview.logs == {} and not bus.overview.members

    asyncio.run(scene())


def test_where_the_bus_has_no_order_it_is_refused(nats_server: NatsServer) -> None:
    total = Total(by="bus")
    with pytest.raises(Unsupported, match="in one order"):
        unisono.connect(nats_server.url, order=total)
    with pytest.raises(Unsupported, match="recovered"):
        unisono.connect("memory://x", order=total, delivery="reliable")
    for option in ({"disk": "d"}, {"manage": False}, {"found": False}, {"hold_s": 1.0}):
        with pytest.raises(Unsupported, match=f"{next(iter(option))} means nothing"):
            unisono.connect("memory://x", order={"*": total}, **option)
