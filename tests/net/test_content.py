"""Subscriptions by content and FIFO, as a user sees them, on the embedded bus and on NATS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import unisono
from unisono import Bus, Fifo, Status
from unisono.errors import BadInput, Unsupported
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

_PATIENCE_S = 30


@pytest.fixture(params=["memory", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://content"
    return str(request.getfixturevalue("nats_server").url)


async def take(bus: Bus, count: int) -> list[unisono.Delivery]:
    async with asyncio.timeout(_PATIENCE_S):
        return [await bus.notify() for _ in range(count)]


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


def test_fifo_keeps_each_publishers_order_on_a_bus_that_reorders(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Spark agrees, from the trace."""

    async def scene() -> list[unisono.Delivery]:
        url = "memory://jitter?delay_ms=1&jitter_ms=5"
        fifo = Fifo(violation=0.01)
        async with (
            unisono.connect(url, order="fifo", fifo=fifo, trace=tmp_path) as x,
            unisono.connect(url, order="fifo", fifo=fifo, trace=tmp_path) as y,
        ):
            await x.subscribe("a", "b")
            for number in range(300):
                await y.publish("ab"[number % 2], b"%d" % number)
            return await take(x, 300)

    found = asyncio.run(scene())
    assert sorted(int(event.payload) for event in found) == list(range(300))
    untagged = [int(event.payload) for event in found if event.in_order]
    assert untagged == sorted(untagged)
    report = audit(spark, open_trace(spark, tmp_path))
    assert report.verdict == "valid"
    assert report.checks["fifo"].violations == 0


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(Unsupported, match="fifo"):
        unisono.connect("memory://", order="total", fifo=Fifo())
    with pytest.raises(BadInput, match=r"unisono\.Fifo"):
        unisono.connect("memory://", order="fifo", fifo=0.05)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="buffer"):
        unisono.connect("memory://", order="fifo", buffer=3)
