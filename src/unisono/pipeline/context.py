"""What one audit of a growing trace keeps for the next: the rows that can still matter.

With the watermark W these are all rows of each event that

- was published at W or later, or
- was delivered to some subscriber at its border or later, the border being its first position
  with a time of W or later, or
- is the last of its publisher and topic that a subscriber heard before its border: the one that
  the next from there is compared with for FIFO.

So from its border on all that a subscriber heard is kept, and of an event everything or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Longs
from unisono.pipeline.locate import USED
from unisono.pipeline.lookup import lookup
from unisono.pipeline.read import Trace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_BROADCAST_MAX = 1_000_000  # ids; more are joined by a shuffle


def waiting(trace: Trace, watermark_us: int) -> dict[str, int]:
    """By subscriber: the first delivery since the watermark whose publication is not there yet."""
    from pyspark.sql import functions as F

    found = (
        trace.deliveries.rows.where(F.col("delivered_us") >= watermark_us)
        .join(trace.publications.rows.select("event_id"), "event_id", "left_anti")
        .groupBy("subscriber")
        .agg(F.min("position").alias("position"))
        .collect()
    )
    return {row.subscriber: row.position for row in found}


def write_context(
    trace: Trace, census: Census, blocks: DataFrame, watermark_us: int, end: Longs, folder: Path
) -> None:
    """Write the context as a trace; `end` is, by subscriber, beyond all its positions so far."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    deliveries, publications = trace.deliveries.rows, trace.publications.rows
    young = (
        deliveries.where(F.col("delivered_us") >= watermark_us)
        .groupBy("subscriber")
        .agg(F.min("position").alias("position"))
        .collect()
    )
    first = {row.subscriber: row.position for row in young}
    border = np.array([first.get(name, end[at]) for at, name in enumerate(census.subscribers)])
    borders = lookup(
        deliveries.sparkSession,
        [(name, int(border[at])) for at, name in enumerate(census.subscribers)],
        subscriber="string",
        border="int64",
    )
    tails = _tails(blocks, census, border)
    ids = (
        publications.where(F.col("published_us") >= watermark_us)
        .select("event_id")
        .unionAll(
            deliveries.join(borders, "subscriber").where("position >= border").select("event_id")
        )
        .unionAll(deliveries.join(tails, ["subscriber", "position"]).select("event_id"))
        .distinct()
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        wanted = F.broadcast(ids) if ids.count() <= _BROADCAST_MAX else ids
        for table in (trace.publications, trace.deliveries):
            columns = [column.name for column in USED[table.name]]
            kept = table.rows.join(wanted, "event_id", "left_semi").select(*columns)
            kept.write.mode("overwrite").parquet(f"file://{(folder / table.name).resolve()}")
    finally:
        ids.unpersist()


def _tails(blocks: DataFrame, census: Census, border: Longs) -> DataFrame:
    """By subscriber and source: its last judged delivery before the border."""
    sources = max(1, len(census.sources))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for payload in batch["payload"].to_pylist():
                rows = np.frombuffer(payload, p.DELIVERY)
                rows = rows[(rows["source"] >= 0) & (rows["position"] < border[rows["subscriber"]])]
                link = rows["subscriber"].astype(np.int64) * sources + rows["source"]
                order = np.lexsort((rows["position"], link))
                last = order[np.diff(link[order], append=-1) != 0]
                yield pa.RecordBatch.from_pydict(
                    {"link": link[last], "position": p.column(rows[last], "position")}
                )

    found = (
        blocks.where(f"kind = {p.BY_CHUNK}")
        .select("payload")
        .mapInArrow(work, "link bigint, position bigint")
        .groupBy("link")
        .agg({"position": "max"})
        .collect()
    )
    return lookup(
        blocks.sparkSession,
        [(census.subscribers[link // sources], position) for link, position in found],
        subscriber="string",
        position="int64",
    )
