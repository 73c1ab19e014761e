"""Deliberate faults in total order by a log, each with a scenario that must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from unisono.core.effects import Done, Notify
from unisono.core.events import Status
from unisono.qos.total_order.by_log.domain import Domain
from unisono.qos.total_order.by_log.leader import Leader
from unisono.qos.total_order.by_log.messages import (
    Batch,
    Events,
    Heartbeat,
    Open,
    Progress,
    Unknown,
)
from unisono.qos.total_order.by_log.publisher import Publisher
from unisono.qos.total_order.by_log.seats import Seats
from unisono.qos.total_order.by_log.state import State
from unisono.qos.total_order.by_log.subscriber import Subscriber
from unisono.qos.total_order.by_log.voter import Voter

Patch = pytest.MonkeyPatch


def takes_a_batch_twice(patch: Patch) -> None:
    take = Leader.take

    def bad(self: Any, batch: Batch, sender: str, now: int) -> None:
        session = self._tail.sessions.get(batch.session)
        if session is not None and batch.events:
            batch = msgspec.structs.replace(batch, first=session.last + 1)
        take(self, batch, sender, now)

    patch.setattr(Leader, "take", bad)


def keeps_what_overlaps(patch: Patch) -> None:
    """Of a batch that is new in part, all is taken."""
    take = Leader.take

    def bad(self: Any, batch: Batch, sender: str, now: int) -> None:
        session = self._tail.sessions.get(batch.session)
        if session is not None and batch.first <= session.last < batch.first + len(batch.events):
            batch = msgspec.structs.replace(batch, first=session.last + 1)
        take(self, batch, sender, now)

    patch.setattr(Leader, "take", bad)


def takes_what_is_not_next(patch: Patch) -> None:
    take = Leader.take

    def bad(self: Any, batch: Batch, sender: str, now: int) -> None:
        session = self._tail.sessions.get(batch.session)
        if session is not None and batch.events and batch.first > session.last + 1:
            session.last = batch.first - 1
            known = self._voter.state.sessions.get(batch.session)
            if known is not None:
                known.last = batch.first - 1
        take(self, batch, sender, now)

    patch.setattr(Leader, "take", bad)


def judges_by_what_is_committed(patch: Patch) -> None:
    """Not by the whole log: what is under way is taken again."""

    def tail(self: Any) -> State:
        return State(self.state.encode())

    patch.setattr(Voter, "tail", tail)


def the_hint_acknowledges(patch: Patch) -> None:
    handler = Publisher.handlers[Progress]

    def bad(publisher: Any, message: Progress, sender: str, now: int) -> None:
        known = msgspec.structs.replace(message, committed=message.next - 1)
        handler(publisher, known, sender, now)

    def told(self: Any, session: int, wait_ms: int = 0) -> None:
        last = self._tail.sessions[session].last if session in self._tail.sessions else 0
        node = self._tail.sessions[session].node if last else ""
        if last:
            state = self._voter.state.sessions.get(session)
            committed = state.last if state is not None else 0
            self._out.send(
                node, Progress(self._log, self.term, session, committed, last + 1, wait_ms)
            )

    take = Leader.take

    def eager(self: Any, batch: Batch, sender: str, now: int) -> None:
        take(self, batch, sender, now)
        told(self, batch.session)

    patch.setattr(Leader, "take", eager)
    patch.setitem(Publisher.handlers, Progress, bad)


def acknowledges_what_it_sends(patch: Patch) -> None:
    send = Publisher._send_batch

    def bad(self: Any, leader: str, session: int, now: int) -> None:
        send(self, leader, session, now)
        for waiting in self._sent:
            self.out.do(Done(waiting.id))

    patch.setattr(Publisher, "_send_batch", bad)


def never_repeats(patch: Patch) -> None:
    patch.setattr(Publisher, "_expect", lambda self, now: None)
    patch.setattr(Publisher, "new_leader", lambda self, now: None)


def hears_of_lower_terms(patch: Patch) -> None:
    """A leader that was replaced says that there is no such session."""
    forget = Publisher.forget_session

    def unknown(self: Any, message: Any, sender: str, now: int) -> None:
        forget(self)
        self._send(now)

    def take(self: Any, batch: Batch, sender: str, now: int) -> None:
        if batch.session not in self._voter.state.sessions:
            self._out.send(sender, Unknown(self._log, self.term, batch.session))
            return
        original(self, batch, sender, now)

    original = Leader.take
    patch.setattr(Leader, "take", take)
    patch.setitem(Publisher.handlers, Unknown, unknown)


def opens_a_session_again(patch: Patch) -> None:
    """A repeated request gets another session."""
    opening = Leader.open

    def bad(self: Any, message: Open, sender: str, now: int) -> None:
        at = self._tail.open_of(sender)
        if at is not None:
            self._end(at, now)
        opening(self, message, sender, now)

    patch.setattr(Leader, "open", bad)


def keeps_no_sessions_in_its_base(patch: Patch) -> None:
    encode = State.encode

    def bad(self: Any) -> bytes:
        empty = State()
        empty.number = self.number
        return encode(empty)

    patch.setattr(State, "encode", bad)


def publishes_what_is_not_committed(patch: Patch) -> None:
    apply = Voter.apply

    def bad(self: Any, decoded: Any) -> Iterator[tuple[int, Events]]:
        committed = self.raft.committed
        self.raft.committed = self.raft.log.last
        try:
            yield from apply(self, decoded)
        finally:
            self.raft.committed = committed

    catch_up = Domain._catch_up

    def eager(self: Any, now: int) -> None:
        voter = self.voter if self.leader is not None else None
        if voter is not None and voter.raft.log.last > voter.applied:
            self._apply(voter)
        catch_up(self, now)

    patch.setattr(Voter, "apply", bad)
    patch.setattr(Domain, "_catch_up", eager)


def notifies_as_it_comes(patch: Patch) -> None:
    def bad(self: Any, now: int) -> None:
        for number in sorted(self._held):
            self._notify(number, self._held.pop(number))
            self.position = max(self.position, number)

    patch.setattr(Subscriber, "_advance", bad)


def asks_for_nothing(patch: Patch) -> None:
    patch.setattr(Subscriber, "_ask", lambda self, now: None)


def does_not_listen_to_heartbeats(patch: Patch) -> None:
    handler = Seats.handlers[Heartbeat]

    def bad(seats: Any, message: Heartbeat, sender: str, now: int) -> None:
        handler(seats, msgspec.structs.replace(message, number=0), sender, now)
        seats._known.number = 0

    patch.setitem(Seats.handlers, Heartbeat, bad)


def begins_one_number_late(patch: Patch) -> None:
    begin = Subscriber.begin

    def bad(self: Any, topics: Any, start: int, now: int) -> None:
        begin(self, topics, start + 1, now)

    patch.setattr(Subscriber, "begin", bad)


def a_position_goes_back(patch: Patch) -> None:
    """A topic begins with what others have passed already."""

    def bad(self: Any, topics: Any, start: int, now: int) -> None:
        for topic in topics:
            self.starts.setdefault(topic, start)
        self.position = min(start, self.position) if self.position is not None else start
        self._map.clear()
        self._advance(now)

    patch.setattr(Subscriber, "begin", bad)


def skips_without_a_word(patch: Patch) -> None:
    """What is missing is passed after a while, and nobody is told."""

    def bad(self: Any, now: int) -> None:
        while self._map and self.position + 1 not in self._held:
            self._map.popleft()
            self.position += 1
        self._waiting = 0
        self._advance(now)

    patch.setattr(Subscriber, "_ask", bad)


def drops_what_is_at_the_end_of_a_turn(patch: Patch) -> None:
    send = Publisher._send_batch

    def bad(self: Any, leader: str, session: int, now: int) -> None:
        if len(self._unsent) > 1:
            self.out.do(Done(self._unsent.pop().id))
        send(self, leader, session, now)

    patch.setattr(Publisher, "_send_batch", bad)


def tags_what_is_in_order(patch: Patch) -> None:
    def bad(self: Any, number: int, raw: msgspec.Raw) -> None:
        event = self._event(number, raw)
        if event is not None and number > self.starts.get(event.topic, number):
            self.out.do(Notify(event, Status.GAP_SKIPPED if self._asked else Status.IN_ORDER))

    patch.setattr(Subscriber, "_notify", bad)


def leaves_without_a_word(patch: Patch) -> None:
    patch.setattr(Seats, "_ask_to_leave", lambda self, now: self._out_of_it())


def nobody_takes_a_silent_seat(patch: Patch) -> None:
    patch.setattr(Seats, "_missing", lambda self, voters, now: set())


class Bug(NamedTuple):
    inject: Callable[[Patch], None]
    scenario: str
    first: int = 0  # the seed to begin with, for bugs that show rarely


def _bug(inject: Callable[[Patch], None], scenario: str, first: int = 0) -> tuple[str, Bug]:
    return inject.__name__.replace("_", " "), Bug(inject, scenario, first)


BUGS = dict(
    (
        _bug(takes_a_batch_twice, "loss"),
        _bug(keeps_what_overlaps, "loss"),
        _bug(takes_what_is_not_next, "loss"),
        _bug(judges_by_what_is_committed, "everything"),
        _bug(the_hint_acknowledges, "everything"),
        _bug(acknowledges_what_it_sends, "everything"),
        _bug(never_repeats, "loss"),
        _bug(hears_of_lower_terms, "everything", 101),
        _bug(opens_a_session_again, "loss"),
        _bug(keeps_no_sessions_in_its_base, "everything"),
        _bug(publishes_what_is_not_committed, "everything"),
        _bug(notifies_as_it_comes, "static"),
        _bug(asks_for_nothing, "loss"),
        _bug(does_not_listen_to_heartbeats, "loss"),
        _bug(begins_one_number_late, "static"),
        _bug(a_position_goes_back, "changing"),
        _bug(skips_without_a_word, "loss"),
        _bug(drops_what_is_at_the_end_of_a_turn, "fifty-topics"),
        _bug(tags_what_is_in_order, "loss"),
        _bug(leaves_without_a_word, "members"),
        _bug(nobody_takes_a_silent_seat, "everything"),
    )
)
