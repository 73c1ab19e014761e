"""`unisono bench spark`: the streaming source, the operator `in_order`, and audits that grow."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.bench import in_order, streaming
from unisono.bench.machine import machine
from unisono.bench.memory import Peak
from unisono.bench.traces import write_trace
from unisono.pipeline.audit import audit
from unisono.pipeline.java import find_java
from unisono.pipeline.read import open_trace
from unisono.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 3
SIZES = (10_000_000, 50_000_000, 200_000_000)
EXPONENT_MAX = 1.1
PEAK_GIB_MAX = 8.0  # of all processes together, at any size
WARM_UP_ROWS = 200_000

Remark = Callable[[str], None]


def run(
    sizes: Sequence[int], runs: int, folder: Path | None, master: str | None, remark: Remark
) -> dict[str, Any]:
    spark = spark_session("unisono bench spark", master, quick=False)
    remark("source ...")
    source = streaming.measure(spark, repeats=runs)
    remark("in_order ...")
    ordered = in_order.measure(spark, repeats=runs)
    grown = _audits(spark, sizes, folder, remark)
    parts = {"source": source, "in_order": ordered, "audit": grown}
    met = all(part["met"] for part in parts.values())
    about = machine() | {"java": find_java().version}
    return {"machine": about, "spark": parts | {"met": met}}


def _audits(
    spark: SparkSession, sizes: Sequence[int], folder: Path | None, remark: Remark
) -> dict[str, Any]:
    """One audit of each size; and how its time grows from the smallest to the largest."""
    place = Path(tempfile.mkdtemp(prefix="unisono-bench-", dir=folder))
    try:
        _audit(spark, place / "warm-up", WARM_UP_ROWS, lambda text: None)
        found = [_audit(spark, place / str(rows), rows, remark) for rows in sizes]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    exponent = None
    small, large = found[0], found[-1]
    if large["rows"] > small["rows"]:
        slower = large["audit_s"] / small["audit_s"]
        exponent = round(math.log(slower) / math.log(large["rows"] / small["rows"]), 3)
    peak = max(size["peak_gib"]["all"] for size in found)
    return {
        "sizes": found,
        "exponent": exponent,
        "estimate_hours_for_1e10": _estimate(large),
        "targets": {"exponent_max": EXPONENT_MAX, "peak_gib_max": PEAK_GIB_MAX},
        "met": (exponent or 0.0) <= EXPONENT_MAX and peak <= PEAK_GIB_MAX,
    }


def _audit(spark: SparkSession, place: Path, rows: int, remark: Remark) -> dict[str, Any]:
    remark(f"making a trace of {rows:,} deliveries ...")
    rows = write_trace(spark, place, rows)
    started = time.perf_counter()
    with Peak() as peak:
        report = audit(spark, open_trace(spark, place))
    taken = time.perf_counter() - started
    if report.verdict != "valid" or report.rows["deliveries"] != rows:
        raise AssertionError(f"the audit of a valid trace says {report.to_json()}")
    shutil.rmtree(place)
    remark(f"audited in {taken:.1f} s, {rows / taken / 1e6:.2f} million a second")
    return {"rows": rows, "audit_s": round(taken, 2), "peak_gib": peak.gib()}


def _estimate(largest: dict[str, Any]) -> float:
    """On paper: on two such cores, at the speed of the largest; passes are linear, and spread over
    more cores but for the one task that looks for an order of all (docs/trace.md)."""
    hours: float = 1e10 / largest["rows"] * largest["audit_s"] / 3600
    return round(hours, 1)
