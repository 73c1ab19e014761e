"""The pass by event: every delivery meets its publication, and the other deliveries of its event.

Publications and deliveries travel in one shuffle by event id, four columns wide; each partition is
then one Arrow table on which compiled loops settle all that concerns single events: duplicates,
phantoms, losses, latencies, and the event's reference time (its first judged delivery anywhere).
What is left for the later passes are integers. One partition holds about a million rows, so
memory does not grow with the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unisono.pipeline import event_kernel as k
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Longs, ints, longs
from unisono.trace.schema import IN_ORDER, STATUSES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_PER_PARTITION = 1_000_000
_ROWS_PER_BATCH = 100_000

# `event` is a number that is unique in the trace, `source` a pair (publisher, topic) of the census
# or NOT_JUDGED or NO_SOURCE, `cell` the slice of reference time that the event falls into.
RESOLVED = (
    "subscriber int, position bigint, event bigint, reference_us bigint, cell int, source int, "
    "publisher_seq bigint, summary binary"
)


class Missed(msgspec.Struct, frozen=True):
    """A witness against one event: who, which event, the key that makes the smallest win."""

    key: tuple[int, ...]
    subscriber: str
    event_id: str
    numbers: dict[str, int]


class EventSummary(msgspec.Struct, frozen=True):
    """What one partition found; sums and minima of these are what the trace holds."""

    published_twice: str | None
    duplicates: int
    phantoms: int
    deadline_misses: int
    expected: int
    lost: int
    unsettled: int
    latencies: int
    latency_sum_us: float
    latency_max_us: int
    latency_buckets: dict[int, int]
    witnesses: dict[str, Missed]


def tagged(publications: DataFrame, deliveries: DataFrame, census: Census) -> DataFrame:
    """Both tables in one: (event_id, tag, number, at_us); names become numbers on the way."""
    from pyspark.sql import functions as F

    session = publications.sparkSession
    sources = session.createDataFrame(
        [(-1 - at, *pair) for at, pair in enumerate(census.sources)],
        "tag int, publisher string, topic string",
    )
    subscribers = session.createDataFrame(
        [(at * 8, name) for at, name in enumerate(census.subscribers)],
        "base int, subscriber string",
    )
    status = F.coalesce(F.col("status"), F.lit(IN_ORDER))
    status_number = F.lit(0)
    for at, name in enumerate(STATUSES):
        status_number = F.when(status == name, at).otherwise(status_number)
    published = publications.join(F.broadcast(sources), ["publisher", "topic"]).select(
        "event_id",
        "tag",
        F.col("publisher_seq").alias("number"),
        F.col("published_us").alias("at_us"),
    )
    delivered = deliveries.join(F.broadcast(subscribers), ["subscriber"]).select(
        "event_id",
        (F.col("base") + status_number).alias("tag"),
        F.col("position").alias("number"),
        F.col("delivered_us").alias("at_us"),
    )
    return published.unionAll(delivered)


def resolve(
    rows: DataFrame, census: Census, cells: Longs, deadline_us: int | None, settle_us: int
) -> DataFrame:
    """The rows of `tagged` as RESOLVED deliveries, plus one row with a summary per partition."""
    total = census.publications + census.deliveries
    partitions = max(1, -(-total // ROWS_PER_PARTITION))
    worker = _worker(census, cells, deadline_us, settle_us)
    return rows.repartition(partitions, "event_id").mapInArrow(worker, RESOLVED)


def summaries(resolved: DataFrame) -> list[EventSummary]:
    found = resolved.where("summary is not null").select("summary").collect()
    return [msgspec.msgpack.decode(row.summary, type=EventSummary) for row in found]


Batches = Iterator["pa.RecordBatch"]


def _worker(
    census: Census, cells: Longs, deadline_us: int | None, settle_us: int
) -> Callable[[Batches], Batches]:
    topic_of_source = census.topic_of_source()
    subscribers = census.subscribers
    intervals = census.intervals
    deadline = -1 if deadline_us is None else deadline_us

    def work(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        held = list(batches)
        if not held:
            return
        table = pa.Table.from_batches(held).combine_chunks()
        held.clear()
        encoded = table["event_id"].chunk(0).dictionary_encode() if table.num_rows else None
        if encoded is None:
            return
        names = encoded.dictionary
        code, tag = ints(encoded.indices), ints(table["tag"])
        number, at_us = longs(table["number"]), longs(table["at_us"])
        publication, start, rows, again = k.group_by_event(code, tag, len(names))
        judged, reference_us, counts, witnesses, histogram, sum_us = k.judge_events(
            tag, number, at_us, publication, start, rows, len(subscribers), deadline
        )
        found = np.zeros(k.N_LOSSES, np.int64)
        if intervals is not None:
            found = k.find_losses(
                tag, number, at_us, publication, start, rows, topic_of_source,
                intervals.start, intervals.subscriber, intervals.from_us, intervals.until_us,
                len(subscribers), settle_us,
            )  # fmt: skip

        def told(row: int, *key: int, **more: int) -> Missed:
            return Missed(key, subscribers[tag[row] >> 3], names[int(code[row])].as_py(), more)

        told_of: dict[str, Missed] = {}
        if (row := int(witnesses[k.DUPLICATE_ROW])) >= 0:
            place = int(number[row])
            first = int(number[witnesses[k.DUPLICATE_FIRST]])
            told_of["duplicates"] = told(row, int(tag[row] >> 3), place, first=first, again=place)
        if (row := int(witnesses[k.PHANTOM_ROW])) >= 0:
            place = int(number[row])
            told_of["phantoms"] = told(row, int(tag[row] >> 3), place, position=place)
        if (row := int(witnesses[k.DEADLINE_ROW])) >= 0:
            place = int(number[row])
            late = int(at_us[row] - at_us[publication[code[row]]])
            told_of["deadline"] = told(
                row, -late, int(tag[row] >> 3), place, position=place, latency_us=late
            )
        if found[k.LOST]:
            row = int(found[k.LOST_PUBLICATION])
            who = int(found[k.LOST_SUBSCRIBER])
            when = int(at_us[row])
            told_of["losses"] = Missed(
                (when, -int(tag[row]), int(number[row]), who),
                subscribers[who],
                names[int(code[row])].as_py(),
                {"published_us": when},
            )
        used = np.flatnonzero(histogram)
        summary = EventSummary(
            published_twice=names[int(code[again])].as_py() if again >= 0 else None,
            duplicates=int(counts[k.DUPLICATES]),
            phantoms=int(counts[k.PHANTOMS]),
            deadline_misses=int(counts[k.DEADLINES]),
            expected=int(found[k.EXPECTED]),
            lost=int(found[k.LOST]),
            unsettled=int(found[k.UNSETTLED]),
            latencies=int(counts[k.LATENCIES]),
            latency_sum_us=sum_us,
            latency_max_us=int(counts[k.LONGEST_US]),
            latency_buckets={int(at): int(histogram[at]) for at in used},
            witnesses=told_of,
        )
        context = TaskContext.get()
        base = (context.partitionId() if context else 0) << 32
        event = code[rows]
        source = np.where(publication >= 0, -1 - tag[publication], k.NO_SOURCE)[event]
        out: dict[str, Any] = {
            "subscriber": tag[rows] >> 3,
            "position": number[rows],
            "event": base + event.astype(np.int64),
            "reference_us": reference_us[event],
            "cell": np.searchsorted(cells, reference_us, side="right").astype(np.int32)[event],
            "source": np.where(judged[rows], source, k.NOT_JUDGED).astype(np.int32),
            "publisher_seq": np.where(source >= 0, number[publication[event]], 0),
        }
        for low in range(0, rows.size, _ROWS_PER_BATCH):
            part = {name: pa.array(v[low : low + _ROWS_PER_BATCH]) for name, v in out.items()}
            part["summary"] = pa.nulls(len(part["event"]), pa.binary())
            yield pa.RecordBatch.from_pydict(part)
        last = {name: pa.array([0], pa.from_numpy_dtype(v.dtype)) for name, v in out.items()}
        last["summary"] = pa.array([msgspec.msgpack.encode(summary)], pa.binary())
        yield pa.RecordBatch.from_pydict(last)

    return work
