"""The sink: every row is published once, whatever Spark commits again after whichever crash."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType
from support.streams import wait_for

from unisono.bench.server import NatsServer
from unisono.core.once import Recent
from unisono.errors import BadInput
from unisono.journal.reading import bounds, read
from unisono.net.collect import Wish
from unisono.spark import sink
from unisono.spark.collector import ensure
from unisono.spark.options import SinkOptions
from unisono.spark.sink import Rows, Spool, StreamSink, check_columns, hand_over


@pytest.fixture
def heard(nats_server: NatsServer, journal: Path) -> Path:
    """A journal of the topic `out` of the bus."""
    ensure(Wish(url=nats_server.url, folder=str(journal), topics=("out",), linger_s=100))
    return journal


def payloads(journal: Path) -> list[bytes]:
    _, after = bounds(journal)
    return [one for batch in read(journal, 0, after) for one in batch["payload"].to_pylist()]


def rows(numbers: range, partition: int = 0, query: str = "query") -> Rows:
    batch = pa.RecordBatch.from_pydict({"payload": [str(number) for number in numbers]})
    handed = hand_over(SinkOptions(bus="nats://h", topic="out"), query, iter([batch]))
    return Rows(query, partition, handed.data)


SCHEMA = StructType().add("payload", "string")


def make(url: str, spool: Path) -> StreamSink:
    return StreamSink(SinkOptions(bus=url, topic="out", spool=str(spool)), SCHEMA)


def test_a_batch_that_is_committed_again_is_heard_once(
    nats_server: NatsServer, heard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after 1, 4 and 10 of ten rows, and after all but the mark that says so; what
    is then computed anew differs, and is not what counts."""
    writer = make(nats_server.url, tmp_path / "spool")
    real = sink.publish

    def dying(until: int, options: SinkOptions, data: list[bytes], name: str) -> None:
        part = [row for chunk in data for row in pa.ipc.open_stream(chunk).read_all().to_pylist()]
        table = pa.RecordBatch.from_pylist(part[:until])
        handed = hand_over(options, "query", iter([table]))
        real(options, [handed.data], name)
        raise SystemExit

    for batch, until in enumerate((1, 4, 10)):
        told: list[WriterCommitMessage | None] = [rows(range(5, 10), 1), None, rows(range(5), 0)]
        with monkeypatch.context() as patch:
            patch.setattr(sink, "publish", partial(dying, until))
            with pytest.raises(SystemExit):
                writer.commit(told, batch)
        writer.commit([rows(range(100, 103))], batch)
        writer.commit([rows(range(200, 203))], batch)
    wait_for(lambda: bounds(heard)[1] >= 30)
    assert payloads(heard) == [b"%d" % number for number in range(10)] * 3


def test_another_query_publishes_its_own(
    nats_server: NatsServer, heard: Path, tmp_path: Path
) -> None:
    for query in ("one", "two"):
        make(nats_server.url, tmp_path).commit([rows(range(3), query=query)], 0)
    wait_for(lambda: bounds(heard)[1] >= 6)
    assert payloads(heard) == [b"0", b"1", b"2"] * 2


def test_nothing_is_left_in_the_spool(nats_server: NatsServer, tmp_path: Path) -> None:
    make(nats_server.url, tmp_path).commit([rows(range(3))], 7)
    assert [path.name for path in (tmp_path / "query").iterdir()] == ["done"]
    assert Spool(tmp_path / "query").done == 7
    make(nats_server.url, tmp_path).commit([None], 8)  # nothing to publish


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("value int", "column 'value'"),
        ("payload int", "'payload' is int"),
        ("payload string, attributes map<string, binary>", "attributes"),
        ("attributes map<string, string>", "needs a column payload"),
        ("payload string, topic string", "which one"),
    ],
)
def test_columns_that_do_not_fit_are_refused(spark: SparkSession, columns: str, text: str) -> None:
    schema = spark.createDataFrame([], columns).schema
    with pytest.raises(BadInput, match=text):
        check_columns(SinkOptions(bus="nats://h", topic="out"), schema)


def test_without_a_topic_nothing_is_published() -> None:
    with pytest.raises(BadInput, match="give option"):
        check_columns(SinkOptions(bus="nats://h"), SCHEMA)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"payload": None, "topic": "t"}, "no payload"),
        ({"payload": "x", "topic": "t t"}, "topic"),
        ({"payload": "x", "topic": None}, "topic"),
        ({"payload": "x" * 2_000_000, "topic": "t"}, "over the limit"),
        ({"payload": "x", "topic": "t", "attributes": [("a b", "c")]}, "attribute"),
    ],
)
def test_a_row_that_the_bus_would_refuse_is_refused_by_its_task(
    row: dict[str, Any], text: str
) -> None:
    schema = pa.schema(
        [
            ("payload", pa.string()),
            ("topic", pa.string()),
            ("attributes", pa.map_(pa.string(), pa.string())),
        ]
    )
    batch = pa.RecordBatch.from_pylist([row], schema)
    with pytest.raises(BadInput, match=text):
        hand_over(SinkOptions(bus="nats://h"), "query", iter([batch]))


def test_a_batch_that_is_too_large_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"payload": ["x" * 1000] * 100})
    options = SinkOptions(bus="nats://h", topic="t", max_mb=0.05)
    with pytest.raises(BadInput, match="maxRows"):
        hand_over(options, "query", iter([batch, batch]))


def test_a_query_publishes_what_it_found(
    streams: SparkSession, nats_server: NatsServer, heard: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    query = (
        streams.readStream.schema("n int")
        .json(str(source))
        .selectExpr("cast(n * 10 as string) payload", "'out' topic", "map('n', n) attributes")
        .writeStream.format("unisono")
        .option("bus", nats_server.url)
        .option("spool", str(tmp_path / "spool"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    streams.createDataFrame([("30",)], "payload string").write.format("unisono").mode(
        "append"
    ).options(bus=nats_server.url, topic="out").save()
    wait_for(lambda: bounds(heard)[1] >= 3)
    assert payloads(heard) == [b"10", b"20", b"30"]
    (batch, *_) = read(heard, 0, 1)
    assert batch["event_id"][0].as_py() == f"{query.id}/0/0"


def test_what_is_remembered_has_a_bound() -> None:
    recent = Recent(3)
    assert [recent.again(name) for name in "abcab"] == [False, False, False, True, True]
    assert not recent.again("d")
    assert [recent.again(name) for name in "bcd"] == [True, True, True]
    assert not recent.again("a")
