"""Prices of a bus as a stream in Spark, in one order over all topics; alerts go back onto the bus.

python examples/spark/alerts.py nats://127.0.0.1:4222 [FOLDER]

Publishes some prices itself, waits for the alerts, and ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import unisono
from unisono.pipeline.session import spark_session
from unisono.spark import UnisonoSource


async def publish_and_wait(bus: str, alerts: int) -> None:
    """Play the rest of the world: an exchange, and somebody who wants to be alerted."""
    async with (
        unisono.connect(bus, name="exchange") as exchange,
        unisono.connect(bus, name="desk") as desk,
    ):
        await desk.subscribe("alerts")
        for number in range(100):
            topic = ("prices.IBM", "prices.MSFT")[number % 2]
            await exchange.publish(topic, b"%d" % (100 + number % 10))
        for _ in range(alerts):
            alert = await asyncio.wait_for(desk.notify(), 100)
            print(alert.payload.decode())


def main(bus: str, folder: Path) -> None:
    spark = spark_session("alerts")
    spark.dataSource.register(UnisonoSource)
    events = (
        spark.readStream.format("unisono")
        .option("bus", bus)
        .option("topics", "prices.IBM,prices.MSFT")
        .option("order", "total")
        .option("journal", str(folder / "journal"))
        .option("lingerS", "20")  # the collector need not outlive this example for long
        .load()
    )
    alerts = events.where("cast(payload as string) = '109'").selectExpr(
        "concat(topic, ' is at ', cast(payload as string), ' in event ', position) as payload",
        "map('topic', topic) as attributes",
    )
    query = (
        alerts.writeStream.format("unisono")
        .option("bus", bus)
        .option("topic", "alerts")
        .option("spool", str(folder / "spool"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not query.lastProgress:  # from its first micro-batch on it misses nothing
        query.awaitTermination(1)
    asyncio.run(publish_and_wait(bus, alerts=10))
    query.processAllAvailable()  # stop() would cut off the batch that brought the last alert
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "alerts"))
