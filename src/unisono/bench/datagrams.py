"""Sealed datagrams per second and core, between two processes on loopback.

One process sends events of 23 KB, which travel in datagrams of 1472 bytes; the other receives,
authenticates and reassembles them. Both are held to a core of their own where there are two.
Counted are the datagrams that the receiver took between its first and its last message, per second
of its processor time and of the clock. The median of several runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from unisono.errors import EnvironmentLacks
from unisono.net import loop
from unisono.net.keys import make_key, read_key
from unisono.net.udp import Endpoint

EVENT_BYTES = 23_000
MESSAGES = 20_000
DATAGRAMS_MIN = 50_000
_START_S, _RUN_S = 30, 300


def run(
    runs: int, remark: Callable[[str], None], messages: int = MESSAGES, size: int = EVENT_BYTES
) -> dict[str, Any]:
    """Measure, with several datagrams per system call and with one."""
    found: dict[str, dict[str, Any]] = {}
    for name, batched in (("batched", True), ("single", False)):
        results = [receiving(messages, size, batched) for _ in range(runs)]
        results.sort(key=lambda one: float(one["datagrams_per_cpu_s"]))
        found[name] = results[len(results) // 2]
        remark(f"{name}: {found[name]['datagrams_per_cpu_s']:,} datagrams per second and core")
    return {
        "event_bytes": size,
        "messages": messages,
        **found,
        "targets": {"datagrams_per_cpu_s_min": DATAGRAMS_MIN},
        "met": found["batched"]["datagrams_per_cpu_s"] >= DATAGRAMS_MIN,
    }


def receiving(messages: int, size: int, batched: bool = True) -> dict[str, Any]:
    """Two processes; what the receiver counted. `batched`: several datagrams per system call."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        make_key(key)
        flags = [str(messages), str(size), str(int(batched)), str(key)]
        command = [sys.executable, "-m", "unisono.bench.datagrams"]
        receiver = subprocess.Popen(
            [*command, "receive", *flags], stdout=subprocess.PIPE, text=True
        )
        try:
            assert receiver.stdout is not None
            address = receiver.stdout.readline().strip()
            if not address:
                raise EnvironmentLacks("the receiver did not start; its message is above")
            subprocess.run([*command, "send", *flags, address], check=True, timeout=_RUN_S)
            output, _ = receiver.communicate(timeout=_START_S)
        finally:
            receiver.kill()
            receiver.wait()
    found: dict[str, Any] = json.loads(output)
    return found


def _hold_core(index: int) -> None:
    """Keep this process on one core, if there are enough for both."""
    if hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        if len(usable) > 1:
            os.sched_setaffinity(0, {usable[index % len(usable)]})


async def _receive(messages: int, batched: bool, key: Path) -> None:
    done = asyncio.Event()
    left = messages
    began = (0.0, 0.0, 0)

    def take(address: str, message: bytes) -> None:
        nonlocal left, began
        if left == messages:
            began = (time.perf_counter(), time.process_time(), endpoint.counters["datagrams in"])
        left -= 1
        if not left:
            done.set()

    def ignore(address: str) -> None:
        pass

    endpoint = Endpoint("127.0.0.1:0", read_key(key), take, ignore, batched=batched)
    await endpoint.open()
    print(endpoint.address, flush=True)
    await done.wait()
    wall_s, cpu_s = time.perf_counter() - began[0], time.process_time() - began[1]
    counters = endpoint.counters
    datagrams = counters["datagrams in"] - began[2]
    result = {
        "datagrams": datagrams,
        "datagrams_per_cpu_s": round(datagrams / cpu_s),
        "datagrams_per_s": round(datagrams / wall_s),
        "events_per_s": round(messages / wall_s),
        "cpu_us_per_datagram": round(cpu_s / datagrams * 1e6, 2),
        "datagrams_out": counters["datagrams out"],
        "rejected": sum(n for name, n in counters.items() if name.startswith("rejected")),
    }
    print(json.dumps(result), flush=True)
    await asyncio.sleep(0.2)  # the last acknowledgement
    await endpoint.close()


async def _send(messages: int, size: int, batched: bool, key: Path, to: str) -> None:
    def ignore(*what: object) -> None:
        pass

    endpoint = Endpoint("127.0.0.1:0", read_key(key), ignore, ignore, batched=batched)
    await endpoint.open()
    event = os.urandom(size)
    for _ in range(messages):
        while not endpoint.send(to, event):
            await endpoint.room(to)
    if not await endpoint.flushed(to):
        raise EnvironmentLacks("the receiver was lost")
    await endpoint.close()


def _main(role: str, messages: str, size: str, batched: str, key: str, *to: str) -> None:
    _hold_core(0 if role == "receive" else 1)
    work: Awaitable[None]
    if role == "receive":
        work = _receive(int(messages), batched == "1", Path(key))
    else:
        work = _send(int(messages), int(size), batched == "1", Path(key), *to)
    loop.run(_bounded(work))


async def _bounded(work: Awaitable[None]) -> None:
    async with asyncio.timeout(_RUN_S):
        await work


if __name__ == "__main__":
    _main(*sys.argv[1:])
