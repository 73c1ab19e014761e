"""Views: newcomers find each other, everyone goes through the same views, leavers leave."""

from __future__ import annotations

from random import Random

import pytest
from support.seeds import seed_range, some

from unisono.core.effects import CancelTimer, Done, Effect, Fail, Send, SetTimer
from unisono.core.events import EVERYONE, Control
from unisono.core.limits import Limits
from unisono.core.node import JOIN, Node
from unisono.qos.membership import Membership
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.views import Hello, Known, View, Willing
from unisono.sim.channels import Wan
from unisono.sim.check import Checks
from unisono.sim.world import World
from unisono.trace.memory import MemoryRecorder

SECOND = 1_000_000
NAMES = [f"n{number}" for number in range(7)]


def crowd(seed: int, clients: int = 0) -> tuple[World, MemoryRecorder, Random]:
    """Seven processes that connect within two seconds of each other, in any order."""
    rng = Random(seed)
    recorder = MemoryRecorder()
    world = World(NAMES, Wan(fifo=False), seed, recorder, Checks())
    for index, name in enumerate(NAMES):
        members = Membership(
            name,
            Limits(),
            manage=index >= clients,
            period_us=SECOND,
            discovery_us=4 * SECOND,
            patience_us=60 * SECOND,
        )
        layer = TotalOrder(name, members, retry_us=3 * SECOND)
        join_at(world, rng.randrange(2 * SECOND), Node(name, [layer]))
    return world, recorder, rng


def join_at(world: World, at: int, node: Node) -> None:
    world.at(at, lambda now: world.add(node))


def close_at(world: World, at: int, name: str) -> None:
    world.at(at, lambda now: world.close(name))


def views_of(recorder: MemoryRecorder) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    for row in recorder.tables["control"]:
        seen.setdefault(row["node"], []).append(row["detail"])
    return seen


@pytest.mark.seeded
@pytest.mark.parametrize("clients", [0, 3])
def test_a_crowd_forms_one_bus(clients: int) -> None:
    for seed in seed_range(some(40)):
        world, recorder, _ = crowd(seed, clients)
        world.run(100 * SECOND)
        assert not world.pending and not world.errors, seed
        views = views_of(recorder)
        assert len({seen[-1] for seen in views.values()}) == 1, seed
        (last,) = {seen[-1] for seen in views.values()}
        assert sorted(last.partition(": ")[2].split()) == NAMES[clients:]
        longest = max(views.values(), key=len)
        for seen in views.values():  # everyone saw parts of the same sequence
            places = [longest.index(view) for view in seen]
            assert places == sorted(places)


@pytest.mark.seeded
def test_whoever_leaves_and_in_whatever_order_the_rest_goes_on() -> None:
    for seed in seed_range(some(40)):
        world, _, rng = crowd(seed)
        world.run(100 * SECOND)
        leaving = rng.sample(NAMES, rng.randint(1, 6))
        for name in leaving:
            close_at(world, 100 * SECOND + rng.randrange(SECOND), name)
        world.run(300 * SECOND)
        assert not world.pending and not world.errors, seed
        assert sorted(world.nodes) == sorted(set(NAMES) - set(leaving))
        stays = next(iter(world.nodes))
        world.subscribe(stays, ["a", "b"], "s")
        world.publish(stays, "a", b"")
        world.publish(stays, "b", b"")
        world.run(400 * SECOND)
        assert not world.pending, seed


@pytest.mark.seeded
def test_all_may_leave_at_once() -> None:
    for seed in seed_range(some(40)):
        world, _, rng = crowd(seed)
        world.run(100 * SECOND)
        for name in NAMES:
            close_at(world, 100 * SECOND + rng.randrange(SECOND // 2), name)
        world.run(300 * SECOND)
        assert not world.pending and not world.nodes, seed


def test_a_process_that_was_busy_asks_again_before_it_founds_a_bus() -> None:
    members = Membership("late", Limits(), discovery_us=1000)
    members.start(0)
    members.timer("discover", 50_000)  # the timer came late: answers may wait to be read
    assert members.view is None
    members.timer("discover", 51_000)
    assert members.view is not None


def test_a_newcomer_may_join_a_bus_of_any_age() -> None:
    world = World(["n0", "n1"], Wan(), 1, MemoryRecorder(), Checks())
    old = View("n0", 5000, ("n0",))
    world.add(Node("n0", [TotalOrder("n0", Membership("n0", Limits(), initial=old))]))
    world.subscribe("n0", [f"t{number}" for number in range(8)], "s")
    newcomer = Membership("n1", Limits(), discovery_us=4 * SECOND)
    world.add(Node("n1", [TotalOrder("n1", newcomer)]))
    world.run()
    for number in range(8):
        world.publish("n0", f"t{number}", b"")
    world.run()
    assert not world.pending
    assert newcomer.view is not None and newcomer.view.number == 5001


class Rooms:
    """Processes that hear each other within a room; doors open later."""

    def __init__(self) -> None:
        self.now = 0
        self.members: dict[str, Membership] = {}
        self.room: dict[str, int] = {}
        self.failed: dict[str, str] = {}
        self._timers: dict[tuple[str, str], int] = {}
        self._on_the_way: list[tuple[str, str, Control]] = []

    def enter(self, name: str, room: int, manage: bool = True) -> Membership:
        self.room[name] = room
        members = self.members[name] = Membership(
            name, Limits(), manage=manage, period_us=SECOND, discovery_us=SECOND
        )
        self._carry(name, members.start(self.now))
        return members

    def open_doors(self) -> None:
        self.room = dict.fromkeys(self.room, 0)

    def leave(self, name: str) -> None:
        """Without a word."""
        del self.members[name], self.room[name]

    def run(self, seconds: int) -> None:
        end = self.now + seconds * SECOND
        while True:
            while self._on_the_way:
                name, to, message = self._on_the_way.pop(0)
                for other in [n for n in self.room if to in (n, EVERYONE) and n != name]:
                    if self.room[other] == self.room.get(name):
                        self._carry(other, self.members[other].receive(message, name, self.now))
            due = [(at, key) for key, at in self._timers.items() if key[0] in self.members]
            if not due or min(due)[0] > end:
                break
            self.now, (name, timer) = min(due)
            del self._timers[name, timer]
            self._carry(name, self.members[name].timer(timer, self.now))
        self.now = end

    def _carry(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._on_the_way.append((name, effect.to, effect.message))
            elif isinstance(effect, SetTimer):
                self._timers[name, effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self._timers.pop((name, effect.key), None)
            elif isinstance(effect, Fail):
                self.failed[name] = effect.error
        members = self.members[name]
        inside = members.view is not None and name in members.view.members
        if inside and not members.is_ready(name):
            self._carry(name, members.set_ready(self.now))

    def seen(self) -> set[tuple[str, ...]]:
        return {m.view.members for m in self.members.values() if m.view is not None}


def two_buses(newcomer: str) -> Rooms:
    rooms = Rooms()
    for name in ("b", "c"):
        rooms.enter(name, 1)
        rooms.run(5)
    rooms.enter(newcomer, 2)
    rooms.run(5)
    assert rooms.seen() == {("b", "c"), (newcomer,)}
    return rooms


@pytest.mark.parametrize("newcomer", ["a", "z"])
def test_a_bus_that_has_put_nothing_in_order_gives_in(newcomer: str) -> None:
    """As a first node that comes back, and finds the others only after it has begun anew."""
    rooms = two_buses(newcomer)
    rooms.members["b"].topics = lambda: {"t": 5}
    rooms.enter("client", 1, manage=False)
    rooms.open_doors()
    rooms.run(20)
    assert not rooms.failed
    assert rooms.seen() == {("b", "c", newcomer)}


def test_of_two_buses_that_are_idle_the_smaller_id_stays() -> None:
    rooms = Rooms()
    for name, room in (("a", 1), ("b", 2)):
        rooms.enter(name, room)
    rooms.run(5)
    rooms.open_doors()
    rooms.run(20)
    assert not rooms.failed
    assert rooms.seen() == {("a", "b")}


def test_two_buses_with_topics_are_refused() -> None:
    rooms = two_buses("a")
    for name in ("a", "b"):
        rooms.members[name].topics = lambda: {"t": 0}
    rooms.open_doors()
    rooms.run(5)
    assert rooms.failed.keys() == {"a", "b", "c"}
    assert "cannot be joined" in rooms.failed["a"]


def test_whoever_is_left_of_a_bus_is_told_that_it_is_over() -> None:
    rooms = Rooms()
    rooms.enter("a", 0)
    rooms.run(5)
    rooms.enter("client", 0, manage=False)
    rooms.run(5)
    rooms.leave("a")
    rooms.run(20)
    assert not rooms.failed
    rooms.enter("b", 1)  # it hears of nobody
    rooms.run(5)
    rooms.open_doors()
    rooms.run(5)
    assert rooms.failed.keys() == {"client"} and "connect again" in rooms.failed["client"]


def test_a_process_whose_timers_are_always_late_joins_all_the_same() -> None:
    """It listens longer each time; and others whose word comes late are let in."""
    late_us = 90_000
    node = Membership("a", Limits(), discovery_us=20_000)
    now, out = 0, node.start(0)
    for _ in range(8):
        timer = next((e for e in out if isinstance(e, SetTimer)), None)
        if timer is None:
            break
        now = timer.at_us + late_us
        out = node.timer(timer.key, now)
    assert Done(JOIN) in out
    assert node.view is not None
    known = node.receive(Hello(True, "exact"), "b", now)
    (answer,) = [e.message for e in known if isinstance(e, Send)]
    assert isinstance(answer, Known)
    node.receive(Willing(answer.token), "b", now + late_us)
    assert node.view.members == ("a", "b")
