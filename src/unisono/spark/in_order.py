"""`in_order`: the rows of a streaming DataFrame in order, key by key, with a status each.

Guarantee: every row comes out once. Of one key's rows none comes out after one of a higher number
unless it is marked `out_of_order`; a row that was waited with in vain for an earlier number is
marked `gap_skipped`, one whose number came before is marked `duplicate`. How long a row is held is
decided as in probabilistic FIFO (`qos/fifo`), by the same machine; no row is held longer than
`Fifo.hold_ms`, of the time that was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

import msgspec

from unisono.errors import BadInput, EnvironmentLacks, Unsupported
from unisono.pipeline.session import ROCKSDB
from unisono.qos.fifo.options import Fifo

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_RESERVED = "_unisono_"
_WATERMARK = "spark.watermarkDelayMs"  # in the metadata of the column that has one


def in_order(
    df: DataFrame,
    *,
    key: str | Sequence[str],
    sequence: str,
    sent: str | None = None,
    arrived: str | None = None,
    latch: Fifo | None = None,
    first: int | None = None,
    forget_s: float | None = None,
) -> DataFrame:
    """All columns of `df`, and `status` and `held_us`: how long the row was held.

    `key`: rows of one key are put in order, by `sequence`, which rises by one. `first`: the number
    that every key begins with; if None, that of the first row seen: earlier ones that come later
    are marked `out_of_order`, like those without a number (null, or below 0).

    `sent`: when the row departed, by the sender's clock (a timestamp, or microseconds): what the
    latch adapts to. Without it the latch cannot adapt and must be static.

    `arrived`: when the row arrived (likewise). Time is then event time: the watermark on this
    column, or if there is none, the latest arrival. If None, time is that of Spark's batches.

    `latch`: what is promised, as of the FIFO layer; `record` means nothing here. `forget_s`: what
    is known of a key is dropped when it was silent for so long; if None, never.
    """
    keys = [key] if isinstance(key, str) else list(key)
    options = _options(latch, sent)
    forget_us = _forget_us(forget_s, options)
    if first is not None and (type(first) is not int or not 0 <= first < 2**32):
        raise BadInput(f"first = {first!r}: the number that every key begins with, 0 or more")
    _check(df, keys, sequence, sent, arrived)
    _check_environment(df)

    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    from unisono.spark import operator
    from unisono.spark.packing import ROWS, packer, unpack

    key_fields = [
        StructField(f"{_RESERVED}key_{index}", df.schema[name].dataType)
        for index, name in enumerate(keys)
    ]
    rows = StructField(ROWS, BinaryType(), False)
    fields = [  # mapInArrow takes no name with a dot
        StructField(f"{_RESERVED}column_{index}", field.dataType, field.nullable)
        for index, field in enumerate(df.schema)
    ]
    out = [
        StructField(operator.STATUS, StringType(), False),
        StructField(operator.HELD_US, LongType(), False),
    ]
    timed = df if arrived is None else _watermarked(df, arrived)
    return (
        timed.select(
            *(_column(n).alias(f.name) for n, f in zip(df.columns, fields, strict=True)),
            *(_column(n).alias(f.name) for n, f in zip(keys, key_fields, strict=True)),
            _column(sequence).cast("long").alias(operator.NUMBER),
            _micros(df, sent).alias(operator.SENT),
            _micros(df, arrived).alias(operator.ARRIVED),
        )
        .mapInArrow(packer([f.name for f in key_fields]), StructType([*key_fields, rows]))
        .groupBy(*(F.col(f.name) for f in key_fields))
        .transformWithState(
            operator.InOrder(options, arrived is not None, first, forget_us),
            outputStructType=StructType([rows]),
            outputMode="Append",
            timeMode="ProcessingTime" if arrived is None else "EventTime",
        )
        .mapInArrow(unpack, StructType([*fields, *out]))
        .toDF(*df.columns, *(field.name for field in out))
    )


def _options(latch: Fifo | None, sent: str | None) -> Fifo:
    if latch is not None and not isinstance(latch, Fifo):
        raise BadInput(f"latch is a unisono.Fifo, not {type(latch).__name__}")
    options = msgspec.structs.replace(latch or Fifo(), record=0)  # rows carry none
    if sent is None and options.rule != "static":
        raise Unsupported(
            f'the rule "{options.rule}" needs the times of departure: name the column `sent`, '
            'or choose latch=Fifo(rule="static", latch_ms=...)'
        )
    return options


def _forget_us(forget_s: float | None, options: Fifo) -> int | None:
    if forget_s is None:
        return None
    if not isfinite(forget_s) or forget_s * 1000 < options.hold_ms:
        raise BadInput(f"forget_s = {forget_s}: at least the longest hold, hold_ms, in seconds")
    return round(forget_s * 1e6)


def _check(
    df: DataFrame, keys: list[str], sequence: str, sent: str | None, arrived: str | None
) -> None:
    """BadInput that says what is wrong with the columns."""
    from pyspark.sql.types import AtomicType, IntegralType, LongType, TimestampType

    if not df.isStreaming:
        raise BadInput("in_order takes a streaming DataFrame: spark.readStream...")
    if not keys:
        raise BadInput("key: at least one column")
    for name in (*keys, sequence, sent, arrived):
        if name is not None and name not in df.columns:
            raise BadInput(f"no column {name!r}; there are {', '.join(df.columns)}")
    for name in df.columns:
        if name in ("status", "held_us") or name.startswith(_RESERVED):
            raise BadInput(f"in_order makes a column {name!r} of its own: rename yours")
    for name in keys:
        if not isinstance(df.schema[name].dataType, AtomicType):
            raise BadInput(f"key {name!r} is a {df.schema[name].dataType.simpleString()}")
    if not isinstance(df.schema[sequence].dataType, IntegralType):
        raise BadInput(f"sequence {sequence!r} is not an integer column")
    for name in (sent, arrived):
        if name is not None and not isinstance(df.schema[name].dataType, LongType | TimestampType):
            raise BadInput(f"time {name!r} is neither a timestamp nor microseconds as a long")
    marked = [f.name for f in df.schema if _WATERMARK in f.metadata]
    if arrived is not None and marked not in ([], [arrived]):
        raise BadInput(
            f"there is a watermark on {marked[0]!r}, but time is that of {arrived!r}: "
            "a query has one watermark"
        )


def _check_environment(df: DataFrame) -> None:
    """EnvironmentLacks that says what to add."""
    try:
        import scipy  # noqa: F401
        from pyspark.sql.streaming.proto import StateMessage_pb2  # noqa: F401
    except ImportError as error:
        raise EnvironmentLacks(
            f"in_order needs protobuf and scipy ({error}): pip install 'unisono[spark,fifo]'"
        ) from error
    if df.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise EnvironmentLacks(
            "in_order keeps its state in RocksDB; before the query is made, add\n"
            f'    spark.conf.set("{PROVIDER}", "{ROCKSDB}")'
        )


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def _micros(df: DataFrame, name: str | None) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    if name is None:
        return F.lit(None).cast("long")
    if isinstance(df.schema[name].dataType, TimestampType):
        return F.unix_micros(_column(name))
    return _column(name)


def _watermarked(df: DataFrame, arrived: str) -> DataFrame:
    """Spark drops rows that are older than the watermark from a stateful operator that can see the
    column: it is not among those that are packed, so none are."""
    from pyspark.sql import functions as F

    if _WATERMARK in df.schema[arrived].metadata:
        return df
    at = f"{_RESERVED}arrived_at"
    return df.withColumn(at, F.timestamp_micros(_micros(df, arrived))).withWatermark(
        at, "0 seconds"
    )
