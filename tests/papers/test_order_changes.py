"""Thesis section 3.4, swaps and losses, and its flaws: the printed rule fails where ours holds."""

from __future__ import annotations

from random import Random

from support.managers import Bench
from support.readers import IN, OUT, Reader

from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.adapt import Adapt, Popularity, printed_measure
from unisono.qos.total_order.manager import EPOCH
from unisono.qos.total_order.order import Orders, TopicOrder, close_relation
from unisono.qos.views import View

NEW_ORDER = View("bus", 2, ("n",), epoch=1, order=("b", "a", "c"), old_order=("a", "b", "c"))


def changing_bench() -> Bench:
    """a > b > c, all subscribed together; then the order becomes b > a > c."""
    bench = Bench("abc", Random(1))
    bench.relate("s", "abc")
    bench.run()
    return bench


def change_order(bench: Bench) -> None:
    """Close the first epoch everywhere and open the second, as the members would."""
    closings = {}
    for topic, manager in bench.managers.items():
        (_, closing), *_ = manager.take(msg.Close(topic, 0, 0))
        assert isinstance(closing, msg.Closing)
        closings[topic] = closing
    bench.orders.follow(NEW_ORDER)
    sets = {frozenset((c.topic, *rest)) for c in closings.values() for rest in c.sets}
    groups = close_relation(sets, bench.orders[1])
    for topic, manager in bench.managers.items():
        lower = {t: closings[t].final for t, group in groups.items() if topic in group}
        passing = {t: c.group[topic] for t, c in closings.items() if topic in c.group}
        opened = msg.Open(topic, 0, 1, tuple(groups.get(topic, ())), lower, passing, ())
        bench.on_the_way.extend(letter for _, letter in manager.take(opened))
    bench.on_the_way = [m for m in bench.on_the_way if not isinstance(m, msg.Opened)]


def test_v4_a_group_does_not_shrink_while_events_are_in_flight() -> None:
    """Nothing that a subscriber says takes a topic out of a group; only a new epoch does."""
    bench = changing_bench()
    groups = {topic: dict(m.state.epoch.group) for topic, m in bench.managers.items()}
    reader = Reader(("a", "b"))
    reader.subscriber.unsubscribe(("b",), None)
    assert not any(isinstance(sent.message, msg.ToTopic) for sent in reader.collect())
    assert groups == {topic: m.state.epoch.group for topic, m in bench.managers.items()}


def test_v8_a_manager_that_infers_the_order_from_a_stamp_knows_only_a_part() -> None:
    """Printed: the new rule is read off the stamp. The way (b, a) of a stamp is silent on d."""
    old, new = TopicOrder("abcd"), TopicOrder("bdac")
    way = ("b", "a")  # the topics in a stamp that a's manager sees
    inferred = TopicOrder([*way, *(t for t in old.listed if t not in way)])
    assert inferred.above("a", "d") != new.above("a", "d")
    orders = Orders(old)
    orders.follow(View("bus", 2, ("n",), epoch=1, order=new.listed, old_order=old.listed))
    assert orders[1].listed == new.listed and orders[0].listed == old.listed


def test_v9_events_of_an_earlier_order_are_late() -> None:
    """Without an entry for Ts, the two stamps have nothing in common and both pass as in order."""
    stamps = {"b1": {"b": 1, EPOCH: 1}, "a1": {"a": 1, "c": 0}}
    printed = [{t: n for t, n in stamp.items() if t != EPOCH} for stamp in stamps.values()]
    assert not printed[0].keys() & printed[1].keys()
    reader = Reader(("a", "b"), exact=False)
    reader.subscriber._orders.follow(NEW_ORDER)
    reader.subscriber.new_view(1, 0)
    reader.arrive("b1", "b", stamps["b1"])
    reader.arrive("a1", "a", stamps["a1"])
    assert reader.notified == [("b1", IN), ("a1", OUT)]


def test_v10_a_subscription_under_way_through_a_change_is_asked_for_again() -> None:
    """Under the old order it would go from c to b to a; b is above a now and would be passed by."""
    bench = Bench("abc", Random(1))
    change_order(bench)
    late = msg.Relate("c", 0, 0, ("b", "a"), "s2", "subscriber", False)
    assert bench.managers["c"].take(late) == []
    assert bench.managers["c"].state.epoch.number == 1
    again = msg.Relate("c", 0, 1, ("a", "b"), "s2", "subscriber", False)
    bench.on_the_way.append(again)
    bench.run()
    assert "s2" in bench.related
    assert list(bench.managers["c"].state.epoch.group) == ["a", "b"]
    assert list(bench.managers["a"].state.epoch.group) == ["b"]


def test_l1_stamps_of_the_old_order_finish_their_way() -> None:
    """Printed: every manager discards them; sent again they are discarded again, for ever."""
    bench = changing_bench()
    bench.publish("old", "c")
    bench.step()  # numbered, and on its way to b
    change_order(bench)
    bench.publish("new", "c")
    bench.run()
    assert bench.stamps["old"] == {"c": 1, "b": 0, "a": 0}
    assert bench.stamps["new"] == {"c": 2, EPOCH: 1, "a": 0, "b": 0}


def test_an_epoch_comes_before_the_next_one() -> None:
    """b is above a now: without the count of the old epoch b1 could go before a1."""
    bench = changing_bench()
    bench.publish("a1", "a")
    bench.run()
    change_order(bench)
    bench.publish("b1", "b")
    bench.run()
    assert bench.stamps["b1"]["a"] == 1


def test_l2_a_request_that_was_lost_keeps_its_turn() -> None:
    """Printed: requests are numbered as they come, so the one sent again is behind the next."""
    bench = Bench("a", Random(1))
    bench.publish("first", "a")
    bench.on_the_way.clear()  # lost
    bench.publish("second", "a")
    bench.run()
    assert bench.stamps == {"first": {"a": 1}, "second": {"a": 2}}


def idle(topic: str) -> int:
    return 100


def test_s1_with_counts_since_the_start_a_place_once_won_is_kept_for_ever() -> None:
    alpha, beta = 0.1, 0.2
    assert printed_measure(45, alpha) + beta > 1 >= printed_measure(10**9, alpha)
    events = ["up"] * 50 + ["low"] * 500  # popularity has changed
    paper = Popularity(Adapt(count="paper", alpha=alpha, beta=beta))
    recent = Popularity(Adapt(count="recent", alpha=alpha, beta=beta))
    assert paper.handled("up", events, 0, idle) is None
    assert recent.handled("up", events, 0, idle) == "low"


def test_a_topic_of_a_busy_process_does_not_rise() -> None:
    """The metric looks at resources too: what the processes say is free weighs the counts."""
    events = ["up"] * 20 + ["low"] * 60
    shares = ({"up": 100, "low": 100}, {"up": 100, "low": 20})
    asked = [Popularity(Adapt()).handled("up", events, 0, free.__getitem__) for free in shares]
    assert asked == ["low", None]


def test_the_leader_sorts_by_events_and_free_resources() -> None:
    order = TopicOrder(("a", "b", "c"))
    counts = {"a": 10, "b": 60, "c": 40}

    def sorted_with(free: dict[str, int]) -> tuple[str, ...] | None:
        return Popularity(Adapt()).change(order, msg.Swap(0, "a", "b"), counts, free.__getitem__, 0)

    assert sorted_with({"a": 100, "b": 100, "c": 100}) == ("b", "c", "a")
    assert sorted_with({"a": 100, "b": 10, "c": 100}) == ("c", "a", "b")
