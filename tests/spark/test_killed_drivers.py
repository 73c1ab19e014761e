"""Drivers that are killed at random: what queries wrote is what was published, in order, once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.streams import end_collector, wait_for

import unisono
from unisono.bench.server import NatsServer
from unisono.journal.reading import bounds, read
from unisono.net.collect import Wish
from unisono.spark.collector import ensure

TESTS = Path(__file__).parents[1]


class Publisher:
    """Publishes numbers on a and b in turn, as many as are allowed, until told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.published = self.allowed = 0

    async def _run(self) -> None:
        async with unisono.connect(self._url, name="publisher", manage=False) as bus:
            while not self._stop.is_set():
                await asyncio.sleep(0.005)
                if self.published == self.allowed:
                    continue
                await bus.publish("ab"[self.published % 2], b"%d" % self.published)
                self.published += 1
            await bus.flush()

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def start(url: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "support.streaming_driver", url, str(folder), *more],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )


def kill(process: subprocess.Popen[str]) -> None:
    """The driver and its Java."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.fixture
def folder(nats_server: NatsServer, tmp_path: Path) -> Iterator[Path]:
    """Collects `out` into a journal; those who collect are ended with the test."""
    ensure(Wish(url=nats_server.url, folder=str(tmp_path / "out"), topics=("out",), linger_s=900))
    yield tmp_path
    for name in ("in", "out"):
        end_collector(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, 20])
def test_killed_drivers_lose_and_repeat_nothing(
    spark: SparkSession, nats_server: NatsServer, folder: Path, rounds: int
) -> None:
    rng = random.Random(rounds)
    url = nats_server.url
    wish = Wish(url=url, folder=str(folder / "in"), topics=("a", "b"), linger_s=900)
    ensure(wish)  # so that nothing is published before anyone listens
    with Publisher(url) as publisher:
        for _ in range(rounds):
            driver = start(url, folder)
            assert driver.stdout is not None
            assert driver.stdout.readline() == "running\n"
            enough = publisher.published + rng.randrange(400)
            publisher.allowed += 500
            wait_for(lambda enough=enough: publisher.published >= enough)  # type: ignore[misc]
            kill(driver)
    published = publisher.published
    wait_for(lambda: bounds(folder / "in")[1] == published)
    last = start(url, folder, "once")
    last.communicate(timeout=300)
    assert last.returncode == 0

    order = [int(row) for row in column(folder / "in", "payload")]
    assert sorted(order) == list(range(published))
    for rest in (0, 1):
        assert [n for n in order if n % 2 == rest] == list(range(rest, published, 2))
    files = spark.read.parquet(str(folder / "files")).orderBy("position").collect()
    assert [row.position for row in files] == list(range(published))
    assert [int(row.payload) for row in files] == order
    wait_for(lambda: bounds(folder / "out")[1] >= published)
    assert [int(row) for row in column(folder / "out", "payload")] == order


def column(folder: Path, name: str) -> list[bytes]:
    return [one for batch in read(folder, *bounds(folder)) for one in batch[name].to_pylist()]
