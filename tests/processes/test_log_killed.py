"""Processes with disks that keep the log of a bus on a real nats-server: leaders are killed and
come back, others are rolled out by SIGTERM, while events flow.

Five seconds by default; `make test-slow` runs a minute, audited by Spark.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.pace import PATIENCE_S, publish, until
from support.servers import NatsServer

import unisono
from unisono import Bus, Status, Total
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

_NODES = ("n1", "n2", "n3")
_PERIOD_S = 0.2
TOPICS = ("a", "b", "c", "d")


class Nodes:
    """Processes by name, each with a disk."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: dict[str, tuple[Process, str]] = {}
        self.ended = 0  # and begun again

    async def start(self, name: str) -> None:
        command = (sys.executable, "-m", "unisono", "node", self._url, "--json", "--name", name)
        options = ("--order", "total:log", "--disk", str(self._folder / name))
        process = await create_subprocess_exec(
            *command, *options, "--period", str(_PERIOD_S), stdout=PIPE, start_new_session=True
        )
        self._running[name] = (process, "")
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        self._running[name] = (process, json.loads(line)["node"])

    def name_of(self, node: str) -> str | None:
        return next((name for name, (_, its) in self._running.items() if its == node), None)

    async def end(self, name: str, how: signal.Signals) -> None:
        process, _ = self._running.pop(name)
        os.kill(process.pid, how)
        code = await asyncio.wait_for(process.wait(), PATIENCE_S)
        assert code == (0 if how is signal.SIGTERM else -how)

    async def stop(self) -> None:
        for name, (_, node) in list(self._running.items()):  # one may just be starting
            await self.end(name, signal.SIGTERM if node else signal.SIGKILL)

    def kill_all(self) -> None:
        for process, _ in self._running.values():
            process.kill()


async def disturb(nodes: Nodes, bus: Bus, rng: random.Random) -> None:
    """Leaders are killed and nodes rolled out in turn, each once there is a leader again."""
    while True:
        log = bus.overview.logs["main"]
        leader = nodes.name_of(log.leader)
        if leader is None:
            await asyncio.sleep(_PERIOD_S)
            continue
        killed = nodes.ended % 2 == 0
        name = leader if killed else rng.choice(_NODES)
        await nodes.end(name, signal.SIGKILL if killed else signal.SIGTERM)
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await nodes.start(name)
        nodes.ended += 1
        acknowledged = await bus.publish("a", b"?")
        await acknowledged


async def play(nodes: Nodes, url: str, trace: Path | None, seconds: float) -> None:
    rng = random.Random(7)
    await asyncio.gather(*(nodes.start(name) for name in _NODES))

    async def connect(name: str) -> Bus:
        return await unisono.connect(
            url, order=Total(by="log"), manage=False, trace=trace, name=name,
            period_s=_PERIOD_S, patience_s=PATIENCE_S,
        ).open()  # fmt: skip

    publisher = await connect("publisher")
    readers = [await connect("reader") for _ in range(2)]
    await until(lambda: len(publisher.overview.logs["main"].voters) == len(_NODES))
    await asyncio.gather(*(reader.subscribe(*TOPICS) for reader in readers))
    disturbing = asyncio.ensure_future(disturb(nodes, publisher, rng))
    receipts = await publish(publisher, TOPICS, seconds, lambda: nodes.ended >= seconds // 4)
    disturbing.cancel()
    for receipt in receipts:
        await receipt
    wanted = {receipt.id for receipt in receipts}
    heard: list[list[str]] = []
    for reader in readers:
        mine: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            while not wanted <= set(mine):
                event = await reader.notify()
                assert event.status is Status.IN_ORDER
                mine.append(event.id)
        heard.append([event for event in mine if event in wanted])
    assert heard[0] == heard[1] == [receipt.id for receipt in receipts]
    for bus in (publisher, *readers):
        await bus.close()


async def scene(url: str, folder: Path, trace: Path | None, seconds: float) -> None:
    nodes = Nodes(url, folder)
    try:
        await play(nodes, url, trace, seconds)
        await nodes.stop()
    finally:
        nodes.kill_all()


def test_killed_leaders_and_a_rollout_lose_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    asyncio.run(scene(nats_server.url, tmp_path, None, 5))


@pytest.mark.slow
def test_killed_leaders_and_rollouts_lose_nothing_for_a_minute(
    nats_server: NatsServer, tmp_path: Path, spark: SparkSession
) -> None:
    trace = tmp_path / "run"
    asyncio.run(scene(nats_server.url, tmp_path, trace, 60))
    report = audit(spark, open_trace(spark, trace))
    assert report.verdict == "valid", report
