"""What the nodes of a scenario are made of."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.core.entropy import stream
from unisono.core.layer import Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.choice import STORE_KEY
from unisono.qos.content import Content
from unisono.qos.deadline import Deadline, Goal
from unisono.qos.fifo.options import Fifo
from unisono.qos.membership import Membership
from unisono.qos.total_order.by_log.domain import Domain, LogOptions
from unisono.qos.total_order.by_log.layer import LogOrder, load
from unisono.qos.total_order.by_log.messages import Hello, unknown_log
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.views import View
from unisono.sim.faults import Faults, fault_layers
from unisono.sim.scenario import Scenario
from unisono.sim.world import LogDisk, World

SECOND = 1_000_000
_CATCH_UP_S = 10.0  # where events may be lost and no hold is given
_RETRY_US = 3 * SECOND


class Nodes:
    """Makes the nodes of one run, and makes them again when they come back."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        world: World,
        founders: Sequence[str],
        faults: Faults,
        disks: bool,
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._world = world
        self._founders = tuple(founders)
        self._faults = faults
        self._disks = disks
        self._lives: dict[str, int] = {}

    def make(self, name: str, newcomer: bool = False) -> Node:
        scenario = self._scenario
        stored = self._world.disks.setdefault(name, {}) if self._disks else None
        limits = Limits()
        life = self._lives[name] = self._lives.get(name, -1) + 1
        layers: list[Layer] = []
        if scenario.order == "total" and scenario.by == "log":
            layers.append(self._by_log(name, newcomer, limits, life))
        elif scenario.order == "total":
            layers.append(self._by_stamps(name, newcomer, limits, life, stored))
        elif scenario.order == "fifo":
            layers.append((scenario.fifo or Fifo()).layer(name, limits=limits, life=life))
        layers.insert(0, Content())
        if scenario.deadline_ms is not None:
            goal = Goal(scenario.deadline_ms, 1.0)
            layers.insert(0, Deadline(lambda topic: (goal,)))
        frames = list(fault_layers(self._faults, name, self._seed, self._world.weather))
        if scenario.delivery is not None:
            rng = stream(self._seed, "reliable", name)
            frames.insert(0, scenario.delivery.layer(name, rng, limits))
        return Node(name, layers, frames, limits, life=life)

    def _by_stamps(
        self, name: str, newcomer: bool, limits: Limits, life: int, stored: dict[str, bytes] | None
    ) -> TotalOrder:
        scenario = self._scenario
        first = View("sim", 1, self._founders, replicas=scenario.replicas)
        members = Membership(
            name,
            limits,
            initial=None if newcomer else first,
            found=not newcomer,
            period_us=SECOND if scenario.watched else None,
            discovery_us=3 * SECOND,
            patience_us=3600 * SECOND,
            stored=stored.get(STORE_KEY) if stored else None,
        )
        hold = scenario.hold_s
        catch_up = _CATCH_UP_S if hold is None and scenario.loses_events else hold
        return TotalOrder(
            name,
            members,
            order=TopicOrder(scenario.topic_names),
            exact=scenario.stamps == "exact",
            buffer=None if scenario.buffer == "unbounded" else scenario.buffer,
            hold_us=None if hold is None else round(hold * SECOND),
            catch_up_us=None if catch_up is None else round(catch_up * SECOND),
            retry_us=_RETRY_US,
            adapt=scenario.adapt,
            stored=stored,
            life=life,
            limits=limits,
        )

    def _by_log(self, name: str, newcomer: bool, limits: Limits, life: int) -> LogOrder:
        count = self._scenario.domains
        domains = [
            self._domain(f"d{number}", name, newcomer, limits, life)
            for number in range(1, count + 1)
        ]
        of_topic = {
            topic: domains[place % count].known.domain
            for place, topic in enumerate(self._scenario.topic_names)
        }
        return LogOrder(name, domains, of_topic.get, votes=True)

    def _domain(self, domain: str, name: str, newcomer: bool, limits: Limits, life: int) -> Domain:
        stored = None
        if self._disks:
            disk = self._world.logs.get(name, {}).get(domain, LogDisk())
            stored = load(self._world.disks[name], domain, disk.base, disk.records)
        hello = Hello(
            unknown_log(domain), name, name, manages=True, disk=self._disks, found=not newcomer
        )
        options = LogOptions(
            voters=self._scenario.replicas,
            period_us=SECOND,
            discovery_us=3 * SECOND,
            join_us=3600 * SECOND,
            patience_us=None,
            hold_us=None,
        )
        return Domain(
            domain,
            name,
            hello,
            stream(self._seed, "log", domain, name, life),
            limits,
            options,
            incarnation=life,
            durable=self._disks,
            stored=stored,
        )
