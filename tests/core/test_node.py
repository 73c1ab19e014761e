"""Node and stack: routing, the order of effects, tickets, trace rows, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from unisono.core.effects import (
    Deliver,
    Effect,
    Publish,
    Record,
    Send,
    SetTimer,
    Subscribe,
    Transmit,
)
from unisono.core.events import EVERYONE, Control, Event, Status, inbox
from unisono.core.layer import Effects, FrameLayer, Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.core.stack import Stack
from unisono.errors import BadInput
from unisono.qos.template import NoEcho


class Ping(Control, frozen=True, array_like=True, tag="ping"):
    count: int


class Pinger(Layer):
    """A layer that uses everything a layer may use."""

    name: ClassVar[str] = "pinger"
    controls: ClassVar[tuple[type[Control], ...]] = (Ping,)

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def start(self, now: int) -> Effects:
        return (SetTimer("again", now + 10), Send(EVERYONE, Ping(1)), Subscribe(("pings",)))

    def timer(self, key: str, now: int) -> Effects:
        assert key == "again"
        return (Send("b", Ping(2)),)

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        assert isinstance(message, Ping)
        self.heard.append((sender, message.count))
        return ()


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_a_node_listens_before_it_asks_and_records_before_it_sends() -> None:
    node = Node("a", [Pinger()])
    assert kinds(node.start(0)) == ["Subscribe", "Subscribe", "SetTimer", "Transmit", "Done"]
    _, effects = node.publish("t", b"x", 5)
    assert kinds(effects) == ["Record", "Transmit"]


def test_controls_reach_the_layer_that_owns_them() -> None:
    top, lower = Pinger(), NoEcho("a")
    node = Node("a", [top, lower])
    node.start(0)
    sent = Node("b", [Pinger()]).start(0)
    frame = next(effect.frame for effect in sent if isinstance(effect, Transmit))
    assert node.frame(EVERYONE, frame, 1) == []
    assert top.heard == [("b", 1)]


def test_own_broadcasts_are_not_heard() -> None:
    layer = Pinger()
    node = Node("a", [layer])
    frame = next(effect.frame for effect in node.start(0) if isinstance(effect, Transmit))
    assert node.frame(EVERYONE, frame, 1) == []
    assert layer.heard == []


def test_timers_come_back_to_their_layer() -> None:
    node = Node("a", [NoEcho("a"), Pinger()])
    timer = next(effect for effect in node.start(0) if isinstance(effect, SetTimer))
    (effect,) = node.timer(timer.key, timer.at_us)
    assert isinstance(effect, Transmit)
    assert effect.topic == inbox("b")


def test_a_plain_node_publishes_and_delivers() -> None:
    a, b = Node("a", []), Node("b", [])
    b.start(0)
    subscribed = b.subscribe(["t"], "s1", 1)
    assert subscribed == [Subscribe(("t",), "s1")]
    assert kinds(b.effective("s1", 2)) == ["Record", "Done"]
    event_id, effects = a.publish("t", b"hi", 3)
    frame = next(effect for effect in effects if isinstance(effect, Transmit))
    assert frame.acknowledges == event_id
    record, deliver = b.frame("t", frame.frame, 9)
    assert isinstance(record, Record) and record.row["position"] == 0
    assert isinstance(deliver, Deliver)
    assert (deliver.delivery.payload, deliver.delivery.latency_us) == (b"hi", 6)
    assert deliver.delivery.status is Status.IN_ORDER


def test_an_event_on_another_topic_than_it_says_is_refused() -> None:
    a, b = Node("a", []), Node("b", [])
    _, effects = a.publish("t", b"", 0)
    frame = next(effect.frame for effect in effects if isinstance(effect, Transmit))
    b.frame("u", frame, 1)
    assert b.rejected == {"wrong topic": 1}


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("", "non-empty"),
        ("a b", "letters"),
        ("a*", "letters"),
        ("a..b", "empty part"),
        ("x" * 201, "201"),
        ("_unisono.all", "reserved"),
    ],
)
def test_bad_topics_are_refused(topic: str, why: str) -> None:
    node = Node("a", [])
    with pytest.raises(BadInput, match=why):
        node.publish(topic, b"", 0)
    with pytest.raises(BadInput, match=why):
        node.subscribe([topic], "t", 0)


def test_bad_payloads_and_operations_are_refused() -> None:
    node = Node("a", [], limits=Limits(payload_bytes=4))
    with pytest.raises(BadInput, match="over the limit of 4"):
        node.publish("t", b"12345", 0)
    with pytest.raises(BadInput, match="encode it first"):
        node.publish("t", "text", 0)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="at least one topic"):
        node.subscribe([], "t", 0)
    with pytest.raises(BadInput, match="not subscribed: 'never'"):
        node.unsubscribe(["never"], "t", 0)


def test_a_refused_publication_does_not_use_up_a_number() -> None:
    node = Node("a", [])
    with pytest.raises(BadInput):
        node.publish("bad topic", b"", 0)
    assert node.publish("t", b"", 0)[0] == "a-1"


class Doubler(FrameLayer):
    name: ClassVar[str] = "doubler"

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        return (Transmit(topic, frame), SetTimer("later", now + 1))

    def timer(self, key: str, now: int) -> Effects:
        return (Transmit("again", key.encode()),)


def test_frame_layers_act_below_the_wire_format() -> None:
    node = Node("a", [], [Doubler(), Doubler()])
    event_id, effects = node.publish("t", b"", 0)
    assert kinds(effects) == ["Record", "Transmit", "SetTimer", "SetTimer"]
    assert isinstance(effects[1], Transmit) and effects[1].acknowledges == event_id
    first, second = (effect for effect in effects if isinstance(effect, SetTimer))
    assert kinds(node.timer(first.key, 1)) == ["Transmit"]  # the lower one's timer
    assert kinds(node.timer(second.key, 1)) == ["Transmit", "SetTimer"]  # passes the lower one


def test_two_layers_of_one_name_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="two layers"):
        Stack([NoEcho("a"), NoEcho("a")])


def test_the_default_layer_passes_everything_through() -> None:
    event = Event("a-1", "t", b"", "a", 1, 0)
    stack = Stack([NoEcho("b")])
    assert stack.publish(event, 0) == [Publish(event)]
    assert stack.subscribe(["t"], "k", 0) == [Subscribe(("t",), "k")]
