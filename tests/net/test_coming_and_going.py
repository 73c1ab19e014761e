"""Processes that connect, close, cancel and change their minds at the same time."""

from __future__ import annotations

import asyncio

import pytest
from support.buses import take

import unisono
from unisono import Bus


async def payloads(bus: Bus, count: int) -> list[bytes]:
    return [event.payload for event in await take(bus, count)]


def test_processes_that_connect_at_once_form_one_bus(url: str) -> None:
    async def scene() -> None:
        buses = await asyncio.gather(*(unisono.connect(url).open() for _ in range(4)))
        await asyncio.gather(*(bus.subscribe("a", "b") for bus in buses))
        for number, bus in enumerate(buses):
            await bus.publish("ab"[number % 2], str(number).encode())
        heard = [await payloads(bus, 4) for bus in buses]
        assert all(one == heard[0] for one in heard)
        await asyncio.gather(*(bus.close() for bus in buses))
        assert [bus.troubles for bus in buses] == [[]] * 4

    asyncio.run(scene())


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_closing_at_once_is_prompt_and_untroubled(url: str, first_leaves_first: bool) -> None:
    async def scene() -> None:
        host = await unisono.connect(url).open()
        member = await unisono.connect(url).open()
        client = await unisono.connect(url, manage=False).open()
        leaving = [host, member, client]
        if not first_leaves_first:
            leaving.reverse()
        await asyncio.gather(*(bus.close() for bus in leaving))
        assert [bus.troubles for bus in leaving] == [[]] * 3

    asyncio.run(scene())


def test_an_open_that_is_cancelled_leaves_no_ghost(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as bus:
            for ticks in (1, 3, 10, 30):
                opening = asyncio.create_task(unisono.connect(url).open())
                for _ in range(ticks):
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
            topics = [f"t{number}" for number in range(8)]
            await bus.subscribe(*topics)
            for topic in topics:
                await bus.publish(topic, topic.encode())
            assert sorted(await payloads(bus, 8)) == [topic.encode() for topic in topics]

    asyncio.run(scene())


def test_subscriptions_asked_for_at_once_are_carried_out_in_order(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as bus:
            await bus.subscribe("t")
            await asyncio.gather(
                bus.subscribe("x"),
                bus.unsubscribe("t"),
                bus.subscribe("t"),
                bus.subscribe("x", "y"),
            )
            for topic in ("t", "x", "y"):
                await bus.publish(topic, topic.encode())
            assert sorted(await payloads(bus, 3)) == [b"t", b"x", b"y"]
            await bus.unsubscribe("x", "x")
            with pytest.raises(unisono.BadInput, match="not subscribed"):
                await bus.unsubscribe("x")

    asyncio.run(scene())


def test_a_plain_topic_beside_an_ordered_one_is_effective_too(url: str) -> None:
    async def scene() -> None:
        chosen = {"plain*": "none", "*": "total"}
        async with unisono.connect(url, order=chosen) as bus:
            await bus.subscribe("t")
            for number in range(10):
                await bus.subscribe("t", f"plain{number}")
                await bus.publish(f"plain{number}", b"%d" % number)
                assert await payloads(bus, 1) == [b"%d" % number]

    asyncio.run(scene())


def test_an_error_in_the_body_still_hands_over(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as stays:
            await stays.subscribe("t")

            async def fails() -> None:
                async with unisono.connect(url) as leaves:
                    await leaves.publish("t", b"1")
                    raise RuntimeError("mine")

            with pytest.raises(RuntimeError, match="mine"):
                await fails()
            await stays.publish("t", b"2")
            assert await payloads(stays, 2) == [b"1", b"2"]

    asyncio.run(scene())


def test_a_reader_that_sleeps_stops_no_manager(url: str) -> None:
    """A process that does not read its own notifications still serves the topics it manages."""
    limits = unisono.Limits(outstanding=16, notifications=4)

    async def scene() -> None:
        sleeper = await unisono.connect(url, limits=limits).open()
        async with unisono.connect(url, limits=limits) as awake:
            await sleeper.subscribe("busy")
            topics = [f"t{number}" for number in range(6)]
            await awake.subscribe(*topics)
            for number in range(12):
                await sleeper.publish("busy", b"%d" % number)
            for topic in topics:
                await (await awake.publish(topic, topic.encode()))
            assert len(await payloads(awake, 6)) == 6
            assert len(await payloads(sleeper, 12)) == 12
            await sleeper.close()

    asyncio.run(scene())


def test_a_process_with_other_stamps_is_turned_away(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as bus:
            with pytest.raises(unisono.BusClosed, match="uses exact stamps, not paper"):
                await unisono.connect(url, stamps="paper").open()
            await bus.subscribe("t")
            await bus.publish("t", b"1")
            assert await payloads(bus, 1) == [b"1"]

    asyncio.run(scene())
