"""Hand-made traces: written to disk in any format, and audited."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.pipeline.report import Report
from unisono.trace.schema import TABLES

Rows = Sequence[Sequence[Any]]
Write = Callable[..., Path]
Judge = Callable[..., Report]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write tables (rows in the schema's order, trailing columns may be left out) as a trace."""

    def write_tables(tables: dict[str, Rows], format_: str = "parquet") -> Path:
        folder = tmp_path / f"trace-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name, rows in tables.items():
            width = max((len(row) for row in rows), default=len(TABLES[name]))
            specs = TABLES[name][:width]
            names = [spec.name for spec in specs]
            file = folder / f"{name}.{format_}"
            if format_ == "parquet":
                types = {"string": pa.string(), "int64": pa.int64()}
                schema = pa.schema([(spec.name, types[spec.type]) for spec in specs])
                dicts = [dict(zip(names, row, strict=True)) for row in rows]
                pq.write_table(pa.Table.from_pylist(dicts, schema), file)
            elif format_ == "csv":
                cells = [["" if value is None else str(value) for value in row] for row in rows]
                file.write_text("\n".join(",".join(row) for row in [names, *cells]) + "\n")
            else:
                dicts = [dict(zip(names, row, strict=True)) for row in rows]
                file.write_text("".join(json.dumps(row) + "\n" for row in dicts))
        return folder

    return write_tables


@pytest.fixture
def judge(spark: SparkSession, write: Write) -> Judge:
    """Write a trace of rows and audit it."""

    def judge_rows(
        publications: Rows,
        deliveries: Rows,
        subscriptions: Rows | None = None,
        format_: str = "parquet",
        **options: Any,
    ) -> Report:
        tables = {"publications": publications, "deliveries": deliveries}
        if subscriptions is not None:
            tables["subscriptions"] = subscriptions
        return audit(spark, open_trace(spark, write(tables, format_)), **options)

    return judge_rows
