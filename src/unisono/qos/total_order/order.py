"""The topic order, and the placement of topic managers on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from unisono.core.entropy import digest


class TopicOrder:
    """A total order on topics: those listed first, as listed; then all others by name.

    `above(a, b)` reads "a precedes b": a has the higher priority, and its manager the later word.
    """

    def __init__(self, listed: Sequence[str] = ()) -> None:
        self._rank = {topic: rank for rank, topic in enumerate(listed)}
        assert len(self._rank) == len(listed), "a topic is listed twice"

    def key(self, topic: str) -> tuple[int, str]:
        return (self._rank.get(topic, len(self._rank)), topic)

    def above(self, topic: str, other: str) -> bool:
        return self.key(topic) < self.key(other)

    def upwards(self, topics: Iterable[str]) -> list[str]:
        """From the lowest priority to the highest: the way a stamp travels."""
        return sorted(topics, key=self.key, reverse=True)


@lru_cache(maxsize=1 << 16)
def place(topic: str, members: tuple[str, ...]) -> str:
    """Rendezvous hashing: the member with the highest draw hosts the topic's manager.

    When a member comes or goes, only the topics that it wins or held move.
    """
    assert members, "no member to place a manager on"
    return max(members, key=lambda member: (digest(topic, member), member))
