"""Gaps: of what a source published between two events that a subscriber got, did it get all?

A source is a publisher on a topic. The pass by event tells per subscriber and source how many
events it got, and the smallest and largest of their numbers; Spark adds that up. Whoever got as
many as the source published lacks nothing. For the others, the publications between the two numbers
are counted wherever they lie: no row moves for it. So no source, topic or subscriber is too large
for one task; only the pairs of them that are incomplete have a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unisono.compiled import mix
from unisono.pipeline import plan as p
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Ints, Longs, compiled, longs
from unisono.pipeline.lookup import lookup

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PAIRS_MAX = 1_000_000  # incomplete ones
COLLECTED_MAX = 1_000_000  # records that are added up without Spark

# `pair` is subscriber * sources + source.
PAIR = np.dtype([("pair", "<i8"), ("events", "<i8"), ("low", "<i8"), ("high", "<i8")])
_PAIR = "pair bigint, events bigint, low bigint, high bigint"


class Gap(msgspec.Struct, frozen=True):
    """The first event that a subscriber lacks of a source, and the numbers of what it got."""

    subscriber: str
    publisher: str
    topic: str
    event_id: str
    publisher_seq: int
    low: int
    high: int


class GapSummary(msgspec.Struct, frozen=True):
    """How many events are missing, each counted for every subscriber that lacks it."""

    missing: int = 0
    witness: Gap | None = None
    too_many: int = 0  # so many pairs were not looked at


@compiled
def _count(
    tag: Ints,
    number: Longs,
    publication: Ints,
    start: Ints,
    rows: Ints,
    subscribers: int,
    sources: int,
) -> tuple[Longs, Longs, Longs, Longs]:
    """Per pair of subscriber and source: its distinct events, the smallest and largest number.

    Rows as in `event_kernel.py`.
    """
    size = 16
    while size < 2 * rows.size:
        size *= 2
    mask = np.uint64(size - 1)
    pair = np.full(size, -1, np.int64)
    events = np.zeros(size, np.int64)
    low = np.zeros(size, np.int64)
    high = np.zeros(size, np.int64)
    seen = np.full(subscribers, -1, np.int32)  # by subscriber: the last event seen there
    for event in range(publication.size):
        published = publication[event]
        if published < 0:
            continue
        source, seq = -1 - tag[published], number[published]
        for place in range(start[event], start[event + 1]):
            subscriber = tag[rows[place]] >> 3
            if seen[subscriber] == event:
                continue
            seen[subscriber] = event
            this = np.int64(subscriber) * sources + source
            at = mix(np.uint64(this)) & mask
            while pair[at] >= 0 and pair[at] != this:
                at = (at + np.uint64(1)) & mask
            if pair[at] < 0:
                pair[at] = this
                low[at] = high[at] = seq
            events[at] += 1
            low[at] = min(low[at], seq)
            high[at] = max(high[at], seq)
    used = pair >= 0
    return pair[used], events[used], low[used], high[used]


def count_pairs(
    rows: tuple[Ints, Longs, Ints, Ints, Ints], subscribers: int, sources: int
) -> p.Records:
    """What one partition of the pass by event has to tell; `rows` as in `_count`."""
    columns = _count(*rows, subscribers, sources)
    records = np.empty(columns[0].size, PAIR)
    for name, values in zip(PAIR.names or (), columns, strict=True):
        records[name] = values
    return records


def find_gaps(
    blocks: DataFrame, publications: DataFrame, deliveries: DataFrame, census: Census
) -> GapSummary:
    """All that is missing; `publications` and `deliveries` as the trace has them."""
    pair, events, low, high = _incomplete(blocks, census)
    if pair.size > PAIRS_MAX:
        return GapSummary(too_many=pair.size)
    if not pair.size:
        return GapSummary()
    source = pair % len(census.sources)
    first, last = (np.array([row[at] for row in census.published]) for at in (1, 2))
    inside = np.array([row[0] for row in census.published])[source]
    part = np.flatnonzero((low > first[source]) | (high < last[source]))
    if part.size:
        inside[part] = _between(publications, census, source[part], low[part], high[part])
    missing = inside - events
    if not missing.any():
        return GapSummary()
    at = min(np.flatnonzero(missing), key=lambda at: int(pair[at]))
    who = census.subscribers[int(pair[at]) // len(census.sources)]
    whence = census.sources[int(source[at])]
    witness = _first_missing(publications, deliveries, who, whence, int(low[at]), int(high[at]))
    return GapSummary(int(missing.sum()), witness)


def _incomplete(blocks: DataFrame, census: Census) -> list[Longs]:
    """The pairs that got fewer events than the source published, in columns."""
    pairs = len(census.subscribers) * len(census.sources)
    if p.partitions(census) * min(pairs, p.ROWS_PER_PARTITION) > COLLECTED_MAX:
        found = _add_up(blocks, census)
        return [longs(found[name]) for name in PAIR.names or ()]
    payloads = p.payloads(blocks, p.BY_PAIR)
    records = np.concatenate([np.frombuffer(payload, PAIR) for payload in [b"", *payloads]])
    records = records[np.argsort(records["pair"])]
    start = np.flatnonzero(np.diff(records["pair"], prepend=-1))
    if not start.size:
        return [np.zeros(0, np.int64)] * 4
    pair = records["pair"][start]
    events = np.add.reduceat(records["events"], start)
    low = np.minimum.reduceat(records["low"], start)
    high = np.maximum.reduceat(records["high"], start)
    published = np.array([row[0] for row in census.published], np.int64)
    some = events < published[pair % published.size]
    return [pair[some], events[some], low[some], high[some]]


def _add_up(blocks: DataFrame, census: Census) -> Any:
    """The same by Spark, for as many as there may be."""
    from pyspark.sql import functions as F

    def unpack(batches: Batches) -> Batches:
        import pyarrow as pa

        for batch in batches:
            for payload in batch["payload"].to_pylist():
                records = np.frombuffer(payload, PAIR)
                yield pa.RecordBatch.from_pydict({name: records[name] for name in PAIR.names or ()})

    counts = [(at, row[0]) for at, row in enumerate(census.published)]
    published = lookup(blocks.sparkSession, counts, source="int64", published="int64")
    return (
        blocks.where(f"kind = {p.BY_PAIR}")
        .select("payload")
        .mapInArrow(unpack, _PAIR)
        .groupBy("pair")
        .agg(
            F.sum("events").alias("events"), F.min("low").alias("low"), F.max("high").alias("high")
        )
        .withColumn("source", F.col("pair") % len(census.sources))
        .join(published, "source")
        .where("events < published")
        .select(*(PAIR.names or ()))
        .limit(PAIRS_MAX + 1)
        .toArrow()
    )


def _between(
    publications: DataFrame, census: Census, source: Longs, low: Longs, high: Longs
) -> Longs:
    """How many events each source published with numbers from low to high."""
    from pyspark.sql import functions as F

    sources = [(at, *pair) for at, pair in enumerate(census.sources)]
    numbers = lookup(
        publications.sparkSession, sources, source="int32", publisher="string", topic="string"
    )
    rows = (
        publications.join(numbers, ["publisher", "topic"])
        .select("source", "publisher_seq")
        .mapInArrow(_counter(source, low, high), "at int, events bigint")
        .groupBy("at")
        .agg(F.sum("events").alias("events"))
        .toArrow()
    )
    inside = np.zeros(source.size, np.int64)
    inside[longs(rows["at"])] = longs(rows["events"])
    return inside


Batches = Iterator["pa.RecordBatch"]


def _counter(source: Longs, low: Longs, high: Longs) -> Callable[[Batches], Batches]:
    order = np.argsort(source, kind="stable")
    asked = source[order]

    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        held = [(longs(batch["source"]), longs(batch["publisher_seq"])) for batch in batches]
        if not held:
            return
        of, seq = (np.concatenate(columns) for columns in zip(*held, strict=True))
        rows = np.lexsort((seq, of))
        of, seq = of[rows], seq[rows]
        found = np.zeros(asked.size, np.int64)
        for here in np.unique(of):
            mine = seq[np.searchsorted(of, here) : np.searchsorted(of, here, side="right")]
            questions = slice(*np.searchsorted(asked, [here, here + 1]))
            at = order[questions]
            below = np.searchsorted(mine, low[at])
            found[questions] = np.searchsorted(mine, high[at], side="right") - below
        some = np.flatnonzero(found)
        yield pa.RecordBatch.from_pydict(
            {"at": pa.array(order[some], pa.int32()), "events": pa.array(found[some], pa.int64())}
        )

    return work


def _first_missing(
    publications: DataFrame,
    deliveries: DataFrame,
    subscriber: str,
    source: tuple[str, str],
    low: int,
    high: int,
) -> Gap:
    from pyspark.sql import functions as F

    said = publications.where(
        (F.col("publisher") == source[0])
        & (F.col("topic") == source[1])
        & F.col("publisher_seq").between(low, high)
    ).select("event_id", "publisher_seq")
    got = deliveries.where(F.col("subscriber") == subscriber).select("event_id")
    row = said.join(got, "event_id", "left_anti").orderBy("publisher_seq", "event_id").head()
    assert row is not None
    return Gap(subscriber, *source, row.event_id, row.publisher_seq, low, high)
