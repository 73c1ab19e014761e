"""Topic order and placement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unisono.qos.total_order.order import TopicOrder, place

names = st.text("abcdef", min_size=1, max_size=4)


@given(st.lists(names, unique=True), st.lists(names, unique=True))
def test_the_topic_order_is_total_and_strict(listed: list[str], topics: list[str]) -> None:
    order = TopicOrder(listed)
    upwards = order.upwards(topics)
    assert sorted(upwards) == sorted(topics)
    for index, lower in enumerate(upwards):
        assert not order.above(lower, lower)
        for higher in upwards[index + 1 :]:
            assert order.above(higher, lower) and not order.above(lower, higher)
    known = [topic for topic in listed if topic in topics]
    assert [t for t in reversed(upwards) if t in known] == known


@given(names, st.lists(names, min_size=2, unique=True))
def test_only_what_a_leaver_held_moves(topic: str, members: list[str]) -> None:
    owner = place(topic, tuple(members))
    assert owner == place(topic, tuple(reversed(members)))
    for leaver in members:
        rest = tuple(member for member in members if member != leaver)
        if leaver != owner:
            assert place(topic, rest) == owner
        else:
            assert place(topic, rest) in rest


def test_topics_spread_over_members() -> None:
    members = tuple(f"m{i}" for i in range(10))
    held = [place(f"topic{i}", members) for i in range(1000)]
    assert all(50 < held.count(member) < 160 for member in members)
