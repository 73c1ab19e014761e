"""Total order, exactly: which pairs of subscribers disagree on some pair of events.

The pass by subscriber told for every cell of reference time how far inversions reach from it.
Cells are cut into groups; a group also takes in the cells that its own cells reach, so two events
on which anybody disagrees always meet in some group. Nothing depends on clocks: a bad clock makes
groups larger, not answers wrong.

Within a group the subscribers' sequences are merged as a topological sort would: an event leaves
when it heads every sequence that has it. If all leave, one common order exists and nobody
disagrees; that is linear in the rows. What cannot leave from the front nor from the back is
compared, pair of subscribers by pair of subscribers. So the number of pairs costs nothing while
the order holds. (A cycle through three subscribers has no two that disagree: see `cycles.py`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.kernel import Ints, Longs
from unisono.pipeline.lookup import lookup
from unisono.pipeline.order_kernel import THOROUGH, compare_pairs, peel

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CELLS_PER_GROUP = p.ROWS_PER_PARTITION // p.ROWS_PER_CELL


class Disagreement(msgspec.Struct, frozen=True, order=True):
    """Two subscribers and two events; the smallest is the one with the closest deliveries."""

    span: int  # of positions, both subscribers together
    subscribers: tuple[int, int]
    first: tuple[int, int]  # positions of the two events at the first subscriber
    second: tuple[int, int]


class GroupSummary(msgspec.Struct, frozen=True):
    """What one group found: the pairs of subscribers that disagree, and one example."""

    pairs: list[tuple[int, int]]
    witness: Disagreement | None


def group_cells(reach: dict[int, int], cells: int, cells_per_group: int) -> list[tuple[int, int]]:
    """Pairs (cell, group) such that a cell and all the cells it reaches share a group.

    A group is closed when it has `cells_per_group` cells and reaches no more cells beyond than it
    has; the next one starts there, while the cells that this one reaches belong to both. So every
    cell is in two groups at most on average, however far inversions reach.
    """
    pairs: list[tuple[int, int]] = []
    group, size, end = 0, 0, -1  # its number, its cells, the furthest cell that it reaches
    for cell in range(cells):
        if cell in reach:
            if size >= max(cells_per_group, end + 1 - cell):
                pairs += [(beyond, group) for beyond in range(cell, end + 1)]
                group, size, end = group + 1, 0, -1
            end = max(end, reach[cell])
        if cell <= end:
            size += 1
            pairs.append((cell, group))
    return pairs


def compare(
    subscriber: Ints, position: Longs, event: Longs, thorough: int = THOROUGH
) -> GroupSummary:
    """Compare the judged deliveries of some events; the rows may come in any order."""
    by_place = np.lexsort((position, subscriber))
    subscriber, position = subscriber[by_place], position[by_place]
    numbers = np.unique(event[by_place], return_inverse=True)[1].astype(np.int32)
    for backwards in (False, True):
        if backwards:
            subscriber, position, numbers = subscriber[::-1], position[::-1], numbers[::-1]
        subscriber = np.ascontiguousarray(subscriber)
        numbers = np.ascontiguousarray(numbers)
        stuck = ~peel(subscriber, numbers, int(numbers.max(initial=-1)) + 1)[numbers]
        subscriber, position, numbers = subscriber[stuck], position[stuck], numbers[stuck]
    if not numbers.size:
        return GroupSummary([], None)
    numbers = np.unique(numbers[::-1], return_inverse=True)[1].astype(np.int32)
    pairs, best = compare_pairs(
        np.ascontiguousarray(subscriber[::-1]),
        np.ascontiguousarray(position[::-1]),
        numbers,
        int(numbers.max()) + 1,
        thorough,
    )
    if not pairs.size:
        return GroupSummary([], None)
    span, a, b, *places = (int(value) for value in best)
    witness = Disagreement(span, (a, b), (places[0], places[1]), (places[2], places[3]))
    return GroupSummary([(int(one), int(other)) for one, other in pairs], witness)


def disagreements(blocks: DataFrame, cell_groups: list[tuple[int, int]]) -> list[GroupSummary]:
    """Compare the groups exactly, over the blocks by cell."""
    from pyspark.sql import functions as F

    groups = 1 + max(group for _, group in cell_groups)
    group_of = lookup(blocks.sparkSession, cell_groups, key="int32", group="int32")
    found = (
        blocks.where(f"kind = {p.BY_CELL}")
        .join(group_of, "key")
        .repartitionById(groups, F.col("group"))
        .select(F.lit(0).alias("key"), "payload")
        .mapInArrow(_work, "summary binary")
        .collect()
    )
    return [msgspec.msgpack.decode(row.summary, type=GroupSummary) for row in found]


Batches = Iterator["pa.RecordBatch"]


def _work(batches: Batches) -> Batches:
    import pyarrow as pa

    for records in p.assemble(batches, p.PLACE):
        summary = compare(
            p.column(records, "subscriber"),
            p.column(records, "position"),
            p.column(records, "event"),
        )
        yield pa.RecordBatch.from_pydict(
            {"summary": pa.array([msgspec.msgpack.encode(summary)], pa.binary())}
        )
