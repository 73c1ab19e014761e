"""One order over all subscribers: is "delivered before", by anyone, free of cycles?

No two subscribers need to disagree for a cycle: with a before b here, b before c there and c
before a at a third, no order fits all three. If the pass by subscriber saw no inversion, its
reference order is one that fits everybody. Otherwise all sequences are merged: an event leaves
when it heads every sequence that has it. If all leave, that is the order.

The merge is one task that reads the deliveries in slabs: a delivery's slab is the latest cell of
reference time that its subscriber has reached with it. So sequences come in step with each other,
what has left is forgotten, and memory holds two small numbers per event of the trace and the
deliveries that wait for others. Both are bounded: beyond `EVENTS_MAX` the answer is unknown, and
so it is when more than `HELD_MAX` deliveries wait, unless a cycle is among them.

What remains in the end is cut into knots, sets of events each of which is before each other one
(strongly connected components). Their number is the number of violations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.cycle_kernel import THOROUGH, advance, knots, renumber, shortest_cycle
from unisono.pipeline.kernel import Ints, bucket_rows
from unisono.pipeline.order import Disagreement

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EVENTS_MAX = 250_000_000  # 8 bytes each
HELD_MAX = 50_000_000  # deliveries; 8 bytes each, and 40 when knots are looked for
ROWS_AT_ONCE = 2_000_000

Edge = tuple[int, int, int]  # a subscriber, and the numbers of two events it heard in this order


class CycleSummary(msgspec.Struct, frozen=True):
    """How many knots there are, and a short cycle if one was asked for.

    Not `complete`: the bounds were met; there may be more knots than that.
    """

    knots: int = 0
    complete: bool = True
    cycle: list[Edge] = []


class Step(msgspec.Struct, frozen=True, order=True):
    """A subscriber and two places in its order: the events there follow each other in a cycle."""

    subscriber: int
    positions: tuple[int, int]


def find_cycles(
    blocks: DataFrame, slabs: DataFrame, subscribers: int, numbers: p.EventNumbers, search: bool
) -> CycleSummary:
    """Merge all sequences; `search` for a short cycle if they do not fit together."""
    work = _worker(subscribers, numbers.count, HELD_MAX, search)
    found = (
        blocks.where(f"kind = {p.HOLDERS}")
        .unionAll(slabs.where(f"kind = {p.BY_SLAB}"))
        .coalesce(1)
        .sortWithinPartitions("kind", "key", "part")
        .select("kind", "payload")
        .mapInArrow(work, "summary binary")
        .collect()
    )
    return msgspec.msgpack.decode(found[0].summary, type=CycleSummary)


def locate(blocks: DataFrame, cycle: Sequence[Edge], numbers: p.EventNumbers) -> list[Step]:
    """Where the deliveries of a cycle are."""
    events = {number: numbers.event(number) for edge in cycle for number in edge[1:]}
    wanted = np.array(sorted(events.values()), np.int64)

    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        for batch in batches:
            for payload in batch["payload"].to_pylist():
                places = np.frombuffer(payload, p.PLACE)
                places = places[np.isin(places["event"], wanted)]
                names = p.PLACE.names or ()
                yield pa.RecordBatch.from_pydict({name: places[name] for name in names})

    rows = (
        blocks.where(f"kind = {p.BY_CELL}")
        .select("payload")
        .mapInArrow(work, "subscriber int, position bigint, event bigint")
        .collect()
    )
    position = {(row.subscriber, row.event): row.position for row in rows}
    return [
        Step(who, (position[who, events[first]], position[who, events[then]]))
        for who, first, then in cycle
    ]


def of_two(witness: Disagreement) -> list[Step]:
    """Two subscribers that disagree, as a cycle."""
    (a, b), (bx, by) = witness.subscribers, witness.second
    return [Step(a, witness.first), Step(b, (by, bx))]


Batches = Iterator["pa.RecordBatch"]


def _worker(
    subscribers: int, events: int, held_max: int, search: bool
) -> Callable[[Batches], Batches]:
    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        merge = Merge(subscribers, events, held_max)
        for batch in batches:
            for kind, payload in zip(
                batch["kind"].to_pylist(), batch["payload"].to_pylist(), strict=True
            ):
                if kind == p.HOLDERS:
                    merge.expect(np.frombuffer(payload, "<i4"))
                else:
                    merge.take(np.frombuffer(payload, p.STEP))
            if merge.full:
                break
        summary = msgspec.msgpack.encode(merge.finish(search))
        yield pa.RecordBatch.from_pydict({"summary": pa.array([summary], pa.binary())})

    return work


class Merge:
    """Merges sequences that come piece by piece."""

    def __init__(self, subscribers: int, events: int, held_max: int) -> None:
        self._subscribers = subscribers
        self._missing = np.zeros(events, np.int32)  # deliveries of the event that have not left
        self._waiting = np.full(events, -1, np.int32)
        self._expected = 0
        self._held_max = held_max
        self._held = np.empty(0, p.STEP)  # by subscriber, in its order
        self._fresh: list[p.Records] = []
        self._n_fresh = 0

    def expect(self, holders: Ints) -> None:
        """How many deliveries the next events have; all this is told before the first of them."""
        self._missing[self._expected : self._expected + holders.size] = holders
        self._expected += holders.size

    def take(self, steps: p.Records) -> None:
        self._fresh.append(steps)
        self._n_fresh += steps.size
        if self._n_fresh >= ROWS_AT_ONCE:
            self._advance()

    @property
    def full(self) -> bool:
        return self._held.size > self._held_max

    def finish(self, search: bool) -> CycleSummary:
        """What remains, after all was taken or it got too much."""
        complete = not self.full
        if complete:
            self._advance()
        if not self._held.size:
            return CycleSummary()
        event = p.column(self._held, "event")
        names = renumber(event, self._waiting)
        count, cycle = untie(p.column(self._held, "subscriber"), event, names.size, search)
        if complete and not count:
            raise AssertionError("sequences that do not merge have a cycle")
        return CycleSummary(
            count, complete, [(who, int(names[a]), int(names[b])) for who, a, b in cycle]
        )

    def _advance(self) -> None:
        steps = np.concatenate([self._held, *self._fresh])
        self._fresh, self._n_fresh = [], 0
        start, rows = bucket_rows(p.column(steps, "subscriber"), self._subscribers)
        steps = steps[rows]
        head = advance(start, p.column(steps, "event"), self._missing, self._waiting)
        stays = np.arange(steps.size) >= np.repeat(head, np.diff(start))
        self._held = steps[stays]


def untie(
    subscriber: Ints, event: Ints, events: int, search: bool, thorough: int = THOROUGH
) -> tuple[int, list[Edge]]:
    """How many knots there are, and a short cycle; rows as in the kernel."""
    start, rows = bucket_rows(event, events)
    component, sizes = knots(subscriber, event, start, rows)
    count = int((sizes > 1).sum())
    if not count or not search:
        return count, []
    # Small knots first: they are searched fast.
    rank = np.empty(sizes.size, np.int32)
    rank[np.argsort(sizes, kind="stable")] = np.arange(sizes.size, dtype=np.int32)
    knot = rank[component]
    tied = np.flatnonzero(sizes[component][event] > 1)
    tied = tied[np.argsort(knot[event[tied]], kind="stable")]
    subscriber, event = subscriber[tied], event[tied]
    start, rows = bucket_rows(event, events)
    who = int(subscriber.max()) + 1
    cycle = shortest_cycle(subscriber, event, knot, start, rows, who, 2, thorough)
    return count, [(int(subscriber[a]), int(event[a]), int(event[b])) for a, b in cycle]
