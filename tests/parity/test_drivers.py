"""Simulator = asyncio: the same script gives the same notifications on both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import unisono
from unisono.core.events import Delivery
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.membership import Membership
from unisono.qos.total_order.layer import TotalOrder
from unisono.sim.channels import Wan
from unisono.sim.world import World
from unisono.trace.memory import MemoryRecorder

# One step after the other, each complete before the next: (who, what, topics or topic).
SCRIPT = [
    ("x", "join", ()),
    ("y", "join", ()),
    ("x", "subscribe", ("a", "b")),
    ("y", "subscribe", ("b",)),
    ("x", "publish", "a"),
    ("y", "publish", "b"),
    ("x", "publish", "b"),
    ("y", "subscribe", ("a", "c")),
    ("z", "join", ()),
    ("z", "publish", "c"),
    ("x", "publish", "a"),
    ("z", "publish", "a"),
    ("x", "unsubscribe", ("a",)),
    ("y", "publish", "a"),
    ("z", "subscribe", ("a", "b", "c")),
    ("y", "publish", "b"),
    ("z", "publish", "c"),
    ("x", "subscribe", ("a",)),
    ("z", "publish", "a"),
    ("y", "publish", "c"),
]
Heard = dict[str, list[tuple[str, bytes, str]]]


def heard_of(delivery: Delivery) -> tuple[str, bytes, str]:
    return (delivery.topic, delivery.payload, delivery.status.value)


class Listener:
    def __init__(self) -> None:
        self.heard: Heard = {name: [] for name in "xyz"}

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.heard[node].append(heard_of(delivery))


def simulated() -> Heard:
    listener = Listener()
    world = World("xyz", Wan(), 1, MemoryRecorder(), listener)
    for number, (who, what, topics) in enumerate(SCRIPT):
        if what == "join":
            members = Membership(who, Limits(), discovery_us=5_000_000)
            world.add(Node(who, [TotalOrder(who, members)]))
        elif what == "publish":
            assert isinstance(topics, str)
            world.publish(who, topics, str(number).encode())
        else:
            getattr(world, what)(who, topics, f"op{number}")
        world.run()
    assert not world.pending and not world.errors
    return listener.heard


def awaited() -> Heard:
    listener = Listener()

    async def scene() -> None:
        buses: dict[str, unisono.Bus] = {}
        readers = []

        async def read(who: str) -> None:
            async for delivery in buses[who]:
                listener.heard[who].append(heard_of(delivery))

        subscribed: dict[str, set[str]] = {name: set() for name in "xyz"}
        expected = dict.fromkeys("xyz", 0)
        for number, (who, what, topics) in enumerate(SCRIPT):
            if what == "join":
                buses[who] = await unisono.connect("memory://parity", name=who).open()
                readers.append(asyncio.create_task(read(who)))
            elif what == "publish":
                assert isinstance(topics, str)
                await (await buses[who].publish(topics, str(number).encode()))
                for name in "xyz":
                    expected[name] += topics in subscribed[name]
                await until(lambda: {n: len(h) for n, h in listener.heard.items()} == expected)
            else:
                await getattr(buses[who], what)(*topics)
                if what == "subscribe":
                    subscribed[who] |= set(topics)
                else:
                    subscribed[who] -= set(topics)
        for bus in buses.values():
            await bus.close()
        await asyncio.gather(*readers)

    asyncio.run(scene())
    return listener.heard


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the readers are tasks of this loop
            await asyncio.sleep(0)


def test_the_same_script_gives_the_same_notifications() -> None:
    assert simulated() == awaited()
