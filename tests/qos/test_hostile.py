"""Nothing that decodes may break a node: what makes no sense is refused and the node goes on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.core.effects import Deliver, Done, Effect, Fail, SetTimer, Subscribe, Transmit
from unisono.core.events import Control, Event, inbox
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.core.stack import TimerKey
from unisono.core.wire import Codec
from unisono.qos import views as views_
from unisono.qos.membership import Membership
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.layer import TotalOrder

names = st.sampled_from(["t", "u", "v", "me", "evil", ""])
numbers = st.sampled_from([0, 1, 2, 3, 7, 2**40])
stamps = st.dictionaries(names, numbers, max_size=3)
paths = st.lists(names, max_size=3).map(tuple)
views = st.builds(views_.View, st.just("me"), numbers, paths)
ballots = st.tuples(numbers, names)
entries = st.builds(msg.RequestStamp, names, numbers, names, names, numbers)
CODEC = Codec(TotalOrder.controls, 1 << 20)

controls = st.one_of(
    st.builds(msg.RequestStamp, names, numbers, names, names, numbers, numbers),
    st.builds(msg.Confirm, names, numbers, names, numbers),
    st.builds(msg.FillStamp, names, numbers, numbers, names, names, names, stamps, paths, numbers),
    st.builds(msg.Pull, names, numbers, numbers, numbers, numbers),
    st.builds(msg.StampReady, names, stamps),
    st.builds(msg.Refused, names, names),
    st.builds(msg.Relate, names, numbers, numbers, paths, names, names, st.booleans()),
    st.builds(msg.RelatedTopic, names, numbers, numbers, names, names),
    st.builds(msg.Related, names),
    st.builds(msg.Base, names, numbers, numbers, names, st.sampled_from([-1, 0, 5]), names),
    st.builds(msg.BaseKnown, names, numbers, numbers, names, st.sampled_from([-1, 0, 5]), names),
    st.builds(msg.Drain, names, numbers, numbers, names, numbers, names),
    st.builds(msg.Drained, names, numbers, numbers, names, names),
    st.builds(msg.AskStart, names, numbers, names, names),
    st.builds(msg.Start, names, numbers, names | st.just("looking-for-losses")),
    st.builds(msg.HandOver, numbers, numbers, st.sampled_from([1, 2]), st.binary(max_size=8)),
    st.builds(msg.Adopt, numbers, names, numbers, st.sampled_from([1, 2]), st.binary(max_size=8)),
    st.builds(msg.Copy, numbers, names, numbers, st.lists(entries, max_size=2).map(tuple)),
    st.builds(msg.Copied, numbers, names, numbers),
    st.builds(msg.Behind, numbers, names),
    st.builds(msg.Swap, numbers, names, names),
    st.builds(msg.ClosedTopics, numbers, numbers, st.sampled_from([1, 2]), st.just(())),
    st.builds(views_.Alive, names, numbers, st.booleans(), numbers),
    st.builds(views_.Prepare, views, ballots),
    st.builds(views_.Promise, numbers, ballots, ballots, st.none() | views),
    st.builds(views_.Accept, numbers, ballots, views),
    st.builds(views_.Accepted, numbers, ballots),
    st.builds(views_.Refuses, numbers, ballots),
    st.just(views_.AskView()),
    st.builds(views_.Hello, st.booleans(), names),
    st.builds(views_.NewView, views),
    st.just(views_.Leave()),
    st.just(views_.Goodbye()),
)
events = st.builds(
    Event,
    names,
    st.sampled_from(["t", "u"]),
    st.binary(max_size=3),
    names,
    numbers,
    numbers,
    stamps,
)


class Alone:
    """A node that is the only member, driven by hand."""

    def __init__(self, buffer: int | None = None) -> None:
        limits = Limits()
        members = Membership("me", limits, initial=views_.View("me", 1, ("me",)))
        self.layer = TotalOrder("me", members, buffer=buffer, hold_us=10)
        self.node = Node("me", [self.layer])
        self.timers: dict[TimerKey, int] = {}
        self.delivered: list[str] = []
        self.done: set[str] = set()
        self.failed = False
        self.carry(self.node.start(0))

    def carry(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_us
            elif isinstance(effect, Subscribe) and effect.ticket is not None:
                self.carry(self.node.effective(effect.ticket, 0))
            elif isinstance(effect, Deliver):
                self.delivered.append(effect.delivery.id)
            elif isinstance(effect, Done):
                self.done.add(effect.ticket)
            elif isinstance(effect, Fail):
                self.failed = True
            elif isinstance(effect, Transmit) and not effect.topic.startswith("_unisono"):
                self.carry(self.node.frame(effect.topic, effect.frame, 1))

    def take(self, message: Control | Event, now: int = 1) -> None:
        topic = message.topic if isinstance(message, Event) else inbox("me")
        self.carry(self.node.frame(topic, CODEC.encode("evil", message), now))

    def wake(self, now: int) -> None:
        for key in [key for key, at in self.timers.items() if at <= now]:
            del self.timers[key]
            self.carry(self.node.timer(key, now))


@settings(max_examples=300, deadline=None)
@given(st.lists(controls | events, max_size=12), st.sampled_from([None, 0, 2]))
def test_no_message_raises(messages: list[Control | Event], buffer: int | None) -> None:
    alone = Alone(buffer)
    alone.carry(alone.node.subscribe(["t", "u"], "s", 0))
    for at, message in enumerate(messages):
        alone.take(message, at)
        alone.wake(at)
    alone.wake(100)
    alone.wake(1000)


@pytest.mark.parametrize(
    "message",
    [
        msg.FillStamp("t", 1, 0, "e", "u", "evil", {"x": 1}, ()),
        msg.FillStamp("t", 1, 0, "e", "a", "evil", {"a": 1}, ()),
        msg.Relate("t", 1, 0, ("zzz",), "op", "evil", False),
        msg.Relate("t", 1, 0, (), "op", "evil", False),
        msg.Base("t", 1, 0, "a", 5, "op"),
        msg.Drain("t", 1, 0, "nope", 3, "op"),
        msg.HandOver(2, 0, 1, b"garbage"),
        views_.Leave(),
        msg.Copy(1, "t", 1, ()),
        msg.Copied(1, "t", 99),
        msg.Adopt(1, "t", 0, 0, 1, b"garbage"),
        views_.NewView(views_.View("me", 2, ())),
        views_.NewView(views_.View("me", 2, ("evil",))),
    ],
    ids=lambda message: f"{type(message).__name__}",
)
def test_after_nonsense_the_node_still_works(message: Control) -> None:
    alone = Alone()
    alone.take(message)
    alone.carry(alone.node.subscribe(["t"], "s", 0))
    event_id, effects = alone.node.publish("t", b"", 1)
    alone.carry(effects)
    if isinstance(message, views_.NewView) and message.view.members:
        return  # a view from a stranger who counts itself in: trusted, as all members are
    assert alone.delivered == [event_id]
    assert not alone.failed


def test_numbers_out_of_range_do_not_decode() -> None:
    alone = Alone()
    alone.take(msg.Copied(-1, "t", 1))
    alone.take(Event("e", "t", b"", "evil", 1, 0, {"t": 2**63}))
    assert alone.node.rejected == {"malformed": 2}


def test_events_that_count_each_other_do_not_hang_the_reader() -> None:
    alone = Alone()
    alone.carry(alone.node.subscribe(["t", "u"], "s", 0))
    alone.take(Event("x", "t", b"", "evil", 1, 0, {"t": 5, "u": 9}))
    alone.take(Event("y", "u", b"", "evil", 2, 0, {"u": 9, "t": 5}))
    alone.wake(100)
    assert sorted(alone.delivered) == ["x", "y"]
