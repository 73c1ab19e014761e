"""Subscriptions by content and FIFO, as a user sees them, on the embedded bus and on NATS."""

from __future__ import annotations

import asyncio
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest
from support.buses import take

import unisono
from unisono import Fifo, Status
from unisono.errors import BadInput, Unsupported


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
