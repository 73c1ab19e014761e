"""The topic order follows popularity: when it should change, and how.

A manager sees its own events and those of the related topics below it. When a lower topic's measure
exceeds its own by the threshold beta, it asks for a change (thesis section 3.4). The measure is
f(x) = exp(-1 / (alpha (x + 1))) of a count x:

- `recent`   x counts what this manager handled lately: all counts are halved after every `window`
             events (default); the leader then sorts all topics by events since the last change;
- `paper`    x counts since the start, as printed: a topic that had many events keeps its place for
             ever (errata S1); the leader exchanges the two topics.

Counts are weighed by how much of its capacity the process that manages the topic has free
(`Membership.free`, told with every sign of life), so topics of busy processes sink; a process that
measures nothing says 100 %. The measure itself can be another function too (`Measure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.qos.total_order.messages import Swap
from unisono.qos.total_order.order import TopicOrder

Measure = Callable[[int, float], float]  # count, alpha -> a value from 0 to 1
Free = Callable[[str], int]  # topic -> per cent of its manager's host that are free


def printed_measure(count: int, alpha: float) -> float:
    return exp(-1.0 / (alpha * (count + 1)))


class Adapt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the topic order adapts."""

    count: Literal["recent", "paper"] = "recent"
    alpha: Annotated[float, Meta(gt=0, le=100)] = 0.1
    beta: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    window: Annotated[int, Meta(ge=2, le=100_000)] = 100
    every_s: Annotated[float, Meta(gt=0, le=1e6)] = 10.0  # at most one change in this time


class Popularity:
    """What the managers hosted here have handled, and what follows for the order."""

    def __init__(self, adapt: Adapt, measure: Measure = printed_measure) -> None:
        self._adapt = adapt
        self._measure = measure
        self._counts: dict[str, dict[str, int]] = {}  # managed topic -> topic -> handled
        self._asked: dict[str, tuple[int, int]] = {}  # managed topic -> epoch and when it asked
        self._handled: dict[str, int] = {}  # managed topic -> events handled
        self._changed_us: int | None = None
        self._at_change: dict[str, int] = {}  # topic -> events at the last change

    def handled(self, topic: str, events: Sequence[str], epoch: int, free: Free) -> str | None:
        """Events that the manager of `topic` handled; a lower topic that should take its place."""
        counts = self._counts.get(topic)
        if counts is None:
            counts = self._counts[topic] = {topic: 0}
        for event_topic in events:
            counts[event_topic] = counts.get(event_topic, 0) + 1
        handled = self._handled[topic] = self._handled.get(topic, 0) + len(events)
        if self._adapt.count == "recent" and handled % self._adapt.window < len(events):
            for event_topic in counts:
                counts[event_topic] //= 2
        lower = events[-1]
        below, own = counts[lower] * free(lower) // 100, counts[topic] * free(topic) // 100
        if below <= own or not self._exceeds(below, own):
            return None
        asked_in, asked_at = self._asked.get(topic, (-1, 0))
        if asked_in == epoch and handled - asked_at < self._adapt.window:
            return None
        self._asked[topic] = (epoch, handled)
        return lower

    def _exceeds(self, lower: int, upper: int) -> bool:
        measure, alpha = self._measure, self._adapt.alpha
        return measure(lower, alpha) > measure(upper, alpha) + self._adapt.beta

    def may_change(self, now: int) -> bool:
        """Changes stop the numbering for a moment: not too often."""
        return self._changed_us is None or now - self._changed_us >= self._adapt.every_s * 1e6

    def change(
        self, order: TopicOrder, swap: Swap, events: Mapping[str, int], free: Free, now: int
    ) -> tuple[str, ...] | None:
        """The new order, from how many events the topics have had; None if nothing is to change."""
        if not order.above(swap.upper, swap.lower):
            return None
        listed = sorted({*order.listed, *events, swap.upper, swap.lower}, key=order.key)
        if self._adapt.count == "recent":
            before, self._at_change = self._at_change, dict(events)
            listed.sort(key=lambda t: (before.get(t, 0) - events.get(t, 0)) * free(t))
        else:
            upper, lower = listed.index(swap.upper), listed.index(swap.lower)
            listed[upper], listed[lower] = listed[lower], listed[upper]
        self._changed_us = now
        return tuple(listed)
