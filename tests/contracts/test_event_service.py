"""The contract of event services: one suite that every one must pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from support.servers import NatsServer, free_port

from unisono.core.events import EVERYONE, inbox
from unisono.ens.base import EventService
from unisono.ens.memory import MemoryService
from unisono.ens.nats import NatsService

_PATIENCE_S = 20
Make = Callable[[], EventService]


def mesh(clusters: bool) -> Make:
    """The first process listens, the others join it: as guests, or as nodes of other clusters."""
    from unisono.net.mesh import MeshService, Settings

    first = f"127.0.0.1:{free_port()}"
    made: list[MeshService] = []

    def make() -> EventService:
        settings = Settings(listen="127.0.0.1:0", seeds=(first,), cluster="", node=clusters)
        if clusters:
            settings = msgspec.structs.replace(settings, cluster=f"cluster{len(made)}")
        if not made:
            settings = Settings(listen=first, cluster="first", node=True)
        made.append(MeshService(settings, connect_s=_PATIENCE_S))
        return made[-1]

    return make


@pytest.fixture(params=["memory", "memory-delayed", "nats", "mesh-guests", "mesh-clusters"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "memory":
        return lambda: MemoryService("contract")
    if request.param == "memory-delayed":
        return lambda: MemoryService("contract", delay_ms=1, jitter_ms=2)
    if request.param.startswith("mesh"):
        return mesh(request.param == "mesh-clusters")
    server: NatsServer = request.getfixturevalue("nats_server")
    return lambda: NatsService(server.url)


class Client:
    """An open service that collects its frames."""

    def __init__(self, service: EventService) -> None:
        self.service = service
        self.frames: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()

    async def on_frame(self, topic: str, frame: bytes) -> None:
        await self.gate.wait()
        await self.frames.put((topic, frame))

    async def take(self, count: int) -> list[tuple[str, bytes]]:
        async with asyncio.timeout(_PATIENCE_S):
            return [await self.frames.get() for _ in range(count)]


@asynccontextmanager
async def clients(make: Make, count: int) -> AsyncIterator[list[Client]]:
    opened = [Client(make()) for _ in range(count)]
    for client in opened:
        await client.service.open(client.on_frame, lambda text: None, lambda: None)
    try:
        yield opened
    finally:
        for client in opened:
            await client.service.close()


def test_frames_reach_every_subscriber_once_also_the_publisher(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 3) as (a, b, c):
            await a.service.subscribe("t")
            await b.service.subscribe("t")
            await c.service.publish("t", b"1")
            await a.service.publish("t", b"2")
            assert sorted(await a.take(2)) == [("t", b"1"), ("t", b"2")]
            assert sorted(await b.take(2)) == [("t", b"1"), ("t", b"2")]
            assert c.frames.empty()

    asyncio.run(scene())


def test_a_subscription_is_effective_when_subscribe_returns(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 2) as (a, b):
            for number in range(20):
                topic = f"t{number}"
                await a.service.subscribe(topic)
                await b.service.publish(topic, b"x")
                assert await a.take(1) == [(topic, b"x")]

    asyncio.run(scene())


def test_frames_of_one_publisher_and_topic_keep_their_order(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 2) as (a, b):
            await a.service.subscribe("t")
            for number in range(500):
                await b.service.publish("t", str(number).encode())
            assert [int(frame) for _, frame in await a.take(500)] == list(range(500))

    asyncio.run(scene())


def test_unsubscribed_topics_are_silent(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 2) as (a, b):
            await a.service.subscribe("t")
            await a.service.subscribe("u")
            await a.service.unsubscribe("t")
            await a.service.flush()
            await b.service.publish("t", b"no")
            await b.service.publish("u", b"yes")
            assert await a.take(1) == [("u", b"yes")]

    asyncio.run(scene())


def test_inboxes_and_everyone(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 2) as (a, b):
            await a.service.subscribe(inbox("a"))
            await a.service.subscribe(EVERYONE)
            await b.service.subscribe(EVERYONE)
            await b.service.publish(inbox("a"), b"for a")
            assert await a.take(1) == [(inbox("a"), b"for a")]
            await b.service.publish(EVERYONE, b"all")
            assert await a.take(1) == await b.take(1) == [(EVERYONE, b"all")]

    asyncio.run(scene())


def test_frames_are_any_bytes(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 1) as (a,):
            await a.service.subscribe("t")
            frames = [b"", bytes(range(256)), b"\r\n" * 100, b"x" * 100_000]
            for frame in frames:
                await a.service.publish("t", frame)
            assert [frame for _, frame in await a.take(4)] == frames

    asyncio.run(scene())


def test_a_reader_that_waits_loses_nothing_and_stops_no_messages(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 2) as (a, b):
            await a.service.subscribe("t")
            await b.service.subscribe(inbox("b"))
            a.gate.clear()

            async def flood() -> None:
                for number in range(3000):
                    await b.service.publish("t", str(number).encode())

            flooding = asyncio.create_task(flood())
            await a.service.publish(inbox("b"), b"still here")
            assert await b.take(1) == [(inbox("b"), b"still here")]
            a.gate.set()
            assert [int(frame) for _, frame in await a.take(3000)] == list(range(3000))
            await flooding

    asyncio.run(scene())


def test_flush_and_close_end(make: Make) -> None:
    async def scene() -> None:
        async with clients(make, 1) as (a,):
            await a.service.publish("t", b"x")
            await a.service.flush()
        await a.service.close()  # a second time is harmless

    asyncio.run(scene())
