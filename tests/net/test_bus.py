"""The bus as a user sees it: on the embedded bus and on a real NATS."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.buses import take

import unisono
from unisono import Bus, Limits, Status
from unisono.qos.total_order.layer import TotalOrder


def order(events: list[unisono.Delivery]) -> list[tuple[str, bytes]]:
    return [(event.topic, event.payload) for event in events]


def test_publish_subscribe_iterate(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url, order="total") as bus:
            await bus.subscribe("a", "b")
            receipt = await bus.publish("a", b"hello")
            await receipt
            assert receipt.acknowledged
            async for event in bus:
                assert (event.topic, event.payload) == ("a", b"hello")
                assert event.status is Status.IN_ORDER and event.in_order
                assert event.latency_us >= 0
                assert event.id == receipt.id and event.publisher == bus.id
                break

    asyncio.run(scene())


def test_two_processes_hear_the_same_across_topics(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url, name="x") as x, unisono.connect(url, name="y") as y:
            await asyncio.gather(x.subscribe("a", "b"), y.subscribe("b", "a"))

            async def publish(bus: Bus, topic: str) -> None:
                for number in range(200):
                    await bus.publish(topic, str(number).encode())

            heard_x, heard_y, *_ = await asyncio.gather(
                take(x, 400), take(y, 400), publish(x, "a"), publish(y, "b")
            )
            assert order(heard_x) == order(heard_y)
            assert {event.status for event in heard_x + heard_y} == {Status.IN_ORDER}

    asyncio.run(scene())


def test_managers_are_handed_over_when_processes_come_and_go(url: str) -> None:
    """Six topics, five processes joining and leaving one by one; two readers hear it all alike."""
    topics = [f"t{number}" for number in range(6)]

    async def scene() -> None:
        async with unisono.connect(url, name="r1") as one, unisono.connect(url, name="r2") as two:
            await one.subscribe(*topics)
            await two.subscribe(*reversed(topics))
            total = 0

            async def publish(bus: Bus) -> None:
                nonlocal total
                for topic in topics:
                    await bus.publish(topic, f"{bus.id} {topic}".encode())
                    total += 1

            guests = []
            for number in range(3):
                guests.append(await unisono.connect(url, name=f"g{number}").open())
                await publish(one)
                await publish(guests[-1])
            for guest in guests:
                await publish(guest)
                await guest.close()
                await publish(two)
            heard = [order(await take(bus, total)) for bus in (one, two)]
            assert heard[0] == heard[1]

    asyncio.run(scene())


def test_the_first_process_may_leave_first(url: str) -> None:
    async def scene() -> None:
        first = await unisono.connect(url).open()
        await first.subscribe("a")
        async with unisono.connect(url) as second:
            await second.subscribe("a", "b")
            await first.publish("a", b"1")
            await first.close()
            await second.publish("b", b"2")
            await second.publish("a", b"3")
            heard = order(await take(second, 3))
            assert heard.index(("a", b"1")) < heard.index(("a", b"3"))

    asyncio.run(scene())


def test_a_process_may_opt_out_of_managing(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as host, unisono.connect(url, manage=False) as guest:
            await guest.subscribe("a")
            await (await guest.publish("a", b"x"))
            assert order(await take(guest, 1)) == [("a", b"x")]
            assert host.troubles == guest.troubles == []

    asyncio.run(scene())


def test_without_a_manager_connect_says_so(url: str) -> None:
    async def scene() -> None:
        connection = unisono.connect(url, manage=False, patience_s=0.2, discovery_s=0.05)
        with pytest.raises(unisono.EnvironmentLacks, match="manage=True"):
            await connection.open()

    asyncio.run(scene())


def test_when_the_last_manager_leaves_clients_are_told(url: str) -> None:
    async def scene() -> None:
        host = await unisono.connect(url).open()
        guest = await unisono.connect(url, manage=False).open()
        await host.close()
        with pytest.raises(unisono.BusClosed, match="has left"):
            await take(guest, 1)
        with pytest.raises(unisono.BusClosed, match="has left"):
            await guest.publish("a", b"")
        await guest.close()

    asyncio.run(scene())


def test_guarantees_are_chosen_per_topic(url: str) -> None:
    async def scene() -> None:
        chosen = {"orders.*": "total", "*": "none"}
        async with unisono.connect(url, order=chosen) as bus:
            await bus.subscribe("orders.eu", "logs")
            await bus.publish("orders.eu", b"1")
            await bus.publish("logs", b"2")
            assert sorted(order(await take(bus, 2))) == [("logs", b"2"), ("orders.eu", b"1")]
            await bus.unsubscribe("orders.eu", "logs")

    asyncio.run(scene())


def test_a_publisher_without_order_is_reported_by_those_with(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url, order="none") as plain, unisono.connect(url) as ordered:
            await ordered.subscribe("a")
            await (await plain.publish("a", b"no stamp"))
            await (await ordered.publish("a", b"stamped"))
            assert order(await take(ordered, 1)) == [("a", b"stamped")]
            assert "without order" in ordered.troubles[0]
            assert ordered.ignored == {"without a stamp": 1}
            assert plain.rejected == {}  # what ordered nodes say to each other is not its business

    asyncio.run(scene())


def test_unsubscribing_ends_notifications(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url) as bus:
            await bus.subscribe("a", "b")
            await bus.unsubscribe("a")
            with pytest.raises(unisono.BadInput, match="not subscribed: 'a'"):
                await bus.unsubscribe("a")
            await bus.publish("a", b"no")
            await bus.publish("b", b"yes")
            assert order(await take(bus, 1)) == [("b", b"yes")]
            await bus.subscribe("a")
            await bus.publish("a", b"again")
            assert order(await take(bus, 1)) == [("a", b"again")]

    asyncio.run(scene())


def test_a_full_queue_makes_publish_wait_and_drops_nothing(url: str) -> None:
    limits = Limits(outstanding=8, notifications=16)

    async def scene() -> None:
        async with unisono.connect(url, limits=limits) as bus:
            await bus.subscribe("a")

            async def publish() -> None:
                for number in range(3000):
                    await bus.publish("a", str(number).encode())
                    assert bus._runtime.outstanding <= limits.outstanding

            publishing = asyncio.create_task(publish())
            heard = await take(bus, 3000)
            await publishing
            assert [int(event.payload) for event in heard] == list(range(3000))

    asyncio.run(scene())


def test_closing_ends_the_iteration_and_refuses_what_follows(url: str) -> None:
    async def scene() -> None:
        bus = await unisono.connect(url).open()
        await bus.subscribe("a")
        await bus.publish("a", b"1")
        assert order(await take(bus, 1)) == [("a", b"1")]
        await bus.close()
        await bus.close()
        assert [event async for event in bus] == []
        with pytest.raises(unisono.BusClosed):
            await bus.publish("a", b"2")
        with pytest.raises(unisono.BusClosed):
            await bus.subscribe("b")

    asyncio.run(scene())


def test_bad_input_is_refused_and_the_bus_goes_on(url: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url, limits=Limits(payload_bytes=10)) as bus:
            with pytest.raises(unisono.BadInput, match="over the limit"):
                await bus.publish("a", b"12345678901")
            with pytest.raises(unisono.BadInput, match="letters"):
                await bus.subscribe("a b")
            await bus.subscribe("a")
            await bus.publish("a", b"fine")
            assert order(await take(bus, 1)) == [("a", b"fine")]

    asyncio.run(scene())


def test_a_trace_is_recorded(url: str, tmp_path: Path) -> None:
    async def scene() -> None:
        async with unisono.connect(url, trace=tmp_path, name="me", deadline_ms=2500) as bus:
            await bus.subscribe("a")
            await bus.publish("a", b"xyz")
            await take(bus, 1)

    asyncio.run(scene())
    run = json.loads((tmp_path / "run.json").read_text())
    assert "total-order" in run["promises"] and run["deadline_us"] == 2_500_000
    tables = {
        name: pq.read_table(tmp_path / "trace" / name) for name in ("publications", "deliveries")
    }
    assert [table.num_rows for table in tables.values()] == [1, 1]
    assert tables["publications"]["event_id"] == tables["deliveries"]["event_id"]
    (subscription,) = pq.read_table(tmp_path / "trace" / "subscriptions").to_pylist()
    assert subscription["from_us"] < subscription["until_us"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"order": "real-time"}, "not supported yet"),
        ({"order": "sorted"}, "unknown"),
        ({"order": {"a": "causal"}}, "not supported yet"),
        ({"order": {}}, "mapping"),
        ({"order": "none", "buffer": 3}, "means nothing"),
        ({"order": "none", "manage": False}, "means nothing"),
        ({"order": "none", "stamps": "paper"}, "means nothing"),
        ({"buffer": -1}, "number of events"),
        ({"buffer": 0, "hold_s": 1.0}, "nothing is ever held"),
        ({"stamps": "approximate"}, "exact"),
        ({"hold_s": 0}, "positive"),
        ({"name": "two words"}, "letters"),
        ({"name": "a/b"}, "letters"),
        ({"buffer": "3"}, "number of events"),
        ({"buffer": 1.5}, "number of events"),
        ({"hold_s": float("nan")}, "seconds"),
        ({"patience_s": float("inf")}, "seconds"),
        ({"manage": "no"}, "True or False"),
        ({"order": {1: "total"}}, "mapping"),
        ({"order": 5}, "mapping"),
        ({"trace": 5}, "folder"),
        ({"trace": "a\0b"}, "folder"),
        ({"disk": "a\0b"}, "folder"),
        ({"limits": "x"}, "Limits"),
        ({"adapt": "luck"}, "resources"),
        ({"delivery": "maybe"}, "reliable"),
        ({"deadline_ms": -1}, "milliseconds"),
        ({"deadline_ms": {"a": "x"}}, "milliseconds"),
        ({"profile": "D-9"}, "D-1"),
        ({"profile": "D-1", "deadline_ms": 5}, "deadline_ms"),
        ({"reliability": 5}, "Reliability"),
        ({"reliability": unisono.Reliability()}, "means nothing"),
    ],
)
def test_what_is_not_supported_is_refused_at_connect(options: dict[str, object], why: str) -> None:
    with pytest.raises(unisono.BadInput, match=why):
        unisono.connect("memory://", **options)  # type: ignore[arg-type]


async def _reliable(url: str) -> tuple[list[unisono.Delivery], list[unisono.Delivery]]:
    options: dict[str, Any] = {"delivery": {"big.*": "reliable"}, "deadline_ms": {"big.*": 20_000}}
    async with unisono.connect(url, **options) as one, unisono.connect(url, **options) as two:
        for bus in (one, two):
            await bus.subscribe("big.a", "small")
        for index in range(6):
            await (await one.publish("big.a", bytes([index]) * 50_000))
            await two.publish("small", b"%d" % index)
        got = await take(one, 12), await take(two, 12)
        assert two.timeliness["big.a"].notified == 6 and two.timeliness["big.a"].met
        assert "small" not in two.timeliness
        return got


def test_reliable_delivery_below_total_order(url: str) -> None:
    one, two = asyncio.run(_reliable(url))
    assert order(one) == order(two)
    assert {event.status for event in one} == {Status.IN_ORDER}
    assert all(len(event.payload) == 50_000 for event in one if event.topic == "big.a")


async def _told_free(url: str, adapt: bool | str) -> dict[str, int]:
    async with unisono.connect(url, adapt=adapt) as bus:
        async with unisono.connect(url, adapt=adapt) as other:
            await other.subscribe("a")
            await (await bus.publish("a", b""))
            layers = other._runtime.node.stack.layers
            (layer,) = (layer for layer in layers if isinstance(layer, TotalOrder))
            return dict(layer.members.heard_free)


def test_processes_tell_how_busy_they_are_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.5 * (os.cpu_count() or 1), 0.0, 0.0))
    assert set(asyncio.run(_told_free("memory://free", "resources")).values()) == {50}
    assert set(asyncio.run(_told_free("memory://free", True)).values()) == {100}


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("kafka://x", "memory://, nats:// and mesh://"),
        ("localhost:4222", "memory://, nats:// and mesh://"),
        ("memory://?delay=3", "delay_ms"),
        ("memory://?delay_ms=x", "numbers"),
        ("memory://?delay_ms=-1", "between"),
        ("nats://", "host"),
        ("nats://h:0", "host"),
        ("memory://x/path", "without"),
        (5, "string"),
        ("nats://h:99999999", "not an address"),
    ],
)
def test_bad_addresses_are_refused_at_connect(address: Any, why: str) -> None:
    with pytest.raises(unisono.BadInput, match=why):
        unisono.connect(address)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(unisono.BadInput, match=r"Limits\.outstanding"):
        Limits(outstanding=0)


def test_a_trace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def scene() -> None:
        with pytest.raises(unisono.BadInput, match="cannot record"):
            await unisono.connect("memory://", trace=tmp_path / "file").open()

    asyncio.run(scene())


def test_an_unreachable_server_is_said_to_be() -> None:
    from support.servers import free_port

    async def scene() -> None:
        with pytest.raises(unisono.EnvironmentLacks, match="no NATS server answers"):
            await unisono.connect(f"nats://127.0.0.1:{free_port()}", patience_s=0.5).open()

    asyncio.run(scene())
