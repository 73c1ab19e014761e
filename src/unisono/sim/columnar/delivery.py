"""Reliable delivery in a large group: a run on arrays, from a plan to who got what and when.

One topic, one tree. Partners of gossip are random subscribers, where nodes have peer sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from unisono.compiled import Bools, Ints, Longs
from unisono.core.entropy import digest
from unisono.errors import BadInput, Unsupported
from unisono.qos.coding.galois import INVERSE, PRODUCT
from unisono.qos.reliable.options import Reliability
from unisono.sim.channels import Wan
from unisono.sim.columnar import gossip
from unisono.sim.columnar import group as grp
from unisono.sim.columnar.engine import node_names
from unisono.sim.columnar.heap import ENTRY, more_room
from unisono.sim.columnar.losses import TRAIN, make_channels
from unisono.sim.columnar.overlay import branches
from unisono.sim.columnar.packets import HELD
from unisono.sim.columnar.tables import Matrix, Table
from unisono.sim.losses import Loss

SLOTS_MAX = 64
PACKETS_MAX = 63  # of a transmission: bits of a word, and one that ends them
BYTES_MAX = 3 << 30  # of what nodes hold
_PARTS = 50  # of a run, between which progress is told
_GOSSIP = {"none": grp.NONE, "push": grp.PUSH, "pull": grp.PULL, "push-pull": grp.PUSH_PULL}


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long coding takes: per packet made, and per event for which coded packets were needed.

    The defaults are what `unisono bench coding` measures, rounded up.
    """

    encode_us: int = 2
    decode_us: int = 60


PAPERS_COSTS = Costs(encode_us=5_000, decode_us=10_000)
NO_COSTS = Costs(encode_us=0, decode_us=0)
# Links of 50 ms, as in chapter 5 of the thesis and in paper 003.
PAPERS_LINKS = Wan(slow_share=0, fast_mean_ms=50, fast_sd_ms=0, fifo=False, draws="hashed")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be simulated. `parents`: of each node in the tree, -1 at its root."""

    parents: Ints
    published_us: Longs  # rising
    publishers: Ints  # by event
    subscribes: Bools
    packets: int = 16  # of an event
    options: Reliability = Reliability()
    loss: Loss = Loss()
    wan: Wan = PAPERS_LINKS
    costs: Costs = Costs()
    inner: Literal["copy", "recode"] = "copy"  # what nodes of the tree pass on
    direct_us: int = 0  # that messages between two nodes take longer than packets on the tree
    tail_s: float = 10.0  # after the last event


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """`latency_us` by event and subscriber, -1 if the event never came; packets by purpose."""

    latency_us: Matrix
    tree_packets: int
    gossip_packets: int
    offers: int
    wants: int
    given_up: int

    @property
    def success(self) -> float:
        """The share of events that came, over all subscribers."""
        return float((self.latency_us >= 0).mean())

    def within(self, seconds: float) -> float:
        """The share that came in this time."""
        return float(((self.latency_us >= 0) & (self.latency_us <= seconds * 1e6)).mean())

    def overhead(self, packets: int) -> float:
        """Packets sent on all links, per packet that the publishers made of the events."""
        sent = self.tree_packets + self.gossip_packets + self.offers + self.wants
        return float(sent / (self.latency_us.shape[0] * packets))


def star_parents(nodes: int) -> Ints:
    """Everybody hangs below the first node."""
    parents = np.zeros(nodes, np.int32)
    parents[0] = -1
    return parents


def balanced_parents(degree: int, depth: int) -> Ints:
    """A complete tree: so many children each, so many levels below the root."""
    nodes = sum(degree**level for level in range(depth + 1))
    parents = (np.arange(nodes) - 1) // degree
    return parents.astype(np.int32)


def run(
    plan: Plan,
    seed: int,
    names: Sequence[str] | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Result:
    """Simulate a plan: a pure function of plan and seed. `progress` hears the share that is done,
    now and then."""
    group = _group(plan, seed, names or node_names(plan.parents.size))
    end = plan.published_us[-1] + round(plan.tail_s * 1e6)
    for part in range(1, _PARTS + 1):
        group.options[grp.UNTIL] = end * part // _PARTS
        while gossip.go(group) == grp.MORE_ROOM:
            group = _grown(group)
        progress(part / _PARTS)
    counts = group.counts
    return Result(
        latency_us=group.latency_us[:, plan.subscribes],
        tree_packets=int(counts[grp.TREE_PACKETS]),
        gossip_packets=int(counts[grp.GOSSIP_PACKETS]),
        offers=int(counts[grp.OFFERS]),
        wants=int(counts[grp.WANTS]),
        given_up=int(counts[grp.GIVEN_UP]),
    )


def _options(plan: Plan, degree: int, slots: int) -> Longs:
    chosen = plan.options
    found = np.zeros(grp.OPTIONS, np.int64)
    found[grp.PACKETS] = plan.packets
    found[grp.REDUNDANCY] = _redundancy(plan)
    found[grp.CODING] = chosen.coding
    found[grp.GOSSIP] = _GOSSIP[chosen.gossip]
    found[grp.FAN_OUT] = chosen.fan_out
    found[grp.FAN_IN] = chosen.fan_in
    found[grp.PERIOD] = round(chosen.period_s * 1e6)
    found[grp.PUSHED] = -1 if chosen.pushed is None else chosen.pushed
    found[grp.SPARE] = chosen.spare
    found[grp.ASKS] = chosen.ask
    found[grp.REMIND] = chosen.remind
    found[grp.KEEP] = round(chosen.keep_s * 1e6)
    found[grp.ENCODE_US] = plan.costs.encode_us
    found[grp.DECODE_US] = plan.costs.decode_us
    found[grp.RECODE] = plan.inner == "recode"
    found[grp.ROOT] = int(np.flatnonzero(plan.parents < 0)[0])
    found[grp.DIRECT_US] = plan.direct_us
    found[grp.NEED] = degree + 4 * chosen.fan_out + 2 * slots + 8
    return found


def _redundancy(plan: Plan) -> int:
    if plan.options.redundancy == "adaptive":
        raise Unsupported('this engine knows no redundancy = "adaptive": give a number')
    return plan.options.redundancy


def _check(plan: Plan) -> None:
    chosen, nodes = plan.options, plan.parents.size
    if chosen.partners != "random":
        raise Unsupported('this engine knows partners = "random" only')
    if plan.packets < 1:
        raise BadInput(f"packets = {plan.packets}: an event has at least one")
    redundant = max(_redundancy(plan), chosen.spare, chosen.pushed or 0)
    if plan.packets + redundant > PACKETS_MAX:
        raise Unsupported(
            f"{plan.packets} packets and {redundant} redundant ones: this engine takes "
            f"{PACKETS_MAX} at most"
        )
    if plan.wan.fifo or plan.wan.draws != "hashed":
        raise Unsupported('this engine needs links with fifo = false and draws = "hashed"')
    if chosen.gossip != "none" and chosen.fan_out >= plan.subscribes.sum():
        raise BadInput(
            f"fan_out = {chosen.fan_out}: there are {plan.subscribes.sum()} subscribers, "
            "so a node has fewer partners"
        )
    if np.count_nonzero(plan.parents < 0) != 1 or plan.parents.max() >= nodes:
        raise BadInput("parents: one node is the root and has -1, the others a node")
    if plan.published_us.size == 0 or (np.diff(plan.published_us) < 0).any():
        raise BadInput("published_us: at least one time, and rising")
    if plan.inner == "recode" and not (plan.subscribes.all() and chosen.coding):
        raise Unsupported('inner = "recode" needs coding, and every node to subscribe')


def _slots(plan: Plan) -> int:
    """How many events may be held at a time: who hears of one late keeps it as long as others."""
    keep_us = round(2e6 * (plan.options.keep_s + plan.options.period_s))
    ends = np.searchsorted(plan.published_us, plan.published_us + keep_us, "right")
    most = int((ends - np.arange(plan.published_us.size)).max()) + 1
    slots = min(most, plan.published_us.size)
    if slots > SLOTS_MAX:
        raise Unsupported(
            f"{slots} events are held at a time, this engine takes {SLOTS_MAX}: "
            "publish more slowly or lower keep_s"
        )
    return slots


def _group(plan: Plan, seed: int, names: Sequence[str]) -> grp.Group:
    _check(plan)
    nodes, n, slots = plan.parents.size, plan.packets, _slots(plan)
    if slots * nodes * (2 * n * n + HELD.itemsize) > BYTES_MAX:
        raise Unsupported(f"{nodes} nodes, {slots} events of {n} packets at a time: too much")
    start, child = branches(plan.parents, plan.subscribes)
    options = _options(plan, int(np.diff(start).max()), slots)
    channels = make_channels(names, plan.wan, plan.loss, seed)
    capacity = int(options[grp.NEED]) + 4 * nodes
    stream = np.array([digest(seed, "reliable", name) for name in names], np.uint64)
    counts = np.zeros(grp.COUNTS, np.int64)
    counts[grp.FREE] = capacity
    group = grp.Group(
        due=np.zeros(capacity, ENTRY),
        queue=np.zeros(2, np.int64),
        mail=np.zeros(capacity, grp.MAIL),
        free=np.arange(capacity, dtype=np.int32),
        words=channels.words,
        key=channels.key,
        delay_us=channels.delay_us,
        conditions=channels.conditions,
        down=_trains(nodes),
        up=_trains(nodes),
        direct=_trains(nodes * grp.TRAINS),
        direct_at=np.full((nodes, 2), -1, np.int64),
        child_start=start,
        child=child,
        stream=stream,
        live=np.zeros(nodes, np.uint64),
        busy=np.zeros(nodes, np.uint64),
        tell=np.zeros((nodes, max(1, int(options[grp.REMIND]))), np.uint64),
        settled=np.zeros(nodes, np.uint64),
        expires_us=np.zeros(nodes, np.int64),
        known=np.zeros(nodes, np.int64),
        subscriber=np.flatnonzero(plan.subscribes).astype(np.int32),
        subscribes=plan.subscribes.astype(np.int32),
        published_us=plan.published_us,
        publisher=plan.publishers,
        slot_event=np.full(slots, -1, np.int64),
        held=np.zeros((nodes, slots), HELD),
        echelon=np.zeros((nodes, slots, n, n), np.uint8),
        factors=np.zeros((nodes, slots, n, n), np.uint8),
        came=np.zeros((nodes, slots, n), np.uint8),
        products=PRODUCT,
        inverses=INVERSE,
        latency_us=np.full((plan.published_us.size, nodes), -1, np.int32),
        options=options,
        counts=counts,
        row=np.zeros(n, np.uint8),
        scratch=np.zeros(n, np.uint8),
        found=np.zeros(64, np.int64),
        slots=np.zeros(64, np.int64),
    )
    gossip.begin(group)
    return group


def _trains(count: int) -> Table:
    made = np.zeros(count, TRAIN)
    made["time"] = -1
    return made


def _grown(old: grp.Group) -> grp.Group:
    """The same run with twice the room for what is due."""
    due, mail, free = more_room(old.due, old.mail, old.free, int(old.counts[grp.FREE]))
    old.counts[grp.FREE] += old.mail.size
    return old._replace(due=due, mail=mail, free=free)
