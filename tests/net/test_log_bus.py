"""Total order by a log on real buses: one order, leaders that go, disks, logs begun at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.buses import PATIENCE_S, take
from support.servers import NatsServer

import unisono
from unisono import BadInput, Bus, Status, Total, Unsupported

_PERIOD_S = 0.1


def by_log(url: str, name: str, **options: Any) -> unisono.Connection:
    options.setdefault("order", Total(by="log"))
    return unisono.connect(
        url, name=name, period_s=_PERIOD_S, patience_s=float(PATIENCE_S), **options
    )


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not met():  # noqa: ASYNC110 - what others do tells nobody
            await asyncio.sleep(0.02)


async def settled(*buses: Bus, voters: int = 3, domain: str = "main") -> None:
    """All follow one leader, and so many of them vote."""
    here = {bus.id for bus in buses}

    def met() -> bool:
        seen = {bus.overview.logs[domain] for bus in buses}
        about = {(log.log, log.leader, log.voters) for log in seen}
        if len(about) != 1:
            return False
        ((_, leader, those),) = about
        return leader in here and len(those) == voters and here.issuperset(those)

    await until(met)


def leader_of(*buses: Bus) -> Bus:
    leader = buses[0].overview.logs["main"].leader
    return next(bus for bus in buses if bus.id == leader)


async def crash(bus: Bus) -> None:
    """As if the process were killed: nobody hears a word."""
    await bus._runtime.stop()


def scene(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 2 * PATIENCE_S))


def test_subscribers_of_two_topics_hear_one_order(url: str) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            buses = [await stack.enter_async_context(by_log(url, name)) for name in "abc"]
            for bus in buses:
                await bus.subscribe("x", "y")

            async def publish(bus: Bus, topic: str) -> None:
                for number in range(200):
                    await bus.publish(topic, b"%d" % number)

            await asyncio.gather(publish(buses[0], "x"), publish(buses[1], "y"))
            heard = [[event.id for event in await take(bus, 400)] for bus in buses]
            assert heard[0] == heard[1] == heard[2]
            for topic in (0, 1):
                mine = [event for event in heard[0] if event.startswith(buses[topic].id)]
                numbers = [int(event.rpartition("-")[2]) for event in mine]
                assert numbers == sorted(numbers)

    scene(story)


def test_an_event_that_answers_another_comes_after_it(nats_server: NatsServer) -> None:
    """Across topics: c hears the answer never before the question."""

    async def story() -> None:
        url = nats_server.url
        async with by_log(url, "a") as a, by_log(url, "b") as b, by_log(url, "c") as c:
            await b.subscribe("question")
            await c.subscribe("answer", "question")
            for number in range(50):
                await a.publish("question", b"%d" % number)
                (asked,) = await take(b, 1)
                await b.publish("answer", asked.payload)
            heard = [(event.topic, event.payload) for event in await take(c, 100)]
            for number in range(50):
                text = b"%d" % number
                assert heard.index(("question", text)) < heard.index(("answer", text))

    scene(story)


def test_a_leader_that_closes_hands_over_and_nothing_is_lost(nats_server: NatsServer) -> None:
    async def story() -> None:
        url = nats_server.url
        buses = [await by_log(url, name).open() for name in "abc"]
        reader = await by_log(url, "reader", manage=False).open()
        writer = await by_log(url, "writer", manage=False).open()
        await settled(*buses, reader, writer)
        await reader.subscribe("x")
        receipts = []
        for number in range(300):
            receipts.append(await writer.publish("x", b"%d" % number))
            if number in (100, 200):
                leaving = leader_of(writer, *buses)
                buses.remove(leaving)
                await leaving.close()
        for receipt in receipts:
            await receipt
        heard = await take(reader, 300)
        assert [event.payload for event in heard] == [b"%d" % n for n in range(300)]
        assert {event.status for event in heard} == {Status.IN_ORDER}
        for bus in (writer, reader, *buses):
            await bus.close()

    scene(story)


def test_a_leader_that_crashes_is_replaced(nats_server: NatsServer) -> None:
    """And its seat is taken by a spare: three of four, one after the other, may crash."""

    async def story() -> None:
        url = nats_server.url
        buses = [await by_log(url, name).open() for name in "abcd"]
        reader = await by_log(url, "reader", manage=False).open()
        writer = await by_log(url, "writer", manage=False).open()
        await settled(*buses, reader, writer)
        await reader.subscribe("x", "y")
        sent = 0
        for turn in range(2):
            receipts = [await writer.publish("xy"[n % 2], b"%d" % (sent + n)) for n in range(50)]
            sent += 50
            gone = leader_of(*buses, writer)
            buses.remove(gone)
            await crash(gone)
            receipts += [await writer.publish("x", b"%d" % (sent + n)) for n in range(50)]
            sent += 50
            for receipt in receipts:
                await receipt
            if turn == 0:
                await settled(*buses, writer)
        heard = await take(reader, sent)
        assert [event.payload for event in heard] == [b"%d" % n for n in range(sent)]
        assert {event.status for event in heard} == {Status.IN_ORDER}
        for bus in (writer, reader, *buses):
            await bus.close()

    scene(story)


def test_processes_with_disks_go_on_after_all_were_away(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Three times, closed and crashed: the log goes on, numbers rise, nothing is given twice."""

    async def story() -> None:
        url = nats_server.url
        numbers: list[int] = []
        logs = set()
        for turn in range(3):
            opening = [by_log(url, name, disk=tmp_path / name).open() for name in "abc"]
            buses = await asyncio.gather(*opening)
            await settled(*buses)
            await buses[2].subscribe("x")
            for number in range(20):
                await (await buses[number % 2].publish("x", b"%d %d" % (turn, number)))
            heard = await take(buses[2], 20)
            assert [event.payload for event in heard] == [b"%d %d" % (turn, n) for n in range(20)]
            numbers += [event.stamp["*"] for event in heard if event.stamp]
            logs.add(buses[0].overview.logs["main"].log)
            for bus in buses:
                await (bus.close() if turn else crash(bus))
                if not turn:
                    bus._shut()
        assert len(logs) == 1
        assert numbers == sorted(set(numbers)) and len(numbers) == 60

    scene(story)


def test_a_disk_that_fails_ends_the_process_and_says_so(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        bus = await by_log(nats_server.url, "a", disk=tmp_path / "a").open()
        await (await bus.publish("x", b"1"))
        store = bus._runtime._logs["main"]._store
        assert store._file is not None
        store._file.close()
        store._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115, ASYNC230
        with pytest.raises(unisono.UnisonoError):
            await (await bus.publish("x", b"2"))
        with pytest.raises(unisono.UnisonoError, match="cannot be written"):
            await bus.publish("x", b"")
        await bus.close()

    scene(story)


def test_eight_that_begin_at_once_are_one_log(nats_server: NatsServer) -> None:
    async def story() -> None:
        url = nats_server.url
        buses = await asyncio.gather(*(by_log(url, f"n{n}").open() for n in range(8)))
        await settled(*buses)
        await asyncio.gather(*(bus.subscribe("x") for bus in buses))
        await asyncio.gather(*(bus.publish("x", b"") for bus in buses))
        heard = [[event.id for event in await take(bus, 8)] for bus in buses]
        assert all(one == heard[0] for one in heard)
        await asyncio.gather(*(bus.close() for bus in buses))

    scene(story)


def test_orders_beside_each_other_on_one_bus(url: str) -> None:
    """Two domains, stamps, fifo and none: each topic as it was asked for."""
    order = {
        "orders.*": Total(by="log", domain="orders", voters=1),
        "prices.*": Total(by="log", domain="prices", voters=1),
        "old.*": "total",
        "logs": "fifo",
    }

    async def story() -> None:
        async with by_log(url, "a", order=order) as a, by_log(url, "b", order=order) as b:
            topics = ("orders.a", "orders.b", "prices.a", "old.a", "logs", "plain")
            await b.subscribe(*topics)
            for number in range(10):
                for topic in topics:
                    await a.publish(topic, b"%d" % number)
            heard = await take(b, 60)
            for topic in topics:
                mine = [int(event.payload) for event in heard if event.topic == topic]
                assert mine == list(range(10))
            numbers = [e.stamp["*"] for e in heard if e.topic.startswith("orders.") and e.stamp]
            assert numbers == list(range(1, 21))
            assert set(a.overview.logs) == {"orders", "prices"} and a.overview.members
            await b.unsubscribe("orders.a", "plain")
            await a.publish("orders.a", b"no")
            await a.publish("orders.b", b"yes")
            assert [event.payload for event in await take(b, 1)] == [b"yes"]

    scene(story)


def test_what_does_not_fit_is_refused() -> None:
    total = Total(by="log")
    with pytest.raises(Unsupported, match="buffer"):
        unisono.connect("memory://x", order=total, buffer=3)
    with pytest.raises(Unsupported, match="replicas"):
        unisono.connect("memory://x", order={"*": total}, replicas=3)
    with pytest.raises(BadInput, match="domain 'main'"):
        unisono.connect("memory://x", order={"a": total, "b": Total(by="log", voters=1)})
    with pytest.raises(BadInput, match="voters"):
        Total(by="log", voters=2)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="domain"):
        Total(by="stamps", domain="other")


def test_a_process_that_may_not_begin_a_log_says_so(nats_server: NatsServer) -> None:
    async def story() -> None:
        connection = unisono.connect(
            nats_server.url, order=Total(by="log"), manage=False, discovery_s=0.05, patience_s=0.3
        )
        with pytest.raises(unisono.EnvironmentLacks, match="start a process that may begin one"):
            await connection.open()

    scene(story)
