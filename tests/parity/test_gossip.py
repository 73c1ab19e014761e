"""Columns = objects for reliable delivery: the same packets lost, the same notifications.

Each seed is a random case of up to 12 nodes. The objects are the nodes that ship, on the simulated
event service; only their random streams and the choice of partners are those of the columns.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from unisono.core.entropy import digest
from unisono.core.events import Delivery
from unisono.core.node import Node
from unisono.qos.coding.galois import Field
from unisono.qos.coding.packets import layout
from unisono.qos.peers import Peers, Shuffle
from unisono.qos.reliable.layer import Reliable
from unisono.qos.reliable.options import Reliability
from unisono.sim.channels import Links, Wan
from unisono.sim.columnar.delivery import NO_COSTS, Plan, Result, run
from unisono.sim.columnar.draws import Split
from unisono.sim.columnar.engine import node_names
from unisono.sim.losses import Later, Loss, Losses
from unisono.sim.service import TreeService
from unisono.sim.weather import Weather
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

SEEDS = 300
FIELD = Field()
SECOND = 1_000_000


class Case:
    """A random case; the seed is its name."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.seed = seed
        self.names = node_names(rng.randint(4, 12))
        self.subscribers = sorted(rng.sample(self.names, rng.randint(4, len(self.names))))
        gossip: Any = rng.choice(("push", "pull", "push-pull", "none"))
        pushed = rng.choice((None, 1, 2)) if gossip == "push" else None
        self.redundancy = rng.randint(0, 4)
        self.options = Reliability(
            redundancy=self.redundancy,
            coding=rng.random() < 0.7,
            gossip=gossip,
            fan_out=rng.randint(1, 3),
            fan_in=rng.randint(1, 3) if gossip == "pull" else 1,
            period_s=rng.choice((0.2, 0.5, 1.5)),
            pushed=pushed,
            spare=rng.choice((0, 0, 1, 2)) if pushed is None else 0,
            ask=rng.random() < 0.5,
            remind=rng.choice((0, 1, 3, 8)),
            keep_s=rng.choice((2, 5, 30)),
            packet_bytes=64,
            packets=64,
        )
        self.size = rng.choice((10, 200, 900))
        rate = rng.choice((0.0, 0.05, 0.3))
        self.loss = Loss(
            rate=rate,
            burst=rng.choice((1, 2, 5)),
            shared=rng.choice((0, 0.5)),
            later=(Later(at_s=3, rate=0.2, burst=2),) if rng.random() < 0.3 else (),
        )
        self.wan = Wan(draws="hashed", fifo=False, slow_share=rng.choice((0, 0.3)))
        self.publications = sorted(
            (SECOND + rng.randrange(5 * SECOND), rng.choice(self.names))
            for _ in range(rng.randint(1, 8))
        )
        self.until_us = self.publications[-1][0] + 10 * SECOND


class Everybody(Peers):
    """Partners are random subscribers of all, drawn as the columns draw them."""

    def __init__(self, me: str, everybody: list[str], draws: Random) -> None:
        super().__init__(me, Random(me))
        self._me = me
        self._everybody = everybody
        self._draws = draws

    def partners(self, topic: str, count: int) -> list[str]:
        count = min(count, len(self._everybody) - (self._me in self._everybody))
        chosen: list[str] = []
        while len(chosen) < count:
            partner = self._everybody[self._draws.randrange(len(self._everybody))]
            if partner != self._me and partner not in chosen:
                chosen.append(partner)
        return chosen

    def lonely(self) -> bool:
        return False

    def shuffles(self) -> list[tuple[str, Shuffle]]:
        return []


class Apart(Weather):
    """Messages come a microsecond later, so never at the time of a packet on the tree: columns take
    packets of one time together, objects one by one with what they cause."""

    def extra_us(self, source: str, target: str) -> int:
        return 1


class Listener:
    def __init__(self) -> None:
        self.heard: dict[tuple[str, str], int] = {}

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: Delivery) -> None:
        assert (delivery.id, node) not in self.heard
        self.heard[delivery.id, node] = delivery.delivered_us


class Sizes(Reliable):
    """Notes the number of packets of an event."""

    seen: set[int]

    def publish(self, topic: str, frame: bytes, now: int) -> Any:
        if topic == "t":
            self.seen.add(layout(len(frame), 64, 64).packets)
        return super().publish(topic, frame, now)


def objects(case: Case) -> tuple[dict[tuple[int, str], int], int, int, int]:
    """When each event was notified at whom; packets of an event, packets sent, events given up."""
    listener = Listener()
    losses = Losses(case.loss, case.seed)
    world = World(
        case.names,
        case.wan,
        case.seed,
        NullRecorder(),
        listener,
        weather=Apart(),
        only_messages=True,
        losses=losses,
    )
    layers = {}
    seen: set[int] = set()
    for name in case.names:
        rng = Split(digest(case.seed, "reliable", name))
        layer = layers[name] = Sizes(name, rng, case.options, field=FIELD)
        layer.peers = Everybody(name, case.subscribers, rng)
        layer.seen = seen
        world.add(Node(name, [], [layer]))
    for name in case.subscribers:
        world.subscribe(name, ["t"], "all")
    ids: list[str] = []
    for at, publisher in case.publications:
        world.at(at, publishing(world, publisher, case.size, ids))
    world.run(case.until_us)
    (packets,) = seen
    heard = {(ids.index(event), node): at for (event, node), at in listener.heard.items()}
    sent = sum(layer.counts["packets sent"] for layer in layers.values())
    given_up = sum(layer.counts["events given up"] for layer in layers.values())
    return heard, packets, sent, given_up


def publishing(world: World, name: str, size: int, ids: list[str]) -> Any:
    return lambda now: ids.append(world.publish(name, "t", bytes(size) + b"%4d" % len(ids)))


def columns(case: Case, packets: int) -> Result:
    at = {name: index for index, name in enumerate(case.names)}
    links = Links(case.wan, case.seed, Random(0))
    service = TreeService(case.names, links, case.seed, lambda *a: None, lambda *a: None)
    tree = service.tree("t")
    plan = Plan(
        parents=np.array([at[tree[n]] if n in tree else -1 for n in case.names], np.int32),
        published_us=np.array([when for when, _ in case.publications]),
        publishers=np.array([at[name] for _, name in case.publications], np.int32),
        subscribes=np.array([name in case.subscribers for name in case.names]),
        packets=packets,
        options=case.options,
        loss=case.loss,
        wan=case.wan,
        costs=NO_COSTS,
        direct_us=1,
        tail_s=10,
    )
    return run(plan, case.seed, case.names)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_columns_give_what_the_objects_give(first: int) -> None:
    for seed in range(first, first + 50):
        case = Case(seed)
        heard, packets, sent, given_up = objects(case)
        result = columns(case, packets)
        found = {
            (event, name): case.publications[event][0] + int(result.latency_us[event, place])
            for event in range(len(case.publications))
            for place, name in enumerate(case.subscribers)
            if result.latency_us[event, place] >= 0
        }
        published = len(case.publications) * (packets + case.redundancy)
        assert found == heard, f"seed {seed}"
        assert result.gossip_packets + published == sent, f"seed {seed}"
        assert result.given_up == given_up, f"seed {seed}"
