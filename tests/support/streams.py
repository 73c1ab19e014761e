"""What tests of streaming queries share."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

import unisono
from unisono.journal.journal import written
from unisono.net.collect import collector


def end_collector(folder: Path) -> None:
    process = collector(folder)
    if process is not None:
        os.kill(process, signal.SIGTERM)
        wait_for(lambda: not written(folder))


def publish(url: str, numbers: range, topics: str = "ab") -> None:
    """Numbers as payloads, on topics in turn; acknowledged."""

    async def work() -> None:
        async with unisono.connect(url, name="publisher") as bus:
            for number in numbers:
                await bus.publish(topics[number % len(topics)], b"%d" % number, {"n": number})
            await bus.flush()

    asyncio.run(work())


def wait_for(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    until = time.monotonic() + 90
    while not condition():
        if query is not None and query.exception() is not None:
            raise AssertionError(str(query.exception()))
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
