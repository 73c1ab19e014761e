"""`unisono top`: what it shows of a live bus."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from typing import Any

import pytest
from support.servers import NatsServer

import unisono
from unisono.cli.main import main
from unisono.cli.top import snapshot
from unisono.net.bus import Overview, Topic


def test_rates_come_from_two_looks() -> None:
    before = Overview(1, ("m",), True, 0, {"a": Topic("m", 10, 1)})
    now = Overview(1, ("m",), True, 0, {"b": Topic("m", 3, 1), "a": Topic("m", 30, 2)})
    shown = snapshot(before, now, 2.0)
    assert [(row["topic"], row["rank"], row["events_per_s"]) for row in shown["topics"]] == [
        ("b", 1, 0.0),
        ("a", 2, 10.0),
    ]


def test_top_sees_a_live_bus(nats_server: NatsServer) -> None:
    async def scene() -> dict[str, Any]:
        async with unisono.connect(nats_server.url, period_s=0.1) as bus:
            await (await bus.publish("prices", b""))
            command = (sys.executable, "-m", "unisono", "top", nats_server.url)
            watching = await create_subprocess_exec(
                *command, "--json", "--every", "0.5", stdout=PIPE
            )
            out, _ = await asyncio.wait_for(watching.communicate(), 60)
            assert watching.returncode == 0
            found: dict[str, Any] = json.loads(out)
            assert found["members"] == [bus.id]
            return found

    found = asyncio.run(scene())
    (row,) = found["topics"]
    assert (row["topic"], row["events"], row["rank"]) == ("prices", 1, 1)


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "memory://x", "--every", "0"]) == 2
    assert "positive" in capsys.readouterr().err
