"""The streaming source: the same rows for the same positions of a journal; clear errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from support.streams import publish, wait_for

from unisono.bench.server import NatsServer
from unisono.core.events import Delivery, Status
from unisono.errors import BadInput, EnvironmentLacks, UnisonoError
from unisono.journal.journal import Journal
from unisono.journal.readers import Reader, needed_from
from unisono.journal.reading import Index, bounds
from unisono.net.collect import collector
from unisono.spark import UnisonoSource
from unisono.spark import source as source_module
from unisono.spark.collector import ensure
from unisono.spark.options import sink_options, stream_options, table_options
from unisono.spark.source import EventReader, cut, look_every, rows

Events = Callable[..., DataFrame]


def fill(folder: Path, numbers: range, each: int = 10) -> None:
    with Journal(folder) as journal:
        for number in numbers:
            journal.append(
                [
                    Delivery(
                        topic="ab"[number % 2],
                        payload=b"%d" % number,
                        status=Status.IN_ORDER,
                        id=f"p-{number}",
                        publisher="p",
                        position=number,
                        published_us=number,
                        delivered_us=number + 5,
                        attributes={"n": number} if number % 2 else None,
                    )
                ]
            )
            if number % each == 0:
                journal.flush()


def drain(frame: DataFrame, checkpoint: Path) -> list[list[Row]]:
    """All that is there now, by micro-batch."""
    found: list[list[Row]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.append(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return found


def test_events_of_a_real_bus_come_in_order(
    events: Events, nats_server: NatsServer, journal: Path, tmp_path: Path
) -> None:
    frame = events()
    found: list[Row] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_for(lambda: collector(journal) is not None, query)
        publish(nats_server.url, range(300))
        wait_for(lambda: len(found) == 300, query)
    finally:
        query.stop()
    assert [row.position for row in found] == list(range(300))
    assert sorted(int(row.payload) for row in found) == list(range(300))
    for topic, rest in (("a", 0), ("b", 1)):
        numbers = [int(row.payload) for row in found if row.topic == topic]
        assert numbers == list(range(rest, 300, 2))
    assert {row.status for row in found} == {"in_order"}
    assert all(row.published <= row.delivered for row in found)
    assert found[7].attributes == {"n": found[7].payload.decode()}


def test_a_collector_that_died_is_started_again(nats_server: NatsServer, journal: Path) -> None:
    """And positions go on."""
    wish = stream_options(
        {"bus": nats_server.url, "topics": "a,b", "journal": str(journal), "lingerS": "100"}
    ).wish
    assert wish is not None
    ensure(wish)
    publish(nats_server.url, range(10))
    wait_for(lambda: bounds(journal)[1] == 10)
    first = collector(journal)
    assert first is not None
    ensure(wish)
    assert collector(journal) == first
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: collector(journal) is None)
    ensure(wish)
    assert collector(journal) not in (None, first)
    publish(nats_server.url, range(10))
    wait_for(lambda: bounds(journal)[1] == 20)


def test_a_query_is_seen_several_times_before_its_collector_would_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if it lingers for less than the usual time between signs of life."""
    assert look_every(600) == source_module.LOOK_S
    assert look_every(2) == 0.5
    folder = tmp_path / "journal"
    fill(folder, range(3))
    options = {"bus": "nats://127.0.0.1:1", "topics": "a", "journal": str(folder), "lingerS": "2"}
    waits: list[float] = []
    begun: list[str] = []

    class Stopped:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) > 2

    monkeypatch.setattr(source_module, "ensure", lambda wish: begun.append(wish.folder))
    follower = source_module.Follower(stream_options(options))
    follower._stopped = Stopped()  # type: ignore[assignment]
    follower._watch()
    assert waits == [0.5] * 3
    assert begun == [str(folder)] * 3  # at the start, and at every look
    assert capsys.readouterr().err.count("may be missed") == 2  # no collector ran


def test_a_journal_is_read_in_limited_batches_and_goes_on(
    streams: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "journal"
    fill(folder, range(100))
    frame = streams.readStream.format("unisono").options(journal=str(folder), maxRows="30").load()
    batches = drain(frame, tmp_path / "checkpoint")
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    assert needed_from(folder) == 90  # Spark tells with the next batch that one is done
    fill(folder, range(100, 130))
    batches += drain(frame, tmp_path / "checkpoint")
    assert [row.position for batch in batches for row in batch] == list(range(130))


def test_start_is_where_it_was_asked_for(streams: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    fill(folder, range(20))
    reader = streams.readStream.format("unisono").option("journal", str(folder))
    for start, count in (("latest", 0), ("earliest", 20), ("15", 5)):
        batches = drain(reader.option("start", start).load(), tmp_path / start)
        assert sum(map(len, batches)) == count


def test_a_journal_and_a_trace_are_read_as_batches(streams: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    fill(folder, range(50))
    frame = streams.read.format("unisono").option("journal", str(folder)).load()
    assert frame.where("topic = 'a'").count() == 25
    trace = tmp_path / "run" / "trace"
    (trace / "deliveries").mkdir(parents=True)
    (trace / "deliveries" / "one.csv").write_text(
        "subscriber,position,event_id,delivered_us,strange\ns,0,x,5,?\ns,1,y,,?\n"
    )
    (trace / "deliveries" / "two.ndjson").write_text(
        '{"subscriber": "t", "position": 0, "event_id": "x", "delivered_us": 7, "status": "late"}\n'
    )
    read = streams.read.format("unisono").load(str(tmp_path / "run"))
    assert sorted(tuple(row) for row in read.collect()) == [
        ("s", 0, "x", 5, None),
        ("s", 1, "y", None, None),
        ("t", 0, "x", 7, "late"),
    ]
    (trace / "deliveries" / "two.ndjson").write_text('{"position": "many"}\n')
    with pytest.raises(Exception, match=r"two\.ndjson"):
        streams.read.format("unisono").load(str(tmp_path / "run")).collect()


def test_the_same_range_gives_the_same_rows_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, range(500), each=7)
    monkeypatch.setattr(source_module, "PARTITION_ROWS", 1)
    monkeypatch.setattr("unisono.journal.reading.INDEXED", 300)
    monkeypatch.setattr("unisono.journal.reading.PLACES_MAX", 8)
    monkeypatch.setattr(source_module, "BATCH_ROWS", 16)
    index = Index(tmp_path)
    for start, stop, parts in ((0, 500, 1), (0, 500, 7), (13, 499, 100), (490, 500, 3), (5, 5, 3)):
        found = [
            number
            for part in cut(start, stop, parts, index)
            for batch in rows(tmp_path, part)
            for number in batch["position"].to_pylist()
        ]
        assert found == list(range(start, stop))


def test_a_full_journal_waits_for_its_readers(tmp_path: Path) -> None:
    with Journal(tmp_path, segment_bytes=500, keep_bytes=2000) as journal:
        reader = Reader(tmp_path, "query")
        reader.commit(0)
        written = 0
        while not journal.full:
            journal.append([_one(written)])
            journal.flush()
            written += 1
        assert bounds(tmp_path) == (0, written)
        reader.commit(written)
        journal.retire()
        assert not journal.full
        assert bounds(tmp_path)[0] > 0


def _one(number: int) -> Delivery:
    return Delivery("t", b"x" * 100, Status.IN_ORDER, f"p-{number}", "p", number, 0, 0)


def test_a_checkpoint_of_another_journal_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "one", range(5))
    fill(tmp_path / "other", range(5))
    one = EventReader(stream_options({"journal": str(tmp_path / "one")}))
    other = EventReader(stream_options({"journal": str(tmp_path / "other")}))
    offset = one.initialOffset()
    try:
        with pytest.raises(BadInput, match="another journal"):
            other.latestOffset(offset, other.getDefaultReadLimit())
        with pytest.raises(BadInput, match="restored from a copy"):
            one.latestOffset({**offset, "position": 6}, one.getDefaultReadLimit())
    finally:
        one.stop()
        other.stop()


def test_what_is_gone_is_said(tmp_path: Path) -> None:
    with Journal(tmp_path, segment_bytes=300, keep_bytes=1000) as journal:
        for number in range(50):
            journal.append([_one(number)])
            journal.flush()
    (part,) = cut(0, 10, 1, Index(tmp_path))
    with pytest.raises(BadInput, match="is gone"):
        list(rows(tmp_path, part))


BAD_STREAMS: list[tuple[dict[str, str], str]] = [
    ({}, "give option"),
    ({"bus": "nats://127.0.0.1:1"}, "belong together"),
    ({"journal": "x", "topics": "a"}, "belong together"),
    ({"journal": "x", "order": "total"}, "without one it does nothing"),
    ({"bus": "nats://127.0.0.1:1", "topics": "a,,b"}, "non-empty"),
    ({"bus": "nats://127.0.0.1:1", "topics": "a b"}, "topic"),
    ({"bus": "memory://x", "topics": "a"}, "one process"),
    ({"bus": "smoke://x", "topics": "a"}, "names no bus"),
    ({"bus": "nats://127.0.0.1:1", "topics": "a", "order": "odd"}, "order"),
    ({"bus": "nats://127.0.0.1:1", "topics": "a", "where": "("}, "predicate|expected|where"),
    ({"journal": "x", "start": "soon"}, "earliest, latest or a position"),
    ({"journal": "x", "maxRows": "0"}, "maxRows"),
    ({"journal": "x", "maxrows": "many"}, "maxRows"),
    ({"journal": "x", "colour": "red"}, "no option 'colour'"),
]


@pytest.mark.parametrize(("options", "text"), BAD_STREAMS)
def test_bad_options_of_a_stream_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UnisonoError, match=text):
        stream_options(options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bus": "nats://h", "topics": "a"}, "readStream"),
        ({}, "trace folder"),
        ({"path": "x", "journal": "y"}, "trace folder"),
        ({"journal": "y", "table": "deliveries"}, "no tables"),
    ],
)
def test_bad_options_of_a_batch_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        table_options(options)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(BadInput, match="no table 'bills'"):
        UnisonoSource({"path": "x", "table": "bills"}).schema()


def test_bad_options_of_a_sink_are_refused() -> None:
    with pytest.raises(BadInput, match="bus"):
        sink_options({"topic": "a"})
    with pytest.raises(BadInput, match="topic"):
        sink_options({"bus": "nats://h", "topic": "a b"})


def test_a_bus_that_is_not_there_is_said(tmp_path: Path) -> None:
    """And nowhere who wanted to go there."""
    wish = {"bus": "nats://me:secret@127.0.0.1:1", "topics": "a", "journal": str(tmp_path)}
    with pytest.raises(EnvironmentLacks, match=r"nothing can be collected: .*127") as told:
        EventReader(stream_options(wish)).initialOffset()
    kept = "".join(
        path.read_text(errors="replace") for path in tmp_path.iterdir() if path.is_file()
    )
    assert "secret" not in f"{told.value}{kept}"
