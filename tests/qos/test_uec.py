"""Unconscious eventual consistency: numbers, gossip, the bounded inbox."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.seeds import seed_range

from unisono.core.effects import Effect, Notify, Send, SetTimer
from unisono.core.entropy import stream
from unisono.core.events import NUMBER, Delivery, Event, Status
from unisono.core.node import Node
from unisono.qos.uec import Request, Rumour, UnconsciousConsistency
from unisono.sim.channels import Wan
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

NODES = tuple(f"n{index}" for index in range(10))


def layer(node: str = "n9", k: int = 3, **options: int) -> UnconsciousConsistency:
    made = UnconsciousConsistency(node, NODES, NODES[:k], Random(1), **options)
    made.subscribe(["a"], None, 0)
    return made


def event(name: str, number: int | None = None, topic: str = "a") -> Event:
    return Event(name, topic, b"", "p", 1, 0, None if number is None else {NUMBER: number})


def notified(effects: list[Effect]) -> list[tuple[int, Status]]:
    return [
        ((effect.event.stamp or {})[NUMBER], effect.status)
        for effect in effects
        if isinstance(effect, Notify)
    ]


@given(st.lists(st.integers(0, 3), max_size=60))
def test_no_two_events_have_one_number(choices: list[int]) -> None:
    coalition = [layer(node, k=4) for node in NODES[:4]]
    numbers = []
    for index, chosen in enumerate(choices):
        out = list(coalition[chosen].receive(Request(event(f"e{index}")), "p", 0))
        numbers.append(notified(out)[0][0])
    assert len(set(numbers)) == len(numbers)
    for chosen in range(4):
        own = [n for n, c in zip(numbers, choices, strict=True) if c == chosen]
        assert own == [n * 4 + chosen + 1 for n in range(len(own))]


@given(st.permutations(range(1, 12)))
def test_an_event_is_tagged_exactly_when_a_greater_number_came_before(order: list[int]) -> None:
    node = layer()
    heard: list[tuple[int, Status]] = []
    for number in order:
        heard += notified(list(node.receive(Rumour(event(f"e{number}", number)), "n1", 0)))
    for at, (number, status) in enumerate(heard):
        late = any(earlier > number for earlier, _ in heard[:at])
        assert (status is Status.OUT_OF_ORDER) == late
    assert [number for number, _ in heard] == order


def test_the_first_hearing_spreads_and_the_second_does_not() -> None:
    node = layer(fanout=4)
    out = list(node.receive(Rumour(event("x", 1)), "n1", 0))
    targets = [effect.to for effect in out if isinstance(effect, Send)]
    assert len(set(targets)) == 4 and "n9" not in targets
    assert list(node.receive(Rumour(event("x", 1)), "n2", 0)) == []
    other = list(node.receive(Rumour(event("y", 2, "b")), "n1", 0))
    assert len(other) == 4, "topics it does not hold are passed on, not notified"
    assert node.ignored == {"duplicate": 1, "not subscribed": 1}


def test_a_full_inbox_discards_and_the_rest_is_served_one_by_one() -> None:
    node = layer(inbox=3, service_us=1000)
    out = [
        effect
        for number in range(1, 6)
        for effect in node.receive(Rumour(event(f"e{number}", number)), "n1", 50)
    ]
    assert out == [SetTimer("serve", 1050)]
    assert node.ignored == {"inbox full": 2}
    heard = []
    for now in (1050, 2050, 3050):
        served = list(node.timer("serve", now))
        heard += notified(served)
        assert (SetTimer("serve", now + 1000) in served) == (now < 3050)
    assert [number for number, _ in heard] == [1, 2, 3]


def test_what_was_forgotten_may_come_again() -> None:
    node = layer(remembered=1)
    heard = [
        notified(list(node.receive(Rumour(event(name, number)), "n1", 0)))
        for name, number in (("x", 1), ("y", 2), ("y", 2), ("x", 1))
    ]
    assert [len(each) for each in heard] == [1, 1, 0, 1]


def test_what_is_not_of_the_protocol_changes_nothing() -> None:
    node = layer()
    assert list(node.receive(Request(event("x")), "p", 0)) == []
    assert list(node.receive(Rumour(event("x")), "n1", 0)) == []
    assert node.ignored == {"sent to no sequencer": 1, "without a number": 1}


class Listener:
    def __init__(self) -> None:
        self.heard: dict[str, list[tuple[int, Status]]] = {name: [] for name in NODES}

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.heard[node].append(((delivery.stamp or {})[NUMBER], delivery.status))


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(5))
def test_with_everyone_told_by_everyone_all_end_with_the_same_events(seed: int) -> None:
    listener = Listener()
    world = World(NODES, Wan(), seed, NullRecorder(), listener)
    rng = stream(seed, "test")
    for name in NODES:
        own = stream(seed, "gossip", name)
        made = UnconsciousConsistency(name, NODES, NODES[:3], own, fanout=len(NODES) - 1)
        world.add(Node(name, [made]))
        world.subscribe(name, ["a"], "s")

    def publish(now: int) -> None:
        world.publish(rng.choice(NODES), "a", b"")

    for _ in range(100):
        world.at(rng.randrange(5_000_000), publish)
    world.run()
    assert not world.pending
    everything = sorted(listener.heard["n0"])
    assert len(everything) == 100
    for heard in listener.heard.values():
        assert sorted(number for number, _ in heard) == [number for number, _ in everything]
        assert any(status is Status.OUT_OF_ORDER for _, status in heard)
