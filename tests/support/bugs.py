"""Deliberate faults in the protocol, each with the checks that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.manager import TopicManager
from unisono.qos.total_order.subscriber import Subscriber
from unisono.sim.faults import Faults
from unisono.sim.scenario import Scenario, load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    inject: Callable[[Patch], None]
    scenario: Scenario
    caught_by: set[str]  # at least one of these checks, or "tagged"


def _scenario(name: str, **changes: Any) -> Scenario:
    return msgspec.structs.replace(load_scenario(SCENARIOS / f"{name}.toml"), **changes)


def never_tags(patch: Patch) -> None:
    patch.setattr(Subscriber, "_in_order", lambda self, topic, stamp: True)


def looks_at_own_topic_only(patch: Patch) -> None:
    def in_order(self: Any, topic: str, stamp: dict[str, int]) -> bool:
        return bool(stamp[topic] > self._clock.get(topic, 0))

    patch.setattr(Subscriber, "_in_order", in_order)


def does_not_wait_for_other_topics(patch: Patch) -> None:
    def ready(self: Any, event: Event) -> bool:
        assert event.stamp is not None
        return bool(self._upto[event.topic] >= event.stamp[event.topic] - 1)

    patch.setattr(Subscriber, "_ready", ready)
    looks_at_own_topic_only(patch)


def does_not_hold(patch: Patch) -> None:
    patch.setattr(TopicManager, "_free", lambda self, message: True)


def forgets_predecessors(patch: Patch) -> None:
    create = TopicManager._create

    def bad(self: Any, message: msg.RequestStamp) -> None:
        passed, self.state.passed = self.state.passed, {}
        create(self, message)
        self.state.passed = passed

    patch.setattr(TopicManager, "_create", bad)


def does_not_fill(patch: Patch) -> None:
    """Groups hold what subscriptions hold, but are no cliques."""

    def next_relation(self: Any) -> None:
        state = self.state
        while state.relating:
            first = state.relating[0]
            if set(first.group) <= set(state.group):
                self._answer()
                continue
            state.ops += 1
            state.op = f"{state.topic}#{state.ops}"
            state.union = self._order.upwards({*state.group, *first.group})
            state.telling = False
            direct = self._order.upwards(first.group)
            state.answers = direct[:-1]
            for index, topic in enumerate(direct[:-1]):
                ask = msg.Relate(topic, 0, tuple(direct[index + 1 :]), state.op, state.topic, True)
                self._post.to_topic(ask)
            if not state.answers:
                self._tell(-1)
            return

    patch.setattr(TopicManager, "_next_relation", next_relation)


def takes_requests_as_they_come(patch: Patch) -> None:
    patch.setattr(TopicManager, "request", lambda self, message: self._create(message))


def delivers_twice(patch: Patch) -> None:
    notify = Subscriber._notify

    def bad(self: Any, event: Event, gap: bool) -> None:
        notify(self, event, gap)
        if event.seq % 10 == 0:
            self._post.do(Notify(event, Status.IN_ORDER))

    patch.setattr(Subscriber, "_notify", bad)


def swallows_one_in_ten(patch: Patch) -> None:
    notify = Subscriber._notify

    def bad(self: Any, event: Event, gap: bool) -> None:
        if event.seq % 10 == 0 and event.stamp is not None:
            self._upto[event.topic] = event.stamp[event.topic]
        else:
            notify(self, event, gap)

    patch.setattr(Subscriber, "_notify", bad)


def makes_events_up(patch: Patch) -> None:
    notify = Subscriber._notify

    def bad(self: Any, event: Event, gap: bool) -> None:
        if event.seq % 10 == 0:
            event = msgspec.structs.replace(event, id=f"{event.id}-forged")
        notify(self, event, gap)

    patch.setattr(Subscriber, "_notify", bad)


def starts_too_late(patch: Patch) -> None:
    start = Subscriber.start

    def bad(self: Any, message: msg.Start, now: int) -> None:
        start(self, msgspec.structs.replace(message, number=message.number + 2), now)

    patch.setattr(Subscriber, "start", bad)


def hands_over_nothing(patch: Patch) -> None:
    hand_over = TotalOrder._hand_over

    def bad(self: Any, view: Any) -> None:
        for topic in list(self.managers):
            if self._post.manager_of(topic) != self._post.node_id:
                del self.managers[topic]
        hand_over(self, view)

    patch.setattr(TotalOrder, "_hand_over", bad)


def serves_before_the_hand_over(patch: Patch) -> None:
    def advance(self: Any, now: int) -> bool:
        if self._installing is not None:
            self._serve(self._installing, self._handed.get(self._installing.number, {}), now)
            return True
        if not self._members.fresh:
            return False
        self._install(self._members.fresh.popleft())
        return True

    patch.setattr(TotalOrder, "_advance", advance)


def switches_before_announcing(patch: Patch) -> None:
    tell = TopicManager._tell

    def bad(self: Any, base: int) -> None:
        if base < 0:
            tell(self, self.state.number)
            self.state.draining, self.state.group = [], self.state.union
        else:
            tell(self, base)

    def base(self: Any, message: msg.Base) -> None:
        if message.lower not in self.state.passed:
            self.state.bases[message.lower] = self.state.passed[message.lower] = message.base
            self._release()
        answer = msg.BaseKnown(message.lower, 0, self.state.topic, message.base, message.op)
        self._post.to_topic(answer)

    patch.setattr(TopicManager, "_tell", bad)
    patch.setattr(TopicManager, "base", base)


def does_not_catch_up(patch: Patch) -> None:
    """A new subscription starts while earlier events of the topics held are on their way."""

    def related(self: Any, message: msg.Related) -> None:
        if message.op == self._op_name and self._phase == "relating":
            self._ask_numbers(self._fresh, "finding-start")

    patch.setattr(Subscriber, "related", related)


PARTIAL = _scenario("partial-subscriptions")
CHANGING = _scenario("changing-subscriptions")
MEMBERS = _scenario("members-come-and-go")
SMALL_BUFFER = msgspec.structs.replace(PARTIAL, buffer=0)
PRINTED = msgspec.structs.replace(SMALL_BUFFER, stamps="paper")
UNORDERED_LINKS = msgspec.structs.replace(
    _scenario("two-topics"), wan=msgspec.structs.replace(PARTIAL.wan, fifo=False)
)
LATE_EVENTS = msgspec.structs.replace(
    PARTIAL, faults=Faults(delay=0.3, delay_ms=2000, only="events")
)

BUGS = {
    "never tags": Bug(never_tags, SMALL_BUFFER, {"total-order"}),
    # With exact stamps the predecessor entries make up for it; with printed ones nothing does.
    "looks at its own topic only": Bug(looks_at_own_topic_only, PRINTED, {"total-order"}),
    "does not wait for others": Bug(does_not_wait_for_other_topics, PARTIAL, {"tagged"}),
    "does not hold": Bug(does_not_hold, PARTIAL, {"losses", "stuck", "tagged", "total-order"}),
    "forgets predecessors": Bug(forgets_predecessors, LATE_EVENTS, {"tagged"}),
    "does not fill": Bug(does_not_fill, PARTIAL, {"losses", "stuck", "tagged", "total-order"}),
    "takes requests as they come": Bug(
        takes_requests_as_they_come, UNORDERED_LINKS, {"topic-fifo"}
    ),
    "delivers twice": Bug(delivers_twice, PARTIAL, {"duplicates"}),
    "swallows one in ten": Bug(swallows_one_in_ten, PARTIAL, {"losses"}),
    "makes events up": Bug(makes_events_up, PARTIAL, {"phantoms"}),
    "starts too late": Bug(starts_too_late, PARTIAL, {"losses"}),
    "hands over nothing": Bug(hands_over_nothing, MEMBERS, {"losses", "stuck"}),
    "serves before the hand-over": Bug(serves_before_the_hand_over, MEMBERS, {"losses", "stuck"}),
    "switches before announcing": Bug(
        switches_before_announcing, CHANGING, {"losses", "stuck", "tagged", "total-order"}
    ),
    "does not catch up": Bug(does_not_catch_up, CHANGING, {"total-order", "tagged"}),
}
