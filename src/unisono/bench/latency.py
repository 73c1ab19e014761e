"""How long an event of 23 KB takes from one publisher to nine subscribers, over several buses.

Every subscriber and the publisher is a process of its own, on loopback, and publishes at a steady
rate far below what any of the buses carries. The mesh is one of ten nodes in three clusters with
two trees, so every event travels twice, sealed; NATS goes through its server; Zenoh's peers are
connected to the publisher. Times are of the machine's monotonic clock. Medians of several runs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from unisono.bench.server import NatsServer, free_port
from unisono.errors import EnvironmentLacks
from unisono.net import loop
from unisono.net.keys import make_key

SUBSCRIBERS = 9
EVENT_BYTES = 23_000
EVENTS, WARM_UP, RATE = 300, 50, 50
SYSTEMS = ("mesh", "nats", "zenoh")
_TOPIC = "bench"
_STAMP_BYTES = 8
_RUN_S = 120


def run(runs: int, remark: Callable[[str], None]) -> dict[str, Any]:
    """Median p50 and p99 of each bus, and ours as a ratio to the others."""
    found: dict[str, Any] = {}
    for system in SYSTEMS:
        results = [measure(system) for _ in range(runs)]
        found[system] = {
            name: round(median(one[name] for one in results), 3) for name in results[0]
        }
        told = found[system]
        remark(f"{system}: p50 {told['p50_ms']:g} ms, p99 {told['p99_ms']:g} ms")
    for other in SYSTEMS[1:]:
        found[f"ratio_p50_{other}"] = round(found["mesh"]["p50_ms"] / found[other]["p50_ms"], 2)
        found[f"ratio_p99_{other}"] = round(found["mesh"]["p99_ms"] / found[other]["p99_ms"], 2)
    about = {"subscribers": SUBSCRIBERS, "event_bytes": EVENT_BYTES, "events_per_s": RATE}
    return {**about, **found, "met": None}  # no target was set


def measure(system: str, events: int = EVENTS, subscribers: int = SUBSCRIBERS) -> dict[str, float]:
    """One run over one bus: the latency at all subscribers together."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        where = f"127.0.0.1:{free_port()}"
        if system == "mesh":
            make_key(folder / "key")
        if system == "nats":
            server = NatsServer()
            server.start()
            stack.callback(server.kill)
            where = server.url
        processes: list[subprocess.Popen[str]] = []
        stack.callback(_end, processes)
        for number in range(subscribers + 1):  # the first one publishes
            role = [system, str(number), where, str(folder / "key"), str(events)]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "unisono.bench.latency", *role],
                    stdout=subprocess.PIPE,
                    stdin=subprocess.PIPE,
                    text=True,
                )
            )
            _line(processes[-1])  # it is there, and listens
        publisher, *listeners = processes
        assert publisher.stdin is not None
        publisher.stdin.write("begin\n")
        publisher.stdin.flush()
        taken_ms = sorted(ms for one in listeners for ms in json.loads(_line(one)))
    wanted = subscribers * events
    if len(taken_ms) != wanted:
        raise EnvironmentLacks(f"{system} delivered {len(taken_ms)} of {wanted} events")
    return {"p50_ms": taken_ms[wanted // 2], "p99_ms": taken_ms[wanted * 99 // 100]}


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    alarm = threading.Timer(_RUN_S, process.kill)
    alarm.start()
    line = process.stdout.readline()
    alarm.cancel()
    if not line:
        raise EnvironmentLacks("a process of the benchmark ended early; its message is above")
    return line


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in reversed(processes):
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


# The processes.


class Wire(Protocol):
    """One bus, as little of it as is measured."""

    async def open(self, heard: Callable[[bytes], None] | None) -> None: ...

    async def publish(self, event: bytes) -> None: ...


class MeshWire:
    def __init__(self, number: int, where: str, key: Path) -> None:
        from unisono.net.keys import read_key
        from unisono.net.mesh import MeshService, Settings

        self._service = MeshService(
            Settings(
                listen=where if number == 0 else "127.0.0.1:0",
                seeds=(where,) if number else (),
                cluster=f"c{number % 3}",
                node=True,
                key=read_key(key),
            ),
            connect_s=30,
        )

    async def open(self, heard: Callable[[bytes], None] | None) -> None:
        async def on_frame(topic: str, frame: bytes) -> None:
            if heard is not None:
                heard(frame)

        await self._service.open(on_frame, lambda text: None, lambda: None)
        if heard is not None:
            await self._service.subscribe(_TOPIC)

    async def publish(self, event: bytes) -> None:
        await self._service.publish(_TOPIC, event)


class NatsWire:
    def __init__(self, where: str) -> None:
        self._where = where

    async def open(self, heard: Callable[[bytes], None] | None) -> None:
        import nats

        self._client = await nats.connect(self._where)

        async def taken(message: Any) -> None:
            if heard is not None:
                heard(message.data)

        if heard is not None:
            await self._client.subscribe(_TOPIC, cb=taken)
            await self._client.flush()

    async def publish(self, event: bytes) -> None:
        await self._client.publish(_TOPIC, event)


class ZenohWire:
    def __init__(self, number: int, where: str) -> None:
        self._number = number
        self._where = where

    async def open(self, heard: Callable[[bytes], None] | None) -> None:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"peer"')
        config.insert_json5("scouting/multicast/enabled", "false")
        side = "connect" if self._number else "listen"
        config.insert_json5(f"{side}/endpoints", json.dumps([f"tcp/{self._where}"]))
        self._session = zenoh.open(config)
        if heard is not None:
            self._subscriber = self._session.declare_subscriber(
                _TOPIC, lambda sample: heard(sample.payload.to_bytes())
            )

    async def publish(self, event: bytes) -> None:
        self._session.put(_TOPIC, event)


def wire(system: str, number: int, where: str, key: Path) -> Wire:
    if system == "mesh":
        return MeshWire(number, where, key)
    return NatsWire(where) if system == "nats" else ZenohWire(number, where)


async def _work(system: str, number: int, where: str, key: Path, events: int) -> None:
    bus = wire(system, number, where, key)
    if number == 0:
        await bus.open(None)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await _publish(bus, events + WARM_UP)
        await asyncio.sleep(_RUN_S)  # until it is ended
        return
    here = asyncio.get_running_loop()
    done = asyncio.Event()
    taken_ms: list[float] = []

    def heard(event: bytes) -> None:
        sent_ns = int.from_bytes(event[:_STAMP_BYTES], "big")
        taken_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
        if len(taken_ms) == events + WARM_UP:
            here.call_soon_threadsafe(done.set)

    await bus.open(heard)
    print("ready", flush=True)
    await done.wait()
    print(json.dumps(taken_ms[WARM_UP:]), flush=True)
    await asyncio.sleep(_RUN_S)


async def _publish(bus: Wire, events: int) -> None:
    await asyncio.sleep(1.0)  # Zenoh's declarations travel
    body = bytes(EVENT_BYTES - _STAMP_BYTES)
    begun = time.monotonic()
    for number in range(events):
        await asyncio.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        await bus.publish(time.monotonic_ns().to_bytes(_STAMP_BYTES, "big") + body)


def _main(system: str, number: str, where: str, key: str, events: str) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * _RUN_S):
            await _work(system, int(number), where, Path(key), int(events))

    loop.run(bounded())


if __name__ == "__main__":
    _main(*sys.argv[1:])
