"""One run of the overlay on a random internet (paper 004, section 4): a publisher, subscribers that
want everything, and links or processes that crash meanwhile.

What a subscriber ought to get: all that is published while it is up, but for the time it needs to
subscribe anew after a crash, and the last seconds before one. A run is a pure function of its plan.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from unisono.core.entropy import stream
from unisono.core.limits import check_fields
from unisono.ens.scribe.node import Mesh
from unisono.ens.scribe.options import SECOND, Shape
from unisono.sim.mesh import MeshWorld
from unisono.sim.outages import PAPER, Rhythm, link_crashes, node_crashes
from unisono.sim.routes import Topology
from unisono.sim.topologies import Internet, build

BACK_US = 30 * SECOND  # so long after it is back a subscriber need not get anything
LAST_US = 10 * SECOND  # nor what was published so shortly before it crashed
_SETTLE_BEATS, _AT_MOST_BEATS = 20, 200
_FIRST = b"-1"  # an event before anything crashes: who has heard of a stream knows what it misses
_END_S = 60  # after the last publication
_BEFORE_S = 1200  # so long links have been crashing when the first event is published

Faults = Literal["none", "links", "processes"]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`own_clusters`: every node is a cluster of its own, as in plain Scribe."""

    internet: Internet
    shape: Shape
    seed: int
    nodes: Annotated[int, Meta(ge=2, le=2000)] = 50  # at random places; the first one publishes.
    # With fewer nodes these are some of those with more.
    own_clusters: bool = False
    faults: Faults = "links"
    rhythm: Rhythm = PAPER
    duration_s: Annotated[int, Meta(ge=1)] = 7200  # one event a second

    def __post_init__(self) -> None:
        check_fields(self)


class Result(NamedTuple):
    """`missed`: by subscriber, the numbers of the events that it ought to have got."""

    published: int
    due: int
    missed: dict[str, list[int]]
    latency_us: array[int]  # of all that was notified
    sent: Counter[str]  # messages by kind, while it was published

    @property
    def success(self) -> float:
        return 1 - sum(map(len, self.missed.values())) / self.due

    @property
    def incomplete(self) -> float:
        """The share of events that missed somebody."""
        return len({number for missed in self.missed.values() for number in missed}) / (
            self.published
        )


class Routed:
    """The routes of a topology between nodes on its devices; an address is a device's number."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def delay_us(self, source: str, target: str) -> int | None:
        a, b = int(source), int(target)
        return self._topology.delay_us(a, b) if self._topology.alive(a, b) else None

    def way(self, source: str, target: str) -> frozenset[str]:
        return frozenset(self._topology.path_of(int(source), int(target)))


class Trial:
    """A mesh on its internet, grown and subscribed; then `run`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.topology = build(plan.internet)
        self.world = MeshWorld(Routed(self.topology), plan.shape, plan.seed, self._arrive)
        hosts = list(self.topology.hosts)
        stream(plan.seed, "overlay nodes").shuffle(hosts)
        self.publisher, *self.subscribers = map(str, hosts[: plan.nodes])
        self._topic = f"topic {plan.seed}"  # its root is at another place with every seed
        self._latency_us = array("q")
        self._got = {address: bytearray(plan.duration_s) for address in self.subscribers}
        self._absent: dict[str, list[tuple[int, int]]] = {}
        self._grow()
        self.begin_us = self.world.now + _SETTLE_BEATS * plan.shape.beat_us  # the first event

    def _grow(self) -> None:
        world, beat_us = self.world, self.plan.shape.beat_us
        for address in (self.publisher, *self.subscribers):
            self._start(address)
            world.run(world.now + SECOND // 4)
        world.run(world.now + _SETTLE_BEATS * beat_us)
        tickets = [world.subscribe(address, self._topic) for address in self.subscribers]
        subscribed = world.run_until(
            lambda: world.done.issuperset(tickets), _AT_MOST_BEATS * beat_us
        )
        assert subscribed, "not all subscriptions are effective"
        world.publish(self.publisher, self._topic, _FIRST)
        world.run(world.now + _SETTLE_BEATS * beat_us)

    def _start(self, address: str) -> None:
        system = self.topology.system_of[int(address)]
        domain = f"node{address}" if self.plan.own_clusters else f"as{system}"
        seeds = () if address == self.publisher else (self.publisher,)
        self.world.start(address, domain, seeds)

    def _arrive(self, address: str, topic: str, frame: bytes, now: int) -> None:
        if frame == _FIRST:
            return
        number = int(frame)
        self._latency_us.append(now - self._published_us(number))
        self._got[address][number] += 1

    def _published_us(self, number: int) -> int:
        return self.begin_us + number * SECOND

    def run(self) -> Result:
        plan, world = self.plan, self.world
        if plan.faults == "links":
            self._crash_links()
        elif plan.faults == "processes":
            self._crash_processes()
        world.run(self.begin_us)
        before = world.sent.copy()
        self._publish(0)
        world.run(self._published_us(plan.duration_s + _END_S))
        once = (got for address, got in self._got.items() if address not in self._absent)
        assert all(max(got) <= 1 for got in once), "an event came twice"
        missed: dict[str, list[int]] = {}
        due = 0
        for address, number in self._due():
            due += 1
            if not self._got[address][number]:
                missed.setdefault(address, []).append(number)
        return Result(plan.duration_s, due, missed, self._latency_us, world.sent - before)

    def _publish(self, number: int) -> None:
        if number < self.plan.duration_s:
            self.world.publish(self.publisher, self._topic, b"%d" % number)
            self.world.at(self._published_us(number + 1), partial(self._publish, number + 1))

    def _crash_links(self) -> None:
        """In the core and between systems. Below it the paper's networks are trees, whose links
        cannot crash without cutting the network in two. Nor does a link crash that would leave some
        node without a chain of nodes to the publisher: then no overlay could reach it. Those that
        are down when the first event is published crash a little before."""
        plan, world, topology = self.plan, self.world, self.topology
        steady = [i for i, x in enumerate(topology.links) if x.level not in ("transit", "core")]
        first_us = self.begin_us - _BEFORE_S * SECOND
        for at_us, link, until_us in link_crashes(
            topology, plan.seed, _BEFORE_S + plan.duration_s, plan.rhythm, steady=steady
        ):
            if first_us + until_us > world.now:
                world.at(first_us + at_us, partial(self._crash, link))
                world.at(first_us + until_us, partial(topology.repair, link))

    def _crash(self, link: int) -> None:
        self.topology.crash(link)
        left, reached = set(self.subscribers), [self.publisher]
        for one in reached:
            near = {other for other in left if self.topology.alive(int(one), int(other))}
            left -= near
            reached += near
        if left:
            self.topology.repair(link)

    def _crash_processes(self) -> None:
        """All but the publisher's; whoever comes back begins anew, and subscribes as soon as it has
        joined: over UDP it could not before, either."""
        plan, world = self.plan, self.world

        def back(address: str) -> None:
            self._start(address)
            subscribe(address, world.nodes[address])

        def subscribe(address: str, node: Mesh) -> None:
            if world.nodes.get(address) is not node:
                return  # it has crashed again
            if node.settled:
                world.subscribe(address, self._topic)
            else:
                world.at(world.now + SECOND // 4, partial(subscribe, address, node))

        for at_us, address, until_us in node_crashes(
            self.subscribers, plan.seed, plan.duration_s, plan.rhythm
        ):
            begin, end = self.begin_us + at_us, self.begin_us + until_us
            self._absent.setdefault(address, []).append((begin - LAST_US, end + BACK_US))
            world.at(begin, partial(world.crash, address))
            world.at(end, partial(back, address))

    def _due(self) -> Iterator[tuple[str, int]]:
        for address in self.subscribers:
            absent = self._absent.get(address, ())
            for number in range(self.plan.duration_s):
                at_us = self._published_us(number)
                if not any(begin <= at_us <= end for begin, end in absent):
                    yield address, number
