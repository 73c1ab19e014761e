"""From a real NATS into a journal: by another process that is killed, in order, once."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import unisono
from unisono.bench.server import NatsServer
from unisono.core.limits import Limits
from unisono.errors import BadInput
from unisono.journal.journal import Journal
from unisono.journal.readers import Reader
from unisono.journal.reading import bounds, read
from unisono.net.collect import collect

Start = Callable[[str, Path], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a collector of its own process; returns once it has subscribed."""
    begun: list[subprocess.Popen[str]] = []

    def command(url: str, folder: Path) -> subprocess.Popen[str]:
        line = ["journal", url, str(folder), "--topics", "a,b", "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "unisono", *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stderr is not None
        assert "writing from position" in process.stderr.readline()
        return process

    yield command
    for process in begun:
        process.kill()
        process.communicate(timeout=60)


def written(folder: Path, count: int) -> None:
    """Wait until so many are there."""
    until = time.monotonic() + 60
    while bounds(folder)[1] < count:
        assert time.monotonic() < until, f"{bounds(folder)} of {count}"


async def publish(url: str, numbers: range) -> None:
    async with unisono.connect(url, name="publisher") as bus:
        for number in numbers:
            await bus.publish("ab"[number % 2], b"%d" % number, {"number": number})
        await bus.flush()


def test_what_is_published_is_in_the_journal_in_order_once(
    nats_server: NatsServer, tmp_path: Path, start: Start
) -> None:
    url = f"{nats_server.url}/collected"
    collector = start(url, tmp_path)
    asyncio.run(publish(url, range(500)))
    written(tmp_path, 500)
    collector.send_signal(signal.SIGTERM)
    said, _ = collector.communicate(timeout=60)
    assert collector.returncode == 0
    assert json.loads(said) == {"folder": str(tmp_path), "first": 0, "next": 500}
    rows = [row for batch in read(tmp_path, 0, 500) for row in batch.to_pylist()]
    by_topic: dict[str, list[int]] = {"a": [], "b": []}
    for row in rows:
        by_topic[row["topic"]].append(int(row["payload"]))
        assert row["status"] == "in_order"
    assert by_topic == {"a": list(range(0, 500, 2)), "b": list(range(1, 500, 2))}


def test_after_a_kill_positions_go_on(
    nats_server: NatsServer, tmp_path: Path, start: Start
) -> None:
    url = f"{nats_server.url}/killed"
    collector = start(url, tmp_path)
    asyncio.run(publish(url, range(50)))
    collector.kill()
    collector.wait(timeout=60)
    _, before = bounds(tmp_path)
    assert before <= 50
    collector = start(url, tmp_path)
    asyncio.run(publish(url, range(50)))
    written(tmp_path, before + 50)
    collector.send_signal(signal.SIGINT)
    collector.communicate(timeout=60)
    first, after = bounds(tmp_path)
    assert (first, after) == (0, before + 50)
    positions = [p for batch in read(tmp_path, 0, after) for p in batch["position"].to_pylist()]
    assert positions == list(range(after))


def test_the_bus_is_collected_in_process_and_by_content(tmp_path: Path) -> None:
    async def scene() -> None:
        stop = asyncio.Event()
        async with (
            unisono.connect("memory://journal", order="fifo") as bus,
            unisono.connect("memory://journal", order="fifo") as publisher,
        ):
            ready = asyncio.Event()
            with Journal(tmp_path) as journal:
                collecting = asyncio.ensure_future(
                    collect(bus, journal, ["a"], stop, "number prefix '1'", ready.set)
                )
                await ready.wait()
                for number in range(30):
                    await publisher.publish("a", b"", {"number": str(number)})
                async with asyncio.timeout(30):
                    while journal.next < 11:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                stop.set()
                await collecting

    asyncio.run(scene())
    assert bounds(tmp_path) == (0, 11)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, and what came meanwhile is written in order."""
    monkeypatch.setattr("unisono.net.collect.AGAIN_S", 0.0)
    failures = 3

    class Full(Journal):
        def _write(self, frame: bytes) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            super()._write(frame)

    async def scene() -> list[str]:
        said: list[str] = []
        stop, ready = asyncio.Event(), asyncio.Event()
        async with unisono.connect("memory://full", order="fifo") as bus:
            with Full(tmp_path) as journal:
                collecting = asyncio.ensure_future(
                    collect(bus, journal, ["a"], stop, None, ready.set, said.append)
                )
                await ready.wait()
                for number in range(20):
                    await bus.publish("a", b"%d" % number)
                async with asyncio.timeout(30):
                    while journal.next < 20:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                stop.set()
                await collecting
        return said

    assert len(asyncio.run(scene())) == 1
    rows = [row for batch in read(tmp_path, 0, 20) for row in batch["payload"].to_pylist()]
    assert rows == [b"%d" % number for number in range(20)]


def test_a_journal_that_is_full_stops_the_bus_until_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is dropped: what does not fit waits, and publishers wait for that."""
    monkeypatch.setattr("unisono.net.collect.AGAIN_S", 0.0)
    monkeypatch.setattr("unisono.net.collect.BATCH", 4)
    count = 300

    async def scene() -> list[str]:
        said: list[str] = []
        stop, ready = asyncio.Event(), asyncio.Event()
        limits = Limits(notifications=10)
        reader = Reader(tmp_path, "reader")
        reader.commit(0)
        async with (
            unisono.connect("memory://waits", order="fifo", limits=limits) as bus,
            unisono.connect("memory://waits", order="fifo") as publisher,
        ):
            with Journal(tmp_path, segment_bytes=2000, keep_bytes=6000) as journal:
                collecting = asyncio.ensure_future(
                    collect(bus, journal, ["a"], stop, None, ready.set, said.append)
                )
                await ready.wait()

                async def publish() -> None:
                    for number in range(count):
                        await publisher.publish("a", b"%d" % number)

                publishing = asyncio.ensure_future(publish())
                async with asyncio.timeout(60):
                    while not journal.full:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                    stuck = journal.next
                    assert stuck < count
                    while journal.next < count:
                        reader.commit(journal.next)
                        await asyncio.sleep(0)
                    await publishing
                stop.set()
                await collecting
        return said

    assert "waiting for its readers" in asyncio.run(scene())[0]
    first, after = bounds(tmp_path)
    rows = [row for batch in read(tmp_path, first, after) for row in batch["payload"].to_pylist()]
    assert rows == [b"%d" % number for number in range(first, count)]


def test_what_was_published_again_is_written_once(tmp_path: Path) -> None:
    """Also if the first time was before the collector began."""

    async def scene() -> None:
        async with unisono.connect("memory://again", order="fifo") as publisher:
            for turn in range(2):
                stop, ready = asyncio.Event(), asyncio.Event()
                async with unisono.connect("memory://again", order="fifo") as bus:
                    with Journal(tmp_path) as journal:
                        collecting = asyncio.ensure_future(
                            collect(bus, journal, ["a"], stop, None, ready.set)
                        )
                        await ready.wait()
                        for number in range(5 + turn):
                            for _ in range(2):
                                await (
                                    await publisher.publish("a", b"%d" % number, id=f"x/{number}")
                                )
                        async with asyncio.timeout(30):
                            while journal.next < 5 + turn:  # noqa: ASYNC110
                                await asyncio.sleep(0)
                        stop.set()
                        await collecting
                        if turn == 0:
                            assert bus.ignored["published again"] == 5

    asyncio.run(scene())
    rows = [row for batch in read(tmp_path, 0, 6) for row in batch["payload"].to_pylist()]
    assert rows == [b"%d" % number for number in range(6)]
    assert bounds(tmp_path) == (0, 6)


@pytest.mark.parametrize("own", ["plain", "a//b", "/a", "a/ö", "a/" + "b" * 300, ""])
def test_ids_that_are_none_are_refused(own: str) -> None:
    async def scene() -> None:
        async with unisono.connect("memory://", order="none") as bus:
            await bus.publish("a", b"", id=own)

    with pytest.raises(BadInput, match="id"):
        asyncio.run(scene())
