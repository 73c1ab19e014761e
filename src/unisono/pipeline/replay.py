"""The pass by subscriber: each one's deliveries in the order of its positions, as a stream.

One sort on a packed integer key, then one compiled loop that carries its state from batch to
batch. It checks that positions are unique, counts FIFO descents per publisher and per publisher
and topic, and looks for inversions: a judged delivery after one whose event is later in reference
order. If two subscribers disagree on two events, at least one of them has the two inverted
against any fixed order; so without inversions the total order holds, and with them `reach` tells
which slices ("cells") of reference time must be compared exactly (see `order.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unisono.pipeline.census import Census
from unisono.pipeline.event_kernel import NOT_JUDGED
from unisono.pipeline.kernel import Ints, Longs, compiled, ints, longs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_PER_PARTITION = 1_000_000


class Descent(msgspec.Struct, frozen=True, order=True):
    """Two neighbouring deliveries of one publisher, the second of which has a smaller number."""

    subscriber: int
    position: int
    earlier_position: int
    source: int
    earlier_seq: int
    seq: int


class StreamSummary(msgspec.Struct, frozen=True):
    """What one partition of subscribers found."""

    repeated_position: tuple[int, int] | None  # a subscriber and a position it used twice
    descents: dict[str, int]
    witnesses: dict[str, Descent]
    inversions: int
    reach: dict[int, int]  # cell -> the furthest cell inverted against it


def replay(resolved: DataFrame, census: Census, cells: int) -> list[StreamSummary]:
    """Run the pass; `cells` is how many cells reference time was cut into."""
    rows = in_delivery_order(resolved, census)
    found = rows.mapInArrow(_worker(census, cells), "summary binary").collect()
    return [msgspec.msgpack.decode(row.summary, type=StreamSummary) for row in found]


def in_delivery_order(resolved: DataFrame, census: Census) -> DataFrame:
    """All deliveries of a subscriber in one partition, by position."""
    from pyspark.sql import functions as F

    rows = resolved.where("summary is null").drop("summary")
    subscribers = max(1, len(census.subscribers))
    partitions = min(subscribers, max(1, -(-census.deliveries // ROWS_PER_PARTITION)))
    rows = rows.repartitionById(partitions, F.col("subscriber") % partitions)
    low, high = census.positions
    bits = (high - low).bit_length()
    if bits + subscribers.bit_length() < 63:
        # One integer to sort by is radix-sorted; a pair would be compared row by row.
        key = F.shiftleft(F.col("subscriber").cast("bigint"), bits) + (F.col("position") - low)
        return rows.sortWithinPartitions(key)
    return rows.sortWithinPartitions("subscriber", "position")


# Places in `state`.
SUBSCRIBER, POSITION, HIGH_US, HIGH_EVENT, HIGH_CELL, REPEATED, INVERSIONS, N_STATE = range(8)


@compiled
def _descend(
    group: int, subscriber: int, position: int, seq: int, source: int, last: Longs, found: Longs
) -> None:
    """Compare with the last delivery of the group: last[group] is (subscriber, position, seq)."""
    if last[group, 0] == subscriber and seq < last[group, 2]:
        found[0] += 1
        if found[0] == 1:
            found[1] = subscriber
            found[2] = position
            found[3] = last[group, 1]
            found[4] = source
            found[5] = last[group, 2]
            found[6] = seq
    last[group, 0] = subscriber
    last[group, 1] = position
    last[group, 2] = seq


@compiled
def stream(
    subscriber: Ints,
    position: Longs,
    event: Longs,
    reference_us: Longs,
    cell: Ints,
    source: Ints,
    seq: Longs,
    publisher_of_source: Ints,
    state: Longs,
    by_publisher: Longs,
    by_source: Longs,
    fifo: Longs,
    topic_fifo: Longs,
    reach: Ints,
) -> None:
    """Take one batch, sorted by subscriber and position, after the batches before it."""
    for row in range(subscriber.size):
        who, place = subscriber[row], position[row]
        fresh = who != state[SUBSCRIBER]
        if not fresh and place == state[POSITION]:
            state[REPEATED] = 1
            return
        if fresh:
            state[SUBSCRIBER] = who
            state[HIGH_CELL] = -1
        state[POSITION] = place
        origin = source[row]
        if origin == NOT_JUDGED:
            continue
        if origin >= 0:
            _descend(publisher_of_source[origin], who, place, seq[row], origin, by_publisher, fifo)
            _descend(origin, who, place, seq[row], origin, by_source, topic_fifo)
        at_us, high_us = reference_us[row], state[HIGH_US]
        behind = at_us < high_us or (at_us == high_us and event[row] < state[HIGH_EVENT])
        if state[HIGH_CELL] >= 0 and behind:
            state[INVERSIONS] += 1
            reach[cell[row]] = max(reach[cell[row]], state[HIGH_CELL])
        else:
            state[HIGH_US] = at_us
            state[HIGH_EVENT] = event[row]
            state[HIGH_CELL] = cell[row]


Batches = Iterator["pa.RecordBatch"]


def _worker(census: Census, cells: int) -> Callable[[Batches], Batches]:
    publisher_of_source = census.publisher_of_source()
    publishers = len(census.publishers)

    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        state = np.zeros(N_STATE, np.int64)
        state[SUBSCRIBER] = -1
        by_publisher = np.full((publishers, 3), -1, np.int64)
        by_source = np.full((publisher_of_source.size, 3), -1, np.int64)
        found = {"fifo": np.zeros(7, np.int64), "topic-fifo": np.zeros(7, np.int64)}
        reach = np.full(cells, -1, np.int32)
        for batch in batches:
            stream(
                ints(batch["subscriber"]), longs(batch["position"]), longs(batch["event"]),
                longs(batch["reference_us"]), ints(batch["cell"]), ints(batch["source"]),
                longs(batch["publisher_seq"]), publisher_of_source, state, by_publisher,
                by_source, found["fifo"], found["topic-fifo"], reach,
            )  # fmt: skip
            if state[REPEATED]:
                break
        twice = (int(state[SUBSCRIBER]), int(state[POSITION])) if state[REPEATED] else None
        summary = StreamSummary(
            repeated_position=twice,
            descents={name: int(counts[0]) for name, counts in found.items()},
            witnesses={
                name: Descent(*(int(value) for value in counts[1:]))
                for name, counts in found.items()
                if counts[0]
            },
            inversions=int(state[INVERSIONS]),
            reach={int(at): int(reach[at]) for at in np.flatnonzero(reach >= 0)},
        )
        yield pa.RecordBatch.from_pydict(
            {"summary": pa.array([msgspec.msgpack.encode(summary)], pa.binary())}
        )

    return work
