"""Prices of a market: seeded random walks with surges, on a topic per symbol."""

from __future__ import annotations

import math

import msgspec

from unisono.core.entropy import stream

SYMBOLS = (
    "IBM", "MSFT", "AAPL", "ORCL", "INTC", "CSCO", "GOOG", "AMZN",
)  # fmt: skip
_STEP = 0.0006  # of the price, from one tick to the next
_SURGE = 0.012  # a rise over some seconds, which falls back


class Tick(msgspec.Struct, frozen=True):
    """A price at a time of the market."""

    symbol: str
    price: float
    at_ms: int


def topic(symbol: str) -> str:
    return f"prices.{symbol}"


def ticks(seed: int, seconds: float, per_second: float) -> list[Tick]:
    """All ticks of a session, by time; `per_second` of each symbol on average."""
    found: list[Tick] = []
    for symbol in SYMBOLS:
        rng = stream(seed, "market", symbol)
        price, at = rng.uniform(20, 200), rng.expovariate(per_second)
        surge_at = rng.uniform(5, 25)
        while at < seconds:
            price *= math.exp(rng.gauss(0, _STEP))
            if at > surge_at + 12:
                surge_at = at + rng.uniform(10, 40)
            within = max(0.0, min(at - surge_at, 12.0))
            bump = _SURGE * math.sin(math.pi * within / 12)
            found.append(Tick(symbol, round(price * (1 + bump), 2), round(at * 1000)))
            at += rng.expovariate(per_second)
    return sorted(found, key=lambda tick: (tick.at_ms, tick.symbol))
