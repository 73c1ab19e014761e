"""The topic order, the closure of relations under it, and the placement of managers on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from unisono.core.entropy import digest
from unisono.qos.views import View

_REMEMBERED = 16  # epochs: events of earlier ones are compared by the oldest order known


class TopicOrder:
    """A total order on topics: those listed first, as listed; then all others by name.

    `above(a, b)` reads "a precedes b": a has the higher priority, and its manager the later word.
    """

    def __init__(self, listed: Sequence[str] = ()) -> None:
        self.listed = tuple(listed)
        self._rank = {topic: rank for rank, topic in enumerate(listed)}
        assert len(self._rank) == len(listed), "a topic is listed twice"

    def key(self, topic: str) -> tuple[int, str]:
        return (self._rank.get(topic, len(self._rank)), topic)

    def above(self, topic: str, other: str) -> bool:
        if not self._rank:
            return topic < other
        return self.key(topic) < self.key(other)

    def all_above(self, topics: Sequence[str], other: str) -> bool:
        if not self._rank:
            return not topics or max(topics) < other
        return all(self.above(topic, other) for topic in topics)

    def upwards(self, topics: Iterable[str]) -> list[str]:
        """From the lowest priority to the highest: the way a stamp travels."""
        return sorted(topics, key=self.key, reverse=True)


class Orders:
    """The topic order of each epoch that this node has heard of."""

    def __init__(self, first: TopicOrder) -> None:
        self._orders = {0: first}

    def follow(self, view: View) -> None:
        """A view tells its order and the one before. That of epoch 0 may be agreed on otherwise."""
        if view.epoch > 1 or view.old_order:
            self._orders[view.epoch - 1] = TopicOrder(view.old_order)
        if view.epoch or view.order:
            self._orders[view.epoch] = TopicOrder(view.order)
        for old in [epoch for epoch in self._orders if epoch < view.epoch - _REMEMBERED]:
            del self._orders[old]

    def __contains__(self, epoch: int) -> bool:
        return epoch in self._orders

    def __getitem__(self, epoch: int) -> TopicOrder:
        """The order of an epoch; of one before this node's time, the oldest that it knows."""
        known = self._orders.get(epoch)
        return known if known is not None else self._orders[min(self._orders)]


def relation_above(sets: Iterable[frozenset[str]], order: TopicOrder) -> dict[str, list[str]]:
    """For each topic those above it, upwards, with which it is in one of the sets."""
    above: dict[str, set[str]] = {}
    for topics in sets:
        rising = order.upwards(topics)
        for index, topic in enumerate(rising):
            above.setdefault(topic, set()).update(rising[index + 1 :])
    return {topic: order.upwards(group) for topic, group in above.items()}


def close_relation(sets: Iterable[frozenset[str]], order: TopicOrder) -> dict[str, list[str]]:
    """As `relation_above`, filled up so that every group is a clique: from the lowest topic on, all
    that are above it and related to it become related to each other."""
    above = {topic: set(group) for topic, group in relation_above(sets, order).items()}
    for topic in order.upwards(above):
        rising = order.upwards(above[topic])
        for index, lower in enumerate(rising):
            above[lower].update(rising[index + 1 :])
    return {topic: order.upwards(group) for topic, group in above.items()}


@lru_cache(maxsize=1 << 16)
def ranking(topic: str, members: tuple[str, ...]) -> tuple[str, ...]:
    """Rendezvous hashing: the members by falling draw. The first hosts the topic's manager, those
    that follow hold copies of its state; so when it dies, a copy is next in line."""
    assert members, "no member to place a manager on"
    return tuple(sorted(members, key=lambda member: (digest(topic, member), member), reverse=True))


def place(topic: str, members: tuple[str, ...]) -> str:
    """Who hosts the topic's manager. When a member comes or goes, only its topics move."""
    return ranking(topic, members)[0]
