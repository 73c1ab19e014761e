"""Scenarios: TOML files that say who publishes what to whom, over which network."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from unisono.errors import BadInput, Unsupported
from unisono.sim.channels import Wan
from unisono.sim.faults import Faults


class Publishers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`topics`: "own" - publisher i publishes on topic i; "any" - on a random topic each time."""

    count: int = 5
    rate_per_s: float = 5.0
    topics: Literal["own", "any"] = "own"
    spacing: Literal["poisson", "even"] = "poisson"
    kinds: int = 0  # > 0: the payload is one of that many letters, drawn at random


class Subscribers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Each subscriber holds all topics, or a random set of `least` to `most` of them."""

    count: int = 2
    least: int = 0  # 0: all topics
    most: int = 0
    change_every_s: float = 0.0  # > 0: add or drop random topics at random times, that often
    pattern: str = ""  # kinds, one letter each: every subscriber looks for them in this order


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes that come and go while events flow. They only host managers."""

    joins: int = 0
    leaves: int = 0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment. Times in seconds of virtual time."""

    name: str
    nodes: int = 20  # of the event service; publishers and subscribers are among them
    topics: int = 2
    order: Literal["none", "total"] = "total"
    stamps: Literal["exact", "paper"] = "exact"
    buffer: int | Literal["unbounded"] = "unbounded"
    hold_s: float | None = None  # time to live in the buffer; none: for ever
    reliable_links: bool = False  # retransmit point-to-point messages
    duration_s: float = 10.0  # of publishing
    settle_s: float = 10.0  # an event this close to the end of a subscription may be in flight
    publishers: Publishers = Publishers()
    subscribers: Subscribers = Subscribers()
    members: Members = Members()
    wan: Wan = Wan()
    faults: Faults = Faults()

    @property
    def topic_names(self) -> list[str]:
        width = len(str(self.topics))
        return [f"t{index:0{width}d}" for index in range(1, self.topics + 1)]

    @property
    def promises(self) -> list[str]:
        """What a run of this scenario must keep, by the names of the checks."""
        kept = ["phantoms"]
        if self.order == "total":
            kept += ["total-order", "topic-fifo", "duplicates"]
        repaired = self.reliable_links and self.faults.only == "messages"
        if repaired or not self.faults.lossy:
            kept += ["losses", "stuck"]
        return kept


def check_scenario(scenario: Scenario) -> Scenario:
    """The scenario, or an error that says what does not fit."""
    publishers, subscribers = scenario.publishers, scenario.subscribers
    if scenario.nodes < publishers.count + subscribers.count:
        raise BadInput(
            f"nodes = {scenario.nodes} cannot hold {publishers.count} publishers "
            f"and {subscribers.count} subscribers"
        )
    for name, low, value in (
        ("topics", 1, scenario.topics),
        ("publishers.count", 1, publishers.count),
        ("subscribers.count", 1, subscribers.count),
        ("publishers.kinds", 0, publishers.kinds),
        ("members.joins", 0, scenario.members.joins),
        ("members.leaves", 0, scenario.members.leaves),
    ):
        if value < low:
            raise BadInput(f"{name} = {value} is below {low}")
    if publishers.kinds > 26:
        raise BadInput(f"publishers.kinds = {publishers.kinds} is above 26, the letters there are")
    if publishers.rate_per_s <= 0 or scenario.duration_s <= 0 or scenario.settle_s < 0:
        raise BadInput("rates and durations are positive")
    if not 0 <= subscribers.least <= subscribers.most <= scenario.topics:
        raise BadInput("subscribers: 0 <= least <= most <= topics must hold")
    if isinstance(scenario.buffer, int) and scenario.buffer < 0:
        raise BadInput(f'buffer = {scenario.buffer} is below 0; write "unbounded" for no bound')
    if scenario.order == "none" and (scenario.stamps != "exact" or scenario.buffer != "unbounded"):
        raise Unsupported('stamps and buffer mean nothing with order = "none"; leave them out')
    if scenario.order == "none" and scenario.members != Members():
        raise Unsupported('members come and go only with order = "total"')
    if scenario.order == "total" and scenario.faults.lossy and not scenario.reliable_links:
        if scenario.faults.only != "events":
            raise Unsupported("total order under loss of messages needs reliable_links = true")
        if scenario.hold_s is None and scenario.buffer == "unbounded":
            raise Unsupported(
                "with events lost, an unbounded buffer needs hold_s, or it waits for ever"
            )
    kinds = {chr(ord("a") + index) for index in range(publishers.kinds)}
    if not kinds.issuperset(subscribers.pattern):
        raise BadInput(f"subscribers.pattern: {subscribers.pattern!r} has kinds nobody publishes")
    for name in ("loss", "duplicate", "delay", "reorder", "corrupt"):
        if not 0 <= getattr(scenario.faults, name) <= 1:
            raise BadInput(f"faults.{name} is a probability")
    if scenario.faults.only not in ("all", "events", "messages"):
        raise BadInput('faults.only is "all", "events" or "messages"')
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
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {error}") from None
    except BadInput as error:
        raise type(error)(f"{path}: {error}") from None
