"""The central sequencer: one row of numbers, over any order of arrival and any links."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.seeds import seed_range

from unisono.core.effects import Done, Effect, Notify, Publish, Send
from unisono.core.entropy import stream
from unisono.core.events import NUMBER, Event, Status
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.sequencer import GROUP, Numbered, Sequencer, ToSequencer
from unisono.sim.channels import Wan
from unisono.sim.check import Checks
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

NODES = ("n0", "n1", "n2", "n3")


def event(number: int, topic: str = "a", publisher: str = "p") -> Event:
    return Event(f"e{number}", topic, b"", publisher, number, 0, {NUMBER: number})


def reader(*topics: str, limits: Limits | None = None) -> Sequencer:
    layer = Sequencer("me", "boss", members=("me", "boss"), limits=limits)
    layer.subscribe(topics, None, 0)
    return layer


def ids(effects: list[Effect]) -> list[str]:
    return [effect.event.id for effect in effects if isinstance(effect, Notify)]


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8)))
def test_any_order_of_arrival_gives_the_order_of_numbers(
    order: list[int], again: list[int]
) -> None:
    layer = reader("a")
    heard: list[str] = []
    for number in (*order, *again):
        heard += ids(list(layer.receive(Numbered(event(number)), "boss", 0)))
    assert heard == [f"e{number}" for number in range(1, 9)]
    assert layer.ignored.get("duplicate", 0) == len(again)


def test_other_topics_use_up_numbers_and_are_discarded() -> None:
    layer = reader("a")
    out = [*layer.receive(Numbered(event(1, "b")), "boss", 0)]
    out += layer.receive(Numbered(event(2, "a")), "boss", 0)
    assert ids(out) == ["e2"]
    assert layer.ignored == {"not subscribed": 1}


def test_the_sequencer_numbers_in_the_order_of_arrival_and_publishes_on_the_group_topic() -> None:
    boss = Sequencer("boss", "boss")
    sent = [
        *boss.receive(ToSequencer(Event("x", "a", b"1", "p", 1, 5)), "p", 10),
        *boss.publish(Event("y", "b", b"2", "boss", 1, 6), 11),
    ]
    events = [effect.event for effect in sent if isinstance(effect, Publish)]
    assert [e.topic for e in events] == [GROUP, GROUP]
    inner = [msgspec.msgpack.decode(e.payload, type=Event) for e in events]
    assert [(e.id, e.stamp) for e in inner] == [("x", {NUMBER: 1}), ("y", {NUMBER: 2})]


def test_one_copy_per_member_over_point_to_point_channels() -> None:
    boss = Sequencer("n0", "n0", members=NODES)
    boss.subscribe(["a"], None, 0)
    out = list(boss.publish(Event("x", "a", b"", "n0", 1, 0), 0))
    assert [effect.to for effect in out if isinstance(effect, Send)] == ["n1", "n2", "n3"]
    assert ids(out) == ["x"] and Done("x") in out


def test_what_is_not_of_the_protocol_changes_nothing() -> None:
    layer = reader("a", limits=Limits(reorder_events=4))
    assert list(layer.receive(ToSequencer(event(1)), "p", 0)) == []
    assert list(layer.notify(Event("x", "a", b"", "p", 1, 0), Status.IN_ORDER, 0)) == []
    assert list(layer.notify(Event("x", GROUP, b"junk", "p", 1, 0), Status.IN_ORDER, 0)) == []
    assert list(layer.receive(Numbered(event(6)), "boss", 0)) == []
    assert layer.ignored == {
        "sent to the wrong sequencer": 1,
        "without a number": 1,
        "malformed": 1,
        "too far ahead": 1,
    }
    assert ids(list(layer.receive(Numbered(event(1)), "boss", 0))) == ["e1"]


@pytest.mark.parametrize("members", [None, NODES])
@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(10))
def test_seeds_keep_total_order_and_lose_nothing(
    members: tuple[str, ...] | None, seed: int
) -> None:
    checks = Checks()
    world = World(NODES, Wan(fifo=False), seed, NullRecorder(), checks)
    rng = stream(seed, "test")
    for name in NODES:
        world.add(Node(name, [Sequencer(name, "n0", members=members)]))
        world.subscribe(name, rng.sample("abc", rng.randint(1, 3)), "s")

    def publish(now: int) -> None:
        world.publish(rng.choice(NODES), rng.choice("abc"), b"")

    for _ in range(200):
        world.at(rng.randrange(2_000_000), publish)
    world.run()
    checks.finish([], [], world.pending, world.errors, world.acknowledged, 0)
    assert checks.events == 200
    assert checks.deliveries > 200
    broken = {name for name, check in checks.results().items() if check.violations}
    assert broken <= {"fifo", "topic-fifo"}
