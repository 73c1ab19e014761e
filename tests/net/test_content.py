"""Subscriptions by content and FIFO, as a user sees them, on the embedded bus and on NATS."""

from __future__ import annotations

import asyncio
from enum import IntEnum, StrEnum
from pathlib import Path
from random import Random
from typing import Any

import nats
import numpy as np
import pytest
from pyspark.sql import SparkSession
from support.buses import take

import unisono
from unisono import Fifo, Status
from unisono.bench.server import NatsServer
from unisono.errors import BadInput, Unsupported
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.trace.files import write_tables
from unisono.trace.run import write_run


@pytest.mark.parametrize("order", ["none", "fifo", "total"])
def test_only_what_matches_is_notified_under_every_order(url: str, order: str) -> None:
    async def scene() -> None:
        async with unisono.connect(url, order=order) as bus:
            await bus.subscribe("prices", where="symbol == 'IBM' and change > 0.5")
            await bus.subscribe("news")
            for change in (0.1, 0.6, 0.7):
                for symbol in ("IBM", "SUN"):
                    await bus.publish("prices", b"", {"symbol": symbol, "change": change})
            await bus.publish("prices", b"without attributes")
            await bus.publish("news", b"end")
            found = await take(bus, 3)
            assert [(e.topic, e.attributes) for e in found if e.topic == "prices"] == [
                ("prices", {"symbol": "IBM", "change": 0.6}),
                ("prices", {"symbol": "IBM", "change": 0.7}),
            ]
            assert {event.status for event in found} == {Status.IN_ORDER}
            assert bus.ignored["filtered out"] == 5
            await bus.subscribe("prices")  # everything from now on
            await bus.publish("prices", b"plain")
            assert [event.payload for event in await take(bus, 1)] == [b"plain"]

    asyncio.run(scene())


def test_wrong_predicates_and_attributes_are_refused_and_nothing_changes() -> None:
    async def scene() -> None:
        async with unisono.connect("memory://refused", order="none") as bus:
            with pytest.raises(BadInput, match="position 7"):
                await bus.subscribe("a", where="symbol = 'IBM'")
            with pytest.raises(BadInput, match="not subscribed"):
                await bus.unsubscribe("a")
            bad: list[Any] = [
                {"x": None},
                {"x": [1]},
                {"x": float("nan")},
                {"x": 2**63},
                {"not a name": 1},
                {"x": "\ud800"},
                {"x": "long" * 10_000},
                {f"n{index}": 1 for index in range(100)},
                "x",
            ]
            for attributes in bad:
                with pytest.raises(BadInput, match="attribute"):
                    await bus.publish("a", b"", attributes)

    asyncio.run(scene())


async def _shuffled(server: str, count: int, ready: asyncio.Event) -> None:
    """Takes frames from one space of a NATS server and passes them on into another, five at a time
    in another order."""
    client = await nats.connect(server)
    frames: asyncio.Queue[Any] = asyncio.Queue()
    await client.subscribe("before.>", cb=frames.put)
    await client.flush()
    ready.set()
    rng = Random(1)
    for _ in range(0, count, 5):
        batch = [await frames.get() for _ in range(5)]
        for message in rng.sample(batch, 5):
            await client.publish(message.subject.replace("before", "after", 1), message.data)
    await client.flush()
    await client.close()


def test_fifo_keeps_each_publishers_order_on_a_bus_that_reorders(
    nats_server: NatsServer, tmp_path: Path, spark: SparkSession
) -> None:
    """Spark agrees, from the trace."""
    count = 300

    async def scene() -> tuple[list[unisono.Delivery], list[unisono.Delivery]]:
        fifo = Fifo(first_ms=2000)
        here, there = f"{nats_server.url}/after", f"{nats_server.url}/before"
        async with (
            unisono.connect(here, order="none") as bare,
            unisono.connect(here, order="fifo", fifo=fifo, trace=tmp_path) as ordered,
            unisono.connect(there, order="fifo", fifo=fifo, trace=tmp_path) as publisher,
        ):
            await bare.subscribe("a", "b")
            await ordered.subscribe("a", "b")
            ready = asyncio.Event()
            shuffling = asyncio.ensure_future(_shuffled(nats_server.url, count, ready))
            await ready.wait()
            for number in range(count):
                await publisher.publish("ab"[number % 2], b"%d" % number)
            found = await take(bare, count), await take(ordered, count)
            await shuffling
            return found

    bare, ordered = asyncio.run(scene())
    came = [int(event.payload) for event in bare]
    assert sorted(came) == list(range(count)) != came
    assert sorted(int(event.payload) for event in ordered) == list(range(count))
    untagged = [int(event.payload) for event in ordered if event.in_order]
    assert untagged == sorted(untagged) and len(untagged) > count / 2
    report = audit(spark, open_trace(spark, tmp_path))
    assert report.verdict == "valid"
    assert report.checks["fifo"].verdict == "valid"


def test_the_audit_judges_fifo(tmp_path: Path, spark: SparkSession) -> None:
    """A trace that promises it and does not keep it."""
    rows: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    for at, n in enumerate((3, 2, 1)):
        event = f"p-{n}"
        published = {"topic": "t", "publisher": "p", "publisher_seq": n, "published_us": n}
        rows.append({"event_id": event, **published, "size": 0})
        delivered = {"position": at, "delivered_us": 10 + at, "status": "in_order"}
        got.append({"subscriber": "s", "event_id": event, **delivered})
    write_tables(tmp_path / "trace", {"publications": rows, "deliveries": got})
    write_run(tmp_path, {"order": {"*": "fifo"}, "promises": ["fifo"]})
    report = audit(spark, open_trace(spark, tmp_path))
    assert report.verdict == "invalid"
    assert report.checks["fifo"].violations == 2


def test_a_filter_holds_until_the_subscription_has_ended() -> None:
    async def scene() -> None:
        async with unisono.connect("memory://ending?delay_ms=5", order="none") as bus:
            await bus.subscribe("a", where="x == 1")
            for _ in range(50):
                await bus.publish("a", b"", {"x": 2})
            await bus.unsubscribe("a")
            await bus.subscribe("end")
            await bus.publish("end", b"")
            assert [event.topic for event in await take(bus, 1)] == ["end"]

    asyncio.run(scene())


class Text(StrEnum):
    IBM = "IBM"


class Lot(IntEnum):
    SMALL = 3


def test_attributes_travel_as_plain_values() -> None:
    async def scene() -> None:
        async with unisono.connect("memory://plain", order="total") as bus:
            await bus.subscribe("a", where="s == 'IBM' and f > 1 and i == 3")
            await bus.publish("a", b"", {"s": Text.IBM, "f": np.float64(1.5), "i": Lot.SMALL})
            (event,) = await take(bus, 1)
            assert event.attributes == {"s": "IBM", "f": 1.5, "i": 3}
            assert {type(value) for value in event.attributes.values()} == {str, float, int}

    asyncio.run(scene())


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(Unsupported, match="fifo"):
        unisono.connect("memory://", order="total", fifo=Fifo())
    with pytest.raises(BadInput, match=r"unisono\.Fifo"):
        unisono.connect("memory://", order="fifo", fifo=0.05)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="buffer"):
        unisono.connect("memory://", order="fifo", buffer=3)
