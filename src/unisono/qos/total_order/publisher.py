"""The publisher's part: ask the topic's manager for a stamp, publish the event when the stamp is
complete.

Stamping is pipelined: a request does not wait for the stamp before it. Requests of one topic are
numbered and taken in that order (errata L2), so a publisher's events on one topic keep their order.
"""

from __future__ import annotations

import msgspec

from unisono.core.effects import Done, Publish, Record, SetTimer
from unisono.core.events import Event
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import Refused, RequestStamp, StampReady
from unisono.qos.total_order.post import Post

PATIENCE_TIMER = "stamp"


class Publisher:
    """Events on their way to a stamp. The driver bounds how many by `Limits.outstanding`."""

    def __init__(self, post: Post, limits: Limits, patience_us: int | None) -> None:
        self._post = post
        self._limits = limits
        self._patience_us = patience_us
        self._turns: dict[str, int] = {}
        self._outgoing: dict[str, Event] = {}  # in publishing order
        self._overdue: set[str] = set()  # reported as not acknowledged, still welcome

    @property
    def idle(self) -> bool:
        """Nothing waits for a stamp."""
        return len(self._outgoing) == len(self._overdue)

    def publish(self, event: Event, now: int) -> None:
        self._outgoing[event.id] = event
        turn = self._turns[event.topic] = self._turns.get(event.topic, 0) + 1
        if self._patience_us is not None and len(self._outgoing) == len(self._overdue) + 1:
            self._post.do(SetTimer(PATIENCE_TIMER, now + self._patience_us))
        self._post.to_topic(
            RequestStamp(event.topic, self._post.view, event.id, event.publisher, turn)
        )

    def stamped(self, message: StampReady, now: int) -> None:
        event = self._outgoing.get(message.event_id)
        if event is None:
            return  # a duplicate
        if event.topic not in message.stamp:
            self._post.refuse(message, "stamp without the event's topic")
            return
        del self._outgoing[event.id]
        self._overdue.discard(event.id)
        row = {
            "event_id": event.id,
            "topic": event.topic,
            "number": message.stamp[event.topic],
            "entries": len(message.stamp),
            "requested_us": event.published_us,
            "stamped_us": now,
        }
        self._post.do(Record("stamps", row))
        self._post.do(Publish(msgspec.structs.replace(event, stamp=message.stamp)))

    def refused(self, message: Refused) -> None:
        if self._outgoing.pop(message.event_id, None) is not None:
            self._overdue.discard(message.event_id)
            self._post.do(Done(message.event_id, f"not published: {message.reason}"))

    def timer(self, now: int) -> None:
        """Report what has waited too long; it still goes out if its stamp comes."""
        assert self._patience_us is not None
        for event in self._outgoing.values():
            if event.id in self._overdue:
                continue
            due = event.published_us + self._patience_us
            if due > now:
                self._post.do(SetTimer(PATIENCE_TIMER, due))
                return
            self._overdue.add(event.id)
            where = self._post.manager_of(event.topic) if self._post.members else "no process"
            self._post.do(
                Done(
                    event.id,
                    f"no stamp within {self._patience_us / 1e6:g} s; {event.topic!r} is managed "
                    f"by {where}; whether it will still go out is unknown",
                )
            )
        while len(self._overdue) > self._limits.outstanding:
            oldest = next(event_id for event_id in self._outgoing if event_id in self._overdue)
            self._overdue.discard(oldest)
            del self._outgoing[oldest]
