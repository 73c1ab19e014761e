"""Processes of a mesh behind a network that loses, killed at random, audited by Spark.

Nine processes and six seconds of events by default; `make test-slow` has twelve and a minute.
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
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support import mesh_process
from support.proxy import Proxy
from support.servers import free_port

from unisono.ens.scribe.ids import distance, group_id, site_id
from unisono.net.keys import make_key
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

_PATIENCE_S = 60
_RATE = 100
_CLUSTERS = 3
_TIME_TO_GET_IT_US = 2_000_000


class Node:
    """One process, perhaps already its second life."""

    def __init__(self, number: int, proxy: Proxy, folder: Path) -> None:
        self.number = number
        self.cluster = f"c{number % _CLUSTERS}"
        self.listen = f"127.0.0.1:{free_port()}"
        self.public = proxy.add(self.listen)
        self._folder = folder
        self.process: Process | None = None
        self.lives: list[str] = []
        self.said: dict[str, object] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self, seeds: list[str], publish: int = 0) -> None:
        query = urlencode(
            {
                "listen": self.listen,
                "advertise": self.public,
                "cluster": self.cluster,
                "key": self._folder / "key",
            }
        )
        about = {
            "url": f"mesh://{','.join(seeds)}?{query}",
            "trace": str(self._folder / "run"),
            "name": f"n{self.number}",
            "publish": publish,
            "rate": _RATE,
        }
        self.process = await create_subprocess_exec(
            sys.executable, mesh_process.__file__, json.dumps(about), stdout=PIPE, stdin=PIPE
        )
        self.lives.append(str((await self._line())["node"]))
        self._reading = asyncio.create_task(self._read())

    async def _line(self) -> dict[str, object]:
        assert self.process is not None and self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), _PATIENCE_S)
        said: dict[str, object] = json.loads(line)
        return said

    async def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.update(json.loads(line))

    def begin(self) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def kill(self) -> str:
        """SIGKILL; the name that it had."""
        assert self.process is not None and self._reading is not None
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await self._reading
        return self.lives[-1]

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.terminate()
            await asyncio.wait_for(self.process.wait(), _PATIENCE_S)

    def end(self) -> None:
        """Leave nothing behind when the test fails."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()


def root_cluster(slot: int) -> int:
    """The cluster whose coordinator of this slot is the root of the topic's tree at first: of the
    processes that were started, the first of it for slot 0, the second for slot 1."""
    key = group_id(mesh_process.TOPIC, slot)
    return min(range(_CLUSTERS), key=lambda number: distance(site_id(f"c{number}", slot), key))


async def story(folder: Path, count: int, seconds: int, seed: int) -> tuple[set[str], int]:
    """Names of the processes that were killed, and how many events were published."""
    rng = random.Random(seed)
    proxy = Proxy(seed, loss=0.02, double=0.01, delay_ms=(0.2, 4))
    make_key(folder / "key")
    nodes = [Node(number, proxy, folder) for number in range(count)]
    killed: set[str] = set()
    events = seconds * _RATE
    try:
        publisher = nodes[-1]  # the youngest: it coordinates nothing
        for node in nodes:
            seeds = [other.public for other in nodes[:2] if other is not node and other.lives]
            await node.start(seeds, events if node is publisher else 0)
        publisher.begin()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        victims = [nodes[root_cluster(0)], nodes[root_cluster(1) + _CLUSTERS]]
        while loop.time() < end - 3:
            victim = victims.pop(0) if victims else rng.choice(nodes[:-1])
            killed.add(await victim.kill())
            await asyncio.sleep(rng.uniform(0.2, 1.5))
            await victim.start([n.public for n in rng.sample(nodes, 3) if n is not victim])
        async with asyncio.timeout(_PATIENCE_S):
            while "published" not in publisher.said:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        never = [n for n in nodes[:-1] if len(n.lives) == 1]
        async with asyncio.timeout(_PATIENCE_S):
            while any(n.said.get("heard") != events for n in never):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for node in reversed(nodes):
            await node.stop()
    finally:
        for node in nodes:
            node.end()
        proxy.close()
    return killed, events


def end_subscriptions(trace: Path, killed: set[str]) -> None:
    """Whoever was killed could not record when its subscription ended, and what was published just
    before may have been on its way: it ends a little before what it heard last."""
    heard: dict[str, int] = {}
    for row in pq.read_table(trace / "deliveries").to_pylist():
        if row["subscriber"] in killed:
            heard[row["subscriber"]] = max(heard.get(row["subscriber"], 0), row["delivered_us"])
    for file in (trace / "subscriptions").glob("*.parquet"):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            if row["subscriber"] in killed:
                last = heard.get(row["subscriber"], 0) - _TIME_TO_GET_IT_US
                row["until_us"] = max(last, row["from_us"])
        pq.write_table(pa.Table.from_pylist(rows, table.schema), file)


def run_and_audit(spark: SparkSession, folder: Path, count: int, seconds: int, seed: int) -> None:
    killed, events = asyncio.run(story(folder, count, seconds, seed))
    assert killed
    end_subscriptions(folder / "run" / "trace", killed)
    promised = ("losses", "duplicates", "phantoms")
    report = audit(spark, open_trace(spark, folder / "run"), promised)
    assert report.rows["publications"] == events
    broken = {name: check.violations for name, check in report.checks.items() if check.violations}
    assert report.verdict == "valid", broken


def test_six_seconds(spark: SparkSession, tmp_path: Path) -> None:
    run_and_audit(spark, tmp_path, 9, 6, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_a_minute(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    run_and_audit(spark, tmp_path, 12, 60, seed)
