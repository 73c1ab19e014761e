"""The publisher's part: ask the topic's manager for a stamp, publish the event when the stamp is
complete.

Stamping is pipelined: a request does not wait for the stamp before it. Requests of one topic are
numbered and taken in that order (errata L2), so a publisher's events on one topic keep their order.
A request is repeated until its stamp comes; with each, the manager hears which stamps have come, so
that it need not keep them.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from unisono.core.effects import CancelTimer, Done, Publish, SetTimer
from unisono.core.events import Event, first_of
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import Confirm, Refused, RequestStamp, StampReady
from unisono.qos.total_order.post import Post

PATIENCE_TIMER = "stamp"
RETRY_TIMER = "request"
_REPEATED = 256  # requests of a topic repeated at a time, oldest first


class Publisher:
    """Events on their way to a stamp. The driver bounds how many by `Limits.outstanding`."""

    def __init__(
        self,
        post: Post,
        limits: Limits,
        patience_us: int | None,
        retry_us: int | None,
        life: int = 0,
    ) -> None:
        self._post = post
        self._limits = limits
        self._patience_us = patience_us
        self._impatient = False  # the timer is set
        self._retry_us = retry_us
        self._retrying = False
        self._first = first_of(life)
        self._turns: dict[str, int] = {}
        self._waiting: dict[str, set[int]] = {}  # topic -> turns whose stamp has not come
        self._told: dict[str, int] = {}  # topic -> up to which turn its manager knows
        self._outgoing: dict[str, tuple[Event, int]] = {}  # in publishing order, with their turns
        self._overdue: set[str] = set()  # reported as not acknowledged, still welcome

    @property
    def idle(self) -> bool:
        """Nothing waits for a stamp."""
        return len(self._outgoing) == len(self._overdue)

    def publish(self, event: Event, now: int) -> None:
        topic = event.topic
        if len(self._overdue) >= self._limits.outstanding:
            waiting = f"{len(self._overdue)} earlier events wait for managers that do not answer"
            self._post.do(Done(event.id, f"not published: {waiting}"))
            return
        turn = self._turns[topic] = self._turns.get(topic, self._first) + 1
        self._outgoing[event.id] = (event, turn)
        if not self._impatient and self._patience_us is not None:
            self._impatient = True
            self._post.do(SetTimer(PATIENCE_TIMER, now + self._patience_us))
        if not self._retrying and self._retry_us is not None:
            self._retrying = True
            self._post.do(SetTimer(RETRY_TIMER, now + self._retry_us))
        self._waiting.setdefault(topic, set()).add(turn)
        done = self._told[topic] = self._done(topic)
        self._post.to_topic(
            RequestStamp(topic, self._post.view, event.id, event.publisher, turn, done)
        )

    def _done(self, topic: str) -> int:
        """All stamps up to this turn have come."""
        done, turns = self._told.get(topic, self._first), self._turns[topic]
        waiting = self._waiting[topic]
        while done < turns and done + 1 not in waiting:
            done += 1
        return done

    def retry_timer(self, now: int) -> None:
        """Ask again for what has not come; tell managers what has."""
        assert self._retry_us is not None
        self.ask_again(now - self._retry_us)
        self._tell_done()
        self._retrying = bool(self._outgoing)
        if self._retrying:
            self._post.do(SetTimer(RETRY_TIMER, now + self._retry_us))

    def ask_again(self, since: int) -> None:
        """Repeat the oldest requests, of events published until then."""
        repeated: Counter[str] = Counter()
        for event, turn in self._outgoing.values():
            if event.published_us > since:
                break
            repeated[event.topic] += 1
            if repeated[event.topic] > _REPEATED:
                continue  # a topic that does not answer leaves the others in peace
            done = self._told[event.topic] = self._done(event.topic)
            self._post.to_topic(
                RequestStamp(event.topic, self._post.view, event.id, event.publisher, turn, done)
            )

    def _tell_done(self) -> None:
        for topic in self._turns:
            done = self._done(topic)
            if done > self._told.get(topic, self._first):
                self._told[topic] = done
                self._post.to_topic(Confirm(topic, self._post.view, self._post.node_id, done))

    def close(self) -> None:
        """Nothing more will be asked: leave nothing behind at the managers."""
        self._tell_done()
        if self._retrying:
            self._retrying = False
            self._post.do(CancelTimer(RETRY_TIMER))

    def stamped(self, message: StampReady) -> None:
        event, turn = self._outgoing.get(message.event_id, (None, 0))
        if event is None:
            return  # a duplicate
        if event.topic not in message.stamp:
            self._post.refuse(message, "stamp without the event's topic")
            return
        self._forget(event, turn)
        self._post.do(Publish(msgspec.structs.replace(event, stamp=message.stamp)))

    def refused(self, message: Refused) -> None:
        event, turn = self._outgoing.get(message.event_id, (None, 0))
        if event is not None:
            self._forget(event, turn)
            self._post.do(Done(message.event_id, f"not published: {message.reason}"))

    def _forget(self, event: Event, turn: int) -> None:
        del self._outgoing[event.id]
        self._overdue.discard(event.id)
        self._waiting[event.topic].discard(turn)

    def timer(self, now: int) -> None:
        """Report what has waited too long; it still goes out if its stamp comes."""
        assert self._patience_us is not None
        self._impatient = False
        for event, _ in self._outgoing.values():
            if event.id in self._overdue:
                continue
            due = event.published_us + self._patience_us
            if due > now:
                self._impatient = True
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
