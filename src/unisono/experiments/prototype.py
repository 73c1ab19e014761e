"""What the experiments on the thesis' prototype share (figures 3.22 to 3.24).

One publisher, an event service of up to ten nodes that all subscribe to all topics, ADSL links.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from statistics import fmean
from typing import Literal

import msgspec

from unisono.core.entropy import stream
from unisono.core.events import Delivery
from unisono.core.layer import Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.experiments.registry import MET, NOT_MET
from unisono.qos.membership import Membership
from unisono.qos.sequencer import Sequencer
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.views import View
from unisono.sim.channels import SiteLinks
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

SECOND = 1_000_000
PUBLISHER = "publisher"
TOPICS = tuple(f"t{index}" for index in range(1, 6))  # in the topic order
PAYLOAD = bytes(100)
UPLINK_KBIT_S = 1000.0
MODELS = ("uniform", "power-law", "worst")
MEASURES = ("latency_ms", "within_a_second", "same_second", "messages", "uplink")
SEEDS = 5
QUICK_SEEDS = 3
_QUICK_S = 30.0
_POPULAR = 0.8

SETTING = (
    "links N(21, 10.85) ms between any two nodes; every node sends over an ADSL uplink of "
    "1 Mbit/s, one message after the other, payloads of 100 B and 40 B of headers (the text says "
    "standard ADSL and 21 ms); queues at uplinks are not bounded",
    "the publisher is a process of its own, outside the event service; the service's nodes all "
    "subscribe to all 5 topics and host the managers; each topic has a random tree over them",
    "events at Poisson times; power law: topic i of the order with probability proportional to "
    "i^-s, s such that the first gets 80 % (the text: 0.5 % of the topics get 80 %); worst: always "
    "the last topic",
    "printed stamps unless it says exact; no bound on the buffer; latency is from publication to "
    "the last subscriber",
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the prototype."""

    protocol: Literal["total", "sequencer"] = "total"
    model: str = "uniform"
    exact: bool = False
    nodes: int = 10
    rate_per_s: float = 1.0
    duration_s: float = 300.0


@cache
def shares(model: str) -> tuple[float, ...]:
    """How publications fall on the topics."""
    count = len(TOPICS)
    if model == "uniform":
        return (1 / count,) * count
    if model == "worst":
        return (*([0.0] * (count - 1)), 1.0)
    assert model == "power-law"
    low, high = 0.0, 10.0
    for _ in range(60):  # bisection for the exponent
        middle = (low + high) / 2
        weights = [rank**-middle for rank in range(1, count + 1)]
        low, high = (low, middle) if weights[0] / sum(weights) > _POPULAR else (middle, high)
    return tuple(weight / sum(weights) for weight in weights)


class PrototypeRun:
    """One run, and an observer of its world."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.seed = seed
        # The numbers in the names differ from run to run, and with them where managers live.
        first = 1000 * seed
        self.nodes = [f"n{first + index}" for index in range(setting.nodes)]
        everyone = (*self.nodes, PUBLISHER)
        sites = {name: name for name in everyone}
        self.links = SiteLinks(sites, seed, uplink_kbit_s=UPLINK_KBIT_S)
        self.world = World(self.nodes, self.links, seed, NullRecorder(), self)
        self.published_us: dict[str, int] = {}
        self.last_us: dict[str, int] = {}
        self.notified = 0

    def _layer(self, name: str) -> Layer:
        if self.setting.protocol == "sequencer":
            return Sequencer(name, self.nodes[0], members=(*self.nodes, PUBLISHER))
        limits = Limits()
        view = View("sim", 1, tuple(self.nodes))
        members = Membership(name, limits, manage=name != PUBLISHER, initial=view)
        order = TopicOrder(TOPICS)
        return TotalOrder(name, members, order=order, exact=self.setting.exact, limits=limits)

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None:
        self.published_us[event_id] = now

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.last_us[delivery.id] = delivery.delivered_us
        self.notified += 1

    def run(self) -> Mapping[str, float]:
        world, setting = self.world, self.setting
        for name in (*self.nodes, PUBLISHER):
            world.add(Node(name, [self._layer(name)]))
        for name in self.nodes:
            world.subscribe(name, TOPICS, "all")
        world.run(3600 * SECOND, stop=lambda: not world.pending)
        start, sent = world.now, self.links.sent
        busy_us = self.links.busy_us.copy()
        self._plan(start, start + round(setting.duration_s * SECOND))
        world.run()
        assert not world.pending and not world.errors, "the run did not come to rest"
        assert self.notified == len(self.published_us) * len(self.nodes)
        waits = [self.last_us[event] - at for event, at in self.published_us.items()]
        busiest_us = max((self.links.busy_us - busy_us).values(), default=0)
        return {
            "latency_ms": fmean(waits) / 1000,
            "within_a_second": fmean(wait <= SECOND for wait in waits),
            # The chance that the second in which an event is published does not end before.
            "same_second": fmean(max(0.0, 1 - wait / SECOND) for wait in waits),
            "messages": (self.links.sent - sent) / len(waits),
            "uplink": busiest_us / (setting.duration_s * SECOND),
        }

    def _plan(self, start: int, end: int) -> None:
        rng = stream(self.seed, "publisher")
        weights = shares(self.setting.model)
        gap = SECOND / self.setting.rate_per_s
        at = start + rng.expovariate(1.0) * gap
        while at < end:
            self._publish_at(round(at), rng.choices(TOPICS, weights)[0])
            at += rng.expovariate(1.0) * gap

    def _publish_at(self, at: int, topic: str) -> None:
        def publish(now: int) -> None:
            self.world.publish(PUBLISHER, topic, PAYLOAD)

        self.world.at(at, publish)


def measure(setting: Setting, seed: int, quick: bool) -> Mapping[str, float]:
    """One run, five simulated minutes unless quick."""
    if quick:
        setting = msgspec.structs.replace(setting, duration_s=_QUICK_S)
    return PrototypeRun(setting, seed).run()


def verdict(holds: bool) -> str:
    return MET if holds else NOT_MET
