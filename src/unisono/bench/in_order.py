"""What `spark.in_order` costs: rows a second, and its time over that of passing rows through.

Rows in Parquet files, a twentieth of them overtaken by the next three of their key, go into a sink
that drops them: through `in_order`; through the same query with an operator that gives back what it
gets, and reads and writes a state of about the same size once; and through the operator that one
would write with Spark alone, row by row, with the same state. All take turns; medians.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, KEYS, FILES = 400_000, 100, 4
ROWS_PER_S_MIN, RATIO_MAX = 10_000, 1.5
_STATE_BYTES = 110  # about what in_order knows of a key that holds nothing


def measure(
    spark: SparkSession, rows: int = ROWS, keys: int = KEYS, repeats: int = 3
) -> dict[str, Any]:
    """Medians of `repeats` runs each, in batches of a quarter of the rows."""
    works: dict[str, Callable[[DataFrame], DataFrame]] = {
        "in_order": _in_order,
        "pass_through": _pass_through,
        "row_by_row": _row_by_row,
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows")
        _write(spark, source, rows, keys)
        for turn in range(repeats + 1):  # the first is not counted: everything starts then
            for name, work in works.items():
                taken = _run(spark, source, work, Path(folder, "state"))
                if turn:
                    times[name].append(taken)
    found = {name: statistics.median(values) for name, values in times.items()}
    rows_per_s, ratio = rows / found["in_order"], found["in_order"] / found["pass_through"]
    return {
        "rows": rows,
        "keys": keys,
        "rows_per_s": round(rows_per_s),
        "pass_through_rows_per_s": round(rows / found["pass_through"]),
        "row_by_row_rows_per_s": round(rows / found["row_by_row"]),
        "ratio": round(ratio, 2),
        "ratio_row_by_row": round(found["in_order"] / found["row_by_row"], 2),
        "targets": {"rows_per_s_min": ROWS_PER_S_MIN, "ratio_max": RATIO_MAX},
        "met": rows_per_s >= ROWS_PER_S_MIN and ratio <= RATIO_MAX,
    }


def _write(spark: SparkSession, folder: Path, rows: int, keys: int) -> None:
    """A row a millisecond of each key; each takes 20 to 21 ms, a twentieth of them 3 ms more."""
    from pyspark.sql import functions as F

    number = F.floor(F.col("id") / keys).cast("long")
    chance = F.pmod(F.xxhash64("id"), F.lit(1000))
    delay_us = 20_000 + chance + F.when(chance < 50, 3000).otherwise(0)
    (
        spark.range(rows)
        .select(
            F.concat(F.lit("key-"), F.col("id") % keys).alias("key"),
            number.alias("number"),
            (number * 1000).alias("sent_us"),
            (number * 1000 + delay_us).alias("arrived_us"),
            F.repeat(F.lit("x"), 100).alias("payload"),
        )
        .repartitionByRange(FILES, "arrived_us")
        .write.parquet(str(folder))
    )


def _run(
    spark: SparkSession, source: Path, work: Callable[[DataFrame], DataFrame], state: Path
) -> float:
    shutil.rmtree(state, ignore_errors=True)
    rows = (
        spark.readStream.schema(spark.read.parquet(str(source)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
    )
    started = time.perf_counter()
    query = (
        work(rows)
        .writeStream.format("noop")
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - started


def _in_order(rows: DataFrame) -> DataFrame:
    from unisono.spark.in_order import in_order

    return in_order(rows, key="key", sequence="number", sent="sent_us", arrived="arrived_us")


def _pass_through(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from unisono.spark.packing import ROWS as PACKED
    from unisono.spark.packing import packer, unpack

    at = F.timestamp_micros("arrived_us")
    return (
        rows.withColumn("at", at)
        .withWatermark("at", "0 seconds")
        .select(*rows.columns, F.col("key").alias("by"))
        .mapInArrow(packer(["by"]), f"by string, {PACKED} binary")
        .groupBy("by")
        .transformWithState(_passing((PACKED,)), f"{PACKED} binary", "Append", "EventTime")
        .mapInArrow(unpack, StructType(rows.schema.fields))
    )


def _row_by_row(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.timestamp_micros("arrived_us")
    return (
        rows.withColumn("at", at)
        .withWatermark("at", "0 seconds")
        .groupBy("key")
        .transformWithState(_passing(tuple(rows.columns)), rows.schema, "Append", "EventTime")
    )


def _passing(columns: tuple[str, ...]) -> Any:
    """An operator that gives back what it gets."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
        TimerValues,
    )

    class Passing(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("known", "machine binary, rows binary")

        def handleInputRows(
            self, key: Any, rows: Iterator[Any], timerValues: TimerValues
        ) -> Iterator[Row]:
            self._state.get()
            for row in rows:
                yield Row(**{name: row[name] for name in columns})
            self._state.update((bytes(_STATE_BYTES), None))

        def close(self) -> None:
            pass

    return Passing()
