"""Runs a scenario: builds the nodes, plans what they do, checks, says how it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from unisono.core.entropy import stream
from unisono.core.events import Delivery
from unisono.core.layer import Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.link import ReliableLinks
from unisono.qos.membership import Membership, View
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder
from unisono.sim.check import INVALID, VALID, Check, Checks, Witness
from unisono.sim.detector import PatternDetector
from unisono.sim.faults import fault_layers
from unisono.sim.scenario import Scenario
from unisono.sim.world import World
from unisono.trace.files import write_tables
from unisono.trace.memory import MemoryRecorder
from unisono.trace.run import write_run
from unisono.version import unisono_version

SECOND = 1_000_000
_CATCH_UP_S = 10.0  # where events may be lost and no hold is given
DETECTION = "detection"  # kind of a control row: a detector found its pattern


class Failure(msgspec.Struct, frozen=True):
    """A promise that did not hold; the seed replays it."""

    seed: int
    check: str
    witness: Witness | None


class Outcome(msgspec.Struct, kw_only=True):
    """How one run went."""

    seed: int
    checks: dict[str, Check]
    failures: list[Failure]
    trace_sha256: str
    events: int
    deliveries: int
    tagged: int
    skipped: int
    recorder: MemoryRecorder

    @property
    def verdict(self) -> str:
        return INVALID if self.failures else VALID

    @property
    def tagged_share(self) -> float:
        return self.tagged / self.deliveries if self.deliveries else 0.0


def _node_names(count: int) -> list[str]:
    width = len(str(count - 1))
    return [f"n{index:0{width}d}" for index in range(count)]


class _Run:
    """One run: who is who, what is planned, and an observer of the world."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.checks = Checks()
        self.recorder = MemoryRecorder()
        self.names = _node_names(scenario.nodes + scenario.members.joins)
        self.founders = self.names[: scenario.nodes]
        shuffled = list(self.founders)
        stream(seed, "roles").shuffle(shuffled)
        publishers = scenario.publishers.count
        self.publishers = shuffled[:publishers]
        self.subscribers = shuffled[publishers : publishers + scenario.subscribers.count]
        self.bystanders = shuffled[publishers + scenario.subscribers.count :]
        self.world = World(self.names, scenario.wan, seed, self.recorder, self)
        self.detectors: dict[str, PatternDetector] = {}
        if scenario.subscribers.pattern:
            self.detectors = {
                name: PatternDetector(scenario.subscribers.pattern) for name in self.subscribers
            }
        self.held: dict[str, set[str]] = {}
        self._tickets = 0

    def node(self, name: str, newcomer: bool = False) -> Node:
        scenario = self.scenario
        limits = Limits()
        layers: list[Layer] = []
        if scenario.order == "total":
            initial = None if newcomer else View("sim", 1, tuple(self.founders))
            members = Membership(
                name, limits, initial=initial, discovery_us=3 * SECOND, patience_us=60 * SECOND
            )
            hold = scenario.hold_s
            catch_up = _CATCH_UP_S if hold is None and scenario.faults.loses_events else hold
            layers.append(
                TotalOrder(
                    name,
                    members,
                    order=TopicOrder(scenario.topic_names),
                    exact=scenario.stamps == "exact",
                    buffer=None if scenario.buffer == "unbounded" else scenario.buffer,
                    hold_us=None if hold is None else round(hold * SECOND),
                    catch_up_us=None if catch_up is None else round(catch_up * SECOND),
                    limits=limits,
                )
            )
        if scenario.reliable_links:
            layers.append(ReliableLinks(name, TotalOrder.controls, limits, resend_us=SECOND))
        return Node(name, layers, fault_layers(scenario.faults, name, self.seed), limits)

    # What the world tells: the checkers hear all, the applications their notifications.

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None:
        self.checks.published(node, event_id, topic, seq, now)

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.checks.delivered(node, delivery)
        detector = self.detectors.get(node)
        if detector is not None and (found := detector.take(delivery)) is not None:
            at_us, detail = delivery.delivered_us, " ".join(found)
            row = {"at_us": at_us, "node": node, "kind": DETECTION, "detail": detail}
            self.recorder.record("control", row)

    def ticket(self) -> str:
        self._tickets += 1
        return f"op{self._tickets}"

    def run(self) -> Outcome:
        world = self.world
        for name in self.founders:
            world.add(self.node(name))
        self._subscribe_all()
        world.run(3600 * SECOND, stop=lambda: not world.pending)
        started_us = world.now
        self._plan_publications(started_us)
        if self.scenario.subscribers.change_every_s:
            self._plan_changes(started_us)
        self._plan_members(started_us)
        # What is not done an hour after the last publication waits for ever.
        world.run(started_us + round((self.scenario.duration_s + 3600) * SECOND))
        return self._outcome()

    def _subscribe_all(self) -> None:
        rng = stream(self.seed, "subscriptions")
        names = self.scenario.topic_names
        least, most = self.scenario.subscribers.least, self.scenario.subscribers.most
        for name in self.subscribers:
            topics = names if not most else rng.sample(names, rng.randint(max(least, 1), most))
            self.held[name] = set(topics)
            self.world.subscribe(name, topics, self.ticket())

    def _plan_publications(self, start: int) -> None:
        publishers = self.scenario.publishers
        topics = self.scenario.topic_names
        end = start + round(self.scenario.duration_s * SECOND)
        for index, name in enumerate(self.publishers):
            rng = stream(self.seed, "publisher", name)
            at = float(start)
            gap = SECOND / publishers.rate_per_s
            if publishers.spacing == "even":
                at += rng.random() * gap - gap
            while True:
                at += rng.expovariate(1.0) * gap if publishers.spacing == "poisson" else gap
                if at >= end:
                    break
                own = topics[index % len(topics)]
                topic = own if publishers.topics == "own" else rng.choice(topics)
                kind = chr(ord("a") + rng.randrange(publishers.kinds)) if publishers.kinds else "."
                self._publish_at(round(at), name, topic, kind.encode())

    def _publish_at(self, at: int, name: str, topic: str, payload: bytes) -> None:
        def publish(now: int) -> None:
            self.world.publish(name, topic, payload)

        self.world.at(at, publish)

    def _plan_changes(self, start: int) -> None:
        """Subscribers add or drop a few topics at random times."""
        every = self.scenario.subscribers.change_every_s * SECOND
        end = start + self.scenario.duration_s * SECOND
        for name in self.subscribers:
            rng = stream(self.seed, "changes", name)
            at = start + rng.expovariate(1.0) * every
            while at < end:
                self._change_at(round(at), name, rng.random(), rng.random())
                at += rng.expovariate(1.0) * every

    def _change_at(self, at: int, name: str, coin: float, pick: float) -> None:
        def change(now: int) -> None:
            held = self.held[name]
            absent = [topic for topic in self.scenario.topic_names if topic not in held]
            if absent and (coin < 0.6 or len(held) <= 1):
                count = 1 + int(pick * min(3, len(absent)))
                fresh = [absent[(int(pick * 97) + i) % len(absent)] for i in range(count)]
                held.update(fresh)
                self.world.subscribe(name, fresh, self.ticket())
            elif len(held) > 1:
                topic = sorted(held)[int(pick * len(held))]
                held.discard(topic)
                self.world.unsubscribe(name, [topic], self.ticket())

        self.world.at(at, change)

    def _plan_members(self, start: int) -> None:
        members = self.scenario.members
        rng = stream(self.seed, "members")
        span = round(self.scenario.duration_s * SECOND)
        for name in self.names[self.scenario.nodes :]:
            self._join_at(start + rng.randrange(span), name)
        for name in self.bystanders[: members.leaves]:
            self._leave_at(start + rng.randrange(span), name)

    def _join_at(self, at: int, name: str) -> None:
        self.world.at(at, lambda now: self.world.add(self.node(name, newcomer=True)))

    def _leave_at(self, at: int, name: str) -> None:
        self.world.at(at, lambda now: self.world.close(name))

    def _outcome(self) -> Outcome:
        checks = self.checks
        subscriptions = self.recorder.tables["subscriptions"]
        settle_us = round(self.scenario.settle_s * SECOND)
        checks.finish(subscriptions, self.world.pending, self.world.errors, settle_us)
        results = checks.results()
        failures = [
            Failure(self.seed, name, results[name].witness)
            for name in results
            if name in self.scenario.promises and results[name].violations
        ]
        return Outcome(
            seed=self.seed,
            checks=results,
            failures=failures,
            trace_sha256=self.recorder.sha256,
            events=checks.events,
            deliveries=checks.deliveries,
            tagged=checks.tagged,
            skipped=checks.skipped,
            recorder=self.recorder,
        )


def run_scenario(scenario: Scenario, seed: int) -> Outcome:
    """A pure function of scenario, seed and code version."""
    return _Run(scenario, seed).run()


def write_outcome(folder: Path, scenario: Scenario, outcome: Outcome) -> None:
    """A run folder: run.json and trace/."""
    write_tables(folder / "trace", outcome.recorder.tables)
    write_run(
        folder,
        {
            "scenario": msgspec.to_builtins(scenario),
            "seed": outcome.seed,
            "version": unisono_version(),
            "promises": [name for name in scenario.promises if name != "stuck"],
            "settle_us": round(scenario.settle_s * SECOND),
            "trace_sha256": outcome.trace_sha256,
            "verdict": outcome.verdict,
            "verdicts": {name: check.verdict for name, check in outcome.checks.items()},
        },
    )


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """What `unisono sim --json` prints for one seed."""
    return {
        "verdict": outcome.verdict,
        "seed": outcome.seed,
        "trace_sha256": outcome.trace_sha256,
        "events": outcome.events,
        "deliveries": outcome.deliveries,
        "tagged": outcome.tagged,
        "skipped": outcome.skipped,
        "checks": {
            name: {
                "verdict": check.verdict,
                "violations": check.violations,
                "witness": check.witness,
            }
            for name, check in outcome.checks.items()
        },
        "failures": [
            {"seed": f.seed, "check": f.check, "witness": f.witness} for f in outcome.failures
        ],
    }
