"""Recorders: the one schema, bounded memory, complete parts, nothing lost that was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unisono.trace import schema
from unisono.trace.files import ParquetRecorder, arrow_schema, write_tables
from unisono.trace.memory import MemoryRecorder


def publication(number: int) -> dict[str, Any]:
    return {
        "event_id": f"p-{number}",
        "topic": "t",
        "publisher": "p",
        "publisher_seq": number,
        "published_us": number,
        "size": 1,
    }


def subscription(until_us: int | None) -> dict[str, Any]:
    return {"subscriber": "s", "topic": "t", "from_us": 5, "until_us": until_us}


def test_the_schema_is_the_published_one() -> None:
    """Other systems write these names and types: changing them breaks their traces."""
    columns = {name: [(c.name, c.type) for c in schema.TABLES[name]] for name in schema.TABLES}
    assert columns["publications"] == [
        ("event_id", "string"),
        ("topic", "string"),
        ("publisher", "string"),
        ("publisher_seq", "int64"),
        ("published_us", "int64"),
        ("size", "int64"),
    ]
    assert columns["deliveries"] == [
        ("subscriber", "string"),
        ("position", "int64"),
        ("event_id", "string"),
        ("delivered_us", "int64"),
        ("status", "string"),
    ]
    assert columns["subscriptions"] == [
        ("subscriber", "string"),
        ("topic", "string"),
        ("from_us", "int64"),
        ("until_us", "int64"),
    ]
    optional = [c.name for table in schema.TABLES.values() for c in table if not c.required]
    assert optional == ["size", "status"]


def test_a_long_run_streams_to_disk(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path, "w", rows_in_memory=10)
    for number in range(35):
        recorder.record("publications", publication(number))
        assert len(recorder._rows["publications"]) < 10
    assert len(list((tmp_path / "publications").glob("*.parquet"))) == 3
    recorder.close()
    table = pq.read_table(tmp_path / "publications")
    assert sorted(table["publisher_seq"].to_pylist()) == list(range(35))
    assert table.schema.field("published_us").type == pa.int64()


def test_only_complete_parts_have_a_name(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path, "w")
    recorder.record("publications", publication(1))
    recorder.flush()
    recorder.flush()  # nothing new: no new part
    assert [path.name for path in (tmp_path / "publications").iterdir()] == ["w-000001.parquet"]


def test_a_subscription_is_one_row_that_ends(tmp_path: Path) -> None:
    for recorder in (ParquetRecorder(tmp_path, "w"), MemoryRecorder()):
        recorder.record("subscriptions", subscription(None))
        recorder.flush()
        recorder.record("subscriptions", subscription(9))
        recorder.close()
        if isinstance(recorder, MemoryRecorder):
            assert recorder.tables["subscriptions"] == [subscription(9)]
    assert pq.read_table(tmp_path / "subscriptions").to_pylist() == [subscription(9)]


def test_an_open_subscription_is_on_disk_too(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path, "w")
    recorder.record("subscriptions", subscription(None))
    recorder.flush()
    assert pq.read_table(tmp_path / "subscriptions").to_pylist() == [subscription(None)]


def test_processes_share_a_folder(tmp_path: Path) -> None:
    for writer in ("a", "b"):
        write_tables(tmp_path, {"publications": [publication(1)]}, writer=writer)
    assert pq.read_table(tmp_path / "publications").num_rows == 2


def test_a_run_without_events_leaves_readable_tables(tmp_path: Path) -> None:
    ParquetRecorder(tmp_path, "w").close()
    for table in ("publications", "deliveries"):
        read = pq.read_table(tmp_path / table)
        assert read.num_rows == 0
        assert read.schema.names == arrow_schema(table).names


def test_the_digest_depends_on_every_row_and_their_order() -> None:
    digests = set()
    for numbers in ((1, 2), (2, 1), (1,), (1, 2, 2)):
        recorder = MemoryRecorder()
        for number in numbers:
            recorder.record("publications", publication(number))
        digests.add(recorder.sha256)
    assert len(digests) == 4
