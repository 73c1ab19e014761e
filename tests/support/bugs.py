"""Deliberate faults in the protocol, each with the checks that must catch it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from unisono.core.effects import Notify
from unisono.core.events import Event, Past, Status
from unisono.core.predicate import Predicate
from unisono.qos import choice
from unisono.qos.content import Content
from unisono.qos.fifo.source import MayWant, Source
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.manager import TopicManager
from unisono.qos.total_order.replica import Replica
from unisono.qos.total_order.subscriber import Subscriber
from unisono.qos.total_order.survey import Survey
from unisono.sim.faults import Faults
from unisono.sim.scenario import Scenario, load_scenario
from unisono.sim.weather import Chaos

SCENARIOS = Path(__file__).parents[2] / "scenarios"
Patch = pytest.MonkeyPatch


class Bug(NamedTuple):
    inject: Callable[[Patch], None]
    scenario: Scenario
    caught_by: set[str]  # at least one of these checks, or "tagged"
    first: int = 0  # the seed to begin with, for bugs that show rarely


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
    patch.setattr(TopicManager, "_may_pass", lambda self, epoch, message: True)


def forgets_predecessors(patch: Patch) -> None:
    create = TopicManager._create

    def bad(self: Any, message: msg.RequestStamp) -> None:
        self.state.epoch.news = {}
        create(self, message)

    patch.setattr(TopicManager, "_create", bad)


def tells_newcomers_only_what_is_new(patch: Patch) -> None:
    patch.setattr(TopicManager, "_tell_all", lambda self: None)


def does_not_fill(patch: Patch) -> None:
    """Groups hold what subscriptions hold, but are no cliques."""
    begin = TopicManager._next_relation

    def next_relation(self: Any) -> None:
        begin(self)
        state = self.state
        if not state.relating or state.telling:
            return
        held = set(state.relating[0].group)
        letters, self._letters = self._letters, []
        for to, letter in letters:
            if not isinstance(letter, msg.Relate):
                self._letters.append((to, letter))
                continue
            above = tuple(topic for topic in letter.group if topic in held)
            if letter.topic in held and above:
                asked = msgspec.structs.replace(letter, group=above)
                self._letters.append((to, asked))
            elif letter.topic in state.answers:
                state.answers.remove(letter.topic)
        if not state.answers:
            self._tell(-1)

    patch.setattr(TopicManager, "_next_relation", next_relation)


def takes_requests_as_they_come(patch: Patch) -> None:
    patch.setattr(TopicManager, "request_stamp", lambda self, message: self._create(message))


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

    def bad(self: Any, view: Any) -> Any:
        for topic in list(self.replicas):
            if self._post.manager_of(topic) != self._post.node_id:
                del self.replicas[topic]
        return hand_over(self, view)

    patch.setattr(TotalOrder, "_hand_over", bad)


def serves_before_the_hand_over(patch: Patch) -> None:
    patch.setattr(Survey, "knows", lambda self, topic: True)
    patch.setattr(Survey, "knows_all", True)


def tells_before_a_majority_knows(patch: Patch) -> None:
    def count(self: Any) -> None:
        self.serving = True
        self._committed = self.held.index

    patch.setattr(Replica, "count", count)


def cuts_long_queues_short(patch: Patch) -> None:
    take = Replica.take

    def bad(self: Any, message: msg.ToTopic) -> Any:
        effects = take(self, message)
        while len(self._log) > 1:  # what the copies do not have yet, too
            self._log.popleft()
        return effects

    patch.setattr(Replica, "take", bad)


def chooses_views_alone(patch: Patch) -> None:
    patch.setattr(choice, "majority", lambda count: 1)


def forgets_the_disk(patch: Patch) -> None:
    patch.setattr(Replica, "_store_entry", lambda self, entry: [])


def new_epoch_forgets_the_old(patch: Patch) -> None:
    """Stamps of a new epoch do not count the events of the one before."""
    open_ = TopicManager.open

    def bad(self: Any, message: msg.Open) -> None:
        open_(self, msgspec.structs.replace(message, lower=dict.fromkeys(message.lower, 0)))

    patch.setattr(TopicManager, "open", bad)


def drops_stamps_of_the_old_order(patch: Patch) -> None:
    """Errata L1: a stamp of an old epoch is discarded everywhere."""
    patch.setattr(
        TopicManager,
        "_epoch_of",
        lambda self, number: self.state.epoch if number == self.state.epoch.number else None,
    )


def switches_before_announcing(patch: Patch) -> None:
    tell = TopicManager._tell

    def bad(self: Any, base: int) -> None:
        state = self.state
        if base < 0:
            new = [topic for topic in state.union if topic not in state.epoch.group]
            number = state.number
            state.epoch.group = {
                topic: state.epoch.group.get(topic, number) for topic in state.union
            }
            state.telling, state.base, state.answers = True, number, new
            self._ask_again()
            if not new:
                self._finish_relation()
        else:
            tell(self, base)

    patch.setattr(TopicManager, "_tell", bad)


def does_not_catch_up(patch: Patch) -> None:
    """A new subscription starts while earlier events of the topics held are on their way."""

    def related(self: Any, message: msg.Related) -> None:
        if message.op == self._op_name and self._phase == "relating":
            self._ask_numbers(self._fresh, "finding-start")

    patch.setattr(Subscriber, "related", related)


def calls_the_late_in_order(patch: Patch) -> None:
    arrive = Source.arrive

    def bad(self: Any, event: Event, past: Past, may_want: MayWant, now: int) -> Any:
        found = arrive(self, event, past, may_want, now)
        return found and [(one, Status.IN_ORDER) for one, _ in found]

    patch.setattr(Source, "arrive", bad)


def drops_the_late(patch: Patch) -> None:
    patch.setattr(Source, "_take_back", lambda self, number: False)


def filters_nothing(patch: Patch) -> None:
    patch.setattr(Content, "narrow", lambda self, topics, where: None)


def filters_below_the_order(patch: Patch) -> None:
    """What does not match never reaches the order: it looks like a gap."""
    notify = TotalOrder.notify
    wanted: dict[int, Predicate | None] = {}

    def narrow(self: Any, topics: Any, where: Predicate | None) -> None:
        wanted[id(self)] = where

    def bad(self: Any, event: Event, status: Status, now: int) -> Any:
        where = wanted.get(id(self))
        if where is not None and not where.matches(event.attributes or {}):
            return ()
        return notify(self, event, status, now)

    patch.setattr(TotalOrder, "narrow", narrow)
    patch.setattr(TotalOrder, "notify", bad)


PARTIAL = _scenario("partial-subscriptions")
REORDERED = _scenario("fifo/reordered")
BY_CONTENT = _scenario("content-total")
CHANGING = _scenario("changing-subscriptions")
MEMBERS = _scenario("members-come-and-go")
SWAPS = _scenario("total-order/swaps")
EVERYTHING = _scenario("total-order/everything")
CUT_OFF = msgspec.structs.replace(
    EVERYTHING,
    faults=Faults(draw=True),
    chaos=Chaos(partitions=3, one_way=3),
    subscribers=msgspec.structs.replace(EVERYTHING.subscribers, change_every_s=0.0),
)
CRASHES = _scenario("total-order/crashes")
DISK = _scenario("total-order/disk")
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
    "tells newcomers only what is new": Bug(tells_newcomers_only_what_is_new, CHANGING, {"tagged"}),
    "does not fill": Bug(
        does_not_fill, PARTIAL, {"losses", "stuck", "tagged", "total-order"}, first=11
    ),
    "takes requests as they come": Bug(
        takes_requests_as_they_come, UNORDERED_LINKS, {"topic-fifo"}
    ),
    "calls the late in order": Bug(calls_the_late_in_order, REORDERED, {"fifo"}),
    "drops the late": Bug(drops_the_late, REORDERED, {"losses"}),
    "filters nothing": Bug(filters_nothing, BY_CONTENT, {"content"}),
    "filters below the order": Bug(filters_below_the_order, BY_CONTENT, {"content"}),
    "delivers twice": Bug(delivers_twice, PARTIAL, {"duplicates"}),
    "swallows one in ten": Bug(swallows_one_in_ten, PARTIAL, {"losses"}),
    "makes events up": Bug(makes_events_up, PARTIAL, {"phantoms"}),
    "starts too late": Bug(starts_too_late, PARTIAL, {"losses"}),
    "hands over nothing": Bug(hands_over_nothing, MEMBERS, {"losses", "stuck"}),
    "serves before the hand-over": Bug(serves_before_the_hand_over, MEMBERS, {"losses", "stuck"}),
    "tells before a majority knows": Bug(
        tells_before_a_majority_knows, EVERYTHING, {"numbers", "stuck", "total-order"}, first=20
    ),
    "chooses views alone": Bug(chooses_views_alone, CUT_OFF, {"views", "numbers", "stuck"}),
    "cuts long queues short": Bug(cuts_long_queues_short, CRASHES, {"copies"}, first=55),
    "forgets the disk": Bug(forgets_the_disk, DISK, {"losses", "stuck", "numbers", "tagged"}),
    "a new epoch forgets the old": Bug(
        new_epoch_forgets_the_old, SWAPS, {"losses", "stuck", "tagged", "total-order"}
    ),
    "drops stamps of the old order": Bug(drops_stamps_of_the_old_order, SWAPS, {"stuck"}),
    "switches before announcing": Bug(
        switches_before_announcing, CHANGING, {"losses", "stuck", "tagged", "total-order"}, first=93
    ),
    "does not catch up": Bug(
        does_not_catch_up, CHANGING, {"total-order", "tagged", "losses"}, first=60
    ),
}
