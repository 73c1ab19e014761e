"""A run of the columnar engine: a plan in, columns and figures out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unisono.compiled import Bools, Ints, Longs, Words
from unisono.core.entropy import digest
from unisono.errors import BadInput
from unisono.sim.channels import Wan
from unisono.sim.columnar import calendar as cal
from unisono.sim.columnar import links as lnk
from unisono.sim.columnar import loop
from unisono.sim.columnar.managers import close_relation
from unisono.sim.columnar.overlay import (
    Overlay,
    branches,
    nearest,
    node_ids,
    random_parents,
    routed_parents,
)
from unisono.sim.columnar.swaps import new_epoch
from unisono.sim.columnar.tables import (
    HELD,
    MANAGER,
    NONE,
    NOTIFICATION,
    PLACE,
    RECENT,
    RUN,
    SINCE_START,
    SLOT,
    STATIC,
    TALLY,
    Tables,
    add_slots,
    bits,
    event_table,
    filled,
    subscriber_tables,
)

ENTRY_BYTES = 24  # of a stamp: topic id 16, number 8 (thesis section 3.5.1)
UNBOUNDED = 1 << 40
HASHED = Wan(draws="hashed")


@dataclass(frozen=True, kw_only=True)
class Network:
    """Nodes, where managers live, and how events and messages travel."""

    names: tuple[str, ...]
    ids: Words  # for routes over the overlay; empty: direct links
    manager: Ints  # by topic: its node
    root: Ints  # by topic: the root of its tree
    parents: Callable[[int], Ints]  # of a topic: the parent of each node in its tree
    coordinator: int  # the node of the system topic, which is also the root of that one's tree


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """The rule by which topics change places; see `swaps.py`. The last three are for `window`."""

    metric: Literal["paper", "window"] = "window"
    alpha: float = 0.1
    beta: float = 0.2
    window: int = 100  # events
    every_s: float = 10.0  # at most one change in this time
    waits: bool = True  # an event of a topic that stands too low waits for the change


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is simulated. `buffer` None: unbounded."""

    network: Network
    subscriptions: tuple[Longs, Ints]  # start of each node's topics; topics
    publications: tuple[Longs, Ints, Ints]  # times, topics, publishers; by time
    order: Ints  # all topics, the highest first
    seed: int
    exact: bool = True
    buffer: int | None = None
    adaptive: Adaptive | None = None
    wan: Wan = HASHED
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """What happened. Times in microseconds; figures by event unless said otherwise."""

    tables: Tables
    changed_us: tuple[int, ...]  # when topics changed places

    @property
    def ordering_us(self) -> Longs:
        """From the publication to the complete stamp."""
        event = self.tables.event
        return np.asarray(event["stamped"] - event["published"])

    @property
    def dissemination_us(self) -> Longs:
        """From the stamp to the arrival at the last subscriber; 0 if there is none."""
        event = self.tables.event
        return np.asarray(np.maximum(event["arrived"] - event["stamped"], 0))

    @property
    def latency_us(self) -> Longs:
        """From the publication to the last notification; to the stamp if there is none."""
        event = self.tables.event
        return np.asarray(np.maximum(event["notified"], event["stamped"]) - event["published"])

    @property
    def stamp_bytes(self) -> Longs:
        """Of the stamp, with an entry for the system topic if the order adapts."""
        system = int(self.tables.run[0]["metric"] != STATIC)
        return np.asarray((self.tables.stamp >= 0).sum(axis=1) + system) * ENTRY_BYTES

    @property
    def swaps(self) -> int:
        return len(self.changed_us)

    @property
    def tagged_share(self) -> float:
        """Of all notifications."""
        node = self.tables.node
        notified = int(node["notified"].sum())
        return int(node["tagged"].sum()) / notified if notified else 0.0

    @property
    def steps(self) -> int:
        return int(self.tables.run[0]["steps"])


def pastry(nodes: int, topics: int, seed: int) -> Network:
    """SCRIBE over Pastry: managers are the roots; messages and trees follow the routes."""
    ids = node_ids(nodes, seed)
    root = np.array([nearest(ids, digest(seed, "topic", t)) for t in range(topics)], np.int32)
    system = nearest(ids, digest(seed, "system topic"))

    def parents(topic: int) -> Ints:
        return routed_parents(ids, system if topic == topics else int(root[topic]))

    return Network(
        names=node_names(nodes),
        ids=ids,
        manager=root,
        root=root,
        parents=parents,
        coordinator=system,
    )


def direct(nodes: int, topics: int, seed: int) -> Network:
    """Direct links between nodes; a random recursive tree per topic; managers on random nodes."""
    rng = np.random.default_rng(digest(seed, "places"))
    manager, root = rng.integers(0, nodes, (2, topics), np.int32)
    system = int(rng.integers(0, nodes))

    def parents(topic: int) -> Ints:
        top = system if topic == topics else int(root[topic])
        return random_parents(nodes, top, seed, topic)

    return Network(
        names=node_names(nodes),
        ids=np.empty(0, np.uint64),
        manager=manager,
        root=root,
        parents=parents,
        coordinator=system,
    )


def node_names(count: int) -> tuple[str, ...]:
    width = len(str(count - 1))
    return tuple(f"n{index:0{width}d}" for index in range(count))


def run(plan: Plan) -> Result:
    """A pure function of the plan."""
    _check(plan)
    base = bits(_held_together(plan))
    tables = _tables(plan, base)
    overlay = _overlay(plan, tables.pair_of != NONE)
    links = lnk.make_links(plan.network.names, plan.wan, plan.seed)
    fan_out = _fan_out(plan, overlay)
    calendar = cal.calendar(2 * fan_out)
    work = np.zeros((4, plan.publications[0].size + 1), np.int64)
    changed = []
    while True:
        arguments: list[Any] = [*calendar, *links, *overlay, *tables, work, fan_out]
        status = loop.go(*arguments)
        if status == loop.MORE_CALENDAR:
            calendar = cal.grown(calendar)
        elif status == loop.MORE_LINKS:
            links = lnk.grown(links)
        elif status == loop.MORE_SLOTS:
            tables = add_slots(tables, tables.slot.size)
        elif status == loop.CHANGE:
            tables = new_epoch(tables, base)
            changed.append(int(tables.run[0]["changed"]))
            loop.announce(*calendar, *links, overlay.ids, tables.run, tables.manager)
        else:
            break
    assert (tables.event["stamped"] >= 0).all(), "an event was never stamped"
    assert not tables.node["waiting"].any(), "an event waits for ever"
    return Result(tables=tables, changed_us=tuple(changed))


def _check(plan: Plan) -> None:
    """What would give wrong results silently is refused."""
    times, topics, publishers = plan.publications
    count, nodes = plan.order.size, len(plan.network.names)
    if (np.diff(times) < 0).any():
        raise BadInput("publications: sort them by time")
    if not np.array_equal(np.sort(plan.order), np.arange(count)):
        raise BadInput(f"order: name each of the {count} topics once")
    if topics.size and not (0 <= topics.min() <= topics.max() < count):
        raise BadInput(f"publications: topics are numbered from 0 to {count - 1}")
    if publishers.size and not (0 <= publishers.min() <= publishers.max() < nodes):
        raise BadInput(f"publications: nodes are numbered from 0 to {nodes - 1}")
    if plan.subscriptions[0].size != nodes + 1:
        raise BadInput(f"subscriptions: give the start of each of the {nodes} nodes, and the end")
    if plan.buffer is not None and plan.buffer < 0:
        raise BadInput(f"buffer = {plan.buffer} is below 0; None is unbounded")
    rule = plan.adaptive
    if rule is not None and not (rule.alpha > 0 and rule.window >= 1 and rule.every_s >= 0):
        raise BadInput("adaptive: alpha must be above 0, window at least 1, every_s not below 0")


def _tables(plan: Plan, base: Words) -> Tables:
    topics = plan.order.size
    exact, chosen = plan.exact, plan.adaptive
    run = filled(RUN, 1, bound=UNBOUNDED if plan.buffer is None else plan.buffer, exact=exact)
    if chosen is not None:
        run["metric"] = SINCE_START if chosen.metric == "paper" else RECENT
        run["alpha"], run["beta"] = chosen.alpha, chosen.beta
        run["every"], run["waits"] = round(chosen.every_s * 1e6), chosen.waits
        run["coordinator"] = plan.network.coordinator
    place = filled(PLACE, 1, topics)
    place["topic"][0] = plan.order
    place["rank"][0, plan.order] = np.arange(topics)
    related = base[None].copy()
    if exact:
        close_relation(place[0], related[0])
    manager = filled(MANAGER, topics, first=NONE, last=NONE)
    manager["node"] = plan.network.manager
    square = (topics, topics + 1) if exact else (1, 1)
    cube = (1, topics, topics) if exact else (1, 1, 1)
    held = filled(HELD, *square, first=NONE, last=NONE, next=topics, prev=topics)
    tables = Tables(
        run,
        event_table(*plan.publications),
        np.full((plan.publications[0].size, topics), NONE, np.int32),
        manager,
        np.zeros((1, topics), np.int32),
        np.zeros(cube, np.int32),
        np.zeros(cube, np.int32),
        held,
        np.full(chosen.window if chosen else 1, NONE, np.int32),
        filled(TALLY, topics),
        place,
        related,
        *subscriber_tables(*_heard(plan), topics),
        filled(SLOT, 0),
        filled(NOTIFICATION, _notifications(plan) if plan.log else 0),
    )
    run["free_slot"] = NONE
    return add_slots(tables, 1024)


def _heard(plan: Plan) -> tuple[Longs, Ints]:
    """The subscriptions without topics that nobody publishes on: those never hold anything up."""
    start, topic = plan.subscriptions
    used = np.zeros(plan.order.size, np.bool_)
    used[plan.publications[1]] = True
    kept = used[topic]
    before = np.concatenate(([0], np.cumsum(kept)))
    return before[start].astype(np.int64), topic[kept]


def _notifications(plan: Plan) -> int:
    """How many there will be: every subscriber of a topic hears every event on it."""
    holders = np.bincount(plan.subscriptions[1], minlength=plan.order.size)
    return int(holders[plan.publications[1]].sum())


def _fan_out(plan: Plan, overlay: Overlay) -> int:
    """The most that one step can send: to all children, all managers, or for all events."""
    most = int(np.diff(overlay.child_start, axis=1).max(initial=0))
    return max(most, plan.order.size) + 2 * plan.publications[0].size + 8


def _held_together(plan: Plan) -> Bools:
    """Topics that at least one subscription holds both."""
    start, topic = plan.subscriptions
    nodes, topics = start.size - 1, plan.order.size
    held: npt.NDArray[np.float32] = np.zeros((nodes, topics), np.float32)
    held[np.repeat(np.arange(nodes), np.diff(start)), topic] = 1
    common = held.T @ held > 0
    np.fill_diagonal(common, False)
    return np.asarray(common)


def _overlay(plan: Plan, subscribed: Bools) -> Overlay:
    """Trees of the topics that are published on, cut to where subscribers are."""
    network = plan.network
    nodes, topics = subscribed.shape
    used = np.unique(plan.publications[1])
    roots, starts, children, offset = [], [], [], 0
    everyone = np.ones(nodes, np.bool_)
    for topic in [*used.tolist(), *([topics] if plan.adaptive else [])]:
        system = topic == topics
        wanted = everyone if system else np.ascontiguousarray(subscribed[:, topic])
        start, child = branches(network.parents(topic), wanted)
        roots.append(network.coordinator if system else int(network.root[topic]))
        starts.append(start.astype(np.int64) + offset)
        children.append(child)
        offset += child.size
    tree = np.full(topics, NONE, np.int32)
    tree[used] = np.arange(used.size)
    return Overlay(
        network.ids,
        np.array(roots, np.int32),
        tree,
        np.array(starts, np.int64).reshape(len(roots), nodes + 1),
        np.concatenate(children) if children else np.empty(0, np.int32),
    )
