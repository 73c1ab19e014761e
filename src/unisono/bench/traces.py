"""A large valid trace, made by Spark, every value a function of its row number.

Twenty topics, ten subscribers with ten topics each, so that any two of them share some topics and
not others. Events have one global order; each subscriber hears its own in that order. Latencies
are skewed and differ by subscriber, and a subscriber holds an event back until those before it
are through, as a total order layer does: so deliveries of different subscribers interleave freely
in time, and only exact comparison can tell that the order holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TOPICS = 20
SUBSCRIBERS = 10
SUBSCRIBERS_PER_TOPIC = 5
PUBLISHERS = 50
EVENT_EVERY_US = 100
LONGEST_US = 100_000
_WARM_UP = LONGEST_US // EVENT_EVERY_US // TOPICS + 1  # blocks that can still hold back

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

# A block is TOPICS consecutive events, one for each topic.
_HELD = np.array(
    [[(s + 3 * t) % SUBSCRIBERS < SUBSCRIBERS_PER_TOPIC for t in range(TOPICS)] for s in range(10)]
)


def _mix(value: I64, salt: int) -> U64:
    """A hash of row numbers (splitmix64): randomness that no partitioning can change."""
    x = value.astype(np.uint64) + np.uint64((salt * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _events(blocks: I64) -> tuple[I64, I64, I64, I64]:
    """Number, topic, publisher and publishing time of the events of these blocks."""
    number = blocks[:, None] * TOPICS + np.arange(TOPICS)
    turn = _mix(blocks, 1)[:, None] % np.uint64(TOPICS)
    topic = (number * 7 + turn.astype(np.int64)) % TOPICS
    publisher = (_mix(number, 2) % np.uint64(PUBLISHERS)).astype(np.int64)
    early_us = (_mix(number, 3) % np.uint64(1000)).astype(np.int64)
    return number, topic, publisher, number * EVENT_EVERY_US - early_us


def _latency_us(number: I64, subscriber: int) -> I64:
    """Skewed: mostly some milliseconds, sometimes up to LONGEST_US."""
    uniform = (_mix(number, 100 + subscriber) >> np.uint64(11)).astype(np.float64) / 2.0**53
    tail = 4000.0 * -np.log1p(-uniform * 0.999999)
    return np.minimum(2000 + 700 * subscriber + tail, LONGEST_US - 1).astype(np.int64)


def publication_columns(blocks: I64) -> dict[str, npt.NDArray[Any]]:
    number, topic, publisher, at_us = (values.ravel() for values in _events(blocks))
    return {"number": number, "topic": topic, "publisher": publisher, "published_us": at_us}


def delivery_columns(blocks: I64) -> dict[str, npt.NDArray[Any]]:
    """The deliveries of consecutive blocks, in the order of events and then of subscribers."""
    first = max(0, int(blocks[0]) - _WARM_UP)
    before = int(blocks[0]) - first
    number, topic, publisher, _ = _events(np.arange(first, int(blocks[-1]) + 1))
    parts = []
    for subscriber in range(SUBSCRIBERS):
        held = _HELD[subscriber][topic]
        place = (np.cumsum(held, axis=1) - 1) + (number // TOPICS) * (TOPICS // 2)
        due_us = number * EVENT_EVERY_US + _latency_us(number, subscriber)
        due_us = np.where(held, due_us, 0)
        at_us = np.maximum.accumulate(due_us.ravel()).reshape(due_us.shape)
        keep = held[before:]
        parts.append(
            {
                "subscriber": np.full(int(keep.sum()), subscriber, np.int64),
                "position": place[before:][keep],
                "number": number[before:][keep],
                "publisher": publisher[before:][keep],
                "delivered_us": at_us[before:][keep],
            }
        )
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["number"], kind="stable")
    return {name: values[order] for name, values in columns.items()}


def write_trace(spark: SparkSession, folder: Path, rows: int) -> int:
    """Write a trace of about `rows` deliveries; returns how many there are exactly."""
    from pyspark.sql import functions as F

    blocks = max(1, rows // (TOPICS * SUBSCRIBERS_PER_TOPIC))
    parts = max(2, -(-rows // 4_000_000))
    event_id = F.concat(F.lit("p"), "publisher", F.lit("-"), F.lpad("number", 9, "0"))
    published = _made(
        spark, blocks, parts, publication_columns, "number, topic, publisher, published_us"
    )
    published.select(
        event_id.alias("event_id"),
        F.concat(F.lit("topic-"), "topic").alias("topic"),
        F.concat(F.lit("p"), "publisher").alias("publisher"),
        F.col("number").alias("publisher_seq"),
        "published_us",
    ).write.parquet(str(folder / "publications"))
    delivered = _made(
        spark,
        blocks,
        parts,
        delivery_columns,
        "subscriber, position, number, publisher, delivered_us",
    )
    delivered.select(
        F.concat(F.lit("subscriber-"), "subscriber").alias("subscriber"),
        "position",
        event_id.alias("event_id"),
        "delivered_us",
        F.lit("in_order").alias("status"),
    ).write.parquet(str(folder / "deliveries"))
    held = [
        (f"subscriber-{subscriber}", f"topic-{topic}", -1_000_000, None)
        for subscriber in range(SUBSCRIBERS)
        for topic in range(TOPICS)
        if _HELD[subscriber, topic]
    ]
    spark.createDataFrame(
        held, "subscriber string, topic string, from_us bigint, until_us bigint"
    ).coalesce(1).write.parquet(str(folder / "subscriptions"))
    return blocks * TOPICS * SUBSCRIBERS_PER_TOPIC


def _made(spark: SparkSession, blocks: int, parts: int, columns: Any, names: str) -> DataFrame:
    """Consecutive blocks in, columns out; long runs of blocks, as each run warms up anew."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict(columns(batch["id"].to_numpy()))

    schema = ", ".join(f"{name.strip()} bigint" for name in names.split(","))
    return spark.range(0, blocks, 1, parts).mapInArrow(work, schema)
