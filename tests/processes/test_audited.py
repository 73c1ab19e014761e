"""What a bus leaves in its trace is judged by Spark as it was promised."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import nats
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from support.buses import take
from support.servers import NatsServer

import unisono
from unisono import Fifo
from unisono.net.bundle import frames_of
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.trace.files import write_tables
from unisono.trace.run import write_run


def test_only_ordered_topics_are_judged_for_order(tmp_path: Path, spark: SparkSession) -> None:
    """A bus with both kinds of topics: the audit judges order where it was promised."""

    async def scene() -> None:
        chosen = {"orders.*": "total"}
        async with unisono.connect("memory://", order=chosen, trace=tmp_path, name="me") as bus:
            await bus.subscribe("orders.eu", "logs")
            for topic in ("orders.eu", "logs", "logs"):
                await (await bus.publish(topic, b""))
            await take(bus, 3)

    asyncio.run(scene())
    publications = pq.read_table(tmp_path / "trace" / "publications").to_pylist()
    ids = {
        topic: [p["event_id"] for p in publications if p["topic"] == topic] for topic in ("logs",)
    }
    for who, seen in (("x", ids["logs"]), ("y", ids["logs"][::-1])):  # they disagree on the logs
        rows = [
            {
                "subscriber": who,
                "position": at,
                "event_id": event,
                "delivered_us": at,
                "status": None,
            }
            for at, event in enumerate(seen)
        ]
        write_tables(tmp_path / "trace", {"deliveries": rows}, writer=who)
    report = audit(spark, open_trace(spark, tmp_path))
    assert report.checks["total-order"].promised
    assert report.verdict == "valid"
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run | {"order": {"*": "total"}}))
    assert audit(spark, open_trace(spark, tmp_path)).verdict == "invalid"


async def _shuffled(server: str, count: int, ready: asyncio.Event) -> None:
    """Takes frames from one space of a NATS server and passes them on into another, five at a time
    in another order."""
    client = await nats.connect(server)
    frames: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def take_apart(message: Any) -> None:
        for frame in frames_of(message.data):  # what waited together came as one
            await frames.put((message.subject, frame))

    await client.subscribe("before.>", cb=take_apart)
    await client.publish("before.shuffled", b"")  # a flush overtakes what is still queued
    assert (await frames.get())[0] == "before.shuffled"
    ready.set()
    rng = Random(1)
    for _ in range(0, count, 5):
        batch = [await frames.get() for _ in range(5)]
        for subject, frame in rng.sample(batch, 5):
            await client.publish(subject.replace("before", "after", 1), frame)
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
