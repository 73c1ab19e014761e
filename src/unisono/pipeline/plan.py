"""How the work of the later passes is cut, and how rows travel to them.

Spark moves a row at a time; most rows of an audit are only regrouped: from events to subscribers,
and from events to slices of time. So the pass by event packs rows of the same destination into
blocks, arrays of fixed-width records, and Spark sorts and shuffles a few thousand blocks instead
of millions of rows. On the benchmark's 5 million rows that halved the time of those passes.

Destinations are `chunks`, stretches of one subscriber's positions (or several small subscribers
whole), and `cells`, stretches of reference time. (A delivery's slab is the latest cell that its
subscriber has reached with it: see `cycles.py`.) Both are cut from counts and samples: where the
cuts lie decides how work is spread, never what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Ints, Longs, bucket_rows
from unisono.pipeline.window import Window

if TYPE_CHECKING:
    import pyarrow as pa
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
TIMED = np.dtype([*DELIVERY.descr, ("delivered_us", "<i8"), ("latency_us", "<i8")])
PLACE = np.dtype([("subscriber", "<i4"), ("position", "<i8"), ("event", "<i8")])
STEP = np.dtype([("subscriber", "<i4"), ("event", "<i4")])  # `event` as in `EventNumbers`
# For `causes.py`: publications, and all that names heard that publish as well. `publisher` is a
# number of the census, or -1 for an event that nobody published.
SAID = np.dtype([("publisher", "<i4"), ("publisher_seq", "<i8"), ("published_us", "<i8")])
HEARD = np.dtype(
    [
        ("subscriber", "<i4"),
        ("publisher", "<i4"),
        ("position", "<i8"),
        ("publisher_seq", "<i8"),
        ("delivered_us", "<i8"),
    ]
)

# The columns of a block, and the kinds there are. A summary is what a partition has to tell.
# `part` is the partition that a chunk is replayed in.
BLOCK = "kind int, key int, part int, payload binary"
SUMMARY, BY_CHUNK, BY_CELL, HOLDERS, BY_SLAB, BY_RELAY, BY_PUBLISHER = range(7)
BY_PAIR, BY_TALLY, BY_BUCKET = range(7, 10)
_RECORDS_PER_BLOCK = 25_000  # about a megabyte

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
    window: Window

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


def make_plan(census: Census, cuts_us: Longs, window: Window | None = None) -> Plan:
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
        window or Window.whole(len(census.subscribers)),
    )


def partitions(census: Census) -> int:
    """In how many tasks the pass by event is done."""
    return max(1, -(-(census.publications + census.deliveries) // ROWS_PER_PARTITION))


def cut_time(deliveries: DataFrame, rows: int) -> Longs:
    """Times that cut the deliveries into cells of roughly equally many rows, from a sample."""
    cells = rows // ROWS_PER_CELL
    if cells < 2 * ROWS_PER_PARTITION // ROWS_PER_CELL:
        return np.zeros(0, np.int64)
    fraction = min(1.0, 100 * cells / rows)
    sample = deliveries.select("delivered_us").sample(fraction=fraction, seed=1).toArrow()
    times = np.sort(sample["delivered_us"].to_numpy())
    return np.unique(times[:: max(1, times.size // cells)])


@dataclass(frozen=True)
class EventNumbers:
    """Events numbered from 0 without gaps, from `event` = (partition << 32) + place there."""

    start: Longs  # by partition: the number of its first event; at the end: how many there are

    @classmethod
    def of(cls, events: Mapping[int, int]) -> EventNumbers:
        """From the number of events in each partition."""
        counts = np.zeros(1 + max(events, default=-1), np.int64)
        for partition, count in events.items():
            counts[partition] = count
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))

    @property
    def count(self) -> int:
        return int(self.start[-1])

    def number(self, event: Longs) -> Longs:
        number: Longs = self.start[event >> 32] + (event & 0xFFFFFFFF)
        return number

    def event(self, number: int) -> int:
        partition = int(np.searchsorted(self.start, number, side="right")) - 1
        return (partition << 32) + number - int(self.start[partition])


def pack(key: Ints, keys: int, records: Records) -> Iterator[tuple[int, bytes]]:
    """The records by key, in order, cut into payloads of blocks."""
    start, rows = bucket_rows(key, keys)
    records = records[rows]
    for at in np.flatnonzero(np.diff(start)):
        for low in range(int(start[at]), int(start[at + 1]), _RECORDS_PER_BLOCK):
            high = min(low + _RECORDS_PER_BLOCK, int(start[at + 1]))
            yield int(at), records[low:high].tobytes()


def block(kind: int, key: int, part: int, payload: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "kind": pa.array([kind], pa.int32()),
            "key": pa.array([key], pa.int32()),
            "part": pa.array([part], pa.int32()),
            "payload": pa.array([payload], pa.binary()),
        }
    )


def payloads(blocks: DataFrame, kind: int) -> list[bytes]:
    """The payloads of all blocks of a kind; only for kinds that are few and small."""
    return [row.payload for row in blocks.where(f"kind = {kind}").select("payload").collect()]


def assemble(batches: Iterator[Any], dtype: np.dtype[Any]) -> Iterator[Records]:
    """The records of consecutive blocks with the same key, put together again."""

    def blocks() -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            yield from zip(batch["key"].to_pylist(), batch["payload"].to_pylist(), strict=True)

    for _, same in groupby(blocks(), key=lambda block: block[0]):
        yield np.concatenate([np.frombuffer(payload, dtype) for _, payload in same])


def column(records: Records, name: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(records[name])
