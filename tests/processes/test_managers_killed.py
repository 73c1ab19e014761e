"""Manager processes on a real nats-server, killed at random while events flow, audited by Spark.

Ten seconds by default; `make test-slow` runs a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import Awaitable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.pace import PATIENCE_S, publish, until
from support.servers import NatsServer

import unisono
from unisono import Bus
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

_MANAGERS = 5
_PERIOD_S = 0.2
TOPICS = ("a", "b", "c", "d")


class Managers:
    """Processes that host the topic managers; one is killed now and then, another comes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._running: list[Process] = []
        self.killed = 0

    async def start(self) -> None:
        command = (sys.executable, "-m", "unisono", "node", self._url, "--json")
        process = await create_subprocess_exec(
            *command, "--period", str(_PERIOD_S), stdout=PIPE, start_new_session=True
        )
        self._running.append(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert json.loads(line)["node"]

    async def kill_one(self, rng: random.Random) -> None:
        process = self._running.pop(rng.randrange(len(self._running)))
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        self.killed += 1

    async def stop(self) -> None:
        for process in self._running:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in self._running))
        self._running.clear()

    def kill_all(self) -> None:
        """Leave nothing behind when the test fails."""
        for process in self._running:
            process.kill()


async def disturb(managers: Managers, bus: Bus, rng: random.Random) -> None:
    """Kill managers one after the other, each once the bus has got over the one before."""
    while True:
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        before = bus.overview.view
        await managers.kill_one(rng)
        await managers.start()
        await until(lambda before=before: _well(bus, before))  # type: ignore[misc]


def _well(bus: Bus, before: int) -> bool:
    overview = bus.overview
    return overview.view > before and overview.complete and len(overview.members) == _MANAGERS


async def scene(url: str, folder: Path, seconds: float) -> list[list[str]]:
    managers = Managers(url)
    try:
        return await play(managers, url, folder, seconds)
    finally:
        managers.kill_all()


async def play(managers: Managers, url: str, folder: Path, seconds: float) -> list[list[str]]:
    rng = random.Random(7)
    for _ in range(_MANAGERS):
        await managers.start()

    async def connect(name: str) -> Bus:
        return await unisono.connect(
            url, manage=False, trace=folder, name=name, period_s=_PERIOD_S, patience_s=PATIENCE_S
        ).open()

    publisher = await connect("publisher")
    readers = [await connect("reader") for _ in range(2)]
    await until(lambda: len(publisher.overview.members) == _MANAGERS)
    await asyncio.gather(*(reader.subscribe(*TOPICS) for reader in readers))
    heard: list[list[str]] = [[] for _ in readers]

    async def read(bus: Bus, into: list[str]) -> None:
        async for event in bus:
            into.append(event.id)

    reading: list[Awaitable[None]] = [
        asyncio.ensure_future(read(bus, into)) for bus, into in zip(readers, heard, strict=True)
    ]
    disturbing = asyncio.ensure_future(disturb(managers, publisher, rng))
    wanted = round(seconds / 5)
    receipts = await publish(publisher, TOPICS, seconds, lambda: managers.killed >= wanted)
    disturbing.cancel()
    for receipt in receipts:
        await receipt  # acknowledged, every one
    await until(lambda: all(len(ids) == len(receipts) for ids in heard))
    assert sorted(heard[0]) == sorted(receipt.id for receipt in receipts)
    for bus in (publisher, *readers):
        await bus.close()
    await asyncio.gather(*reading)
    await managers.stop()
    return heard


def check(server: NatsServer, folder: Path, spark: SparkSession, seconds: float) -> None:
    heard = asyncio.run(scene(server.url, folder, seconds))
    assert heard[0] == heard[1]
    report = audit(spark, open_trace(spark, folder))
    assert report.verdict == "valid", report


def test_killed_managers_lose_nothing(
    nats_server: NatsServer, tmp_path: Path, spark: SparkSession
) -> None:
    check(nats_server, tmp_path / "run", spark, 10)


@pytest.mark.slow
def test_killed_managers_lose_nothing_for_a_minute(
    nats_server: NatsServer, tmp_path: Path, spark: SparkSession
) -> None:
    check(nats_server, tmp_path / "run", spark, 60)
