"""Separate operating-system processes on a real nats-server, started at once, audited by Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from support.servers import NatsServer

from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

_PATIENCE_S = 120
PROCESSES = 3
EVENTS = 100

WORKER = """
import asyncio, sys
import unisono

url, folder, name, processes, events = sys.argv[1:4] + [int(text) for text in sys.argv[4:6]]


async def main():
    async with unisono.connect(url, order="total", trace=folder, name=name) as bus:
        await bus.subscribe("start", "a", "b")
        present, heard = set(), []

        async def read():
            async for event in bus:
                if event.topic == "start":
                    present.add(event.payload)
                else:
                    heard.append(event.id)
                if len(heard) == processes * events:
                    return

        reading = asyncio.create_task(read())
        while len(present) < processes:  # until everyone listens
            await bus.publish("start", name.encode())
            await asyncio.sleep(0.02)
        await (await bus.publish("start", name.encode()))
        for number in range(events):
            await bus.publish("ab"[number % 2], b"%d" % number)
        await reading
        print(" ".join(heard))


asyncio.run(main())
"""


def test_processes_hear_the_same_and_the_audit_says_so(
    nats_server: NatsServer, tmp_path: Path, spark: SparkSession
) -> None:
    folder = tmp_path / "traced"
    running = [
        subprocess.Popen(
            [
                sys.executable,
                *("-c", WORKER, nats_server.url, str(folder), f"w{number}"),
                *(str(PROCESSES), str(EVENTS)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    ended = [process.communicate(timeout=_PATIENCE_S) for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES, ended
    orders = [out.split() for out, _ in ended]
    assert all(len(order) == PROCESSES * EVENTS for order in orders)
    assert all(order == orders[0] for order in orders)
    report = audit(spark, open_trace(spark, folder))
    assert report.verdict == "valid"
    assert report.checks["total-order"].violations == 0
    assert report.tagged == 0
