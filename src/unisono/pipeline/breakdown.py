"""The figures of a trace by topic and by link, a publisher and a subscriber that heard of it.

Only if asked for. The pass by event adds up its own rows: a tally per topic and per link, and how
many deliveries had which latency, in buckets. These few records are then put together by topic and
link, spread over tasks; each tells those with the most deliveries. Events that nobody published
belong to no topic and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.census import Census
from unisono.pipeline.event_kernel import bucket, bucket_floor
from unisono.pipeline.kernel import Bools, Ints, Longs, compiled
from unisono.trace.schema import DUPLICATE, OUT_OF_ORDER, STATUSES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TOLD_MAX = 200  # topics, and links
FINE = 64  # buckets for each power of two: percentiles to 1.6 %

# A key is a topic, or topics + publisher * subscribers + subscriber for a link.
_SUMS = ("deliveries", "tagged", "duplicates", "lost", "latencies")
TALLY = np.dtype(
    [("key", "<i8"), *((name, "<i8") for name in _SUMS), ("sum_us", "<f8"), ("max_us", "<i8")]
)
BUCKET = np.dtype([("key", "<i8"), ("bucket", "<i8"), ("count", "<i8")])
_DUPLICATE = STATUSES.index(DUPLICATE)
_LEAST = -(2**62)  # the largest of no latencies


class Share(msgspec.Struct, frozen=True):
    """The figures of one topic or link; latencies in milliseconds, `lost` only where judged."""

    key: int
    deliveries: int
    tagged: int
    duplicates: int
    lost: int
    latency: dict[str, float | None]


class Shares(msgspec.Struct, frozen=True):
    """Those with the most deliveries, and how many there are."""

    topics: list[Share] = []
    links: list[Share] = []
    n_topics: int = 0
    n_links: int = 0


@dataclass(frozen=True)
class Deliveries:
    """Deliveries of published events in columns, as the pass by event has them."""

    subscriber: Ints
    status: Ints
    source: Ints
    again: Bools  # the subscriber had the event before, and it is not marked
    latency_us: Longs


@compiled
def repeats(tag: Ints, start: Ints, rows: Ints, subscribers: int) -> Bools:
    """Which of the rows are repeats, not marked as such; rows as in `event_kernel.py`."""
    again = np.zeros(rows.size, np.bool_)
    seen = np.full(subscribers, -1, np.int32)
    for event in range(start.size - 1):
        for place in range(start[event], start[event + 1]):
            subscriber = tag[rows[place]] >> 3
            if tag[rows[place]] & 7 == _DUPLICATE:
                continue
            again[place] = seen[subscriber] == event
            seen[subscriber] = event
    return again


@compiled
def _buckets(latency_us: Longs) -> Longs:
    """Negative latencies are in negative buckets: larger buckets, larger latencies."""
    found = np.empty(latency_us.size, np.int64)
    for row in range(found.size):
        value = latency_us[row]
        found[row] = bucket(value, FINE) if value >= 0 else -1 - bucket(-value, FINE)
    return found


def _value_us(index: int) -> int:
    return bucket_floor(index, FINE) if index >= 0 else -bucket_floor(-1 - index, FINE)


def blocks_of(rows: Deliveries, census: Census, lost: Longs, tasks: int) -> Iterator[Any]:
    """The blocks that one partition contributes; `lost` is by topic."""
    topic = census.topic_of_source()[rows.source].astype(np.int64)
    publisher = census.publisher_of_source()[rows.source].astype(np.int64)
    link = len(census.topics) + publisher * len(census.subscribers) + rows.subscriber
    missed = np.zeros(int(np.count_nonzero(lost)), TALLY)
    missed["key"], missed["lost"] = np.flatnonzero(lost), lost[lost > 0]
    missed["max_us"] = _LEAST
    single = np.empty(rows.source.size, TALLY)
    timed = rows.status != _DUPLICATE
    single["deliveries"] = 1
    single["tagged"] = rows.status == STATUSES.index(OUT_OF_ORDER)
    single["duplicates"] = rows.again
    single["lost"] = 0
    single["latencies"] = timed
    single["sum_us"] = np.where(timed, rows.latency_us, 0)
    single["max_us"] = np.where(timed, rows.latency_us, _LEAST)
    counts = np.empty(int(timed.sum()), BUCKET)
    counts["bucket"], counts["count"] = _buckets(rows.latency_us[timed]), 1
    for key in (topic, link):
        single["key"], counts["key"] = key, key[timed]
        tallies = _add_tallies(np.concatenate([single, missed]) if key is topic else single)
        for kind, records in ((p.BY_TALLY, tallies), (p.BY_BUCKET, _add_buckets(counts))):
            for task, payload in p.pack((records["key"] % tasks).astype(np.int32), tasks, records):
                yield p.block(kind, task, 0, payload)


def _add_tallies(records: p.Records) -> p.Records:
    """One record per key, in their order."""
    records = records[np.argsort(records["key"], kind="stable")]
    start = np.flatnonzero(np.diff(records["key"], prepend=-1))
    added = records[start]
    if start.size:
        for name in (*_SUMS, "sum_us"):
            added[name] = np.add.reduceat(records[name], start)
        added["max_us"] = np.maximum.reduceat(records["max_us"], start)
    return added


def _add_buckets(records: p.Records) -> p.Records:
    """One record per key and bucket, in their order."""
    records = records[np.lexsort((records["bucket"], records["key"]))]
    fresh = np.diff(records["key"], prepend=-1) != 0
    fresh[1:] |= np.diff(records["bucket"]) != 0
    start = np.flatnonzero(fresh)
    added = records[start]
    if start.size:
        added["count"] = np.add.reduceat(records["count"], start)
    return added


def break_down(blocks: DataFrame, census: Census, tasks: int) -> Shares:
    """Put together what all partitions contributed."""
    from pyspark.sql import functions as F

    found = (
        blocks.where(f"kind in ({p.BY_TALLY}, {p.BY_BUCKET})")
        .repartitionById(tasks, F.col("key"))
        .select("kind", "payload")
        .mapInArrow(_worker(len(census.topics)), "shares binary")
        .collect()
    )
    parts = [msgspec.msgpack.decode(row.shares, type=Shares) for row in found]
    return Shares(
        _most([share for part in parts for share in part.topics]),
        _most([share for part in parts for share in part.links]),
        sum(part.n_topics for part in parts),
        sum(part.n_links for part in parts),
    )


def _most(shares: list[Share]) -> list[Share]:
    """Those with the most deliveries, in the order of their keys."""
    chosen = sorted(shares, key=lambda share: (-share.deliveries, share.key))[:TOLD_MAX]
    return sorted(chosen, key=lambda share: share.key)


def by_name(census: Census, shares: Shares) -> dict[str, Any]:
    """By topic and by link, those with the most deliveries, in the order of their names."""

    def figures(share: Share) -> dict[str, Any]:
        return {
            "deliveries": share.deliveries,
            "tagged": share.tagged,
            "duplicates": share.duplicates,
            "latency": share.latency,
        }

    topics = []
    for share in shares.topics:
        lost = {} if census.intervals is None else {"lost": share.lost}
        topics.append({"topic": census.topics[share.key]} | figures(share) | lost)
    links = []
    for share in shares.links:
        publisher, subscriber = divmod(share.key - len(census.topics), len(census.subscribers))
        ends = {
            "publisher": census.publishers[publisher],
            "subscriber": census.subscribers[subscriber],
        }
        links.append(ends | figures(share))
    omitted = {"topics": shares.n_topics - len(topics), "links": shares.n_links - len(links)}
    return {"topics": topics, "links": links, "omitted": omitted}


Batches = Iterator["pa.RecordBatch"]


def _worker(topics: int) -> Callable[[Batches], Batches]:
    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        held: dict[int, list[p.Records]] = {p.BY_TALLY: [], p.BY_BUCKET: []}
        for batch in batches:
            for kind, payload in zip(
                batch["kind"].to_pylist(), batch["payload"].to_pylist(), strict=True
            ):
                held[kind].append(np.frombuffer(payload, TALLY if kind == p.BY_TALLY else BUCKET))
        if not held[p.BY_TALLY]:
            return
        tallies = _add_tallies(np.concatenate(held[p.BY_TALLY]))
        buckets = _add_buckets(np.concatenate([np.empty(0, BUCKET), *held[p.BY_BUCKET]]))
        n_topics = int(np.searchsorted(tallies["key"], topics))
        shares = Shares(
            _most(_shares(tallies[:n_topics], buckets)),
            _most(_shares(tallies[n_topics:], buckets)),
            n_topics,
            tallies.size - n_topics,
        )
        payload = msgspec.msgpack.encode(shares)
        yield pa.RecordBatch.from_pydict({"shares": pa.array([payload], pa.binary())})

    return work


def _shares(tallies: p.Records, buckets: p.Records) -> list[Share]:
    """Of the keys with the most deliveries."""
    order = np.lexsort((tallies["key"], -tallies["deliveries"]))[:TOLD_MAX]
    shares = []
    for row in tallies[order]:
        low, high = np.searchsorted(buckets["key"], [row["key"], row["key"] + 1])
        latency = _latency(row, buckets[low:high])
        key, deliveries, tagged, duplicates, lost = (
            int(row[name]) for name in ("key", "deliveries", "tagged", "duplicates", "lost")
        )
        shares.append(Share(key, deliveries, tagged, duplicates, lost, latency))
    return shares


def _latency(row: Any, buckets: p.Records) -> dict[str, float | None]:
    if not row["latencies"]:
        return dict.fromkeys(("mean", "p50", "p99", "max"))
    seen = np.cumsum(buckets["count"])

    def percentile(share: float) -> float:
        at = int(np.searchsorted(seen, share * int(row["latencies"])))
        return _value_us(int(buckets["bucket"][min(at, seen.size - 1)])) / 1000

    return {
        "mean": float(row["sum_us"]) / int(row["latencies"]) / 1000,
        "p50": percentile(0.50),
        "p99": percentile(0.99),
        "max": int(row["max_us"]) / 1000,
    }
