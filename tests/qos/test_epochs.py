"""A new order while messages get lost, on two real nodes in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from unisono.core.events import Control, Delivery
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.membership import Membership
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.order import TopicOrder, place
from unisono.qos.views import View
from unisono.sim.channels import Wan
from unisono.sim.world import World
from unisono.trace.memory import MemoryRecorder

SECOND = 1_000_000
NAMES = ("x", "y")
T = next(f"t{i}" for i in range(99) if place(f"t{i}", NAMES) == "x")
U = next(f"u{i}" for i in range(99) if place(f"u{i}", NAMES) == "y")


class Listener:
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def published(self, *what: object) -> None:
        pass

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.heard.append(delivery.payload)


def node(name: str) -> Node:
    members = Membership(
        name,
        Limits(),
        initial=View("sim", 1, NAMES, replicas=1),
        period_us=SECOND,
        discovery_us=3 * SECOND,
        patience_us=3600 * SECOND,
    )
    return Node(name, [TotalOrder(name, members, order=TopicOrder((U, T)), retry_us=2 * SECOND)])


def layer(world: World, name: str) -> TotalOrder:
    found = world.nodes[name].stack.layers[0]
    assert isinstance(found, TotalOrder)
    return found


def test_an_unused_topic_opens_though_its_hosts_report_is_the_last() -> None:
    """U is in a subscription and was never used; its host hears of it with the last report. Once it
    opened the epoch without U, and whoever published on T waited for ever."""
    listener = Listener()
    world = World(NAMES, Wan(), 1, MemoryRecorder(), listener)
    for name in NAMES:
        world.add(node(name))
    lost: Callable[[str, Control], bool] = lambda source, message: False  # noqa: E731
    send = world._service.publish

    def publish(source: str, topic: str, frame: bytes, now: int) -> None:
        _, message = world.nodes[source].codec.decode(frame)
        if not (isinstance(message, Control) and lost(source, message)):
            send(source, topic, frame, now)

    world._service.publish = publish  # type: ignore[method-assign]
    world.run(3 * SECOND)
    world.publish("x", T, b"0")
    world.run(world.now + 2 * SECOND)
    lost = lambda source, message: (  # noqa: E731
        isinstance(message, msg.Base | msg.AskStart)
        or (source == "x" and isinstance(message, msg.HandOver))
    )
    world.subscribe("x", [T, U], "s1")
    world.run(world.now + SECOND // 5)
    layer(world, "x").members.wished_order = (U, T, "z")
    world.run(world.now + 2 * SECOND)
    assert layer(world, "x").topic_order[0] == 1
    lost = lambda source, message: False  # noqa: E731
    world.run(world.now + 20 * SECOND)
    world.publish("x", T, b"1")
    world.run(world.now + 60 * SECOND)
    assert not world.pending
    assert listener.heard == [b"1"]
