"""The publisher's part: events go to the leader in batches, in line, until they are committed.

What was published in one turn leaves at its end. Two batches are under way; what comes up meanwhile
is the next. A batch is repeated until the leader says that it is committed: that alone
acknowledges. The leader takes each event once, by its place in the session.
"""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec

from unisono.core.effects import Done, Fail, Record
from unisono.core.events import Event
from unisono.core.limits import Limits
from unisono.core.machine import Machine, Outbox, Timer, on
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.messages import (
    BATCH_BYTES,
    BATCH_EVENTS,
    TOPICS_MAX,
    Batch,
    Close,
    Open,
    Opened,
    Progress,
    Unknown,
)
from unisono.trace import schema

_ENCODER = msgspec.msgpack.Encoder()
_WINDOW = 2  # batches under way
_ATTEMPTS = 1 << 20  # sessions of one life of a process
_REPEAT_US = 200_000
_REPEAT_MOST_US = 5_000_000
_SOON_US = 50_000  # at most so long after a new leader is known
_ALIVE_US = 1200 * 1_000_000  # an idle publisher says that it lives


class Flush(Timer, frozen=True):
    """The end of a turn: what was published in it goes out."""


class Repeat(Timer, frozen=True):
    """What is under way has not been answered."""


class Patience(Timer, frozen=True):
    """Some event may have waited too long."""


class StillHere(Timer, frozen=True):
    """Nothing was published for a long time."""


class _Waiting(msgspec.Struct):
    """An event that is not committed."""

    id: str
    topic: str
    raw: msgspec.Raw
    published_us: int
    left: bool = False  # it was sent in this session: it may be in the log


class Publisher(
    Machine, inputs=Opened | Progress | Unknown | Flush | Repeat | Patience | StillHere
):
    """Events of one process on their way into the log. The driver bounds how many."""

    def __init__(
        self,
        out: Outbox,
        known: Known,
        node_id: str,
        rng: Random,
        limits: Limits,
        *,
        patience_us: int | None,
        life: int,
    ) -> None:
        super().__init__(out)
        self._known = known
        self._id = node_id
        self._rng = rng
        self._limits = limits
        self._patience_us = patience_us
        self._life = life * _ATTEMPTS
        self._session: int | None = None
        self._opening = False
        self._committed = 0  # of the session
        self._sent: deque[_Waiting] = deque()  # the ones after that
        self._unsent: deque[_Waiting] = deque()
        self._under_way: deque[tuple[int, int]] = deque()  # last event of a batch; when it left
        self._flushing = False
        self._impatient = False
        self._overdue: set[str] = set()  # reported as not acknowledged, still in line
        self._usual_us = 0
        self._repeats = 0
        self._held_until_us = 0  # the leader takes nothing before

    @property
    def idle(self) -> bool:
        """Nothing waits, but for what was given up."""
        return len(self._sent) + len(self._unsent) == len(self._overdue)

    def publish(self, event: Event, now: int) -> None:
        if len(self._overdue) >= self._limits.outstanding:
            text = f"{len(self._overdue)} earlier events wait for a leader that does not answer"
            self.out.do(Done(event.id, f"not published: {text}"))
            return
        raw = msgspec.Raw(_ENCODER.encode(event))
        self._unsent.append(_Waiting(event.id, event.topic, raw, now))
        if not self._impatient and self._patience_us is not None:
            self._impatient = True
            self.out.set_timer(Patience(), now + self._patience_us)
        if not self._flushing:
            self._flushing = True
            self.out.set_timer(Flush(), now)

    def close(self, now: int) -> None:
        """Nothing more will come."""
        if self._session is not None and self._known.leader is not None:
            self.out.send(self._known.leader, Close(self._known.log, self._session))
        self.out.cancel_timer(StillHere())

    def new_leader(self, now: int) -> None:
        """Ask it soon, not all at once."""
        self._repeats = 0
        if self._sent or self._unsent or self._opening:
            self.out.set_timer(Repeat(), now + self._rng.randrange(_SOON_US))

    def interrupted(self, now: int) -> None:
        """What was under way may be lost."""
        self.new_leader(now)

    # On the way to the leader.

    @on(Flush)
    def _flush(self, timer: Flush, now: int) -> None:
        self._flushing = False
        self._send(now)

    def _send(self, now: int) -> None:
        """What there is room for."""
        leader = self._known.leader
        if leader is None or now < self._held_until_us:
            return
        if self._session is None:
            if self._unsent and not self._opening:
                self._opening = True
                self.out.send(leader, Open(self._known.log, self._life))
                self._expect(now)
            return
        quiet = not self._under_way
        while self._unsent and len(self._under_way) < _WINDOW:
            self._send_batch(leader, self._session, now)
        if quiet and self._under_way:
            self._expect(now)

    def _send_batch(self, leader: str, session: int, now: int) -> None:
        first = self._committed + len(self._sent) + 1
        topics: dict[str, int] = {}
        which = bytearray()
        events: list[msgspec.Raw] = []
        size = 0
        while self._unsent and len(events) < BATCH_EVENTS:
            waiting = self._unsent[0]
            size += len(waiting.raw)
            if events and (size > BATCH_BYTES or len(topics) == TOPICS_MAX):
                break
            which.append(topics.setdefault(waiting.topic, len(topics)))
            events.append(waiting.raw)
            waiting.left = True
            self._sent.append(self._unsent.popleft())
        batch = Batch(self._known.log, session, first, tuple(topics), bytes(which), tuple(events))
        self.out.send(leader, batch)
        self._under_way.append((first + len(events) - 1, now))

    def _expect(self, now: int) -> None:
        wait = max(_REPEAT_US, 4 * self._usual_us) << self._repeats
        factor = self._rng.uniform(0.5, 1.5) if self._repeats else 1.0
        self.out.set_timer(Repeat(), now + round(min(wait, _REPEAT_MOST_US) * factor))

    @on(Repeat)
    def _repeat(self, timer: Repeat, now: int) -> None:
        if not (self._sent or self._unsent or self._opening):
            return
        self._repeats = min(self._repeats + 1, 5)
        self._opening = False
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._under_way.clear()
        self._send(now)
        self._expect(now)

    # What the leader says.

    @on(Opened)
    def _opened(self, message: Opened, sender: str, now: int) -> None:
        if message.life != self._life or self._session is not None:
            return
        if message.session is None:
            self.out.do(Fail(f"another process publishes as {self._id}"))
            return
        self._opening = False
        self._session = message.session
        self._committed = 0
        self._repeats = 0
        self.out.set_timer(StillHere(), now + _ALIVE_US)
        self._send(now)

    @on(Progress)
    def _progress(self, message: Progress, sender: str, now: int) -> None:
        if message.term < self._known.term or message.session != self._session:
            return
        if message.wait_ms:
            self._held_until_us = now + message.wait_ms * 1000
            self.out.set_timer(Repeat(), self._held_until_us)
            return
        # An event that is committed may be in line to be sent again.
        while self._committed < message.committed and (self._sent or self._unsent):
            waiting = self._sent.popleft() if self._sent else self._unsent.popleft()
            self._committed += 1
            self._acknowledge(waiting, now)
        while self._under_way and self._under_way[0][0] <= self._committed:
            _, left_us = self._under_way.popleft()
            if not self._repeats:
                self._usual_us += (max(0, now - left_us) - self._usual_us) // 8
            self._repeats = 0
        self._send(now)
        if self._under_way:
            self._expect(now)
        elif not self._unsent:
            self.out.cancel_timer(Repeat())

    def _acknowledge(self, waiting: _Waiting, now: int) -> None:
        self._overdue.discard(waiting.id)
        row = {"event_id": waiting.id, "acknowledged_us": now}
        self.out.do(Record(schema.ACKNOWLEDGEMENTS, row))
        self.out.do(Done(waiting.id))

    @on(Unknown)
    def _unknown(self, message: Unknown, sender: str, now: int) -> None:
        """What was sent is not sent in another session: it may be in the log."""
        if message.term >= self._known.term and message.session == self._session:
            self.forget_session()
            self._send(now)

    def forget_session(self) -> None:
        """Begin another when there is something to publish."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        while self._unsent and self._unsent[0].left:
            waiting = self._unsent.popleft()
            self._overdue.discard(waiting.id)
            text = "the log does not know the session any more; whether it went out is unknown"
            self.out.do(Done(waiting.id, text))
        self._under_way.clear()
        self._session, self._opening = None, False
        self._life += 1

    # Time.

    @on(Patience)
    def _look(self, timer: Patience, now: int) -> None:
        """Report what has waited too long; it stays in line."""
        assert self._patience_us is not None
        self._impatient = False
        for line in (self._sent, self._unsent):
            for waiting in line:
                if waiting.id in self._overdue:
                    continue
                due = waiting.published_us + self._patience_us
                if due > now:
                    self._impatient = True
                    self.out.set_timer(timer, due)
                    return
                self._overdue.add(waiting.id)
                text = (
                    f"not committed within {self._patience_us / 1e6:g} s by "
                    f"{self._known.leader or 'a leader'}; whether it will still go out is unknown"
                )
                self.out.do(Done(waiting.id, text))

    @on(StillHere)
    def _alive(self, timer: StillHere, now: int) -> None:
        if self._session is None:
            return
        if self._known.leader is not None and not self._sent:
            first = self._committed + 1
            self.out.send(self._known.leader, Batch(self._known.log, self._session, first))
        self.out.set_timer(timer, now + _ALIVE_US)
