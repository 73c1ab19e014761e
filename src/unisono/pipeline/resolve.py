"""The pass by event: every delivery meets its publication, and the other deliveries of its event.

Publications and deliveries travel in one shuffle by event id, four columns wide; each partition is
then one Arrow table on which compiled loops settle all that concerns single events: duplicates,
phantoms, losses, latencies, and the event's reference time (its first judged delivery anywhere).
What the later passes need leaves in blocks (see `plan.py`). One partition holds about a million
rows, so memory does not grow with the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unisono.pipeline import breakdown, gaps, stalls
from unisono.pipeline import event_kernel as k
from unisono.pipeline import plan as p
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Bools, Ints, Longs, ints, longs
from unisono.pipeline.lookup import lookup
from unisono.pipeline.window import Window
from unisono.trace.schema import DUPLICATE, IN_ORDER, STATUSES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Terms:
    """What deliveries are judged by, and what else is to be found out about them."""

    deadline_us: int | None = None
    settle_us: int = 0
    stall_us: int | None = None
    ordered: Bools | None = None  # by source: whether order is judged over its events; None: all
    relays: Bools | None = None  # by subscriber: whether what it heard may cause what others hear
    breakdown: bool = False

    @property
    def record(self) -> np.dtype[Any]:
        """What travels of a delivery to the pass by subscriber."""
        return p.DELIVERY if self.stall_us is None else p.TIMED


class Missed(msgspec.Struct, frozen=True):
    """A witness against one event; of several the one with the smallest key is told."""

    key: tuple[int, ...]
    subscriber: str
    event_id: str
    numbers: dict[str, int]


class EventSummary(msgspec.Struct, frozen=True):
    """What one partition found; sums and minima of these are what the trace holds."""

    events: dict[int, int]  # by partition: how many event ids it has
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
    sources = [(-1 - at, *pair) for at, pair in enumerate(census.sources)]
    tags = lookup(session, sources, tag="int32", publisher="string", topic="string")
    subscribers = [(at * 8, name) for at, name in enumerate(census.subscribers)]
    bases = lookup(session, subscribers, base="int32", subscriber="string")
    status = F.coalesce(F.col("status"), F.lit(IN_ORDER))
    status_number = F.lit(0)
    for at, name in enumerate(STATUSES):
        status_number = F.when(status == name, at).otherwise(status_number)
    published = publications.join(tags, ["publisher", "topic"]).select(
        "event_id",
        "tag",
        F.col("publisher_seq").alias("number"),
        F.col("published_us").alias("at_us"),
    )
    delivered = deliveries.join(bases, ["subscriber"]).select(
        "event_id",
        (F.col("base") + status_number).alias("tag"),
        F.col("position").alias("number"),
        F.col("delivered_us").alias("at_us"),
    )
    return published.unionAll(delivered)


def resolve(rows: DataFrame, census: Census, plan: p.Plan, terms: Terms) -> DataFrame:
    """The rows of `tagged` as blocks, of all the kinds that later passes ask for."""
    worker = _worker(census, plan, terms)
    return rows.repartition(p.partitions(census), "event_id").mapInArrow(worker, p.BLOCK)


def summaries(blocks: DataFrame) -> list[EventSummary]:
    found = p.payloads(blocks, p.SUMMARY)
    return [msgspec.msgpack.decode(payload, type=EventSummary) for payload in found]


@dataclass(frozen=True)
class _Partition:
    """The rows of some events, all of each."""

    names: Any  # Arrow array of event ids, by code
    code: Ints
    tag: Ints
    number: Longs
    at_us: Longs
    publication: Ints
    start: Ints
    rows: Ints


Batches = Iterator["pa.RecordBatch"]


def _worker(census: Census, plan: p.Plan, terms: Terms) -> Callable[[Batches], Batches]:
    def work(batches: Batches) -> Batches:
        import pyarrow as pa
        from pyspark import TaskContext

        held = list(batches)
        if not sum(batch.num_rows for batch in held):
            return
        table = pa.Table.from_batches(held).combine_chunks()
        held.clear()
        names, code = _number(table["event_id"].chunk(0))
        tag = ints(table["tag"])
        publication, start, rows, again = k.group_by_event(code, tag, len(names))
        part = _Partition(
            names, code, tag, longs(table["number"]), longs(table["at_us"]),
            publication, start, rows,
        )  # fmt: skip
        context = TaskContext.get()
        number = context.partitionId() if context else 0
        lost = np.zeros(len(census.topics), np.int64)
        judged, reference_us, summary = _settle(part, again, census, plan.window, terms, lost)
        summary = msgspec.structs.replace(summary, events={number: len(names)})
        yield p.block(p.SUMMARY, 0, 0, msgspec.msgpack.encode(summary))
        records = _records(part, judged, reference_us, plan, number << 32, terms)
        chunk = plan.chunk_of(records["subscriber"], records["position"])
        for key, payload in p.pack(chunk, plan.chunks, records):
            yield p.block(p.BY_CHUNK, key, int(plan.partition_of_chunk[key]), payload)
        records = records[records["source"] != p.NOT_JUDGED]
        holders = np.bincount(records["event"] & 0xFFFFFFFF, minlength=len(names))
        yield p.block(p.HOLDERS, number, 0, holders.astype("<i4").tobytes())
        places = np.empty(records.size, p.PLACE)
        for name in p.PLACE.names or ():
            places[name] = records[name]
        for key, payload in p.pack(p.column(records, "cell"), plan.cells, places):
            yield p.block(p.BY_CELL, key, 0, payload)
        sizes = len(census.subscribers), len(census.sources)
        pairs = gaps.count_pairs((tag, part.number, publication, start, rows), *sizes)
        for key, payload in p.pack(np.zeros(pairs.size, np.int32), 1, pairs):
            yield p.block(p.BY_PAIR, key, 0, payload)
        if terms.relays is not None:
            yield from _causes(part, census, plan, terms.relays)
        if terms.breakdown:
            delivered = _delivered(part, len(census.subscribers))
            yield from breakdown.blocks_of(delivered, census, lost, p.partitions(census))

    return work


def _number(event_id: Any) -> tuple[Any, Ints]:
    """The names in sorted order, and each row's name by number: the same in every attempt."""
    import pyarrow.compute as pc

    encoded = event_id.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    return encoded.dictionary.take(order), rank[ints(encoded.indices)]


def _settle(
    part: _Partition,
    again: int,
    census: Census,
    window: Window,
    terms: Terms,
    lost_by_topic: Longs,
) -> tuple[Bools, Longs, EventSummary]:
    """All that concerns single events; also which rows are judged, and reference times."""
    subscribers = len(census.subscribers)
    rows = (part.tag, part.number, part.at_us, part.publication, part.start, part.rows)
    judged, reference_us, counts, witnesses, histogram, sum_us = k.judge_events(
        *rows,
        subscribers,
        -1 if terms.deadline_us is None else terms.deadline_us,
        window.low,
        window.high,
    )
    losses = np.zeros(k.N_LOSSES, np.int64)
    if (of := census.intervals) is not None:
        losses = k.find_losses(
            *rows, census.topic_of_source(), of.start, of.subscriber, of.from_us, of.until_us,
            subscribers, terms.settle_us, window.from_us, window.until_us, lost_by_topic,
        )  # fmt: skip
    summary = EventSummary(
        events={},
        published_twice=part.names[int(part.code[again])].as_py() if again >= 0 else None,
        duplicates=int(counts[k.DUPLICATES]),
        phantoms=int(counts[k.PHANTOMS]),
        deadline_misses=int(counts[k.DEADLINES]),
        expected=int(losses[k.EXPECTED]),
        lost=int(losses[k.LOST]),
        unsettled=int(losses[k.UNSETTLED]),
        latencies=int(counts[k.LATENCIES]),
        latency_sum_us=sum_us,
        latency_max_us=int(counts[k.LONGEST_US]),
        latency_buckets={int(at): int(histogram[at]) for at in np.flatnonzero(histogram)},
        witnesses=_witnesses(part, census, witnesses, losses),
    )
    return judged, reference_us, summary


def _witnesses(part: _Partition, census: Census, rows: Longs, losses: Longs) -> dict[str, Missed]:
    told: dict[str, Missed] = {}

    def tell(check: str, row: int, who: int, key: tuple[int, ...], **numbers: int) -> None:
        name = part.names[int(part.code[row])].as_py()
        told[check] = Missed(key, census.subscribers[who], name, numbers)

    if (row := int(rows[k.DUPLICATE_ROW])) >= 0:
        who, place = int(part.tag[row] >> 3), int(part.number[row])
        first = int(part.number[rows[k.DUPLICATE_FIRST]])
        tell("duplicates", row, who, (who, place), first=first, again=place)
    if (row := int(rows[k.PHANTOM_ROW])) >= 0:
        who, place = int(part.tag[row] >> 3), int(part.number[row])
        tell("phantoms", row, who, (who, place), position=place)
    if (row := int(rows[k.DEADLINE_ROW])) >= 0:
        who, place = int(part.tag[row] >> 3), int(part.number[row])
        late_us = int(part.at_us[row] - part.at_us[part.publication[part.code[row]]])
        tell("deadline", row, who, (-late_us, who, place), position=place, latency_us=late_us)
    if losses[k.LOST]:
        row, who = int(losses[k.LOST_PUBLICATION]), int(losses[k.LOST_SUBSCRIBER])
        at_us = int(part.at_us[row])
        key = (at_us, -int(part.tag[row]), int(part.number[row]), who)
        tell("losses", row, who, key, published_us=at_us)
    return told


def _records(
    part: _Partition,
    judged: Bools,
    reference_us: Longs,
    plan: p.Plan,
    base: int,
    terms: Terms,
) -> p.Records:
    """The deliveries as the later passes want them."""
    event = part.code[part.rows]
    published = part.publication[event]
    records = np.empty(part.rows.size, terms.record)
    source = np.where(published >= 0, -1 - part.tag[published], p.NO_SOURCE)
    records["subscriber"] = part.tag[part.rows] >> 3
    claimed = judged[part.rows]
    if terms.ordered is not None:
        claimed &= np.append(terms.ordered, True)[source]  # the last one is for NO_SOURCE
    records["source"] = np.where(claimed, source, p.NOT_JUDGED)
    records["cell"] = plan.cell_of(reference_us)[event]
    records["position"] = part.number[part.rows]
    records["event"] = base + event.astype(np.int64)
    records["reference_us"] = reference_us[event]
    records["publisher_seq"] = np.where(published >= 0, part.number[published], 0)
    if terms.stall_us is not None:
        at_us = part.at_us[part.rows]
        marked = part.tag[part.rows] & 7 == STATUSES.index(DUPLICATE)
        latency_us = np.where(published >= 0, at_us - part.at_us[published], stalls.NO_LATENCY)
        records["delivered_us"] = at_us
        records["latency_us"] = np.where(marked, stalls.MARKED, latency_us)
    return records


def _causes(part: _Partition, census: Census, plan: p.Plan, relays: Bools) -> Batches:
    """All publications, and what relays heard, judged or not."""
    publisher_of_source = np.append(census.publisher_of_source(), np.int32(-1))
    rows = part.publication[part.publication >= 0]
    said = np.empty(rows.size, p.SAID)
    said["publisher"] = publisher_of_source[-1 - part.tag[rows]]
    said["publisher_seq"] = part.number[rows]
    said["published_us"] = part.at_us[rows]
    for key, payload in p.pack(np.zeros(rows.size, np.int32), 1, said):
        yield p.block(p.BY_PUBLISHER, key, 0, payload)
    rows = part.rows[relays[part.tag[part.rows] >> 3]]
    published = part.publication[part.code[rows]]
    heard = np.empty(rows.size, p.HEARD)
    heard["subscriber"] = part.tag[rows] >> 3
    source = np.where(published >= 0, -1 - part.tag[published], p.NO_SOURCE)
    heard["publisher"] = publisher_of_source[source]
    heard["position"] = part.number[rows]
    heard["publisher_seq"] = np.where(published >= 0, part.number[published], 0)
    heard["delivered_us"] = part.at_us[rows]
    chunk = plan.chunk_of(heard["subscriber"], heard["position"])
    for key, payload in p.pack(chunk, plan.chunks, heard):
        yield p.block(p.BY_RELAY, key, 0, payload)


def _delivered(part: _Partition, subscribers: int) -> breakdown.Deliveries:
    """The deliveries of published events."""
    again = breakdown.repeats(part.tag, part.start, part.rows, subscribers)
    published = part.publication[part.code[part.rows]]
    known = published >= 0
    rows, published = part.rows[known], published[known]
    return breakdown.Deliveries(
        part.tag[rows] >> 3,
        part.tag[rows] & 7,
        -1 - part.tag[published],
        again[known],
        part.at_us[rows] - part.at_us[published],
    )
