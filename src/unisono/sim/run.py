"""Runs a scenario: builds the nodes, plans what they do, checks, says how it went."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from unisono.core.entropy import stream
from unisono.core.events import Delivery
from unisono.core.predicate import parse
from unisono.qos.total_order.layer import TotalOrder
from unisono.sim import logs
from unisono.sim.check import Checks
from unisono.sim.detector import PatternDetector
from unisono.sim.losses import Losses
from unisono.sim.nodes import SECOND, Nodes
from unisono.sim.restarts import Restarts
from unisono.sim.scenario import ONLINE, Scenario
from unisono.sim.verdict import INVALID, VALID, Check, Witness
from unisono.sim.world import World
from unisono.trace.files import write_tables
from unisono.trace.memory import MemoryRecorder
from unisono.trace.run import write_run
from unisono.version import unisono_version

_PATIENCE_US = 150 * SECOND
_QUIET_US = 20 * SECOND
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
        self.checks = Checks(scenario.deadline_ms, scenario.domains)
        self.recorder = MemoryRecorder()
        draw = stream(seed, "chaos")
        self.faults = scenario.faults.drawn(draw)
        self.chaos = scenario.chaos.drawn(draw) if scenario.faults.draw else scenario.chaos
        self.names = _node_names(scenario.nodes + scenario.members.joins)
        self.founders = self.names[: scenario.nodes]
        shuffled = list(self.founders)
        stream(seed, "roles").shuffle(shuffled)
        publishers = scenario.publishers.count
        self.publishers = shuffled[:publishers]
        self.subscribers = shuffled[publishers : publishers + scenario.subscribers.count]
        self.bystanders = shuffled[publishers + scenario.subscribers.count :]
        reborn = [f"again{index}" for index in range(self.chaos.crashes)]
        self.fresh = [f"fresh{index}" for index in range(scenario.subscribers.churn)]
        self.world = World(
            [*self.names, *reborn, *self.fresh],
            scenario.wan,
            seed,
            self.recorder,
            self,
            only_messages=scenario.faults.only == "messages",
            losses=Losses(scenario.loss, seed) if scenario.loss.lossy else None,
        )
        self.nodes = Nodes(scenario, seed, self.world, self.founders, self.faults, self.chaos.disks)
        self.reborn = iter(reborn)
        self.restarts = Restarts(self.world, self._begin_again, self._resume, self._fault)
        self.detectors: dict[str, PatternDetector] = {}
        if scenario.subscribers.pattern:
            self.detectors = {
                name: PatternDetector(scenario.subscribers.pattern) for name in self.subscribers
            }
        self.held: dict[str, set[str]] = {}
        self.filtered: list[str] = []  # subscribers with a predicate
        where = scenario.subscribers.where
        self._where = parse(where) if where else None
        self._down: dict[str, str] = {}  # crashed nodes that will come back
        self._reborn: set[str] = set()
        self._tickets = 0

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
            world.add(self.nodes.make(name))
        self._subscribe_all()
        world.run(3600 * SECOND, stop=lambda: not world.pending and logs.are_one(world.nodes))
        started_us = world.now
        self._plan_publications(started_us)
        if self.scenario.subscribers.change_every_s:
            self._plan_changes(started_us)
        self._plan_members(started_us)
        self._plan_churn(started_us)
        self._plan_chaos(started_us)
        end = started_us + round(self.scenario.duration_s * SECOND)
        world.run(end)
        self._calm()
        # What is not done this long after the last publication waits for ever.
        world.run(end + _PATIENCE_US, stop=lambda: not world.pending)
        hold = self.scenario.hold_s or 0
        world.run(world.now + _QUIET_US + round(hold * SECOND))  # what is on its way arrives
        return self._outcome()

    def _subscribe_all(self) -> None:
        rng = stream(self.seed, "subscriptions")
        for name in self.subscribers:
            self._subscribe(name, rng)

    def _subscribe(self, name: str, rng: random.Random) -> None:
        names = self.scenario.topic_names
        least, most = self.scenario.subscribers.least, self.scenario.subscribers.most
        topics = names if not most else rng.sample(names, rng.randint(max(least, 1), most))
        self.held[name] = set(topics)
        where = self.scenario.subscribers.where
        if where and len(self.held) % 2:
            self.filtered.append(name)
            self.world.subscribe(name, topics, self.ticket(), where)
        else:
            self.world.subscribe(name, topics, self.ticket())

    def _plan_publications(self, start: int) -> None:
        publishers = self.scenario.publishers
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
                topic = self._topic(rng, index, (at - start) / (end - start))
                kind = chr(ord("a") + rng.randrange(publishers.kinds)) if publishers.kinds else "."
                payload = kind.encode() + rng.randbytes(max(0, publishers.size - 1))
                self._publish_at(round(at), name, topic, payload)

    def _topic(self, rng: random.Random, publisher: int, progress: float) -> str:
        topics = self.scenario.topic_names
        kind = self.scenario.publishers.topics
        if kind == "own":
            return topics[publisher % len(topics)]
        if kind == "any":
            return rng.choice(topics)
        popular = list(topics)
        stream(self.seed, "popular", int(progress * 3)).shuffle(popular)
        return rng.choices(popular, [1 / (rank + 1) ** 2 for rank in range(len(popular))])[0]

    def _publish_at(self, at: int, name: str, topic: str, payload: bytes) -> None:
        attributes = {"kind": chr(payload[0])} if self.scenario.publishers.kinds else None

        def publish(now: int) -> None:
            if name not in self.world.nodes or name in self.restarts.away:
                return
            event = self.world.publish(name, topic, payload, attributes)
            wanted = self._where is not None and self._where.matches(attributes or {})
            for subscriber in self.filtered:
                if wanted and topic in self.held[subscriber]:
                    self.checks.content.wanted(subscriber, event)

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
            here = name in self.world.nodes and name not in self.restarts.away
            if not here or name not in self.subscribers:
                return  # it has left, or is about to
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

    def _plan_churn(self, start: int) -> None:
        """Subscribers go, and others come."""
        rng = stream(self.seed, "churn")
        span = round(self.scenario.duration_s * SECOND)
        for name in self.fresh:
            self._go_at(start + rng.randrange(span), rng.random(), rng.random())
            self._come_at(start + rng.randrange(span), name, rng)

    def _go_at(self, at: int, pick: float, coin: float) -> None:
        def go(now: int) -> None:
            waiting = {ticket.partition(":")[0] for ticket in self.world.pending}
            here = [n for n in self.subscribers if n in self.world.nodes and n not in waiting]
            if len(here) < 3 or self.world.weather.calm:
                return
            name = here[int(pick * len(here))]
            self.subscribers.remove(name)
            if self.scenario.order == "total" or coin < 0.5:
                self.world.close(name)
                return
            for row in self.recorder.tables["subscriptions"]:
                if row["subscriber"] == name and row["until_us"] is None:
                    self.recorder.record("subscriptions", {**row, "until_us": now})
            self._fault("crash", name, "subscriber")
            self.world.crash(name)

        self.world.at(at, go)

    def _come_at(self, at: int, name: str, rng: random.Random) -> None:
        def come(now: int) -> None:
            self.world.add(self.nodes.make(name, newcomer=True))
            self.subscribers.append(name)
            self._subscribe(name, rng)

        self.world.at(at, come)

    def _join_at(self, at: int, name: str) -> None:
        self.world.at(at, lambda now: self.world.add(self.nodes.make(name, newcomer=True)))

    def _leave_at(self, at: int, name: str) -> None:
        self.world.at(at, lambda now: self.world.close(name))

    # What goes wrong in the safety phase.

    def _plan_chaos(self, start: int) -> None:
        chaos, world = self.chaos, self.world
        rng = stream(self.seed, "weather")
        span = round(self.scenario.duration_s * SECOND)

        def some_time() -> int:
            return start + rng.randrange(span)

        def a_while() -> int:
            return round(rng.expovariate(1.0) * span / 4)

        for kind, count in (("partition", chaos.partitions), ("one way", chaos.one_way)):
            for _ in range(count):
                nodes = frozenset(rng.sample(self.founders, rng.randint(1, len(self.founders) - 1)))
                both, deaf = kind == "partition", rng.random() < 0.5
                self._cut(some_time(), a_while(), nodes, both or not deaf, both or deaf)
        for _ in range(chaos.pauses):
            self._at_node(some_time(), self.founders, rng, "pause", a_while())
        for _ in range(chaos.spikes):
            self._at_node(some_time(), self.founders, rng, "spike", a_while())
        if chaos.clock_step_s or chaos.clock_drift:
            for name in self.founders:
                self._step_clock(name, rng)
                world.at(some_time(), partial(self._step_clock, name, rng))
        for _ in range(chaos.crashes):
            kind = rng.choice(("disk", "unsynced", "wiped") if chaos.disks else ("wiped",))
            if self.scenario.replicas < 3 and kind == "wiped":
                kind = "disk"
            self._crash_at(some_time(), kind, rng, a_while())
        for name in self.publishers[: chaos.publisher_crashes]:
            world.at(some_time(), partial(self._crash_publisher, name))
        self._plan_restarts(rng, some_time)

    def _plan_restarts(self, rng: random.Random, some_time: Callable[[], int]) -> None:
        chaos, names = self.chaos, self.founders
        for _ in range(chaos.restarts):
            self.restarts.one(some_time(), rng.choice(names), rng.randrange(3 * SECOND))
        for _ in range(chaos.rolling):
            self.restarts.rolling(some_time(), rng.sample(names, len(names)), rng)
        for _ in range(chaos.outages):
            at = some_time()
            for name in names:
                self.restarts.one(at + rng.randrange(SECOND), name, rng.randrange(3 * SECOND))

    def _begin_again(self, name: str) -> None:
        self.world.add(self.nodes.make(name, newcomer=True))

    def _resume(self, name: str) -> None:
        """What a restarted subscriber had it asks for again."""
        held = sorted(self.held.get(name, ()))
        if name in self.subscribers and held:
            self.world.subscribe(name, held, self.ticket())

    def _fault(self, kind: str, node: str, detail: str) -> None:
        row = {"at_us": self.world.now, "node": node, "kind": kind, "detail": detail}
        self.recorder.record("faults", row)

    def _cut(self, at: int, lasts: int, nodes: frozenset[str], silent: bool, deaf: bool) -> None:
        def cut(now: int) -> None:
            if not self.world.weather.calm:
                self._fault("cut", " ".join(sorted(nodes)), f"silent={silent} deaf={deaf}")
                self.world.weather.cut(nodes, silent, deaf)

        self.world.at(at, cut)
        self.world.at(at + lasts, lambda now: self.world.weather.heal(nodes))

    def _at_node(
        self, at: int, names: list[str], rng: random.Random, kind: str, lasts: int
    ) -> None:
        name, extra = rng.choice(names), rng.randrange(2 * SECOND)

        def happen(now: int) -> None:
            if self.world.weather.calm or name not in self.world.nodes:
                return
            self._fault(kind, name, f"{lasts} us")
            if kind == "pause":
                self.world.pause(name, now + lasts)
            else:
                self.world.weather.slow_down(name, extra)

        self.world.at(at, happen)
        if kind == "spike":
            self.world.at(at + lasts, lambda now: self.world.weather.slow_down(name, 0))

    def _step_clock(self, name: str, rng: random.Random, now: int = 0) -> None:
        step = self.chaos.clock_step_s * SECOND
        drift = self.chaos.clock_drift
        offset, rate = round(rng.uniform(-step, step)), rng.uniform(-drift, drift)
        if not self.world.weather.calm:
            self._fault("clock", name, f"{offset} us, drift {rate:.6f}")
            self.world.weather.step_clock(name, offset, rate)

    def _crash_at(self, at: int, kind: str, rng: random.Random, down: int) -> None:
        """Crash a node that only hosts managers. What loses a copy waits until all others are well:
        a majority of every topic's copies survives, as the guarantee asks."""
        share = rng.random()
        pick = rng.random()

        def crash(now: int) -> None:
            if self.world.weather.calm:
                return
            stay = self.bystanders[self.scenario.members.leaves :]
            spare = [name for name in stay if name in self.world.nodes]
            if not spare or (kind == "wiped" and not self._healthy()):
                self.world.at(now + SECOND // 2, crash)
                return
            name = spare[int(pick * len(spare))]
            self._fault("crash", name, kind)
            if kind == "unsynced":
                self.world.tear(name, share)
            else:
                self.world.crash(name)
            self.world.at(now + down, lambda then: self._restart(name, kind))
            self._down[name] = kind

        self.world.at(at, crash)

    def _healthy(self) -> bool:
        """Everyone alive follows one complete view, and nobody is down."""
        if self.scenario.by == "log":
            return not self._down and logs.are_well(self.world.nodes, self.scenario.replicas)
        layers = [layer for node in self.world.nodes.values() for layer in node.stack.layers]
        views = [layer.members for layer in layers if isinstance(layer, TotalOrder)]
        newest = max((m.view for m in views if m.view), key=lambda view: view.number)
        closing = {ticket.partition(":")[0] for ticket in self.world.pending if ":close" in ticket}
        alive = set(newest.members) == self.world.nodes.keys() - closing
        return alive and not self._down and all(m.view == newest and m.complete for m in views)

    def _restart(self, name: str, kind: str) -> None:
        if self._down.pop(name, None) is None:
            return
        if name in self.world.nodes:  # it had nothing to do since it was to crash
            self.world.crash(name)
        if kind == "wiped":
            self.world.disks.pop(name, None)
            self.world.logs.pop(name, None)
            name = next(self.reborn)
            self._reborn.add(name)
        self._fault("restart", name, kind)
        self.world.add(self.nodes.make(name, newcomer=True))

    def _crash_publisher(self, name: str, now: int) -> None:
        """For good, with the copies that it holds: others must be well, as above."""
        if self.world.weather.calm:
            return
        if not self._healthy():
            self.world.at(now + SECOND // 2, partial(self._crash_publisher, name))
            return
        self._fault("crash", name, "publisher")
        self.world.crash(name)

    def _calm(self) -> None:
        """The safety phase is over: all faults end, what is down comes back."""
        self.world.weather.clear()
        for name, kind in list(self._down.items()):
            self._restart(name, kind)
        self.world.unpause()

    def _copies(self) -> Iterator[tuple[str, str, tuple[int, int], bytes]]:
        for name, node in self.world.nodes.items():
            for layer in node.stack.layers:
                if isinstance(layer, TotalOrder) and self.scenario.replicas > 1:
                    for topic, replica in layer.replicas.items():
                        held = replica.held
                        yield name, topic, held.age, msgspec.msgpack.encode(held.state)

    def _outcome(self) -> Outcome:
        checks = self.checks
        subscriptions = self.recorder.tables["subscriptions"]
        settle_us = round(self.scenario.settle_s * SECOND)
        checks.finish(
            subscriptions,
            self.recorder.tables["stamps"],
            self.world.pending,
            self.world.errors,
            self.world.acknowledged,
            settle_us,
            round(self.chaos.clock_step_s * 2 * SECOND),
        )
        checks.content.finish(checks.delivered_ids, self.filtered)
        if self.scenario.by == "log":
            for witness in logs.left_over(self.world.nodes, self.scenario.replicas):
                checks.stuck.violated(witness)
        checks.compare_copies(self._copies())
        checks.compare_copies(logs.copies(self.world.nodes))
        checks.compare_views(self.recorder.tables["control"])
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
            "promises": [name for name in scenario.promises if name not in ONLINE],
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
