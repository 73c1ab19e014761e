"""Algorithmic trading: the strategy, its query, and two firms on a real bus."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from unisono.cases.live import Link
from unisono.cases.trading.market import Tick, ticks, topic
from unisono.cases.trading.query import decisions
from unisono.cases.trading.run import Session, run
from unisono.cases.trading.strategy import Decision, Memory, Order, orders, take
from unisono.core.events import Delivery, Status
from unisono.errors import BadInput
from unisono.journal.journal import Journal
from unisono.spark import UnisonoSource

ORDER = Order(0, "IBM", "MSFT")


def decide(prices: list[tuple[str, float, int]]) -> list[Decision]:
    memory = Memory()
    found = [
        take(ORDER, memory, Tick(symbol, price, at_ms), f"e{number}")
        for number, (symbol, price, at_ms) in enumerate(prices)
    ]
    return [decision for decision in found if decision is not None]


def test_it_buys_every_three_seconds_while_the_price_is_high() -> None:
    rising = [("IBM", 100.0, at) for at in range(0, 10_000, 1000)]
    high = [("IBM", 102.0, at) for at in range(10_000, 20_000, 1000)]
    found = decide([("MSFT", 50.0, 0), *rising, *high, ("IBM", 100.0, 20_000)])
    assert [decision.at_ms for decision in found] == [10_000, 13_000, 16_000, 19_000]
    assert {(d.symbol, d.shares, d.price) for d in found} == {("MSFT", 10_000, 50.0)}


def test_what_is_older_than_thirty_seconds_does_not_count() -> None:
    found = decide([("MSFT", 50.0, 0), ("IBM", 90.0, 0), ("IBM", 100.0, 31_000)])
    assert found == []
    assert len(decide([("MSFT", 50.0, 0), ("IBM", 90.0, 0), ("IBM", 100.0, 29_000)])) == 1


def test_the_order_of_two_topics_decides_on_the_price() -> None:
    before = [("MSFT", 50.0, 0), ("IBM", 90.0, 0)]
    surge, news = ("IBM", 100.0, 1000), ("MSFT", 51.0, 1000)
    assert decide([*before, surge, news])[0].price == 50.0
    assert decide([*before, news, surge])[0].price == 51.0


def test_without_a_price_nothing_is_bought() -> None:
    assert decide([("IBM", 90.0, 0), ("IBM", 100.0, 1000)]) == []


def test_the_query_decides_as_the_machine_does(spark: SparkSession, tmp_path: Path) -> None:
    """Over micro-batches: what is between them is in the state."""
    spark.dataSource.register(UnisonoSource)
    market, wanted = ticks(1, 30.0, 2.0), orders(1, 3)
    with Journal(tmp_path / "journal") as journal:
        for at, tick in enumerate(market):
            body = msgspec.json.encode(tick)
            journal.append(
                [Delivery(topic(tick.symbol), body, Status.IN_ORDER, f"e{at}", "x", at, 0, 0)]
            )
    expected = []
    for order in wanted:
        memory = Memory()
        for at, tick in enumerate(market):
            if tick.symbol in (order.watched, order.bought):
                decision = take(order, memory, tick, f"e{at}")
                expected += [decision] if decision is not None else []
    assert expected
    reader = spark.readStream.format("unisono")
    events = reader.options(journal=str(tmp_path / "journal"), maxRows=str(len(market) // 2)).load()
    query = (
        decisions(events, wanted)
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "found"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "found")).orderBy("order", "number").collect()
    assert [Decision(*row) for row in rows] == expected


def test_two_firms_decide_alike_with_order_only(spark: SparkSession, tmp_path: Path) -> None:
    session = Session(seconds=40.0, orders=8, link=Link(delay_ms=10.0))
    found = run(spark, tmp_path, session)
    assert found["ordered"]["identical_decisions"] == 1.0
    assert found["bare"]["identical_decisions"] < 1.0
    assert found["ordered"]["heard"] == dict.fromkeys("AB", found["ordered"]["published"])
    assert min(found["ordered"]["decisions"].values()) > 10


def test_a_link_is_checked() -> None:
    with pytest.raises(BadInput, match="loss"):
        Link(loss=1.5)


def test_bad_options_of_the_command() -> None:
    for wrong in (
        ["--pcap", "x"],
        ["--seconds", "0"],
        ["--scanners", "a"],
        ["--seconds", "3", "--pcap", "x"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "unisono", "case", "trading", "--json", *wrong],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert "error" in json.loads(done.stdout)
