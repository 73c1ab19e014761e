"""The columnar engine: its queue, delays, routes and models, and the order while topics swap."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import combinations, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.seeds import seed_range

from unisono.errors import BadInput, Unsupported
from unisono.sim.channels import HashedDelays, Links, Wan, node_key, quantiles_us
from unisono.sim.columnar import calendar as cal
from unisono.sim.columnar import links as lnk
from unisono.sim.columnar import models, overlay
from unisono.sim.columnar.engine import Adaptive, Plan, Result, direct, node_names, pastry, run
from unisono.sim.columnar.managers import close_relation
from unisono.sim.columnar.swaps import announced, has_to_wait
from unisono.sim.columnar.tables import EVENT, MANAGER, OUT_OF_ORDER, PLACE, RUN, bits, filled

# A push with a delay, or (None) a pop.
operations = st.lists(
    st.one_of(st.none(), st.integers(0, 50), st.integers(0, 10**9)), min_size=1, max_size=400
)


@settings(deadline=None)
@given(operations, st.integers(0, 10**12))
def test_the_calendar_is_a_stable_priority_queue(steps: list[int | None], start: int) -> None:
    queue, now = cal.calendar(1), start
    heap: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step is not None:
            if cal.room(queue.slot, queue.state) == 0:
                queue = cal.grown(queue)
            cal.push(*queue, now + step, number)
            heapq.heappush(heap, (now + step, number))
        elif heap:
            now, item = heapq.heappop(heap)
            assert cal.next_time(queue.slot, queue.first, queue.state) == now
            assert cal.pop(*queue) == item
    while heap:
        now, item = heapq.heappop(heap)
        assert cal.next_time(queue.slot, queue.first, queue.state) == now
        assert cal.pop(*queue) == item
    assert cal.next_time(queue.slot, queue.first, queue.state) == -1


@settings(deadline=None)
@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_both_sides_draw_the_same_delays(seed: int, hops: list[tuple[int, int]]) -> None:
    names = node_names(5)
    wan = Wan(draws="hashed", slow_share=0.5)
    theirs, ours = Links(wan, seed, Random(0)), lnk.make_links(names, wan, seed)
    for step, (source, target) in enumerate(hops):
        now = 1000 * step
        expected = theirs.arrival_us(names[source], names[target], now)
        assert lnk.arrival_us(*ours, source, target, now) == expected
        if step % 20 == 19:
            ours = lnk.grown(ours)


def test_hashed_delays_have_the_papers_figures() -> None:
    delays = HashedDelays(Wan(), 3)
    keys = [node_key(name) for name in node_names(60)]
    pairs = list(combinations(keys, 2))
    slow = [pair for pair in pairs if delays.is_slow(*pair)]
    assert 0.15 < len(slow) / len(pairs) < 0.25
    fast = next(pair for pair in pairs if pair not in slow)
    drawn = np.array([delays.delay_us(*fast, now) for now in range(20_000)])
    expected = np.array(quantiles_us(21.0, 10.85, 1.0))
    assert drawn.min() >= 1000
    assert abs(drawn.mean() - expected.mean()) < 400
    assert abs(drawn.std() - expected.std()) < 400


def test_the_engine_refuses_delays_it_cannot_follow() -> None:
    with pytest.raises(Unsupported, match="hashed"):
        lnk.make_links(("a", "b"), Wan(), 1)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_the_fill_is_the_elimination_of_the_lowest_first(seed: int) -> None:
    rng = Random(seed)
    topics = rng.randint(1, 80)
    pairs = {tuple(sorted(rng.sample(range(topics), 2))) for _ in range(topics) if topics > 1}
    order = rng.sample(range(topics), topics)
    matrix = np.zeros((topics, topics), np.bool_)
    for a, b in pairs:
        matrix[a, b] = matrix[b, a] = True
    place = filled(PLACE, topics)
    place["topic"] = order
    rows = bits(matrix)
    close_relation(place, rows)
    for position in range(topics - 1, -1, -1):
        group = [other for other in order[:position] if matrix[order[position], other]]
        for a, b in combinations(group, 2):
            matrix[a, b] = matrix[b, a] = True
    assert (rows == bits(matrix)).all()


@given(st.integers(1, 3000), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_routes_arrive_in_a_logarithmic_number_of_hops(nodes: int, seed: int) -> None:
    ids = overlay.node_ids(nodes, seed)
    rng = Random(seed)
    for _ in range(20):
        at, target = rng.randrange(nodes), rng.randrange(nodes)
        hops = 0
        while at != target:
            at = overlay.next_hop(ids, at, target)
            hops += 1
        assert hops <= 6


@pytest.mark.parametrize(("model", "share"), models.SHAPES.items())
def test_the_power_law_meets_the_stated_share(model: str, share: float) -> None:
    chance = models.weights(model, 1000)
    assert chance.sum() == pytest.approx(1)
    assert chance[: round(1000 * share)].sum() == pytest.approx(models.MOST, abs=1e-6)


def test_subscriptions_are_distinct_and_follow_the_model() -> None:
    start, topic = models.subscriptions(500, 200, 20, "power-0.901", 1)
    held = topic.reshape(500, 20)
    assert (np.diff(start) == 20).all()
    assert all(len(set(row)) == 20 for row in held.tolist())
    counts = np.bincount(topic, minlength=200)
    assert counts[0] == 500 and counts[:10].mean() > 3 * counts[100:].mean()


# The order while topics change places.


def adaptive_run(seed: int, exact: bool, buffer: int | None, metric: str) -> Result:
    rng = Random(seed)
    nodes, topics = rng.randint(3, 12), rng.randint(2, 6)
    network = (direct if rng.random() < 0.5 else pastry)(nodes, topics, seed)
    chance = models.weights("power-0.901", topics)
    return run(
        Plan(
            network=network,
            subscriptions=models.subscriptions(
                nodes, topics, rng.randint(1, topics), "uniform", seed
            ),
            publications=models.publications(nodes, chance, rng.choice((2, 20, 100)), 4, seed),
            order=np.array(rng.sample(range(topics), topics), np.int32),
            seed=seed,
            exact=exact,
            buffer=buffer,
            adaptive=Adaptive(
                metric=metric,  # type: ignore[arg-type]
                alpha=0.5,
                beta=0.1,
                window=8,
                every_s=rng.choice((0, 0.3)),
                waits=rng.random() < 0.7,
            ),
            log=True,
        )
    )


def sequences(result: Result) -> dict[int, list[int]]:
    """By node: the events it was notified of, untagged."""
    found: dict[int, list[int]] = {}
    for row in result.tables.log[: int(result.tables.run[0]["logged"])]:
        if row["status"] != OUT_OF_ORDER:
            found.setdefault(int(row["node"]), []).append(int(row["event"]))
    return found


@pytest.mark.seeded
@pytest.mark.parametrize("metric", ["paper", "window"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("buffer", [None, 0, 2])
def test_the_order_holds_while_topics_change_places(
    metric: str, exact: bool, buffer: int | None
) -> None:
    swaps = 0
    for seed in seed_range(25):
        result = adaptive_run(seed, exact, buffer, metric)
        swaps += result.swaps
        assert result.tables.run[0]["logged"] == result.tables.log.size, "someone was not notified"
        for one, other in combinations(sequences(result).values(), 2):
            common = set(one) & set(other)
            assert [e for e in one if e in common] == [e for e in other if e in common], seed
        if exact and buffer is None:
            assert result.tagged_share == 0, seed
    assert swaps > 10


@pytest.mark.seeded
def test_all_events_of_an_epoch_come_before_those_of_the_next() -> None:
    for seed in seed_range(25):
        result = adaptive_run(seed, True, None, "window")
        epoch = result.tables.event["epoch"]
        for heard in sequences(result).values():
            epochs = [int(epoch[event]) for event in heard]
            assert epochs == sorted(epochs)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"order": np.array([0, 0], np.int32)}, "each of the 2 topics once"),
        ({"publications": (np.array([5, 1]), *2 * (np.zeros(2, np.int32),))}, "sort them"),
        ({"publications": (np.array([5]), *2 * (np.array([7], np.int32),))}, "from 0 to 1"),
        ({"subscriptions": (np.zeros(2, np.int64), np.zeros(0, np.int32))}, "each of the 3 nodes"),
        ({"buffer": -1}, "below 0"),
        ({"adaptive": Adaptive(alpha=0)}, "alpha"),
    ],
)
def test_plans_that_make_no_sense_are_refused(change: dict[str, Any], why: str) -> None:
    plan = Plan(
        network=direct(3, 2, 1),
        subscriptions=models.subscriptions(3, 2, 2, "all", 1),
        publications=models.publications(3, models.weights("uniform", 2), 1.0, 5, 1),
        order=np.arange(2, dtype=np.int32),
        seed=1,
    )
    assert run(plan).tagged_share == 0
    with pytest.raises(BadInput, match=why):
        run(replace(plan, **change))


def test_a_run_without_publications_is_over_at_once() -> None:
    plan = Plan(
        network=pastry(3, 2, 1),
        subscriptions=models.subscriptions(3, 2, 2, "all", 1),
        publications=(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)),
        order=np.arange(2, dtype=np.int32),
        seed=1,
    )
    assert run(plan).steps == 0


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(25))
def test_sorted_orders_come_one_by_one_and_have_the_active_topics_on_top(seed: int) -> None:
    result = adaptive_run(seed, False, 0, "window")
    place = result.tables.place[1 : result.swaps + 1]
    for order in place:
        active = order["active"][order["topic"]].tolist()
        assert active == sorted(active, reverse=True)
        assert order["topic"][order["rank"]].tolist() == list(range(order.size))
    every = int(result.tables.run[0]["every"])
    assert all(b - a >= every for a, b in pairwise(result.changed_us))


@pytest.mark.seeded
@pytest.mark.parametrize("metric", ["paper", "window"])
def test_a_publishers_events_on_a_topic_keep_their_order(metric: str) -> None:
    for seed in seed_range(25):
        result = adaptive_run(seed, True, None, metric)
        last: dict[tuple[int, int], tuple[int, int]] = {}
        for row in result.tables.event:
            who, number = (row["publisher"], row["topic"]), (row["epoch"], row["number"])
            assert last.get(who, (0, 0)) < number, seed
            last[who] = number


def test_no_request_overtakes_one_that_waits() -> None:
    """Also when its manager has heard of the new order, from a stamp, before the coordinator."""
    run_table, event = filled(RUN, 1, waits=1, epoch=1), filled(EVENT, 2)
    manager = filled(MANAGER, 2, first=-1, last=-1)
    place = filled(PLACE, 2, 2)
    place["topic"] = place["rank"] = [[1, 0], [0, 1]]
    here = np.zeros(3, np.int64)
    assert has_to_wait(run_table, event, manager, place, 0)
    manager[0]["epoch"] = 1
    assert has_to_wait(run_table, event, manager, place, 1)
    assert announced(run_table, event, manager, place, 0, here) == 2 and here[:2].tolist() == [0, 1]
    assert not has_to_wait(run_table, event, manager, place, 1)


def test_a_topic_that_comes_too_soon_after_a_change_waits_for_the_next() -> None:
    result = publish_in_turn([0, 1_000_000], Adaptive(every_s=10.0), (9, 8))
    first, second = result.changed_us
    assert second == first + 10_000_000
    stamped = int(result.tables.event["stamped"][1])
    assert second < stamped < second + 2_000_000


def publish_in_turn(times_us: list[int], rule: Adaptive, topics: tuple[int, ...] = (9,)) -> Result:
    """One publisher publishes on one or more of ten topics that all nodes subscribe to, in turn."""
    count = len(times_us)
    return run(
        Plan(
            network=pastry(30, 10, 1),
            subscriptions=models.subscriptions(30, 10, 10, "all", 1),
            publications=(
                np.array(times_us),
                np.resize(np.array(topics, np.int32), count),
                np.full(count, 4, np.int32),
            ),
            order=np.arange(10, dtype=np.int32),
            seed=1,
            exact=False,
            buffer=0,
            adaptive=rule,
        )
    )


@pytest.mark.parametrize("waits", [True, False])
def test_a_popular_topic_rises_at_its_first_event(waits: bool) -> None:
    result = publish_in_turn([1_000_000 * second for second in range(60)], Adaptive(waits=waits))
    assert result.swaps == 1  # straight to the top
    assert result.stamp_bytes[0] == 24 * (2 if waits else 11)
    assert result.stamp_bytes[-1] == 24 * 2
    assert result.tables.place[1]["topic"].tolist() == [9, *range(9)]


def test_events_that_wait_for_a_better_place_keep_their_order() -> None:
    result = publish_in_turn([1000 * step for step in range(500)], Adaptive())
    event = result.tables.event
    assert event["number"].tolist() == list(range(1, 501)) and (event["epoch"] == 1).all()


def test_the_printed_rule_exchanges_two_topics() -> None:
    result = publish_in_turn([1_000_000 * second for second in range(60)], Adaptive(metric="paper"))
    assert result.swaps == 1
    assert result.tables.place[1]["topic"].tolist() == [9, *range(1, 9), 0]


def test_between_busy_topics_the_measure_decides() -> None:
    """A place is lost to a topic with clearly more recent events, not to one with a few more."""
    rule, changes = Adaptive(window=40, every_s=0), []
    for few, many in ((9, 11), (2, 18)):
        topics = np.array([0, 1] * 10 + [0] * few + [1] * many, np.int32)
        plan = Plan(
            network=pastry(30, 2, 1),
            subscriptions=models.subscriptions(30, 2, 2, "all", 1),
            publications=(
                1_000_000 * np.arange(topics.size),
                topics,
                np.zeros(topics.size, np.int32),
            ),
            order=np.arange(2, dtype=np.int32),
            seed=1,
            adaptive=rule,
        )
        changes.append(run(plan).swaps)
    assert changes[0] < changes[1], changes
