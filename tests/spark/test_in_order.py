"""in_order in real queries: parity with the FIFO layer's machine, restarts, kills, odd rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.tws_tester import TwsTester

from unisono import BadInput, EnvironmentLacks, Fifo, Unsupported
from unisono.spark import in_order
from unisono.spark.in_order import PROVIDER
from unisono.spark.keyed import Keyed
from unisono.spark.operator import ARRIVED, HELD_US, NUMBER, SENT, STATE, STATUS, InOrder
from unisono.spark.packing import ROWS, packer, read, unpack, write

MS = 1000
STATIC = Fifo(rule="static", latch_ms=100)
_PATIENCE_S = 120
Rows = list[dict[str, Any]]


# The operator alone, without a Java machine.


def packed(*rows: tuple[int | None, int | None, int | None]) -> list[Row]:
    """Number, sent, arrived; each row of its own, so that some come together and some do not."""
    schema = pa.schema([(name, pa.int64()) for name in ("n", NUMBER, SENT, ARRIVED)])
    return [
        Row(**{ROWS: write(pa.Table.from_pylist([{"n": number, **_row(*row)}], schema))})
        for number, *row in ((row[0], *row) for row in rows)
    ]


def _row(number: int | None, sent: int | None, arrived: int | None) -> dict[str, int | None]:
    return {NUMBER: number, SENT: sent, ARRIVED: arrived}


def went(rows: Any) -> list[tuple[int, str, int]]:
    return [
        (one["n"], one[STATUS], one[HELD_US]) for row in rows for one in read(row[ROWS]).to_pylist()
    ]


def operator_of(event_time: bool, forget_us: int | None = None) -> TwsTester:
    return TwsTester(
        InOrder(STATIC, event_time, None, forget_us),
        timeMode="eventTime" if event_time else "processingTime",
        eventTimeExtractor=(lambda row: 2**60) if event_time else None,
    )


def test_a_watermark_lets_rows_go_and_the_next_timer_is_set() -> None:
    test = operator_of(event_time=True)
    out = test.test("k", packed((1, 0, 10 * MS), (5, 0, 40 * MS), (3, 0, 20 * MS)))
    assert went(out) == [(1, "in_order", 0)]
    assert test.setWatermark(119) == []
    assert went(test.setWatermark(120)) == [(3, "gap_skipped", 100 * MS)]
    assert went(test.test("k", packed((2, 0, 125 * MS)))) == [(2, "out_of_order", 0)]
    assert went(test.setWatermark(140)) == [(5, "gap_skipped", 100 * MS)]
    known = test.peekValueState(STATE, "k")
    assert known is not None and known[1] is None  # no row is held


def test_in_processing_time_a_batch_is_one_moment() -> None:
    test = operator_of(event_time=False)
    test.setProcessingTime(1000)
    out = test.test("k", packed((2, None, None), (4, None, None), (1, None, None)))
    assert went(out) == [(1, "in_order", 0), (2, "in_order", 0)]
    assert test.setProcessingTime(1099) == []
    out = test.test("k", packed((3, None, None), (3, None, None)))
    assert went(out) == [(3, "in_order", 0), (4, "in_order", 99 * MS), (3, "duplicate", 0)]
    assert test.setProcessingTime(1100) == []  # its timer is there, and finds nothing


def test_a_silent_key_leaves_no_state_behind() -> None:
    test = operator_of(event_time=True, forget_us=500 * MS)
    test.test("k", packed((1, 0, MS)))
    test.test("k", packed((2, 0, 300 * MS)))
    assert test.setWatermark(700) == []
    assert test.peekValueState(STATE, "k") is not None
    assert test.setWatermark(800) == []
    assert test.peekValueState(STATE, "k") is None
    assert went(test.test("k", packed((9, 0, 900 * MS)))) == [(9, "in_order", 0)]


def test_packing_keeps_every_value_and_the_order_of_each_key() -> None:
    batch = pa.record_batch(
        {
            "k": ["b", None, "a", "b", None, "a"],
            "j": [1, 1, 2, 1, None, 2],
            "v": [[1], None, [2, 3], [], [4], [5]],
        }
    )
    (small,) = packer(["k", "j"])(iter([batch]))
    assert small.num_rows == 4
    (back,) = unpack(iter([small]))
    assert back.column_names == ["v"]
    assert sorted(map(str, back.column("v").to_pylist())) == sorted(
        map(str, batch.column("v").to_pylist())
    )
    by_key = {
        (one["k"], one["j"]): read(one[ROWS]).column("v").to_pylist() for one in small.to_pylist()
    }
    assert by_key[("b", 1)] == [[1], []] and by_key[("a", 2)] == [[2, 3], [5]]


# In queries.


def arrivals(seed: int, keys: int = 4, each: int = 120) -> Rows:
    """Rows of several keys in the order of arrival: some late, some twice, some missing."""
    rng, rows = Random(seed), Rows()
    for key in range(keys):
        for number in range(each):
            sent = 10**6 + number * 5 * MS
            for _ in range(rng.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 0))):
                late = rng.expovariate(1 / (40 * MS)) if rng.random() < 0.2 else rng.random() * MS
                row = {"key": f"k{key}", "number": number, "sent": sent}
                rows.append({**row, "arrived": sent + round(late), "id": len(rows)})
    return sorted(rows, key=lambda row: (row["arrived"], row["number"]))


def expected(rows: Rows, chosen: Fifo, end_us: int) -> dict[str, list[tuple[int, str, int]]]:
    """(id, status, held) of each key's rows, by the machine alone."""
    found: dict[str, list[tuple[int, str, int]]] = {}
    for key in sorted({row["key"] for row in rows}):
        keyed, mine = Keyed(chosen), [row for row in rows if row["key"] == key]
        for place, row in enumerate(mine):
            keyed.arrive(place, row["number"], row["sent"], row["arrived"])
        keyed.until(end_us)
        ids = [mine[place]["id"] for place in keyed.places]
        found[key] = [*zip(ids, keyed.statuses, keyed.waits_us, strict=True)]
    return found


def put(folder: Path, index: int, rows: Rows, schema: pa.Schema | None = None) -> None:
    """A file for one batch; files are read in the order of their times."""
    folder.mkdir(exist_ok=True)
    path = folder.parent / "part"
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    os.utime(path, (10**9 + index, 10**9 + index))
    path.rename(folder / f"{index:03}.parquet")


SCHEMA = "key string, number long, sent long, arrived long, id long"


def stream(spark: SparkSession, folder: Path, schema: str = SCHEMA) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(rows: DataFrame, checkpoint: Path) -> list[Row]:
    """All there is, to its end: batch by batch, in the order of each partition."""
    batches: dict[int, list[Row]] = {}
    query = (
        rows.writeStream.foreachBatch(lambda df, batch: batches.update({batch: df.collect()}))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [row for _, batch in sorted(batches.items()) for row in batch]


def by_key(rows: list[Row]) -> dict[str, list[tuple[int, str, int]]]:
    found: dict[str, list[tuple[int, str, int]]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append((row["id"], row["status"], row["held_us"]))
    return dict(sorted(found.items()))


def ordered(rows: DataFrame, chosen: Fifo) -> DataFrame:
    return in_order(
        rows, key="key", sequence="number", sent="sent", arrived="arrived", latch=chosen
    )


def test_parity_with_the_fifo_machine_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Two queries, the second from the checkpoint of the first."""
    chosen = Fifo(first_ms=20, hold_ms=100, record=0)
    rows = arrivals(1)
    last_us = rows[-1]["arrived"]
    end = {**rows[0], "key": "end", "arrived": last_us + 10**6}
    out: list[Row] = []
    for index, parts in enumerate(([rows[:200]], [rows[200:], [end]])):
        for part in parts:
            put(tmp_path / "in", index, part)
            index += 1
        out += run(ordered(stream(spark, tmp_path / "in"), chosen), tmp_path / "checkpoint")
    wanted = expected([*rows, end], chosen, last_us + 10**6)
    assert by_key(out) == wanted
    assert {status for each in wanted.values() for _, status, _ in each} == {
        "in_order",
        "out_of_order",
        "gap_skipped",
        "duplicate",
    }


def test_odd_rows_and_all_types_come_through_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Late ones by the watermark, without a key, a number or times; held over a batch or not."""
    kinds = (
        "`a.b` string, number int, at timestamp, sent timestamp, big decimal(38,2), none int, "
        "raw binary, list array<struct<x:double,y:date>>, dict map<string,long>"
    )
    each = pa.struct([("x", pa.float64()), ("y", pa.date32())])
    schema = pa.schema(
        {
            "a.b": pa.string(),
            "number": pa.int32(),
            "at": pa.timestamp("us", "UTC"),
            "sent": pa.timestamp("us", "UTC"),
            "big": pa.decimal128(38, 2),
            "none": pa.int32(),
            "raw": pa.binary(),
            "list": pa.list_(each),
            "dict": pa.map_(pa.string(), pa.int64()),
        }
    )
    values: dict[str, Any] = {
        "sent": datetime(2024, 10, 27, 0, 59, 59, 999999, tzinfo=UTC),
        "big": Decimal("123456789012345678901234567890.12"),
        "none": None,
        "raw": b"\0x",
        "list": [{"x": 0.1, "y": None}, None],
        "dict": {"x": 2**62 + 1, "y": None},
    }
    batches: list[list[tuple[str | None, int | None, int | None]]] = [
        [("a", 1, 100), ("a", 3, 100), (None, 7, 100), ("a", None, 100), (None, 8, 101)],
        [("a", 4, 50), ("a", 2, None)],
    ]
    for index, batch in enumerate(batches):
        rows = [
            {
                "a.b": key,
                "number": number,
                "at": None if second is None else datetime.fromtimestamp(second, UTC),
                **values,
                "dict": list(values["dict"].items()),
            }
            for key, number, second in batch
        ]
        put(tmp_path / "in", index, rows, schema)
    given = stream(spark, tmp_path / "in", kinds).withWatermark("at", "1 second")
    hold = Fifo(rule="static", latch_ms=60_000, hold_ms=60_000)
    result = in_order(given, key="a.b", sequence="number", arrived="at", sent="sent", latch=hold)
    assert result.columns == [*given.columns, "status", "held_us"]
    out = run(result, tmp_path / "checkpoint")
    assert [(row["number"], row["status"]) for row in out if row["a.b"] == "a"] == [
        (None, "out_of_order"),
        (1, "in_order"),
        (2, "in_order"),
        (3, "in_order"),
        (4, "in_order"),
    ]
    assert [(row["number"], row["status"]) for row in out if row["a.b"] is None] == [
        (7, "in_order"),
        (8, "in_order"),
    ]
    for row in out:
        plain = row.asDict(recursive=True)
        plain["sent"] = plain["sent"].astimezone(UTC)
        assert {name: plain[name] for name in values} == values


def test_in_processing_time_what_is_held_stays_for_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And two columns may be the key."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        out = []
        for index, numbers in enumerate([(2, 1, 4), (3,)]):
            row = {"key": "k", "sent": 7, "arrived": 0, "id": 0}
            put(tmp_path / "in", index, [{**row, "number": number} for number in numbers])
            rows = in_order(
                stream(spark, tmp_path / "in"),
                key=["key", "sent"],
                sequence="number",
                latch=Fifo(rule="static", latch_ms=1e6, hold_ms=1e6),
            )
            out.append([row["number"] for row in run(rows, tmp_path / "checkpoint")])
        assert out == [[1, 2], [3, 4]]
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")


# A driver that is killed.

DRIVER = """
import json, os, sys
from pathlib import Path
from unisono import Fifo
from unisono.pipeline.session import spark_session
from unisono.spark import in_order

folder = Path(sys.argv[1])
spark = spark_session("killed", shuffle_partitions=2)
rows = spark.readStream.schema(sys.argv[2]).option("maxFilesPerTrigger", 1)
result = in_order(rows.parquet(str(folder / "in")), key="key", sequence="number", sent="sent",
                  arrived="arrived", latch=Fifo(first_ms=20, hold_ms=100))

def keep(df, batch):
    part = folder / f"part-{batch}"
    part.write_text(json.dumps([row.asDict() for row in df.collect()]))
    os.replace(part, folder / "out" / f"{batch}.json")

result.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint")) \\
    .trigger(**json.loads(sys.argv[3])).start().awaitTermination()
"""


def driver(folder: Path, trigger: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), SCHEMA, json.dumps(trigger)],
        start_new_session=True,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Drivers; what is left of them is killed."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_killed_driver_loses_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, running: list[subprocess.Popen[bytes]]
) -> None:
    """The sink is idempotent by batch; the second driver goes on where the first was killed."""
    chosen = Fifo(first_ms=20, hold_ms=100, record=0)
    rows = arrivals(2)
    last_us = rows[-1]["arrived"]
    end = {**rows[0], "key": "end", "arrived": last_us + 10**6}
    (tmp_path / "out").mkdir()
    step = len(rows) // 4 + 1
    parts = [*(rows[at : at + step] for at in range(0, len(rows), step)), [end]]
    for index, part in enumerate(parts):
        put(tmp_path / "in", index, part)
    first = driver(tmp_path, {"processingTime": "0 seconds"})
    running.append(first)
    begun = time.monotonic()
    while not (tmp_path / "out" / "1.json").exists():
        assert first.poll() is None and time.monotonic() - begun < _PATIENCE_S
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    written = len(list((tmp_path / "out").glob("*.json")))
    assert written < len(parts)

    def keep(df: DataFrame, batch: int) -> None:
        text = json.dumps([row.asDict() for row in df.collect()])
        (tmp_path / "out" / f"{batch}.json").write_text(text)

    query = (
        ordered(stream(spark, tmp_path / "in"), chosen)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    files = sorted((tmp_path / "out").glob("*.json"), key=lambda path: int(path.stem))
    out = [Row(**row) for path in files for row in json.loads(path.read_text())]
    assert by_key(out) == expected([*rows, end], chosen, last_us + 10**6)


# What is refused.


def test_what_makes_no_sense_is_refused(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load().selectExpr(
        "string(value % 3) as key", "value as number", "timestamp as at", "array(1) as list",
        "double(value) as real", "value as status",
    )  # fmt: skip
    good: dict[str, Any] = {"key": "key", "sequence": "number", "latch": STATIC}
    fine = rows.drop("status")
    for wrong, text in (
        ({"key": "other"}, "no column 'other'"),
        ({"key": []}, "at least one"),
        ({"key": "list"}, "array<int>"),
        ({"sequence": "real"}, "not an integer"),
        ({"sent": "real"}, "neither a timestamp"),
        ({"first": -1}, "first"),
        ({"forget_s": 1.0}, "hold_ms"),
        ({"latch": 100}, "unisono.Fifo"),
    ):
        with pytest.raises(BadInput, match=text):
            in_order(fine, **{**good, **wrong})
    with pytest.raises(Unsupported, match="static"):
        in_order(fine, key="key", sequence="number")
    with pytest.raises(BadInput, match="'status'"):
        in_order(rows, **good)
    with pytest.raises(BadInput, match="streaming"):
        in_order(spark.range(3).withColumnRenamed("id", "key"), **good)
    marked = fine.withWatermark("at", "1 second").withColumn("mine", F.col("number"))
    with pytest.raises(BadInput, match="watermark on 'at'"):
        in_order(marked, **good, arrived="mine")


def test_the_line_that_is_missing_is_named(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    set_to = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, "org.example.Other")
    try:
        with pytest.raises(EnvironmentLacks, match="RocksDB"):
            in_order(rows, key="timestamp", sequence="value", latch=STATIC)
    finally:
        spark.conf.set(PROVIDER, str(set_to))
