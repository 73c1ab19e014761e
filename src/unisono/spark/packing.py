"""Many rows of a key as one: the stateful operator then sees a row per key, not one per event.

Spark hands rows to a stateful operator in Python one by one, value by value, which costs more than
all the rest. So before the shuffle each record batch is cut by key into Arrow streams, and what
comes out of the operator is unpacked again. No value is ever looked at: all types pass unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ROWS = "_unisono_rows"
UNPACKED_ROWS = 10_000  # of a record batch

Batches = Iterator[pa.RecordBatch]


def write(table: pa.Table | pa.RecordBatch) -> bytes:
    """As an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def read(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()


def packer(keys: list[str]) -> Callable[[Batches], Batches]:
    """For mapInArrow: the columns of the key, and `ROWS` with all other columns."""

    def pack(batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield _packed(batch, keys)

    return pack


def _packed(batch: pa.RecordBatch, keys: list[str]) -> pa.RecordBatch:
    codes = _codes(batch, keys)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    batch = batch.take(pa.array(order))
    values = batch.drop_columns(keys)
    ends = [*starts[1:], batch.num_rows]
    packed = [
        write(values.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)
    ]
    heads = batch.select(keys).take(pa.array(starts))
    return pa.RecordBatch.from_arrays([*heads.columns, pa.array(packed)], [*keys, ROWS])


def _codes(batch: pa.RecordBatch, keys: list[str]) -> npt.NDArray[np.int64]:
    """A number for each row; rows of one number have one key."""
    codes = np.zeros(batch.num_rows, np.int64)
    for key in keys:
        column = pc.dictionary_encode(batch.column(key), null_encoding="encode")
        codes = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return codes


def unpack(batches: Batches) -> Batches:
    """For mapInArrow: the rows of each packed row, in their order."""
    for batch in batches:
        if batch.num_rows:
            tables = [read(packed.as_buffer()) for packed in batch.column(ROWS)]
            table = pa.concat_tables(tables).combine_chunks()
            yield from table.to_batches(max_chunksize=UNPACKED_ROWS)
