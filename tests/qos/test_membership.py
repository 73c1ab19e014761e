"""Views: newcomers find each other, everyone goes through the same views, leavers leave."""

from __future__ import annotations

from random import Random

import pytest

from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.qos.membership import Membership
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.views import View
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


@pytest.mark.parametrize("clients", [0, 3])
def test_a_crowd_forms_one_bus(clients: int) -> None:
    for seed in range(60):
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


def test_whoever_leaves_and_in_whatever_order_the_rest_goes_on() -> None:
    for seed in range(60):
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


def test_all_may_leave_at_once() -> None:
    for seed in range(60):
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
