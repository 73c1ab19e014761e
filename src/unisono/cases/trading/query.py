"""The strategy as a streaming query: prices in, decisions out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from unisono.cases.trading.market import Tick
from unisono.cases.trading.strategy import Memory, Order, take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECISIONS = (
    "order bigint, number bigint, symbol string, shares bigint, price double, at_ms bigint, "
    "event_id string"
)


def decisions(events: DataFrame, wanted: Sequence[Order]) -> DataFrame:
    """What the orders lead to, from events as `format("unisono")` gives them."""
    from pyspark.sql import functions as F

    session = events.sparkSession
    watching = session.createDataFrame(
        [(o.id, symbol) for o in wanted for symbol in (o.watched, o.bought)],
        "order bigint, symbol string",
    )
    tick = F.from_json(F.col("payload").cast("string"), "symbol string, price double, at_ms bigint")
    prices = events.select("position", "event_id", tick.alias("tick")).select(
        "position", "event_id", "tick.*"
    )
    return (
        prices.join(F.broadcast(watching), "symbol")
        .groupBy("order")
        .transformWithState(
            statefulProcessor=Trader(wanted),
            outputStructType=DECISIONS,
            outputMode="Append",
            timeMode="None",
        )
    )


class Trader(StatefulProcessor):
    """Runs each order over its prices, in the order of positions."""

    def __init__(self, wanted: Sequence[Order]) -> None:
        self._orders = {order.id: order for order in wanted}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._memory = handle.getValueState("memory", "encoded binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        order = self._orders[key[0]]
        known = self._memory.get()
        memory = msgspec.msgpack.decode(known[0], type=Memory) if known is not None else Memory()
        for row in sorted(rows, key=lambda row: row.position):
            tick = Tick(row.symbol, row.price, row.at_ms)
            decision = take(order, memory, tick, row.event_id)
            if decision is not None:
                yield Row(**msgspec.structs.asdict(decision))
        self._memory.update((msgspec.msgpack.encode(memory),))

    def close(self) -> None:
        pass
