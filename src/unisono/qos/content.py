"""Subscriptions by content: of a topic, only the events that match a predicate are notified.

Guarantee: an event is notified to a subscriber with a predicate if and only if it matches, and its
place among the others is that which it would have without the predicate. The layer is above those
that order: what it leaves out has its place there, so it never looks like a gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.core.layer import Effects, Layer
from unisono.core.predicate import Filters, Predicate


class Content(Layer):
    """Leaves out what does not match."""

    name: ClassVar[str] = "content"

    def __init__(self) -> None:
        self._where = Filters()
        self._ignored: Counter[str] = Counter()

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def narrow(self, topics: Sequence[str], where: Predicate | None) -> None:
        self._where.narrow(topics, where)

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        where = self._where.get(event.topic)
        if where is None or where.matches(event.attributes or {}):
            return (Notify(event, status),)
        self._ignored["filtered out"] += 1
        return ()
