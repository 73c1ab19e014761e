"""Rows onto the bus, once each, by batches that Spark commits.

Tasks hand their rows to the driver. There the batch is written to a spool, whole or not at all,
then published in the order of partitions, and then marked as done. The id of each event says which
row of which batch of which query it is; so when a driver dies in the middle and Spark commits the
batch again, what was spooled is published again, not what was computed anew, and subscribers, and
journals, let pass only what they have not heard yet (`core/once.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from unisono.core.limits import Limits, check_attributes, check_payload, check_topic
from unisono.core.predicate import Attributes
from unisono.errors import BadInput
from unisono.files import replace
from unisono.net.connect import connect
from unisono.spark.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_DONE = "done"
_ENDING = ".batch"
_VALUES = (StringType, BooleanType, IntegerType, LongType, FloatType, DoubleType)
_TAKES = {"payload": (BinaryType, StringType), "topic": (StringType,), "attributes": (MapType,)}
LIMITS = Limits()


@dataclass
class Rows(WriterCommitMessage):
    """What one task hands over."""

    query: str
    partition: int
    data: bytes  # an Arrow stream


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """payload, and perhaps topic and attributes."""
    kinds = {field.name: field.dataType for field in schema.fields}
    for name, kind in kinds.items():
        if name not in _TAKES:
            raise BadInput(
                f"column {name!r}: the sink takes payload (binary or string), topic (string) and "
                "attributes (a map from names to strings, numbers or booleans); put the rest into "
                "the payload, such as to_json(struct(...)) as payload"
            )
        if not isinstance(kind, _TAKES[name]) or (
            isinstance(kind, MapType)
            and not (isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _VALUES))
        ):
            raise BadInput(
                f"column {name!r} is {kind.simpleString()}, which the sink does not take"
            )
    if "payload" not in kinds:
        raise BadInput("the sink needs a column payload (binary or string)")
    if "topic" not in kinds and options.topic is None:
        raise BadInput('give option("topic", name), or a column topic')
    if "topic" in kinds and options.topic is not None:
        raise BadInput("there is a column topic and an option topic: which one?")


def hand_over(options: SinkOptions, query: str, batches: Iterator[pa.RecordBatch]) -> Rows:
    """The rows of a task, after refusing what the bus would refuse."""
    import pyarrow as pa

    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    buffer = pa.BufferOutputStream()
    writer = None
    for batch in batches:
        for row in batch.to_pylist():
            _event(options, row)
        if writer is None:
            writer = pa.ipc.new_stream(buffer, batch.schema)
        writer.write_batch(batch)
        if buffer.tell() > options.max_mb * 1e6:
            raise BadInput(
                f"one micro-batch has more than {options.max_mb:g} MB for the bus: take less at a "
                "time (maxRows of the source), or raise maxMb"
            )
    if writer is not None:
        writer.close()
    return Rows(query, partition, buffer.getvalue().to_pybytes())


def _event(options: SinkOptions, row: dict[str, Any]) -> tuple[str, bytes, Attributes | None]:
    """Topic, payload and attributes; BadInput if they are none."""
    topic = check_topic(options.topic or row["topic"])
    payload = row["payload"]
    if payload is None:
        raise BadInput("a row has no payload")
    payload = payload.encode() if isinstance(payload, str) else bytes(payload)
    attributes = dict(row["attributes"]) if row.get("attributes") else None
    if attributes is not None:
        attributes = check_attributes(attributes, LIMITS)
    return topic, check_payload(payload, LIMITS), attributes


class StreamSink(DataSourceStreamArrowWriter):
    """Of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if query is None:
            raise BadInput("this sink is for streaming queries; Spark did not say which one it is")
        return hand_over(self._options, query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        found = _handed_over(messages)
        if not found:
            return
        spool = Spool(self._options.folder / found[0].query)
        if batchId <= spool.done:
            return
        spool.put(batchId, [rows.data for rows in found])
        publish(self._options, spool.get(batchId), f"{found[0].query}/{batchId}")
        spool.finish(batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was spooled or published yet."""


class TableSink(DataSourceArrowWriter):
    """Of a batch: published when all its tasks have succeeded."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options
        self._job = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        return hand_over(self._options, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = _handed_over(messages)
        if found:
            publish(self._options, [rows.data for rows in found], f"{found[0].query}/0")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing was published yet."""


def _handed_over(messages: Sequence[WriterCommitMessage | None]) -> list[Rows]:
    found = [message for message in messages if isinstance(message, Rows) and message.data]
    return sorted(found, key=lambda rows: rows.partition)


class Spool:
    """Batches of one query on their way to the bus."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def done(self) -> int:
        """The last batch that was published as a whole; -1 if none was."""
        try:
            return int((self._folder / _DONE).read_text())
        except FileNotFoundError:
            return -1

    def put(self, batch: int, data: list[bytes]) -> None:
        """Unless it is there already: what was once begun is what is published."""
        path = self._path(batch)
        if not path.exists():
            replace(path, msgspec.msgpack.encode(data))

    def get(self, batch: int) -> list[bytes]:
        return msgspec.msgpack.decode(self._path(batch).read_bytes(), type=list[bytes])

    def finish(self, batch: int) -> None:
        replace(self._folder / _DONE, b"%d" % batch)
        self._path(batch).unlink()

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch}{_ENDING}"


def publish(options: SinkOptions, data: Sequence[bytes], name: str) -> None:
    """Publish the rows in order; returns when the bus has acknowledged all."""
    asyncio.run(_publish(options, data, name))


async def _publish(options: SinkOptions, data: Sequence[bytes], name: str) -> None:
    connection = connect(options.bus, order=options.order, delivery=options.delivery, name="spark")
    async with connection as bus:
        receipts = []
        for number, row in enumerate(_rows(data)):
            receipts.append(await bus.publish(*_event(options, row), id=f"{name}/{number}"))
        for receipt in receipts:
            await receipt


def _rows(data: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    for part in data:
        for batch in pa.ipc.open_stream(part):
            yield from batch.to_pylist()
