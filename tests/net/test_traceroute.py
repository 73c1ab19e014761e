"""The devices on the way, over real routers: network namespaces in a row."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from support.spaces import Row

from unisono.net.traceroute import traceroute
from unisono.net.ways import Ways

PROGRAM = """
import asyncio, json, sys
from unisono.net.traceroute import traceroute
print(json.dumps(asyncio.run(traceroute((sys.argv[1], 7400), wait_s=float(sys.argv[2])))))
"""


def test_routers_are_found_in_order() -> None:
    with Row(3) as row:
        here, there = row.ends
        trace = [sys.executable, "-c", PROGRAM, there, "1.0"]
        done = subprocess.run(row.command(0, *trace), capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == [row.address(place, 0) for place in (1, 2, 3)]
        back = [sys.executable, "-c", PROGRAM, here, "1.0"]
        done = subprocess.run(row.command(4, *back), capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == [row.address(place, 1) for place in (3, 2, 1)]


def test_where_nobody_answers_nothing_is_found() -> None:
    assert asyncio.run(traceroute(("127.0.0.1", 9), hops=3, wait_s=0.05)) == ()


def test_where_no_way_leads_nothing_is_found() -> None:
    """A broadcast address: the system refuses it."""
    assert asyncio.run(traceroute(("255.255.255.255", 9), hops=3, wait_s=0.05)) == ()


def test_without_sockets_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr("unisono.net.traceroute._probe", none)
    assert asyncio.run(traceroute(("127.0.0.1", 9), wait_s=0.01)) == ()


def test_what_is_no_address_has_no_way_and_is_not_measured_again() -> None:
    async def scene() -> None:
        ways = Ways()
        ways.look_at(["nowhere", ""])
        await asyncio.gather(*ways._measuring.values())
        ways.look_at(["nowhere", ""])
        assert not ways._measuring

    asyncio.run(scene())


def test_ways_are_measured_once_and_known_after() -> None:
    async def scene() -> None:
        ways = Ways()
        assert ways.to("127.0.0.1:9") is None
        ways.look_at(["127.0.0.2:9"])  # and at what was asked for
        tasks = list(ways._measuring.values())
        assert len(tasks) == 2
        await asyncio.gather(*tasks)
        assert ways.to("127.0.0.1:9") == ways.to("127.0.0.2:9") == frozenset()
        ways.look_at(["127.0.0.1:9"])
        assert not ways._measuring
        await ways.close()

    asyncio.run(scene())
