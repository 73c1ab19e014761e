"""A publisher and its session: batches, repeats, what acknowledges, what is unknown."""

from __future__ import annotations

from random import Random

import msgspec

from unisono.core.effects import CancelTimer, Done, Fail, Record, Send, SetTimer
from unisono.core.events import Event
from unisono.core.limits import Limits
from unisono.core.machine import Outbox, Timer
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.messages import (
    BATCH_EVENTS,
    Batch,
    Close,
    LogMessage,
    Open,
    Opened,
    Progress,
    Unknown,
)
from unisono.qos.total_order.by_log.publisher import Flush, Patience, Publisher, Repeat

LOG = "d#1"
SECOND = 1_000_000


class Writer:
    """A publisher whose leader is the test."""

    def __init__(self, life: int = 0, patience_us: int | None = None) -> None:
        self.known = Known("d")
        self.known.log, self.known.leader, self.known.term = LOG, "leader", 1
        self.out = Outbox()
        self.machine = Publisher(
            self.out, self.known, "me", Random(1), Limits(), patience_us=patience_us, life=life
        )
        self.now = 0
        self.timers: dict[Timer, int] = {}
        self.sent: list[LogMessage] = []
        self.done: list[tuple[str, str | None]] = []
        self.rows = 0
        self.failed = ""

    def settle(self) -> None:
        for effect in self.out.take():
            if isinstance(effect, Send):
                assert effect.to == "leader" and isinstance(effect.message, LogMessage)
                self.sent.append(effect.message)
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, Done):
                self.done.append((effect.ticket, effect.error))
            elif isinstance(effect, Record):
                self.rows += 1
            elif isinstance(effect, Fail):
                self.failed = effect.error
            else:
                raise AssertionError(effect)

    def publish(self, *numbers: int, size: int = 1) -> None:
        for number in numbers:
            event = Event(f"e{number}", f"t{number % 3}", bytes(size), "me", number, self.now)
            self.machine.publish(event, self.now)
        self.settle()
        self.fire(Flush())

    def fire(self, timer: Timer) -> None:
        self.now = max(self.now, self.timers.pop(timer))
        self.machine.fire(timer, self.now)
        self.settle()

    def hear(self, message: LogMessage) -> None:
        self.machine.receive(message, "leader", self.now)
        self.settle()

    def open(self, session: int = 7) -> None:
        opening = self.sent[-1]
        assert isinstance(opening, Open)
        self.hear(Opened(LOG, 1, opening.life, session))

    @property
    def batches(self) -> list[tuple[int, int]]:
        """First and last event of each."""
        batches = [message for message in self.sent if isinstance(message, Batch)]
        return [(batch.first, batch.first + len(batch.events) - 1) for batch in batches]


def ids(batch: LogMessage) -> list[str]:
    assert isinstance(batch, Batch)
    events = [msgspec.msgpack.decode(raw, type=Event) for raw in batch.events]
    assert [event.topic for event in events] == [batch.topics[at] for at in batch.which]
    return [event.id for event in events]


def test_what_is_published_in_a_turn_leaves_as_one_batch() -> None:
    writer = Writer()
    writer.publish(1, 2, 3)
    assert [type(message) for message in writer.sent] == [Open]
    writer.open()
    assert ids(writer.sent[-1]) == ["e1", "e2", "e3"] and writer.batches == [(1, 3)]


def test_two_batches_are_under_way_and_the_rest_is_the_next() -> None:
    writer = Writer()
    writer.publish(1)
    writer.open()
    for number in (2, 3, 4):
        writer.publish(number)
    assert writer.batches == [(1, 1), (2, 2)]
    writer.hear(Progress(LOG, 1, 7, 1, 3))
    assert writer.batches[2:] == [(3, 4)]
    assert writer.done == [("e1", None)] and writer.rows == 1


def test_only_what_is_committed_is_acknowledged() -> None:
    writer = Writer()
    writer.publish(1, 2)
    writer.open()
    writer.hear(Progress(LOG, 1, 7, 0, 3))  # taken, not committed
    writer.hear(Progress(LOG, 1, 8, 2, 3))  # another session
    writer.known.term = 2
    writer.hear(Progress(LOG, 1, 7, 2, 3))  # a leader that was replaced
    assert writer.done == []
    writer.hear(Progress(LOG, 2, 7, 2, 3))
    assert writer.done == [("e1", None), ("e2", None)] and writer.machine.idle


def test_a_batch_is_not_too_large() -> None:
    writer = Writer()
    writer.publish(*range(1, BATCH_EVENTS + 100))
    writer.open()
    assert writer.batches[0] == (1, BATCH_EVENTS)
    large = Writer()
    large.publish(1, 2, 3, size=40_000)
    large.open()
    assert large.batches == [(1, 1), (2, 2)]


def test_what_is_not_answered_is_repeated_in_line_and_ever_more_seldom() -> None:
    writer = Writer()
    writer.publish(1)
    writer.open()
    writer.publish(2)
    waits = []
    for _ in range(8):
        before = writer.now
        writer.fire(Repeat())
        waits.append(writer.now - before)
    # All that waits in line goes together, from the first on.
    assert ids(writer.sent[-1]) == ["e1", "e2"] and set(writer.batches[2:]) == {(1, 2)}
    assert waits[0] < SECOND and 2.5 * SECOND <= max(waits) <= 7.5 * SECOND
    writer.hear(Progress(LOG, 1, 7, 2, 3))
    assert Repeat() not in writer.timers


def test_a_new_leader_is_asked_soon() -> None:
    writer = Writer()
    writer.publish(1)
    writer.open()
    writer.known.term = 2
    writer.machine.new_leader(writer.now)
    writer.settle()
    assert writer.timers[Repeat()] - writer.now <= 50_000
    writer.fire(Repeat())
    assert writer.batches == [(1, 1), (1, 1)]


def test_what_was_sent_is_not_sent_in_another_session() -> None:
    """It may be in the log. What was only waiting goes on; also what was about to be repeated."""
    writer = Writer()
    for number in (1, 2):
        writer.publish(number)
        if number == 1:
            writer.open()
    writer.publish(3)
    writer.known.leader = None
    writer.fire(Repeat())  # back in line, and nobody to send it to
    writer.known.leader = "leader"
    writer.hear(Unknown(LOG, 0, 7))  # of a leader that was replaced: not believed
    assert writer.done == []
    writer.hear(Unknown(LOG, 1, 7))
    assert [ticket for ticket, error in writer.done if error and "unknown" in error] == ["e1", "e2"]
    opening = writer.sent[-1]
    assert isinstance(opening, Open) and opening.life == 1
    writer.hear(Opened(LOG, 1, 0, 8))  # an answer to what was asked before
    assert writer.sent[-1] is opening
    writer.hear(Opened(LOG, 1, 1, 9))
    assert ids(writer.sent[-1]) == ["e3"] and writer.batches[-1] == (1, 1)


def test_a_leader_that_is_full_is_left_in_peace() -> None:
    writer = Writer()
    writer.publish(1)
    writer.open()
    writer.hear(Progress(LOG, 1, 7, 0, 1, wait_ms=50))
    writer.publish(2)
    assert writer.batches == [(1, 1)]
    writer.fire(Repeat())
    assert writer.now >= 50_000 and writer.batches == [(1, 1), (1, 2)]


def test_what_waits_too_long_is_said_and_stays_in_line() -> None:
    writer = Writer(patience_us=SECOND)
    writer.publish(1)
    writer.fire(Patience())
    ((ticket, error),) = writer.done
    assert ticket == "e1" and error is not None and "within 1 s" in error and writer.machine.idle
    writer.open()
    assert ids(writer.sent[-1]) == ["e1"]


def test_a_session_of_a_higher_life_ends_the_process() -> None:
    writer = Writer()
    writer.publish(1)
    writer.hear(Opened(LOG, 1, 0, None))
    assert "another process publishes as me" in writer.failed


def test_a_session_is_closed_in_the_end() -> None:
    writer = Writer(life=3)
    writer.publish(1)
    opening = writer.sent[0]
    assert isinstance(opening, Open) and opening.life == 3 << 20
    writer.open()
    writer.machine.close(writer.now)
    writer.settle()
    assert writer.sent[-1] == Close(LOG, 7)
