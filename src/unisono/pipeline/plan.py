"""How the work of the later passes is cut, and how rows travel to them.

Spark moves a row at a time; most rows of an audit are only regrouped: from events to subscribers,
and from events to slices of time. So the pass by event packs rows of the same destination into
blocks, arrays of fixed-width records, and Spark sorts and shuffles a few thousand blocks instead
of millions of rows. On the benchmark's 5 million rows that halved the time of those passes.

Destinations are `chunks`, stretches of one subscriber's positions (or several small subscribers
whole), and `cells`, stretches of reference time. Both are cut from counts and samples: where the
cuts lie decides how work is spread, never what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Ints, Longs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_PER_CHUNK = 500_000
ROWS_PER_CELL = 100_000
ROWS_PER_PARTITION = 1_000_000

# What travels in a block. `event` is a number that is unique in the trace, `source` a pair
# (publisher, topic) of the census, or NO_SOURCE or NOT_JUDGED.
NOT_JUDGED, NO_SOURCE = -2, -1
DELIVERY = np.dtype(
    [
        ("subscriber", "<i4"),
        ("source", "<i4"),
        ("cell", "<i4"),
        ("position", "<i8"),
        ("event", "<i8"),
        ("reference_us", "<i8"),
        ("publisher_seq", "<i8"),
    ]
)
PLACE = np.dtype([("subscriber", "<i4"), ("position", "<i8"), ("event", "<i8")])

# The columns of a block, and the kinds there are. A summary is what a partition has to tell.
# `part` is the partition that a chunk is replayed in.
BLOCK = "kind int, key int, part int, payload binary"
SUMMARY, BY_CHUNK, BY_CELL = 0, 1, 2

Records = npt.NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """The cuts. Chunks are numbered by subscriber and then by position."""

    base: Ints  # by subscriber: its first chunk
    pieces: Ints  # how many chunks it has
    low: Longs  # its smallest position
    width: Longs  # positions per chunk
    partition_of_chunk: Ints
    cuts_us: Longs  # reference times at which a new cell begins

    @property
    def cells(self) -> int:
        return self.cuts_us.size + 1

    @property
    def chunks(self) -> int:
        return self.partition_of_chunk.size

    def chunk_of(self, subscriber: Ints, position: Longs) -> Ints:
        piece = (position - self.low[subscriber]) // self.width[subscriber]
        chunk: Longs = self.base[subscriber] + np.minimum(piece, self.pieces[subscriber] - 1)
        return chunk.astype(np.int32)

    def cell_of(self, reference_us: Longs) -> Ints:
        return np.searchsorted(self.cuts_us, reference_us, side="right").astype(np.int32)


def make_plan(census: Census, cuts_us: Longs) -> Plan:
    """Cut each large subscriber into chunks; put small ones together; fill partitions in turn."""
    base, pieces, low, width = [], [], [], []
    partition_of_chunk: list[int] = []
    in_chunk = in_partition = 0  # rows so far
    partition = 0
    for rows, first, last in census.positions:
        count = max(1, -(-rows // ROWS_PER_CHUNK))
        if in_partition and in_partition + rows > ROWS_PER_PARTITION:
            partition, in_partition, in_chunk = partition + 1, 0, 0
        shares = count == 1 and in_chunk > 0 and in_chunk + rows <= ROWS_PER_CHUNK
        if not shares:
            in_chunk = 0
            partition_of_chunk += [partition] * count
        base.append(len(partition_of_chunk) - count)
        pieces.append(count)
        low.append(first)
        width.append((last - first) // count + 1)
        in_chunk += rows
        in_partition += rows
    return Plan(
        np.array(base, np.int32),
        np.array(pieces, np.int32),
        np.array(low, np.int64),
        np.array(width, np.int64),
        np.array(partition_of_chunk or [0], np.int32),
        cuts_us,
    )


def cut_time(deliveries: DataFrame, rows: int) -> Longs:
    """Times that cut the deliveries into cells of roughly equally many rows, from a sample."""
    cells = rows // ROWS_PER_CELL
    if cells < 2 * ROWS_PER_PARTITION // ROWS_PER_CELL:
        return np.zeros(0, np.int64)
    fraction = min(1.0, 100 * cells / rows)
    sample = deliveries.select("delivered_us").sample(fraction=fraction, seed=1).toArrow()
    times = np.sort(sample["delivered_us"].to_numpy())
    return np.unique(times[:: max(1, times.size // cells)])


def assemble(batches: Iterator[Any], dtype: np.dtype[Any]) -> Iterator[Records]:
    """The records of consecutive blocks with the same key, put together again."""

    def blocks() -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            yield from zip(batch["key"].to_pylist(), batch["payload"].to_pylist(), strict=True)

    for _, same in groupby(blocks(), key=lambda block: block[0]):
        yield np.concatenate([np.frombuffer(payload, dtype) for _, payload in same])


def column(records: Records, name: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(records[name])
