"""Traces in every format give the same report; what cannot be used is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from unisono.errors import BadInput
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.pipeline.report import Report

Write = Callable[..., Path]

PUBLISHED = [("e1", "x", "p", 1, 1000), ("e2", "y", "p", 2, 2000), ("e3", "x", "q", 1, 3000)]
DELIVERED = [
    ("ann", 1, "e1", 1500, "in_order"),
    ("ann", 2, "e2", 2500, "late"),
    ("ann", 3, "e3", 3500, None),
    ("bob", 1, "e3", 3600, None),
    ("bob", 2, "e1", 3700, "in_order"),
    ("bob", 3, "e2", 3800, "out_of_order"),
]
SUBSCRIBED = [("ann", "x", 0, None), ("ann", "y", 0, 9000), ("eve", "x", 0, 2000)]
TABLES: dict[str, list[Any]] = {
    "publications": PUBLISHED,
    "deliveries": DELIVERED,
    "subscriptions": SUBSCRIBED,
}


def judged(spark: SparkSession, path: Path, **options: Any) -> Report:
    return audit(spark, open_trace(spark, path), **options)


def refusal(spark: SparkSession, path: Path) -> str:
    with pytest.raises(BadInput) as refused:
        judged(spark, path)
    return str(refused.value)


def parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def test_text_gives_the_same_report_as_parquet(spark: SparkSession, write: Write) -> None:
    wanted = judged(spark, write(TABLES), deadline_us=1000)
    assert wanted.checks["total-order"].violations == 1
    assert wanted.checks["losses"].violations == 1
    for format_ in ("csv", "ndjson"):
        found = judged(spark, write(TABLES, format_), deadline_us=1000)
        assert found.to_json() == wanted.to_json(), format_


def test_other_names_of_a_format(spark: SparkSession, write: Write) -> None:
    """Read as `.ndjson` is; of what a reader gives, the audit sees no difference."""
    rows = {}
    for format_ in ("ndjson", "jsonl", "json"):
        trace = open_trace(spark, write(TABLES, format_))
        assert {parts.format for parts in trace.deliveries.parts} == {"ndjson"}
        rows[format_] = sorted(trace.deliveries.rows.collect())
    assert len(rows["ndjson"]) == len(DELIVERED)
    assert rows["jsonl"] == rows["json"] == rows["ndjson"]


def test_a_foreign_trace_of_two_tables_without_status(spark: SparkSession, write: Write) -> None:
    tables = {"publications": PUBLISHED, "deliveries": [row[:4] for row in DELIVERED]}
    for format_ in ("parquet", "csv", "ndjson"):
        report = judged(spark, write(tables, format_))
        assert report.statuses["in_order"] == 6
        assert report.rows["subscriptions"] is None
        assert report.checks["total-order"].violations == 1


def test_parts_in_folders_may_differ_in_what_is_optional(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "a strange [name] *{x}" / "trace"
    names = ("event_id", "topic", "publisher", "publisher_seq", "published_us")
    columns = {name: [row[at] for row in PUBLISHED] for at, name in enumerate(names)}
    parquet(folder / "publications.parquet" / "part-0.parquet", **columns)
    parquet(
        folder / "deliveries" / "one.parquet",
        delivered_us=pa.array([1500], pa.int32()),
        event_id=pa.array(["e1"]).dictionary_encode(),
        position=pa.array([1], pa.int16()),
        subscriber=["ann"],
    )
    parquet(
        folder / "deliveries" / "two.parquet",
        subscriber=pa.array(["bob"], pa.large_string()),
        position=[1],
        event_id=["e2"],
        delivered_us=[2500],
        status=["late"],
        remark=["not ours"],
    )
    parquet(
        folder / "deliveries" / "three.parquet",
        subscriber=["eve"],
        position=[1],
        event_id=["e3"],
        delivered_us=[3500],
        status=pa.nulls(1),
    )
    (folder / "deliveries" / "_SUCCESS").touch()
    (folder / "deliveries" / "four.csv").write_text(
        "position,event_id,delivered_us,status,subscriber\n2,e3,4000,,eve\n"
    )
    report = judged(spark, folder.parent)
    assert report.rows["deliveries"] == 4
    assert report.statuses["late"] == 1 and report.statuses["in_order"] == 3
    assert report.checks["duplicates"].witness == {
        "subscriber": "eve",
        "event": "e3",
        "positions": [1, 2],
    }


def test_run_json_tells_the_promises(spark: SparkSession, write: Write) -> None:
    folder = write(TABLES)
    (folder / "run.json").write_text(
        '{"seed": 7, "promises": ["duplicates", "deadline"], "deadline_us": 600, "settle_us": 5}'
    )
    report = judged(spark, folder)
    assert {name for name, check in report.checks.items() if check.promised} == {
        "duplicates",
        "deadline",
    }
    assert report.verdict == "invalid"
    assert report.checks["deadline"].more == {"deadline_us": 600}
    assert judged(spark, folder, promises=["fifo"], deadline_us=9999).verdict == "valid"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "run.json: "),
        ('{"promises": "fifo"}', "run.json: Expected `array"),
        ('{"promises": ["order"]}', "no check named 'order'"),
        ('{"settle_us": -1}', "cannot be negative"),
    ],
)
def test_a_bad_run_json(spark: SparkSession, write: Write, text: str, complaint: str) -> None:
    folder = write(TABLES)
    (folder / "run.json").write_text(text)
    assert complaint in refusal(spark, folder)


def test_no_folder_no_table_no_rows(spark: SparkSession, write: Write, tmp_path: Path) -> None:
    assert "no such folder" in refusal(spark, tmp_path / "nowhere")
    (tmp_path / "file").touch()
    assert "this is a file" in refusal(spark, tmp_path / "file")
    only = write({"publications": PUBLISHED})
    assert "no table deliveries; expected deliveries.parquet" in refusal(spark, only)
    for format_ in ("parquet", "csv", "ndjson"):
        empty = write({"publications": [], "deliveries": []}, format_)
        assert "the trace is empty" in refusal(spark, empty)
    twice = write(TABLES)
    (twice / "deliveries.csv").touch()
    assert "table deliveries is there twice" in refusal(spark, twice)
    hollow = write({"publications": PUBLISHED})
    (hollow / "deliveries").mkdir()
    assert "holds no part files" in refusal(spark, hollow)
    (hollow / "deliveries" / "rows.txt").touch()
    assert "rows.txt: not one of .parquet" in refusal(spark, hollow)


def test_publications_without_deliveries_are_a_trace(spark: SparkSession, write: Write) -> None:
    report = judged(spark, write({"publications": PUBLISHED, "deliveries": []}))
    assert report.verdict == "valid" and report.latency["mean"] is None


def test_missing_columns_and_wrong_types(spark: SparkSession, write: Write) -> None:
    folder = write(TABLES, "csv")
    (folder / "deliveries.csv").write_text("subscriber,event_id,delivered_us\nann,e1,5\n")
    assert "deliveries.csv: no column position" in refusal(spark, folder)
    folder = write(TABLES, "ndjson")
    (folder / "deliveries.ndjson").write_text('{"subscriber": "ann", "position": 1}\n')
    assert "deliveries.ndjson: no column event_id" in refusal(spark, folder)
    (folder / "deliveries.ndjson").write_text('[{"subscriber": "ann"}]\n')
    assert "expected one JSON object a line" in refusal(spark, folder)
    folder = write(TABLES)
    parquet(
        folder / "deliveries.parquet",
        subscriber=["ann"],
        position=[1.5],
        event_id=["e1"],
        delivered_us=[5],
    )
    assert "column position is double, expected int64" in refusal(spark, folder)
    (folder / "deliveries.parquet").write_bytes(b"PAR1 no")
    assert "deliveries.parquet: not a Parquet file" in refusal(spark, folder)


def spoilt(table: str, row: int, column: int, value: Any) -> dict[str, list[Any]]:
    tables = {name: [list(r) for r in rows] for name, rows in TABLES.items()}
    tables[table][row][column] = value
    return tables


@pytest.mark.parametrize("format_", ["csv", "ndjson"])
@pytest.mark.parametrize(
    ("table", "column", "value", "complaint"),
    [
        ("deliveries", 1, "1.5", "column position holds '1.5'"),
        ("deliveries", 3, "1e3", "column delivered_us holds '1e3'"),
        ("deliveries", 3, 2**63, "column delivered_us holds '9223372036854775808'"),
        ("deliveries", 2, None, "column event_id is empty"),
        ("deliveries", 0, None, "column subscriber is empty"),
        ("publications", 3, "two", "column publisher_seq holds 'two'"),
        ("subscriptions", 3, "never", "column until_us holds 'never'"),
        ("subscriptions", 2, None, "column from_us is empty"),
    ],
)
def test_text_that_does_not_convert(
    spark: SparkSession,
    write: Write,
    format_: str,
    table: str,
    column: int,
    value: Any,
    complaint: str,
) -> None:
    told = refusal(spark, write(spoilt(table, 1, column, value), format_))
    assert f"{table}.{format_}: {complaint}" in told
    assert "expected" in told


def test_values_that_cannot_be_used(spark: SparkSession, write: Write) -> None:
    told = refusal(spark, write(spoilt("deliveries", 4, 4, "lost")))
    assert "column status holds 'lost'" in told and "in_order, out_of_order" in told
    assert "column topic is empty" in refusal(spark, write(spoilt("publications", 1, 1, None)))
    assert "out of" in refusal(spark, write(spoilt("subscriptions", 0, 2, -(2**62))))
    told = refusal(spark, write(spoilt("deliveries", 0, 3, 2**62)))
    assert "column delivered_us" in told and str(2**62) in told
    told = refusal(spark, write(spoilt("publications", 2, 0, "e1")))
    assert "event_id must be unique, but 'e1'" in told
    told = refusal(spark, write(spoilt("deliveries", 4, 1, 1)))
    assert "subscriber 'bob' has position 1 more than once" in told


def test_malformed_lines(spark: SparkSession, write: Write) -> None:
    folder = write(TABLES, "csv")
    with (folder / "deliveries.csv").open("a") as lines:
        lines.write("ann,9,e1,9000,late,surplus\n")
    assert "malformed row 'ann,9,e1,9000,late,surplus'" in refusal(spark, folder)
    folder = write(TABLES, "ndjson")
    with (folder / "publications.ndjson").open("a") as lines:
        lines.write('{"event_id": \n')
    assert """malformed row '{"event_id":""" in refusal(spark, folder)


def test_a_parquet_file_damaged_inside(spark: SparkSession, write: Write) -> None:
    folder = write(TABLES)
    file = folder / "deliveries.parquet"
    damaged = bytearray(file.read_bytes())
    damaged[4:200] = bytes(196)
    file.write_bytes(damaged)
    told = refusal(spark, folder)
    assert "Spark cannot read the trace" in told and "deliveries.parquet" in told
    assert "\n" not in told
