"""What coordinators know of subscriptions, and when these are effective."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from unisono.ens.scribe import node as node_module
from unisono.ens.scribe.interest import Subscriptions, Wishes
from unisono.ens.scribe.messages import Item, Publish, Ready
from unisono.ens.scribe.options import SECOND, Shape
from unisono.ens.scribe.recent import Recent
from unisono.sim.mesh import Flat, MeshWorld


class Trees:
    """Of a site; a topic is ready when the test says so."""

    def __init__(self) -> None:
        self.wanted: dict[str, Any] = {}

    def want(self, topic: str, now: int) -> None:
        self.wanted.setdefault(topic, SimpleNamespace(ready=False))

    def unwant(self, topic: str) -> None:
        del self.wanted[topic]

    def get(self, topic: str) -> Any:
        return self.wanted.get(topic)


def coordinator() -> tuple[Wishes, Trees, list[tuple[str, int, int]]]:
    trees, ready = Trees(), []
    sites: Any = {0: SimpleNamespace(trees=trees)}
    return Wishes(sites, lambda *told: ready.append(told)), trees, ready


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abcde")), max_size=30),
    st.randoms(use_true_random=False),
)
def test_changes_that_are_lost_or_overtaken_are_made_up_for(
    plan: list[tuple[bool, str]], rng: Random
) -> None:
    wishes, trees, ready = coordinator()
    mine = Subscriptions("me", Recent(SECOND))
    on_the_way = [mine.all]
    for add, topic in plan:
        change = mine.add(topic, "", 0) if add else mine.remove(topic)
        if change is not None:
            on_the_way.append(change)
        rng.shuffle(on_the_way)
        del on_the_way[: rng.randrange(2)]  # lost
        while on_the_way and rng.random() < 0.6:
            if not wishes.hear(on_the_way.pop(), 0):
                on_the_way.append(mine.all)
    if wishes.version("me") < mine.version:  # as a sign of life tells
        assert wishes.hear(mine.all, 0)
    assert set(wishes.topics("me")) == mine.topics == set(trees.wanted) == set(wishes.wanting)
    for topic in list(trees.wanted):
        trees.wanted[topic].ready = True
        wishes.tree_ready(0, topic)
    if mine.version:
        assert ready[-1] == ("me", 0, mine.version)
    wishes.keep(set())
    assert not trees.wanted and not wishes.wanting


def test_all_is_asked_for_once_until_it_comes() -> None:
    wishes, _, _ = coordinator()
    mine = Subscriptions("me", Recent(SECOND))
    answers = []
    for topic in "abc":
        change = mine.add(topic, "", 0)
        assert change is not None
        answers.append(wishes.hear(change, 0))
    assert answers == [False, True, True]  # the beginning was not heard here
    assert wishes.hear(mine.all, 0) and wishes.topics("me") == set("abc")
    change = mine.remove("b")
    assert change is not None
    assert wishes.hear(change, 0) and wishes.topics("me") == set("ac")
    assert mine.remove("b") is None


def test_a_subscription_waits_for_all_trees_and_not_for_ever() -> None:
    mine = Subscriptions("me", Recent(SECOND))
    mine.add("a", "first", 0)
    mine.add("b", "second", 10)
    assert mine.effective(2, -1) == []
    mine.ready(Ready(0, 2), 11)
    assert mine.effective(2, -1) == []
    mine.ready(Ready(1, 1), 12)
    assert mine.effective(2, -1) == ["first"]
    assert mine.effective(2, 10) == []
    assert mine.effective(2, 11) == ["second"]  # one tree is enough after a while
    assert not mine.waiting


def test_what_came_before_a_subscription_is_not_for_it() -> None:
    mine = Subscriptions("me", Recent(SECOND))
    mine.add("a", "", 0)
    mine.ready(Ready(0, 1, (("a", "s", 3), ("b", "s", 9))), 0)
    assert [mine.wants(Item("a", "s", number, b"")) for number in (3, 4)] == [False, True]
    assert not mine.wants(Item("b", "s", 10, b""))
    mine.remove("a")
    mine.add("a", "", 1)
    assert mine.wants(Item("a", "s", 3, b""))


def test_before_a_subscription_is_effective_nothing_earlier_is_for_it() -> None:
    mine = Subscriptions("me", Recent(SECOND))
    mine.add("a", "", 0)
    wanted = [mine.wants(Item("a", "s", number, b"")) for number in (7, 6, 8)]
    assert wanted == [True, False, True]
    mine.ready(Ready(0, 1), 0)
    assert mine.wants(Item("a", "s", 9, b"")) and not mine.wants(Item("a", "s", 5, b""))
    assert mine.wants(Item("a", "other", 5, b""))


def test_a_process_that_has_published_to_very_many_topics_is_still_heard(monkeypatch: Any) -> None:
    monkeypatch.setattr(node_module, "_NUMBERED", 4)
    heard: list[bytes] = []
    world = MeshWorld(Flat(1), Shape(), 1, lambda address, topic, frame, now: heard.append(frame))
    world.start("a", "rome")
    world.start("b", "rome", ("a",))
    world.run(10 * SECOND)
    ticket = world.subscribe("b", "t0")
    assert world.run_until(lambda: ticket in world.done, 10 * SECOND)
    for round_ in range(3):
        for number in range(6):
            world.publish("a", f"t{number}", b"%d-%d" % (round_, number))
        assert len(world.nodes["a"]._numbers) <= 4
    world.run(world.now + 10 * SECOND)
    assert sorted(heard) == [b"0-0", b"1-0", b"2-0"]


def test_what_is_published_does_not_go_around_for_ever() -> None:
    """Where those it is passed on to take each other for the coordinator."""
    world = MeshWorld(Flat(1), Shape(trees=1, backups=0), 1, lambda *arrived: None)
    for address in ("a", "b", "c"):
        world.start(address, "rome", () if address == "a" else ("a",))
        world.run(world.now + SECOND)
    node = world.nodes["b"]
    item = Item("t", "x", 1, b"")
    hops = [
        [told.message.hops for told in node.receive("c", Publish(0, item, at), world.now)]  # type: ignore[attr-defined]
        for at in (0, 7, 8)
    ]
    assert hops == [[1], [8], []]
