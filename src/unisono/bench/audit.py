"""`unisono bench audit`: the whole audit against a plain sort and write of the same deliveries.

Both run in the same Spark session on the same trace, in turn; times are medians. The audit must
cost at most five such sorts, and its time must not grow faster than the rows (a fifth is allowed
for noise): a check that compared all pairs of anything would show here.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.bench.machine import machine
from unisono.bench.traces import write_trace
from unisono.pipeline.audit import audit
from unisono.pipeline.java import find_java
from unisono.pipeline.plan import ROWS_PER_PARTITION
from unisono.pipeline.read import open_trace
from unisono.pipeline.session import cores, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MAX = 5.0
GROWTH_MAX = 1.2
SIZES = (5_000_000, 40_000_000)
WARM_UP_ROWS = 200_000


def run(
    sizes: Sequence[int],
    runs: int,
    folder: Path | None,
    master: str | None,
    remark: Callable[[str], None],
) -> dict[str, Any]:
    """Measure every size; the traces are made under `folder` and removed."""
    spark = spark_session("unisono bench audit", master, quick=False)
    place = Path(tempfile.mkdtemp(prefix="unisono-bench-", dir=folder))
    try:
        # Nobody measures how Java and numba compile: one small round first.
        _measure(spark, place / "warm-up", WARM_UP_ROWS, 1, lambda text: None)
        figures = [_measure(spark, place / str(rows), rows, runs, remark) for rows in sizes]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {"machine": {**machine(), "java": find_java().version}, "audit": summarise(figures)}


def summarise(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios and growth against their targets."""
    small, large = figures[0], figures[-1]
    growth = None
    if large["rows"] > small["rows"]:
        slower = large["audit_s"] / small["audit_s"]
        growth = round(slower / (large["rows"] / small["rows"]), 3)
    met = all(f["ratio"] <= RATIO_MAX for f in figures) and (growth or 0.0) <= GROWTH_MAX
    return {
        "sizes": figures,
        "growth": growth,
        "targets": {"ratio_max": RATIO_MAX, "growth_max": GROWTH_MAX},
        "met": met,
    }


def _measure(
    spark: SparkSession, place: Path, rows: int, runs: int, remark: Callable[[str], None]
) -> dict[str, Any]:
    remark(f"making a trace of {rows:,} deliveries ...")
    rows = write_trace(spark, place, rows)
    sort_s, audit_s = [], []
    for turn in range(runs):
        started = time.perf_counter()
        _sort_and_write(spark, place, rows)
        sort_s.append(time.perf_counter() - started)
        started = time.perf_counter()
        report = audit(spark, open_trace(spark, place))
        audit_s.append(time.perf_counter() - started)
        remark(f"run {turn + 1}: sort and write {sort_s[-1]:.1f} s, audit {audit_s[-1]:.1f} s")
        if report.verdict != "valid" or report.rows["deliveries"] != rows:
            raise AssertionError(f"the audit of a valid trace says {report.to_json()}")
    shutil.rmtree(place)
    sort, whole = statistics.median(sort_s), statistics.median(audit_s)
    return {
        "rows": rows,
        "sort_write_s": round(sort, 3),
        "audit_s": round(whole, 3),
        "ratio": round(whole / sort, 3),
    }


def _sort_and_write(spark: SparkSession, place: Path, rows: int) -> None:
    """What anybody would do with Spark: sort all deliveries, in as many parts as is good for it."""
    partitions = max(cores(), -(-rows // ROWS_PER_PARTITION))
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    deliveries = spark.read.parquet(str(place / "deliveries"))
    ordered = deliveries.orderBy("subscriber", "position")
    ordered.write.mode("overwrite").parquet(str(place / "sorted"))
