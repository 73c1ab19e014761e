"""Stamps and sequencing groups, with messages delivered in any order."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.managers import Bench

from unisono.core.events import first_of
from unisono.qos.total_order.messages import RequestStamp
from unisono.qos.total_order.state import ManagerState

TOPICS = tuple("abcdefgh")  # a has the highest priority
subscriptions = st.lists(st.sets(st.sampled_from(TOPICS), min_size=1, max_size=4), max_size=6)
seeds = st.integers(0, 2**32)


def related(bench: Bench, subscribed: list[set[str]]) -> None:
    for index, topics in enumerate(subscribed):
        bench.relate(f"op{index}", topics)
    bench.run()
    assert bench.related == {f"op{index}" for index in range(len(subscribed))}


@given(subscriptions, seeds)
def test_every_sequencing_group_is_a_clique_and_holds_the_subscriptions(
    subscribed: list[set[str]], seed: int
) -> None:
    bench = Bench(TOPICS, Random(seed))
    related(bench, subscribed)
    groups = {topic: set(manager.state.epoch.group) for topic, manager in bench.managers.items()}
    for topics in subscribed:
        for lower, higher in combinations(bench.order.upwards(topics), 2):
            assert higher in groups[lower]
    for topic, group in groups.items():
        assert all(bench.order.above(other, topic) for other in group)
        for lower, higher in combinations(bench.order.upwards(group), 2):
            assert higher in groups[lower], f"{topic}: {lower} and {higher} are not related"


@given(subscriptions, seeds)
def test_the_fill_is_the_elimination_of_the_lowest_first(
    subscribed: list[set[str]], seed: int
) -> None:
    """The groups are those of the errata's closure, computed here on sets."""
    bench = Bench(TOPICS, Random(seed))
    related(bench, subscribed)
    edges = {frozenset(pair) for topics in subscribed for pair in combinations(sorted(topics), 2)}
    for topic in reversed(TOPICS):
        above = [t for t in TOPICS if t < topic and frozenset((t, topic)) in edges]
        edges |= {frozenset(pair) for pair in combinations(above, 2)}
    for topic, manager in bench.managers.items():
        wanted = {t for t in TOPICS if t < topic and frozenset((t, topic)) in edges}
        assert set(manager.state.epoch.group) == wanted


@settings(deadline=None)
@given(
    subscriptions,
    st.lists(st.sampled_from(TOPICS), max_size=25),
    seeds,
    st.sampled_from([0.0, 0.2]),
)
def test_stamps_order_events_without_cycles_and_none_waits(
    subscribed: list[set[str]], published: list[str], seed: int, lossy: float
) -> None:
    bench = Bench(TOPICS, Random(seed), lossy=lossy)
    related(bench, subscribed)
    events = {f"e{index}": topic for index, topic in enumerate(published)}
    for event_id, topic in events.items():
        bench.publish(event_id, topic)
    bench.run()
    assert bench.asked == {}
    assert bench.stamps.keys() == events.keys()  # nobody waits for ever
    before = bench.before()
    assert before.keys() == events.keys()  # numbers are unique
    done: set[str] = set()
    while len(done) < len(events):
        free = {event for event in events if event not in done and before[event] <= done}
        assert free, f"a cycle among {events.keys() - done}"
        done |= free
    for topics in subscribed:  # events that one subscriber holds are ordered, one way or the other
        held = [event for event, topic in events.items() if topic in topics]
        for one, other in combinations(held, 2):
            assert (one in before[other]) != (other in before[one])


@given(subscriptions, st.lists(st.sampled_from(TOPICS), max_size=25), seeds)
def test_what_publishers_have_is_not_kept(
    subscribed: list[set[str]], published: list[str], seed: int
) -> None:
    bench = Bench(TOPICS, Random(seed))
    related(bench, subscribed)
    for index, topic in enumerate([*published, *TOPICS, *TOPICS]):
        bench.publish(f"e{index}", topic)
        if index >= len(published):
            bench.run()  # the publisher has this stamp before it asks for the next one
    for manager in bench.managers.values():
        assert len(manager.state.own) == 1
        assert all(len(kept) == 1 for kept in manager.state.epoch.kept.values())


@given(seeds)
def test_a_publishers_requests_are_taken_in_their_order(seed: int) -> None:
    bench = Bench("a", Random(seed))
    for index in range(10):
        bench.publish(f"e{index}", "a")
    bench.run()
    assert [bench.stamps[f"e{index}"]["a"] for index in range(10)] == list(range(1, 11))


@given(subscriptions, st.lists(st.sampled_from(TOPICS), max_size=15), seeds)
def test_a_manager_survives_being_packed_and_unpacked(
    subscribed: list[set[str]], published: list[str], seed: int
) -> None:
    import msgspec

    bench = Bench(TOPICS, Random(seed))
    for index, topics in enumerate(subscribed):
        bench.relate(f"op{index}", topics)
    for index, topic in enumerate(published):
        bench.publish(f"e{index}", topic)
    for _ in range(20):
        if bench.on_the_way:
            bench.step()
    for manager in bench.managers.values():
        packed = msgspec.msgpack.encode(manager.state)
        assert msgspec.msgpack.decode(packed, type=ManagerState) == manager.state
        manager.state = msgspec.msgpack.decode(packed, type=ManagerState)
    bench.run()
    assert len(bench.stamps) == len(published)


@settings(deadline=None)
@given(
    subscriptions,
    st.lists(st.sampled_from(TOPICS), max_size=20),
    seeds,
    st.sampled_from([0.0, 0.2]),
)
def test_relations_that_begin_amid_events_leave_none_waiting(
    subscribed: list[set[str]], published: list[str], seed: int, lossy: float
) -> None:
    bench = Bench(TOPICS, Random(seed), lossy=lossy)
    actions = [("relate", t) for t in subscribed] + [("publish", t) for t in published]
    bench.rng.shuffle(actions)
    for index, (kind, what) in enumerate(actions):
        if kind == "relate":
            bench.relate(f"op{index}", what)
        else:
            bench.publish(f"e{index}", str(what))
        for _ in range(bench.rng.randrange(4)):
            if bench.on_the_way:
                bench.step()
    bench.run()
    assert len(bench.stamps) == len(published)
    assert len(bench.related) == len(subscribed)


@given(seeds)
def test_a_publisher_in_a_new_life_is_not_taken_for_the_former(seed: int) -> None:
    bench = Bench("a", Random(seed))
    manager = bench.managers["a"]
    for life, count in ((0, 3), (1, 2), (4, 3)):
        for turn in range(1, count + 1):
            name = f"e{life}.{turn}"
            bench._ask(name, RequestStamp("a", 0, name, "p", first_of(life) + turn))
        bench.run()
    assert [bench.stamps[f"e{life}.{turn}"]["a"] for life, turn in ((0, 1), (1, 1), (4, 1))] == [
        1,
        4,
        6,
    ]
    late = RequestStamp("a", 0, "e1.9", "p", first_of(1) + 3)
    assert manager.take(late) == []


@given(seeds)
def test_one_publisher_that_does_not_confirm_keeps_nothing_but_its_own(seed: int) -> None:
    """What others have is freed at the managers above all the same."""
    bench = Bench("ab", Random(seed))
    related(bench, [{"a", "b"}])
    bench._ask("silent", RequestStamp("b", 0, "silent", "gone", 1))
    bench.run()
    for index in range(50):
        bench.publish(f"e{index}", "b")
        bench.run()
    assert len(bench.managers["a"].state.epoch.kept["b"]) == 2  # the silent one's and the last
