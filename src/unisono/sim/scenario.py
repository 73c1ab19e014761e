"""Scenarios: TOML files that say who publishes what to whom, over which network."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.predicate import parse
from unisono.errors import BadInput, Unsupported
from unisono.qos.fifo.options import Fifo
from unisono.qos.reliable.options import Reliability
from unisono.qos.total_order.adapt import Adapt
from unisono.sim.channels import Wan
from unisono.sim.faults import Faults
from unisono.sim.losses import Loss
from unisono.sim.weather import Chaos

ONLINE = (
    "numbers",
    "copies",
    "views",
    "stuck",
    "deadlines",
    "content",
)  # checks of a run that its trace does not allow
Count = Annotated[int, Meta(ge=1, le=100_000)]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]


class Publishers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`topics`: "own" - publisher i publishes on topic i; "any" - on a random topic each time;
    "shifting" - on a few popular topics, which change twice in the run."""

    count: Count = 5
    rate_per_s: Annotated[float, Meta(gt=0, le=1e5)] = 5.0
    topics: Literal["own", "any", "shifting"] = "own"
    spacing: Literal["poisson", "even"] = "poisson"
    kinds: Annotated[int, Meta(ge=0, le=26)] = (
        0  # > 0: the payload begins with one of that many letters, drawn at random; so does "kind"
    )
    size: Annotated[int, Meta(ge=0, le=1 << 20)] = 0  # bytes of the payload at least


class Subscribers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Each subscriber holds all topics, or a random set of `least` to `most` of them."""

    count: Count = 2
    least: Annotated[int, Meta(ge=0)] = 0  # 0: all topics
    most: Annotated[int, Meta(ge=0)] = 0
    change_every_s: Annotated[float, Meta(ge=0, le=1e6)] = (
        0.0  # > 0: add or drop random topics at random times, that often
    )
    # So many leave at random times - crash, without an order - and as many come anew.
    churn: Annotated[int, Meta(ge=0, le=10_000)] = 0
    where: str = ""  # a predicate over the attribute `kind`, of every other subscriber
    pattern: str = ""  # kinds, one letter each: every subscriber looks for them in this order


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes that come and go while events flow. They only host managers."""

    joins: Annotated[int, Meta(ge=0, le=1000)] = 0
    leaves: Annotated[int, Meta(ge=0, le=1000)] = 0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment. Times in seconds of virtual time."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+$")]
    nodes: Count = 20  # of the event service; publishers and subscribers are among them
    topics: Annotated[int, Meta(ge=1, le=10_000)] = 2
    order: Literal["none", "fifo", "total"] = "total"
    by: Literal["log", "stamps"] = "stamps"  # how order = "total" is made
    domains: Annotated[int, Meta(ge=1, le=100)] = 1  # with by = "log": topics go round them
    fifo: Fifo | None = None  # how order = "fifo" is kept
    stamps: Literal["exact", "paper"] = "exact"
    buffer: int | Literal["unbounded"] = "unbounded"
    hold_s: Seconds | None = None  # time to live in the buffer; none: for ever
    replicas: Annotated[int, Meta(ge=1, le=9)] = 1  # copies of each manager's state
    adapt: Adapt | None = None  # the topic order follows popularity
    delivery: Reliability | None = None  # lost packets of events are recovered
    deadline_ms: Annotated[float, Meta(gt=0, le=1e9)] | None = None  # later ones are marked late
    duration_s: Seconds = 10.0  # of publishing
    settle_s: Annotated[float, Meta(ge=0, le=1e6)] = (
        10.0  # an event this close to the end of a subscription may be in flight
    )
    publishers: Publishers = Publishers()
    subscribers: Subscribers = Subscribers()
    members: Members = Members()
    wan: Wan = Wan()
    loss: Loss = Loss()  # on the links
    faults: Faults = Faults()
    chaos: Chaos = Chaos()

    @property
    def topic_names(self) -> list[str]:
        width = len(str(self.topics))
        return [f"t{index:0{width}d}" for index in range(1, self.topics + 1)]

    @property
    def watched(self) -> bool:
        """Members watch each other and repeat what may be lost."""
        plain = self.members == Members() and self.chaos == Chaos() and self.adapt is None
        return self.faults.lossy or self.loss.lossy or not plain

    @property
    def loses_events(self) -> bool:
        """Events may fail to arrive, or to be published after they were numbered."""
        if self.order == "total" and self.by == "log":
            return False
        chaos = self.chaos
        cut = (chaos.partitions or chaos.one_way) and self.faults.only != "messages"
        lossy = (self.faults.loses_events or self.loss.lossy) and self.delivery is None
        return lossy or bool(cut or chaos.publisher_crashes)

    @property
    def promises(self) -> list[str]:
        """What a run of this scenario must keep, by the names of the checks."""
        kept = ["phantoms"]
        if self.order == "total" and self.by == "log":
            kept += ["topic-fifo", "duplicates", "numbers", "copies", "stuck", "tags"]
            if self.domains == 1:
                kept += ["total-order", "fifo"]
        elif self.order == "total":
            kept += [
                "total-order",
                "topic-fifo",
                "duplicates",
                "numbers",
                "copies",
                "views",
                "stuck",
            ]
        if self.order == "fifo":
            kept += ["fifo", "topic-fifo", "duplicates", "stuck"]
        if self.order == "total" and self.stamps == "exact" and self.domains == 1:
            kept.append("global-order")  # printed stamps keep the order of two subscribers only
        if not self.loses_events:
            kept.append("losses")
        if self.delivery is not None and "duplicates" not in kept:
            kept.append("duplicates")
        if self.deadline_ms is not None:
            kept.append("deadlines")
        if self.subscribers.where:
            kept.append("content")
        return kept


def check_scenario(scenario: Scenario) -> Scenario:
    """The scenario, or an error that says what does not fit."""
    publishers, subscribers = scenario.publishers, scenario.subscribers
    if scenario.nodes < publishers.count + subscribers.count:
        raise BadInput(
            f"nodes = {scenario.nodes} cannot hold {publishers.count} publishers "
            f"and {subscribers.count} subscribers"
        )
    if not 0 <= subscribers.least <= subscribers.most <= scenario.topics:
        raise BadInput("subscribers: 0 <= least <= most <= topics must hold")
    if isinstance(scenario.buffer, int) and scenario.buffer < 0:
        raise BadInput(f'buffer = {scenario.buffer} is below 0; write "unbounded" for no bound')
    plain = Scenario(name=scenario.name)
    for option in ("stamps", "buffer", "hold_s", "replicas", "adapt", "chaos"):
        given = getattr(scenario, option) != getattr(plain, option)
        if scenario.order != "total" and given:
            raise Unsupported(f'{option} means nothing without order = "total"; leave it out')
    if scenario.order != "fifo" and scenario.fifo is not None:
        raise Unsupported('[fifo] means nothing without order = "fifo"; leave it out')
    if scenario.order != "total" and scenario.members != Members():
        raise Unsupported('members come and go only with order = "total"')
    waits = (
        scenario.order == "total"
        and scenario.by == "stamps"
        and scenario.hold_s is None
        and scenario.buffer != 0
    )
    if scenario.loses_events and waits:
        raise Unsupported("with events lost, a buffer needs hold_s, or some wait for ever")
    delivery = scenario.delivery
    if delivery is not None and delivery.gossip != "none" and delivery.fan_out >= scenario.nodes:
        raise BadInput(
            f"delivery.fan_out = {delivery.fan_out}: a node has only {scenario.nodes - 1} others"
        )
    spare = scenario.nodes - publishers.count - subscribers.count
    if scenario.members.leaves > spare:
        raise BadInput(f"members.leaves: only {spare} nodes neither publish nor subscribe")
    chaos = scenario.chaos
    if chaos.crashes and spare - scenario.members.leaves < 1:
        raise BadInput("chaos.crashes: every node publishes or subscribes; add nodes")
    if chaos.crashes and scenario.replicas < 3 and not chaos.disks:
        raise Unsupported("chaos.crashes needs replicas >= 3, or disks = true")
    if scenario.by != "log" and scenario.domains > 1:
        raise Unsupported('domains means nothing without by = "log"; leave it out')
    restarts = chaos.restarts or chaos.rolling or chaos.outages
    if restarts and not (chaos.disks and scenario.by == "log"):
        raise Unsupported('chaos: nodes restart with disks = true and by = "log" only')
    if chaos.publisher_crashes > publishers.count:
        raise BadInput("chaos.publisher_crashes: more than there are publishers")
    if subscribers.where:
        parse(subscribers.where)
        if not publishers.kinds or subscribers.change_every_s or subscribers.churn:
            raise Unsupported("subscribers.where needs kinds, and subscriptions that do not change")
        if scenario.loses_events:
            raise Unsupported("subscribers.where is checked only where no events are lost")
    kinds = {chr(ord("a") + index) for index in range(publishers.kinds)}
    if not kinds.issuperset(subscribers.pattern):
        raise BadInput(f"subscribers.pattern: {subscribers.pattern!r} has kinds nobody publishes")
    return scenario


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; every mistake is a BadInput that names the file and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read scenario {path}: {error}") from None
    try:
        table = tomllib.loads(text)
        table.setdefault("name", path.stem)
        return check_scenario(msgspec.convert(table, Scenario))
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {error}") from None
    except BadInput as error:
        error.args = (f"{path}: {error}",)
        raise
