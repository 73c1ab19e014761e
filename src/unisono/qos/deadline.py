"""Deadlines: an event notified too late says so, and the share on time is known at any moment.

Guarantee: a notification later than its topic's deadline after the publication is never marked
`in_order`; it is `late` (or keeps its mark if the order already has one to give). Times are those
of the processes' clocks, which the deadline takes to agree.

Profiles are the latency categories of the Co-Flight system (paper 003, table I): shares of the
notifications that must come within two times. Late is what misses the longer one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.core.layer import Effects, Layer


class Goal(msgspec.Struct, frozen=True):
    """This share of the notifications comes within this time."""

    within_ms: float
    share: float


PROFILES = {
    "D-1": (Goal(1000, 0.95), Goal(2000, 0.998)),
    "D-2": (Goal(2000, 0.95), Goal(4000, 0.998)),
    "D-3": (Goal(5000, 0.95), Goal(8000, 0.998)),
}


class Timeliness(msgspec.Struct):
    """How a topic's notifications did, goal by goal."""

    goals: tuple[Goal, ...]
    notified: int = 0
    within: list[int] = []

    @property
    def shares(self) -> tuple[float, ...]:
        """Of all notifications so far, those within each goal's time; 1 if there were none."""
        return tuple(count / self.notified if self.notified else 1.0 for count in self.within)

    @property
    def met(self) -> bool:
        return all(share >= goal.share for share, goal in zip(self.shares, self.goals, strict=True))


class Deadline(Layer):
    """The top of a stack: sees what the application will see."""

    name: ClassVar[str] = "deadline"

    def __init__(self, goals: Callable[[str], tuple[Goal, ...]]) -> None:
        self._goals = goals  # of a topic, by rising time; none: no deadline
        self.topics: dict[str, Timeliness] = {}

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        known = self.topics.get(event.topic)
        if known is None:
            goals = self._goals(event.topic)
            known = self.topics[event.topic] = Timeliness(goals, within=[0] * len(goals))
        if not known.goals:
            return (Notify(event, status),)
        known.notified += 1
        took_ms = (now - event.published_us) / 1000
        for index, goal in enumerate(known.goals):
            known.within[index] += took_ms <= goal.within_ms
        if took_ms > known.goals[-1].within_ms and status is Status.IN_ORDER:
            status = Status.LATE
        return (Notify(event, status),)
