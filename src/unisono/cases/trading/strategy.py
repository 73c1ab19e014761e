"""The thesis' example of a client's order, as a machine that takes one price after the other.

While a symbol stands 0.5 % above its average of the last 30 seconds, 10,000 shares of another one
are bought every 3 seconds.

What it decides depends on the prices and their order alone: time is the market's, which comes with
the prices. Two firms that see the same prices in the same order decide the same.
"""

from __future__ import annotations

import msgspec

from unisono.cases.trading.market import SYMBOLS, Tick
from unisono.core.entropy import stream

WINDOW_MS = 30_000
AGAIN_MS = 3_000
ABOVE = 1.005
SHARES = 10_000


class Order(msgspec.Struct, frozen=True):
    """Watch one symbol, buy another."""

    id: int
    watched: str
    bought: str


class Decision(msgspec.Struct, frozen=True):
    """So many shares at this price, because of this event."""

    order: int
    number: int  # of this order's decisions, from 0
    symbol: str
    shares: int
    price: float
    at_ms: int
    event_id: str


class Memory(msgspec.Struct):
    """What an order needs to know from one price to the next."""

    prices: list[tuple[int, float]] = []  # of the last 30 seconds
    price: float | None = None  # of the bought symbol
    high: bool = False
    next_ms: int = 0
    decisions: int = 0


def orders(seed: int, count: int) -> list[Order]:
    rng = stream(seed, "orders")
    return [Order(number, *rng.sample(SYMBOLS, 2)) for number in range(count)]


def take(order: Order, memory: Memory, tick: Tick, event_id: str) -> Decision | None:
    """One price: it may lead to buying."""
    if tick.symbol == order.watched:
        _watch(memory, tick)
    if tick.symbol == order.bought:
        memory.price = tick.price
    if not memory.high or memory.price is None or tick.at_ms < memory.next_ms:
        return None
    memory.next_ms = tick.at_ms + AGAIN_MS
    memory.decisions += 1
    return Decision(
        order.id,
        memory.decisions - 1,
        order.bought,
        SHARES,
        memory.price,
        tick.at_ms,
        event_id,
    )


def _watch(memory: Memory, tick: Tick) -> None:
    memory.prices.append((tick.at_ms, tick.price))
    memory.prices = [one for one in memory.prices if one[0] >= tick.at_ms - WINDOW_MS]
    average = sum(price for _, price in memory.prices) / len(memory.prices)
    memory.high = tick.price > ABOVE * average
