"""Data centres of replicas in the simulator, under each protocol, measured.

Every replica publishes transactions at random times on the categories it holds, and applies what it
is notified of to a SQLite database of its own. A run is a pure function of the case and the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cmp_to_key
from statistics import fmean
from typing import ClassVar, Literal

import msgspec

from unisono.cases.active_database.journal import Entry, precedes
from unisono.cases.active_database.replica import Replica
from unisono.cases.active_database.transactions import Transaction, encode
from unisono.cases.active_database.windows import windows
from unisono.cases.active_database.workload import random_transaction
from unisono.core.effects import Arrive, Transmit
from unisono.core.entropy import stream
from unisono.core.events import INBOX, Delivery
from unisono.core.layer import Effects, FrameLayer, Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.errors import BadInput
from unisono.qos.membership import Membership
from unisono.qos.sequencer import Sequencer
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.uec import UnconsciousConsistency
from unisono.qos.views import View
from unisono.sim.channels import SiteLinks
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

SECOND = 1_000_000
_SYNC_S = 10.0  # how often the databases follow their journals


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the case study; the defaults are the thesis' (section 4.3.1)."""

    protocol: Literal["total", "sequencer", "uec"] = "total"
    stamps: Literal["exact", "paper"] = "exact"
    buffer: int | None = None  # of total order; None: no bound
    hold_s: float | None = 1.0  # time to live in the buffer
    coalition: int = 1  # of unconscious eventual consistency: k
    fanout: int = 5
    inbox: int = 100
    service_ms: float = 0.0
    rate_per_s: float = 50.0  # of all replicas together
    topics: int = 5
    sites: int = 2
    replicas: int = 5  # per site
    sets: int = 1  # replica sets; each holds a part of the categories
    shared: int = 0  # categories that each set holds of its neighbour's, too
    duration_s: float = 300.0
    eager: bool = False  # databases follow every delivery, not every ten seconds

    def __post_init__(self) -> None:
        if self.topics % self.sets or self.replicas % self.sets:
            raise BadInput(f"{self.sets} sets must divide the topics and the replicas of a site")
        if not 1 <= self.coalition <= self.sites * self.replicas:
            raise BadInput(f"a coalition of {self.coalition} needs as many replicas")


class Meter(FrameLayer):
    """Counts what a node sends to other single nodes, and all it takes in."""

    name: ClassVar[str] = "meter"

    def __init__(self, node_id: str) -> None:
        self._own = INBOX + node_id
        self.messages = 0
        self.taken = 0

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        self.messages += topic.startswith(INBOX) and topic != self._own
        return (Transmit(topic, frame),)

    def notify(self, topic: str, frame: bytes, now: int) -> Effects:
        self.taken += 1
        return (Arrive(topic, frame),)


class CaseRun:
    """One run: nodes, replicas, and an observer of the world."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.seed = seed
        count = case.sites * case.replicas
        self.names = [f"r{index:0{len(str(count))}d}" for index in range(1, count + 1)]
        width = len(str(case.topics))
        self.topics = [f"category{index:0{width}d}" for index in range(1, case.topics + 1)]
        shuffled = list(self.names)
        stream(seed, "sites").shuffle(shuffled)  # where managers live differs from run to run
        self.site_of = {name: f"dc{at % case.sites + 1}" for at, name in enumerate(shuffled)}
        self.set_of = {name: at // case.sites % case.sets for at, name in enumerate(shuffled)}
        self.coalition = shuffled[: case.coalition]
        self.links = SiteLinks(self.site_of, seed)
        self.world = World(self.names, self.links, seed, NullRecorder(), self)
        self.meters = {name: Meter(name) for name in self.names}
        self.replicas = {name: Replica(eager=case.eager) for name in self.names}
        self.published_us: dict[str, int] = {}
        self.topic_of: dict[str, str] = {}
        self.notified_us: dict[str, dict[str, int]] = {name: {} for name in self.names}
        self.entries: dict[str, Entry] = {}
        self.tagged = 0

    def held(self, name: str) -> list[str]:
        """The categories of a replica: those of its set, and some of the next set's."""
        case = self.case
        part = len(self.topics) // case.sets
        first = self.set_of[name] * part
        topics = self.topics[first:] + self.topics[:first]
        return topics[: len(self.topics) if case.sets == 1 else part + case.shared]

    def _node(self, name: str) -> Node:
        case = self.case
        layer: Layer
        if case.protocol == "total":
            limits = Limits()
            members = Membership(name, limits, initial=View("sim", 1, tuple(self.names)))
            hold_us = None if case.hold_s is None else round(case.hold_s * SECOND)
            layer = TotalOrder(
                name,
                members,
                order=TopicOrder(self.topics),
                exact=case.stamps == "exact",
                buffer=case.buffer,
                hold_us=hold_us,
                limits=limits,
            )
        elif case.protocol == "sequencer":
            layer = Sequencer(name, self.coalition[0])
        else:
            layer = UnconsciousConsistency(
                name,
                self.names,
                self.coalition,
                stream(self.seed, "gossip", name),
                fanout=case.fanout,
                inbox=case.inbox,
                service_us=round(case.service_ms * 1000),
            )
        return Node(name, [layer], [self.meters[name]])

    # What the world tells.

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None:
        self.published_us[event_id] = now
        self.topic_of[event_id] = topic

    def delivered(self, node: str, delivery: Delivery) -> None:
        assert delivery.stamp is not None
        self.notified_us[node][delivery.id] = delivery.delivered_us
        self.entries.setdefault(delivery.id, Entry(delivery.id, delivery.topic, delivery.stamp))
        self.tagged += not delivery.in_order
        self.replicas[node].take(delivery)

    # The run.

    def run(self) -> Mapping[str, float]:
        world = self.world
        for name in self.names:
            world.add(self._node(name))
        for name in self.names:
            world.subscribe(name, self.held(name), "held")
        world.run(3600 * SECOND, stop=lambda: not world.pending)
        assert not world.pending, "not everybody could subscribe"
        self.links.sent = 0
        for meter in self.meters.values():
            meter.messages = meter.taken = 0
        start = world.now
        end = start + round(self.case.duration_s * SECOND)
        for name in self.names:
            self._plan(name, start, end)
        for at in range(start, end, round(_SYNC_S * SECOND)):
            world.at(at, lambda now: self._sync())
        world.run(end + 3600 * SECOND)
        assert not world.errors and not world.pending, "the run did not come to rest"
        return self._measure(start)

    def _sync(self) -> None:
        for replica in self.replicas.values():
            replica.sync()

    def _plan(self, name: str, start: int, end: int) -> None:
        rng = stream(self.seed, "client", name)
        topics = self.held(name)
        gap = SECOND * len(self.names) / self.case.rate_per_s
        at = start + rng.expovariate(1.0) * gap
        while at < end:
            self._publish_at(round(at), name, rng.choice(topics), random_transaction(rng))
            at += rng.expovariate(1.0) * gap

    def _publish_at(self, at: int, name: str, topic: str, transaction: Transaction) -> None:
        payload = encode(transaction)

        def publish(now: int) -> None:
            self.world.publish(name, topic, payload)

        self.world.at(at, publish)

    # What came out.

    def _measure(self, start: int) -> dict[str, float]:
        events = len(self.published_us)
        expected = self._expected()
        notified = sum(map(len, self.notified_us.values()))
        rollbacks = sum(replica.rollbacks for replica in self.replicas.values())
        undone = sum(replica.undone for replica in self.replicas.values())
        # Messages to single nodes carry the event itself, except in total order.
        single = sum(meter.messages for meter in self.meters.values())
        controls = single if self.case.protocol == "total" else 0
        result = {
            "events": events,
            "rollbacks": rollbacks / max(1, notified),
            "tagged": self.tagged / max(1, notified),
            "undone": undone / max(1, notified),
            "lost": 1 - notified / max(1, expected),
            "latency_ms": self._latency_ms(),
            "sends": (self.links.sent - controls) / max(1, events),
            "controls": controls / max(1, events),
            "busiest": max(m.taken for m in self.meters.values()) / max(1, events),
            "unwanted": self._unwanted() / max(1, events),
            "refused": sum(sum(r.refused.values()) for r in self.replicas.values()),
            "equal": self._equal(),
        }
        return result | self._windows(start)

    def _unwanted(self) -> int:
        """Events that reached nodes whose replicas do not hold the category."""
        return sum(node.ignored["not subscribed"] for node in self.world.nodes.values())

    def _holders(self, topic: str) -> list[str]:
        return [name for name in self.names if topic in self.held(name)]

    def _expected(self) -> int:
        holders = {topic: len(self._holders(topic)) for topic in self.topics}
        return sum(holders[topic] for topic in self.topic_of.values())

    def _latency_ms(self) -> float:
        """From publication to the last replica, mean over the events that reached all holders."""
        waits = []
        holders = {topic: self._holders(topic) for topic in self.topics}
        for event, at in self.published_us.items():
            times = [self.notified_us[name].get(event) for name in holders[self.topic_of[event]]]
            if None not in times:
                waits.append(max(time for time in times if time is not None) - at)
        return fmean(waits) / 1000 if waits else 0.0

    def _sets(self) -> list[list[str]]:
        return [
            [name for name in self.names if self.set_of[name] == number]
            for number in range(self.case.sets)
        ]

    def _equal(self) -> float:
        """1 if the replicas of every set, and all copies of every category, are equal."""
        groups = [{self.replicas[name].sha256() for name in members} for members in self._sets()]
        for topic in self.topics:
            groups.append({self.replicas[name].sha256(topic) for name in self._holders(topic)})
        return float(all(len(digests) == 1 for digests in groups))

    def _windows(self, start: int) -> dict[str, float]:
        """Mean over the sets; the longest window of any."""
        end = max((max(t.values(), default=0) for t in self.notified_us.values()), default=0) + 1
        found, disordered = [], []
        for members in self._sets():
            held = set(self.held(members[0]))
            own = [entry for entry in self.entries.values() if entry.topic in held]
            own.sort(key=cmp_to_key(_compare))
            applied = {name: self.notified_us[name] for name in members}
            order = [entry.event_id for entry in own]
            found.append(windows(order, applied, start, max(end, start + 1)))
            everywhere = [event for event in order if all(event in t for t in applied.values())]
            disordered.append(windows(everywhere, applied, start, max(end, start + 1)).share)
        return {
            "inconsistent": fmean(each.share for each in found),
            "disordered": fmean(disordered),  # as if only what all replicas got had been published
            "windows": fmean(each.count for each in found),
            "window_ms": fmean(each.mean_ms for each in found),
            "longest_ms": max(each.longest_ms for each in found),
        }


def _compare(e: Entry, f: Entry) -> int:
    if e.event_id == f.event_id:
        return 0
    return -1 if precedes(e, f) else 1


def run_case(case: Case, seed: int) -> Mapping[str, float]:
    """Run it and measure."""
    run = CaseRun(case, seed)
    try:
        return run.run()
    finally:
        for replica in run.replicas.values():
            replica.close()
