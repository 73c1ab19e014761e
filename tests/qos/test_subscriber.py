"""The notify rule, the buffer and the statuses, on stamps made by a bench of managers."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from support.managers import Bench
from support.readers import GAP, IN, OUT, TOPICS, Reader

from unisono.core.events import Event
from unisono.qos.total_order import messages as msg


def test_events_wait_for_what_their_stamp_counts() -> None:
    reader = Reader(("a", "b"))
    reader.arrive("b1", "b", {"b": 1, "a": 1})
    assert reader.notified == []
    reader.arrive("a1", "a", {"a": 1})
    assert reader.notified == [("a1", IN), ("b1", IN)]


def test_predecessor_entries_say_what_comes_first() -> None:
    """Errata B2: with the printed stamp {a: 1} the reader could not know that b1 comes before."""
    reader = Reader(("a", "b"))
    reader.arrive("a1", "a", {"a": 1, "b": 1})
    reader.arrive("b1", "b", {"b": 1, "a": 0})
    assert reader.notified == [("b1", IN), ("a1", IN)]


def test_entries_of_topics_not_subscribed_are_ignored() -> None:
    reader = Reader(("b",))
    reader.arrive("b1", "b", {"b": 1, "a": 99, "c": 7})
    assert reader.notified == [("b1", IN)]


def test_buffer_zero_tags_what_comes_late() -> None:
    reader = Reader(("a", "b"), buffer=0)
    reader.arrive("a2", "a", {"a": 2})
    reader.arrive("a1", "a", {"a": 1})
    assert reader.notified == [("a2", GAP), ("a1", OUT)]


def test_a_full_buffer_lets_the_earliest_go_first() -> None:
    reader = Reader(("a",), buffer=2)
    for number in (5, 4, 3):
        reader.arrive(f"a{number}", "a", {"a": number})
    assert reader.notified == [("a3", GAP), ("a4", IN), ("a5", IN)]
    reader.arrive("a1", "a", {"a": 1})
    assert reader.notified[-1] == ("a1", OUT)


def test_the_time_to_live_ends_the_wait_and_the_lost_one_is_tagged_if_it_comes() -> None:
    reader = Reader(("a", "b"), hold_us=100)
    reader.arrive("b1", "b", {"b": 1, "a": 2}, now=10)
    reader.arrive("a2", "a", {"a": 2}, now=20)
    assert reader.notified == []
    reader.subscriber.timer(110)
    reader.answer()
    assert reader.notified == [("a2", GAP), ("b1", IN)]
    reader.arrive("a1", "a", {"a": 1}, now=200)
    assert reader.notified[-1] == ("a1", OUT)


def test_duplicates_are_suppressed_wherever_they_are() -> None:
    reader = Reader(("a",))
    for number in (2, 2, 1, 1, 2):
        reader.arrive(f"a{number}", "a", {"a": number})
    assert reader.notified == [("a1", IN), ("a2", IN)]
    assert sum(reader.subscriber.ignored.values()) == 3


def test_v1_an_own_number_that_is_not_new_is_out_of_order() -> None:
    """The printed rule takes b1 because its entry for a grew; the corrected one does not."""
    reader = Reader(("a", "b"), buffer=0, exact=False)
    reader.arrive("b2", "b", {"b": 2, "a": 0})
    reader.arrive("b1", "b", {"b": 1, "a": 3})
    assert reader.notified == [("b2", GAP), ("b1", OUT)]


def test_events_before_the_subscription_are_not_notified() -> None:
    reader = Reader(("a",), starts={"a": 5})
    reader.arrive("a5", "a", {"a": 5})
    reader.arrive("a6", "a", {"a": 6})
    assert reader.notified == [("a6", IN)]


def test_v2_a_new_subscription_never_moves_the_clock_back() -> None:
    """What a delivered stamp counted on a topic that was pending is behind us when it starts."""
    reader = Reader(("b",))
    reader.subscriber.subscribe(("a",), None)
    sent = reader.collect()
    reader.subscriber.arrive(Event("b1", "b", b"", "p", 1, 0, {"b": 1, "a": 4}), 0)
    for effect in sent:
        assert isinstance(effect.message, msg.Relate)
        reader.subscriber.related(msg.Related(effect.message.op))
    reader.starts = {"b": 1, "a": 2}  # asked before b1 was stamped
    reader.answer()
    reader.arrive("a3", "a", {"a": 3})
    reader.arrive("a4", "a", {"a": 4})
    reader.arrive("a5", "a", {"a": 5})
    assert reader.notified == [("b1", IN), ("a5", IN)]


def test_what_was_given_up_before_topics_were_added_is_tagged_if_it_comes() -> None:
    """b1 was numbered before a and b were related: it has no entry for a to be judged by."""
    reader = Reader(("b",), hold_us=100)
    reader.starts = {"b": 1, "a": 0}
    reader.subscribe("a")  # b1 is numbered and not here: the reader waits for it ...
    assert "a" not in reader.subscriber.subscribed
    reader.subscriber.catch_up_timer(100)  # ... until its time to live ends
    reader.answer()
    reader.arrive("a1", "a", {"a": 1}, now=110)
    reader.arrive("b1", "b", {"b": 1}, now=120)  # others may have b1 before a1
    assert reader.notified == [("a1", IN), ("b1", OUT)]


def test_v6_what_was_seen_before_an_unsubscription_still_counts() -> None:
    reader = Reader(("a", "b"), buffer=0)
    reader.arrive("a1", "a", {"a": 1})
    reader.subscriber.unsubscribe(("a",), None)
    reader.answer()
    reader.arrive("b1", "b", {"b": 1, "a": 0})  # elsewhere b1 comes before a1
    assert reader.notified == [("a1", IN), ("b1", OUT)]


def test_v7_operations_are_serial() -> None:
    reader = Reader(())
    reader.subscriber.subscribe(("a",), None)
    reader.subscriber.subscribe(("b",), None)
    asked = [e.message for e in reader.collect()]
    assert [getattr(m, "topic", "") for m in asked] == ["a"]


def stamped(
    published: list[str], subscribed: list[set[str]], rng: Random
) -> tuple[Bench, dict[str, str]]:
    """Events on these topics, stamped under these subscriptions: the bench, and their topics."""
    bench = Bench(TOPICS, rng)
    for index, topics in enumerate(subscribed):
        bench.relate(f"op{index}", topics)
    bench.run()
    events = {f"e{index}": topic for index, topic in enumerate(published)}
    for event_id, topic in events.items():
        bench.publish(event_id, topic)
    bench.run()
    return bench, events


@given(
    st.lists(st.sampled_from(TOPICS), max_size=20),
    st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=2, max_size=4),
    st.integers(0, 2**32),
)
def test_readers_of_shuffled_arrivals_agree_and_nothing_is_tagged(
    published: list[str], wanted: list[set[str]], seed: int
) -> None:
    rng = Random(seed)
    bench, events = stamped(published, wanted, rng)
    orders = []
    for topics in wanted:
        reader = Reader(tuple(sorted(topics)))
        arriving = [event for event, topic in events.items() if topic in topics]
        rng.shuffle(arriving)
        for event in arriving:
            reader.arrive(event, events[event], bench.stamps[event])
        assert sorted(reader.ids) == sorted(arriving)
        assert all(status is IN for _, status in reader.notified)
        orders.append(reader.ids)
    for one in orders:
        for other in orders:
            common = [event for event in one if event in other]
            assert common == [event for event in other if event in one]


@given(
    st.lists(st.sampled_from(TOPICS), max_size=20),
    st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_a_receiver_can_tell_lost_or_late_from_not_for_me(
    published: list[str], subscribed: list[set[str]], seed: int
) -> None:
    """It waits with an event if and only if one that comes before it, on a topic of its own, has
    not come; never for an event of a topic that it does not subscribe."""
    rng = Random(seed)
    bench, events = stamped(published, subscribed, rng)
    before = bench.before()
    for topics in subscribed:
        mine = [event for event, topic in events.items() if topic in topics]
        rng.shuffle(mine)
        late = {event for event in mine if rng.random() < 0.2}
        reader = Reader(tuple(sorted(topics)))
        for event in mine:
            if event not in late:
                reader.arrive(event, events[event], bench.stamps[event])
        assert set(reader.ids) == {
            event for event in mine if event not in late and not before[event] & late
        }
        for event in late:
            reader.arrive(event, events[event], bench.stamps[event])
        assert sorted(reader.ids) == sorted(mine)
        assert all(status is IN for _, status in reader.notified)


@given(
    st.lists(st.sampled_from(TOPICS), max_size=25),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_untagged_orders_agree_whatever_the_buffer_and_the_stamps(
    published: list[str], buffer: int, exact: bool, seed: int
) -> None:
    rng = Random(seed)
    bench = Bench(TOPICS, rng, exact=exact)
    bench.relate("op", TOPICS)
    bench.run()
    for index, topic in enumerate(published):
        bench.publish(f"e{index}", topic)
    bench.run()
    untagged = []
    for _ in range(3):
        reader = Reader(TOPICS, buffer=buffer, exact=exact)
        arriving = list(enumerate(published))
        rng.shuffle(arriving)
        for index, topic in arriving:
            if rng.random() < 0.9:  # some are lost
                reader.arrive(f"e{index}", topic, bench.stamps[f"e{index}"])
        untagged.append([event for event, status in reader.notified if status is not OUT])
    for one in untagged:
        for other in untagged:
            common = [event for event in one if event in other]
            assert common == [event for event in other if event in one]
