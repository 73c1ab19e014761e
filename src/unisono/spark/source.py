"""`format("unisono")`: events of a bus as a stream, in order; journals and traces as batches.

Offsets are positions in a journal (`unisono.journal`), which a process of its own fills from the
bus (`collector.py`). So the same offsets give the same rows, whenever they are read, and a query
that was killed goes on where its checkpoint says. A micro-batch that is done is committed to the
journal, which keeps what is not; when its space is full, the bus is read no further.

Rows of a partition are in order, and so are the partitions of a micro-batch, one after the other;
`position` is the order.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from unisono.errors import BadInput
from unisono.journal.journal import identity
from unisono.journal.readers import Reader
from unisono.journal.reading import Index, Place, bounds, read
from unisono.net.collect import collector
from unisono.spark import tables
from unisono.spark.collector import LOG, ensure
from unisono.spark.options import (
    StreamOptions,
    sink_options,
    stream_options,
    table_options,
)
from unisono.spark.sink import StreamSink, TableSink

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = (
    "position bigint, event_id string, topic string, publisher string, payload binary, "
    "attributes map<string, string>, published timestamp, delivered timestamp, status string"
)
BATCH_ROWS = 65_536  # of an Arrow batch; small writes of a journal are put together
PARTITION_ROWS = 50_000  # fewer are not worth a task of their own
LOOK_S = 5.0  # between looks at the collector, and signs of life to it, at most

Offset = dict[str, Any]


def look_every(linger_s: float) -> float:
    """Seconds between signs of life: a collector must miss several before it ends."""
    return min(LOOK_S, linger_s / 4)


class UnisonoSource(DataSource):
    """Register with `spark.dataSource.register(UnisonoSource)`; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "unisono"

    def schema(self) -> StructType | str:
        if "path" in self.options:
            return tables.schema(table_options(self.options))
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = table_options(self.options)
        if options.path is not None:
            return tables.TableReader(options)
        assert options.journal is not None
        return JournalReader(Path(options.journal).absolute(), options.partitions)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EventReader(stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TableSink(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamSink(sink_options(self.options), schema)


class Range(InputPartition):
    """Positions of a journal, and where to begin to look for them."""

    def __init__(self, start: int, stop: int, place: Place | None) -> None:
        self.start = start
        self.stop = stop
        self.place = place


def cut(start: int, stop: int, parts: int, index: Index) -> list[Range]:
    """Ranges of about equally many positions, in order."""
    if start >= stop:
        return []
    count = max(1, min(parts, (stop - start) // PARTITION_ROWS))
    edges = [start + (stop - start) * at // count for at in range(count + 1)]
    return [Range(low, high, index.place(low)) for low, high in pairwise(edges)]


def rows(folder: Path, part: Range) -> Iterator[pa.RecordBatch]:
    """The rows of a range as Spark wants them."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in read(folder, part.start, part.stop, part.place):
        waiting.append(batch)
        count += batch.num_rows
        if count >= BATCH_ROWS:
            yield _as_spark(waiting)
            waiting, count = [], 0
    if waiting:
        yield _as_spark(waiting)


def _as_spark(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    whole = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
    columns = []
    names = []
    for name, column in zip(whole.schema.names, whole.columns, strict=True):
        at = name.removesuffix("_us")
        names.append(at)
        columns.append(column if at == name else column.cast(pa.timestamp("us", "UTC")))
    return pa.RecordBatch.from_arrays(columns, names)


class JournalReader(DataSourceReader):
    """All that a journal holds, once."""

    def __init__(self, folder: Path, partitions: int) -> None:
        self._folder = folder
        self._partitions = partitions
        identity(folder)

    def partitions(self) -> Sequence[InputPartition]:
        return cut(*bounds(self._folder), self._partitions, Index(self._folder))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return rows(self._folder, partition)


class EventReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of it. Reads on executors; all else happens in one process at the driver."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._folder = options.folder

    @cached_property
    def _follower(self) -> Follower:
        return Follower(self._options)

    def initialOffset(self) -> Offset:
        return self._follower.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._follower.end_here()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._follower.latest(start, limit)

    def reportLatestOffset(self) -> Offset:
        return self._follower.end()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._follower.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return rows(self._folder, partition)

    def commit(self, end: Offset) -> None:
        self._follower.commit(end)

    def stop(self) -> None:
        if "_follower" in self.__dict__:
            self._follower.stop()


class Follower:
    """Knows how far the journal and the query have come, and sees to it that somebody collects."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._folder = options.folder
        self._collect()
        self._id = identity(self._folder)
        self._index = Index(self._folder)
        self._reader = Reader(self._folder, options.reader)
        self._last: int | None = None  # the end, for Trigger.AvailableNow
        self._failure: Exception | None = None
        self._stopped = threading.Event()
        self._watching: threading.Thread | None = None

    def _collect(self) -> None:
        if (wish := self._options.wish) is not None:
            ensure(wish)

    def _watch(self) -> None:
        """Tell the collector that somebody reads, and start it again if it died."""
        while not self._stopped.wait(look_every(self._options.linger_s)):
            try:
                self._reader.seen()
                if self._options.wish is not None and collector(self._folder) is None:
                    print(
                        f"the collector of {self._folder} has ended, see its {LOG}; another begins,"
                        " and what was published meanwhile may be missed",
                        file=sys.stderr,
                    )
                self._collect()
                self._failure = None
            except Exception as error:  # told at the next micro-batch, if it lasts
                self._failure = error

    def _from(self, position: int) -> None:
        """The query goes on from here: nothing after this is let go."""
        if self._watching is None:
            self._reader.commit(position)
            self._watching = threading.Thread(target=self._watch, daemon=True)
            self._watching.start()

    def initial(self) -> Offset:
        first, after = bounds(self._folder)
        start = self._options.first
        if isinstance(start, str):
            start = first if start == "earliest" else after
        elif not first <= start <= after:
            raise BadInput(f"start {start}: the journal {self._folder} has {first} to {after}")
        self._from(start)
        return self._offset(start)

    def end(self) -> Offset:
        return self._offset(bounds(self._folder)[1])

    def end_here(self) -> None:
        """What comes later is for another time."""
        self._last = bounds(self._folder)[1]

    def latest(self, start: Offset, limit: ReadLimit) -> Offset:
        position = self._position(start)
        self._from(position)
        if self._failure is not None:
            raise self._failure
        _, after = bounds(self._folder)
        if after < position:
            raise BadInput(
                f"the checkpoint is at position {position}, the journal {self._folder} only at "
                f"{after}: was it restored from a copy? Begin with a new checkpoint"
            )
        if self._last is not None:
            after = max(position, min(after, self._last))
        if isinstance(limit, ReadMaxRows):
            after = min(after, position + limit.max_rows)
        return self._offset(after)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        low, high = self._position(start), self._position(end)
        self._from(low)
        return cut(low, high, self._options.partitions, self._index)

    def commit(self, end: Offset) -> None:
        self._reader.commit(self._position(end))

    def stop(self) -> None:
        self._stopped.set()

    def _offset(self, position: int) -> Offset:
        return {"journal": self._id, "position": position}

    def _position(self, offset: Offset) -> int:
        if offset["journal"] != self._id:
            raise BadInput(
                f"the checkpoint is of another journal than {self._folder}: its positions mean "
                "nothing here. Give the journal it was made with, or begin with a new checkpoint"
            )
        return int(offset["position"])
