"""Two firms, the same clients' orders, the same market: do they decide alike?

Exchanges publish prices, each symbol on a topic of its own. Each firm collects them over a link of
its own that delays every frame by a time of its own, into a journal; a streaming query runs the
orders over it. Once on the bare bus, once with total order across topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from unisono.cases.live import Link, Stage, bus_at, quiet
from unisono.cases.trading.market import SYMBOLS, Tick, ticks, topic
from unisono.cases.trading.strategy import Order, orders
from unisono.net.bus import Bus
from unisono.net.connect import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIRMS = ("A", "B")
EXCHANGES = 4
SPEED = 20.0  # of the market's clock
PERIOD_S = 2.0  # between signs of life; all these nodes share one thread
PATIENCE_S = 15.0
MODES = {"bare": "none", "ordered": "total"}

Say = Callable[[str], None]


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What is traded, and over which links."""

    seed: int = 0
    seconds: float = 300.0  # of the market
    per_second: float = 2.0  # prices of each symbol
    orders: int = 40
    link: Link = Link(delay_ms=5.0)


def run(
    spark: SparkSession,
    folder: Path,
    session: Session,
    url: str | None = None,
    say: Say = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """By mode: the share of orders on which both firms decided the same, in the same order."""
    from unisono.spark import UnisonoSource

    spark.dataSource.register(UnisonoSource)
    with bus_at(url) as server:
        return {
            mode: _trade(spark, folder / mode, session, f"{server}/{mode}-{uuid4().hex[:8]}", say)
            for mode in MODES
        }


def _trade(
    spark: SparkSession, folder: Path, session: Session, url: str, say: Say
) -> dict[str, Any]:
    mode = folder.name
    market = ticks(session.seed, session.seconds, session.per_second)
    wanted = orders(session.seed, session.orders)
    with Stage(session.seed) as stage:

        async def open_all() -> tuple[list[Callable[[], int]], list[Bus]]:
            order = MODES[mode]
            wish: dict[str, Any] = {"order": order}
            if order == "total":
                wish["period_s"] = PERIOD_S
            listens = wish | {"manage": False} if order == "total" else wish  # exchanges manage
            topics = [topic(symbol) for symbol in SYMBOLS]
            exchanges = [
                await stage.open(connect(url, name=f"exchange-{number}", **wish), "")
                for number in range(EXCHANGES)
            ]
            positions = []
            for firm in FIRMS:
                connection = connect(url, name=f"firm-{firm}", **listens)
                bus = await stage.open(connection, firm, session.link)
                positions.append(await stage.keep(bus, folder / firm / "journal", topics))
            return positions, exchanges

        positions, exchanges = stage.run(open_all())
        queries = [_query(spark, folder / firm, wanted) for firm in FIRMS]
        say(f"{mode}: the market is open, {len(market)} prices to come")
        stage.run(_publish(exchanges, market))
        heard = [stage.run(quiet(tell, len(market), PATIENCE_S)) for tell in positions]
        for query in queries:
            query.processAllAvailable()
            query.stop()
    return _compare(spark, folder, len(market), heard, wanted, say)


async def _publish(exchanges: list[Bus], market: list[Tick]) -> None:
    """At the market's pace, each exchange its symbols."""
    by_exchange: list[list[Tick]] = [[] for _ in exchanges]
    for tick in market:
        by_exchange[SYMBOLS.index(tick.symbol) % len(exchanges)].append(tick)
    begun = asyncio.get_running_loop().time()

    async def one(bus: Bus, own: list[Tick]) -> None:
        loop = asyncio.get_running_loop()
        for tick in own:
            await asyncio.sleep(begun + tick.at_ms / 1000 / SPEED - loop.time())
            await bus.publish(topic(tick.symbol), msgspec.json.encode(tick))
        await bus.flush()

    await asyncio.gather(*map(one, exchanges, by_exchange))


def _query(spark: SparkSession, folder: Path, wanted: list[Order]) -> StreamingQuery:
    """A firm's trading engine."""
    from unisono.cases.trading.query import decisions

    reader = spark.readStream.format("unisono").option("journal", str(folder / "journal"))
    return (
        decisions(reader.load(), wanted)
        .writeStream.format("parquet")
        .option("path", str(folder / "decisions"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def _compare(
    spark: SparkSession,
    folder: Path,
    published: int,
    heard: list[int],
    wanted: list[Order],
    say: Say,
) -> dict[str, Any]:
    found: list[dict[int, list[tuple[Any, ...]]]] = []
    for firm in FIRMS:
        rows = spark.read.parquet(str(folder / firm / "decisions")).collect()
        by_order: dict[int, list[tuple[Any, ...]]] = {order.id: [] for order in wanted}
        for row in sorted(rows, key=lambda row: row.number):
            by_order[row.order].append((row.symbol, row.shares, row.price, row.at_ms))
        found.append(by_order)
    one, other = found
    same = sum(one[order.id] == other[order.id] for order in wanted)
    counts = [sum(map(len, by_order.values())) for by_order in found]
    say(f"{folder.name}: {same} of {len(wanted)} orders were carried out alike")
    return {
        "identical_decisions": same / len(wanted),
        "orders": len(wanted),
        "decisions": dict(zip(FIRMS, counts, strict=True)),
        "published": published,
        "heard": dict(zip(FIRMS, heard, strict=True)),
    }
