"""The pass by subscriber: each one's deliveries in the order of its positions, as a stream.

Chunk after chunk is sorted and run through one compiled loop that carries its state along. It
checks that positions are unique, counts FIFO descents per publisher and per publisher and topic,
and looks for inversions: a judged delivery after one whose event is later in reference order. If
two subscribers disagree on two events, at least one of them has the two inverted against any
fixed order; so without inversions the total order holds, and with them `reach` tells which cells
of reference time must be compared exactly (see `order.py`).

A descent is a judged delivery whose publisher_seq is smaller than that of the judged delivery
just before it from the same publisher (and topic) to the same subscriber. Equal numbers state no
order and are none. A delivery is overtaken if any judged one of the same publisher before it has a
larger number: that is causal order as far as each publisher alone goes (see `causes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.causes import Overtaken
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Bools, Ints, Longs, compiled
from unisono.pipeline.plan import NOT_JUDGED
from unisono.pipeline.resolve import Terms
from unisono.pipeline.stalls import Stall, Stalls

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


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
    overtaken: int
    first_overtaken: Overtaken | None
    stalls: int
    longest_stall: Stall | None
    inversions: int
    reach: dict[int, int]  # cell -> the furthest cell inverted against it


def replay(
    blocks: DataFrame, census: Census, plan: p.Plan, numbers: p.EventNumbers | None, terms: Terms
) -> DataFrame:
    """The pass over the blocks by chunk: what it found, and with `numbers` the steps by slab."""
    return by_chunk(blocks, plan).mapInArrow(_worker(census, plan, numbers, terms), p.BLOCK)


def summaries(slabs: DataFrame) -> list[StreamSummary]:
    found = p.payloads(slabs, p.SUMMARY)
    return [msgspec.msgpack.decode(payload, type=StreamSummary) for payload in found]


def by_chunk(blocks: DataFrame, plan: p.Plan) -> DataFrame:
    """All blocks of a subscriber in one partition, chunk after chunk."""
    from pyspark.sql import functions as F

    parts = int(plan.partition_of_chunk.max()) + 1
    return (
        blocks.where(f"kind = {p.BY_CHUNK}")
        .repartitionById(parts, F.col("part"))
        .select("key", "payload")
        .sortWithinPartitions("key")
    )


# Places in `state`.
SUBSCRIBER, POSITION, HIGH_US, HIGH_EVENT, HIGH_CELL, REPEATED, INVERSIONS, N_STATE = range(8)


@compiled
def _descend(
    group: int,
    subscriber: int,
    position: int,
    seq: int,
    source: int,
    counted: bool,
    last: Longs,
    found: Longs,
) -> None:
    """Compare with the last delivery of the group: last[group] is (subscriber, position, seq)."""
    if counted and last[group, 0] == subscriber and seq < last[group, 2]:
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
def _overtake(
    group: int,
    subscriber: int,
    position: int,
    seq: int,
    counted: bool,
    most: Longs,
    found: Longs,
) -> None:
    """Compare with the largest number: most[group] is (subscriber, position, seq) as above."""
    if most[group, 0] == subscriber and seq <= most[group, 2]:
        if counted and seq < most[group, 2]:
            found[0] += 1
            if found[0] == 1:
                found[1] = subscriber
                found[2] = position
                found[3] = most[group, 1]
        return
    most[group, 0] = subscriber
    most[group, 1] = position
    most[group, 2] = seq


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
    low: Longs,
    high: Longs,
    state: Longs,
    by_publisher: Longs,
    by_source: Longs,
    most: Longs,
    fifo: Longs,
    topic_fifo: Longs,
    overtaken: Longs,
    reach: Ints,
) -> Ints:
    """Take one batch, sorted by subscriber and position, after the batches before it.

    Returns the slab of each delivery: the latest cell that its subscriber has reached with it, or
    -1 if the delivery is not judged.
    """
    slab = np.full(subscriber.size, -1, np.int32)
    for row in range(subscriber.size):
        who, place = subscriber[row], position[row]
        fresh = who != state[SUBSCRIBER]
        if not fresh and place == state[POSITION]:
            state[REPEATED] = 1
            return slab
        if fresh:
            state[SUBSCRIBER] = who
            state[HIGH_CELL] = -1
        state[POSITION] = place
        origin = source[row]
        if origin == NOT_JUDGED:
            continue
        if origin >= 0:
            counted = low[who] <= place < high[who]
            publisher = publisher_of_source[origin]
            _overtake(publisher, who, place, seq[row], counted, most, overtaken)
            _descend(publisher, who, place, seq[row], origin, counted, by_publisher, fifo)
            _descend(origin, who, place, seq[row], origin, counted, by_source, topic_fifo)
        at_us, high_us = reference_us[row], state[HIGH_US]
        behind = at_us < high_us or (at_us == high_us and event[row] < state[HIGH_EVENT])
        if state[HIGH_CELL] >= 0 and behind:
            state[INVERSIONS] += 1
            reach[cell[row]] = max(reach[cell[row]], state[HIGH_CELL])
        else:
            state[HIGH_US] = at_us
            state[HIGH_EVENT] = event[row]
            state[HIGH_CELL] = cell[row]
        slab[row] = state[HIGH_CELL]
    return slab


Batches = Iterator["pa.RecordBatch"]


def _worker(
    census: Census, plan: p.Plan, numbers: p.EventNumbers | None, terms: Terms
) -> Callable[[Batches], Batches]:
    publisher_of_source = census.publisher_of_source()
    publishers = len(census.publishers)

    def work(batches: Batches) -> Batches:
        state = np.zeros(N_STATE, np.int64)
        state[SUBSCRIBER] = -1
        by_publisher = np.full((publishers, 3), -1, np.int64)
        by_source = np.full((publisher_of_source.size, 3), -1, np.int64)
        most = np.full((publishers, 3), -1, np.int64)
        overtaken = np.zeros(4, np.int64)
        found = {"fifo": np.zeros(7, np.int64), "topic-fifo": np.zeros(7, np.int64)}
        reach = np.full(plan.cells, -1, np.int32)
        turn = count()  # within a slab, blocks of a subscriber are in its order
        stalls = None if terms.stall_us is None else Stalls(terms.stall_us)
        for records in p.assemble(batches, terms.record):
            records = records[np.lexsort((records["position"], records["subscriber"]))]
            slab = stream(
                p.column(records, "subscriber"), p.column(records, "position"),
                p.column(records, "event"), p.column(records, "reference_us"),
                p.column(records, "cell"), p.column(records, "source"),
                p.column(records, "publisher_seq"), publisher_of_source, plan.window.low,
                plan.window.high, state, by_publisher, by_source, most, found["fifo"],
                found["topic-fifo"], overtaken, reach,
            )  # fmt: skip
            if state[REPEATED]:
                break
            if stalls is not None:
                stalls.take(records)
            if numbers is not None:
                steps = _steps(records, slab >= 0, numbers)
                for key, payload in p.pack(slab[slab >= 0], plan.cells, steps):
                    yield p.block(p.BY_SLAB, key, next(turn), payload)
        twice = (int(state[SUBSCRIBER]), int(state[POSITION])) if state[REPEATED] else None
        summary = StreamSummary(
            repeated_position=twice,
            descents={name: int(counts[0]) for name, counts in found.items()},
            witnesses={
                name: Descent(*(int(value) for value in counts[1:]))
                for name, counts in found.items()
                if counts[0]
            },
            overtaken=int(overtaken[0]),
            first_overtaken=Overtaken(*overtaken[1:].tolist()) if overtaken[0] else None,
            stalls=stalls.count if stalls else 0,
            longest_stall=stalls.longest if stalls else None,
            inversions=int(state[INVERSIONS]),
            reach={int(at): int(reach[at]) for at in np.flatnonzero(reach >= 0)},
        )
        yield p.block(p.SUMMARY, 0, 0, msgspec.msgpack.encode(summary))

    return work


def _steps(records: p.Records, judged: Bools, numbers: p.EventNumbers) -> p.Records:
    steps = np.empty(int(judged.sum()), p.STEP)
    steps["subscriber"] = records["subscriber"][judged]
    steps["event"] = numbers.number(records["event"][judged])
    return steps
