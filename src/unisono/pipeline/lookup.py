"""Small tables of the driver's, to be joined with large ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lookup(spark: SparkSession, rows: Iterable[Sequence[Any]], **columns: str) -> DataFrame:
    """Rows whose columns have these Arrow types, sent to every task.

    They go to Spark as Arrow does: a list of tuples would start Python processes that do nothing
    but unpickle them, at each audit anew.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    schema = pa.schema(list(columns.items()))
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)
    return F.broadcast(spark.createDataFrame(table))
