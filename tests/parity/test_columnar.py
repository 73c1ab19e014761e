"""Columns = objects: the columnar engine and the nodes that ship give the same run, seed by seed.

Each seed is a random case of up to 12 nodes and 6 topics. Compared are the stamps, the times of
stamping and of every notification, and the order and status of the notifications at each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from unisono.core.events import Delivery, Event, Stamp, Status
from unisono.core.layer import Effects
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.membership import Membership
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder, place
from unisono.qos.views import View
from unisono.sim.channels import Links, Wan
from unisono.sim.columnar.engine import Network, Plan, Result, node_names, run
from unisono.sim.service import TreeService
from unisono.sim.world import World
from unisono.trace.memory import MemoryRecorder

SEEDS = 300
START_US = 10**9  # by then every subscription holds
STATUS = (Status.IN_ORDER, Status.OUT_OF_ORDER, Status.GAP_SKIPPED)
Run = dict[str, Any]


class Case:
    """A random case; the seed is its name."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.seed = seed
        self.names = node_names(rng.randint(2, 12))
        self.topics = [f"t{index}" for index in range(rng.randint(1, 6))]
        self.order = rng.sample(range(len(self.topics)), len(self.topics))
        self.held = [
            sorted(rng.sample(range(len(self.topics)), rng.randint(0, len(self.topics))))
            for _ in self.names
        ]
        span = rng.choice((20_000, 300_000, 3_000_000))
        self.publications = sorted(
            (
                START_US + rng.randrange(span),
                rng.randrange(len(self.topics)),
                rng.randrange(len(self.names)),
            )
            for _ in range(rng.randint(1, 40))
        )
        self.exact = rng.random() < 0.5
        self.buffer = rng.choice((None, 0, 1, 3))
        slow = rng.choice((0.0, 0.2, 1.0))
        self.wan = Wan(draws="hashed", slow_share=slow)


class Listener:
    def __init__(self) -> None:
        self.heard: dict[str, list[tuple[str, str, int]]] = {}

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: Delivery) -> None:
        row = (delivery.id, delivery.status.value, delivery.delivered_us)
        self.heard.setdefault(node, []).append(row)


class Watched(TotalOrder):
    """Keeps the stamps of the events that arrive."""

    stamps: dict[str, Stamp]

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        assert event.stamp is not None
        self.stamps[event.id] = event.stamp
        return super().notify(event, status, now)


def objects(case: Case) -> Run:
    recorder, listener = MemoryRecorder(), Listener()
    stamps: dict[str, Stamp] = {}
    world = World(case.names, case.wan, case.seed, recorder, listener)
    for name in case.names:
        members = Membership(name, Limits(), initial=View("sim", 1, case.names))
        layer = Watched(
            name,
            members,
            order=TopicOrder([case.topics[topic] for topic in case.order]),
            exact=case.exact,
            buffer=case.buffer,
        )
        layer.stamps = stamps
        world.add(Node(name, [layer]))
    for name, held in zip(case.names, case.held, strict=True):
        if held:
            world.subscribe(name, [case.topics[topic] for topic in held], "all")
    world.run()
    assert not world.pending and world.now < START_US
    for at, topic, publisher in case.publications:
        world.at(at, publishing(world, case.names[publisher], case.topics[topic]))
    world.run()
    stamped = {
        row["event_id"]: (row["number"], row["entries"], row["stamped_us"])
        for row in recorder.tables["stamps"]
    }
    return {"heard": listener.heard, "stamped": stamped, "stamps": stamps}


def publishing(world: World, name: str, topic: str) -> Any:
    return lambda now: world.publish(name, topic, b"")


def network(case: Case) -> Network:
    """What the objects find out by themselves."""
    links = Links(case.wan, case.seed, Random(0))
    service = TreeService(case.names, links, case.seed, lambda *a: None, lambda *a: None)
    at = {name: index for index, name in enumerate(case.names)}

    def parents(topic: int) -> Any:
        tree = service.tree(case.topics[topic])
        return np.array([at[tree[n]] if n in tree else -1 for n in case.names], np.int32)

    return Network(
        names=case.names,
        ids=np.empty(0, np.uint64),
        manager=np.array([at[place(topic, case.names)] for topic in case.topics], np.int32),
        root=np.array([at[service.root(topic)] for topic in case.topics], np.int32),
        parents=parents,
        coordinator=0,
    )


def columns(case: Case) -> Run:
    held = case.held
    times, topics, publishers = (
        np.array(column) for column in zip(*case.publications, strict=True)
    )
    result = run(
        Plan(
            network=network(case),
            subscriptions=(
                np.cumsum([0, *map(len, held)]),
                np.array([topic for topics in held for topic in topics], np.int32),
            ),
            publications=(times, topics.astype(np.int32), publishers.astype(np.int32)),
            order=np.array(case.order, np.int32),
            seed=case.seed,
            exact=case.exact,
            buffer=case.buffer,
            wan=case.wan,
            log=True,
        )
    )
    return as_objects(case, result, event_ids(case))


def event_ids(case: Case) -> list[str]:
    """As the nodes name them: a count per publisher."""
    count: dict[int, int] = {}
    ids = []
    for _, _, publisher in case.publications:
        count[publisher] = count.get(publisher, 0) + 1
        ids.append(f"{case.names[publisher]}-{count[publisher]}")
    return ids


def as_objects(case: Case, result: Result, ids: Sequence[str]) -> Run:
    tables = result.tables
    heard: dict[str, list[tuple[str, str, int]]] = {}
    for row in tables.log[: int(tables.run[0]["logged"])]:
        told = (ids[row["event"]], STATUS[row["status"]].value, int(row["at"]))
        heard.setdefault(case.names[row["node"]], []).append(told)
    stamped, stamps = {}, {}
    for index, event in enumerate(tables.event):
        stamp = {
            case.topics[topic]: int(count)
            for topic, count in enumerate(tables.stamp[index])
            if count >= 0
        }
        stamped[ids[index]] = (int(event["number"]), len(stamp), int(event["stamped"]))
        if event["arrivals"]:
            stamps[ids[index]] = stamp
    return {"heard": heard, "stamped": stamped, "stamps": stamps}


@pytest.mark.parametrize("block", range(10))
def test_the_same_run_on_objects_and_on_columns(block: int) -> None:
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        case = Case(seed)
        theirs, ours = objects(case), columns(case)
        assert ours == theirs, f"seed {seed}"


def test_the_cases_cover_what_matters() -> None:
    """Events that wait, skip a gap or are tagged, and stamps that a manager holds back."""
    told = [row for seed in range(0, SEEDS, 5) for row in heard(columns(Case(seed)))]
    for status in STATUS:
        assert sum(row[1] == status.value for row in told) > 20, status


def heard(run: Run) -> list[tuple[str, str, int]]:
    return [row for rows in run["heard"].values() for row in rows]
