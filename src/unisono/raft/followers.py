"""What the leader sends to its followers, and what each of them has.

A follower gets what it lacks in batches, two of them under way; one that lacks what the leader does
not keep any more gets the base, piece by piece. What is not answered is repeated.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from unisono.core.machine import Machine, Timer, on
from unisono.raft.log import Base
from unisono.raft.messages import AppendEntries, Entry, InstallSnapshot

if TYPE_CHECKING:
    from unisono.raft.raft import Raft

_WINDOW = 2  # messages under way; what comes up meanwhile is the next batch
_RESEND_US = 200_000  # at least so long an answer may take
_RESEND_MOST_US = 5_000_000


class Follower:
    """One follower or learner. It probes until the follower has said where the logs agree: then
    one message is under way at a time, and no entries are taken for sent."""

    def __init__(self, last: int, now: int) -> None:
        self.match = 0  # it has the log up to here
        self.next = last  # the next entry to send
        self.probes = True
        self.heard_us = now
        self.answers = False  # it has, in this term
        self.in_flight: deque[tuple[int, int]] = deque()  # last index, when
        self.resend_at_us = 0
        self.base: Base | None = None  # being sent to it
        self.offset = 0  # how much of it it has
        self._usual_us = 0  # how long answers take
        self._repeats = 0

    @property
    def has_room(self) -> bool:
        return len(self.in_flight) < (1 if self.probes else _WINDOW)

    def sent(self, last: int, now: int) -> None:
        """Entries up to `last`, or a piece of a base."""
        self.in_flight.append((last, now))
        if not self.probes:
            self.next = last + 1
        if len(self.in_flight) == 1:
            self._expect(now, 1.0)

    def _expect(self, now: int, factor: float) -> None:
        patience = max(_RESEND_US, 4 * self._usual_us) << self._repeats
        self.resend_at_us = now + round(min(patience, _RESEND_MOST_US) * factor)

    def heard(self, now: int) -> None:
        """It lives: what it did not answer is repeated soon, if it was thought to be gone."""
        self.heard_us = now
        self.answers = True
        if self._repeats > 1:
            self._repeats = 1
            self._expect(now, 1.0)

    def confirmed(self, index: int, now: int) -> bool:
        """It has the log up to `index`; whether that is news."""
        if self.base is not None and index >= self.base.index:
            self.base, self.offset = None, 0
        if self.base is None:
            self.probes = False
        while self.in_flight and self.in_flight[0][0] <= index:
            _, sent_us = self.in_flight.popleft()
            if not self._repeats:
                self._usual_us += (max(0, now - sent_us) - self._usual_us) // 8
            self._repeats = 0
            self._expect(now, 1.0)
        news = index > self.match
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        return news

    def mismatch(self, previous: int, hint: int) -> bool:
        """The logs differ at `previous`; whether this says where to go on."""
        if previous <= self.match or self.base is not None:
            return False  # of a message that was long under way
        if self.probes and previous != self.next - 1:
            return False
        self.probes = True
        self.in_flight.clear()
        self.next = max(self.match + 1, min(hint + 1, previous))
        return True

    def installs(self, base: Base) -> Base:
        """The base that is sent to it: the one begun with, while there is one."""
        if self.base is None:
            self.base, self.offset, self.probes = base, 0, True
        return self.base

    def taken(self, index: int, offset: int) -> bool:
        """It has so much of the base; whether the next piece is due."""
        if self.base is None or index != self.base.index or offset > len(self.base.state):
            return False
        if offset == self.offset or (offset < self.offset and not self._repeats):
            return False  # an answer to a repetition; it may have begun anew if it gave none
        self.offset = offset
        self.in_flight.clear()
        self._repeats = 0
        return True

    def lost(self, now: int, rng: Random) -> None:
        """No answer: begin again after what it is known to have."""
        self.in_flight.clear()
        self._repeats = min(self._repeats + 1, 5)
        if self.base is None:
            self.next, self.probes = self.match + 1, True
        self._expect(now, rng.uniform(0.5, 1.5))


class Flush(Timer, frozen=True):
    """The end of a turn: what was proposed in it goes out."""


class Resend(Timer, frozen=True):
    """Something under way has not been answered."""


class Followers(Machine, inputs=Flush | Resend):
    """Those who have the log from this leader: the other voters, and learners."""

    def __init__(self, raft: Raft, rng: Random, most_entries: int, most_bytes: int) -> None:
        super().__init__(raft.out)
        self.learners: set[str] = set()
        self._raft = raft
        self._rng = rng
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._followers: dict[str, Follower] = {}
        self._flushing = False
        self._resend_at_us = 0  # 0: the timer is not set

    def get(self, name: str) -> Follower | None:
        return self._followers.get(name)

    def match(self, name: str) -> int:
        """Up to where it is known to have the log."""
        follower = self._followers.get(name)
        return follower.match if follower is not None else 0

    def heard_since(self, since_us: int) -> set[str]:
        return {n for n, follower in self._followers.items() if follower.heard_us >= since_us}

    def clear(self) -> None:
        """This process does not lead any more, or begins to."""
        self._followers.clear()
        self.learners = set()
        self._flushing = False

    def follow(self, now: int) -> None:
        """Send the log to whom it concerns now."""
        raft = self._raft
        wanted = (raft.log.configuration.everyone | self.learners) - {raft.id}
        for name in self._followers.keys() - wanted:
            del self._followers[name]
        for name in sorted(wanted - self._followers.keys()):
            self._followers[name] = Follower(raft.log.last, now)
            self.send_to(name, now)

    def flush_soon(self, now: int) -> None:
        """At the end of this turn."""
        if not self._flushing and self._followers:
            self._flushing = True
            self.out.set_timer(Flush(), now)

    @on(Flush)
    def _flush(self, timer: Flush, now: int) -> None:
        self._flushing = False
        for name in self._followers:
            self.send_to(name, now)

    def send_to(self, name: str, now: int) -> None:
        """What this follower lacks, as far as there is room on the way."""
        follower, log = self._followers[name], self._raft.log
        while follower.has_room and follower.next <= log.last:
            if follower.next < log.first:
                self.send_snapshot(name, now)
                return
            entries = log.batch(follower.next, self._most_entries, self._most_bytes)
            self._send_entries(name, follower.next - 1, entries)
            follower.sent(follower.next + len(entries) - 1, now)
        self._watch(follower, now)

    def _send_entries(self, name: str, previous: int, entries: tuple[Entry, ...]) -> None:
        raft = self._raft
        term = raft.log.term_at(previous)
        assert term is not None
        message = AppendEntries(raft.log_id, raft.term, previous, term, entries, raft.committed)
        self.out.send(name, message)

    def send_snapshot(self, name: str, now: int) -> None:
        """The next piece of the base: one at a time."""
        raft, follower = self._raft, self._followers[name]
        base = follower.installs(raft.log.base)
        piece = InstallSnapshot(
            raft.log_id,
            raft.term,
            base.index,
            base.term,
            base.configuration,
            len(base.state),
            follower.offset,
            base.state[follower.offset : follower.offset + self._most_bytes],
        )
        self.out.send(name, piece)
        follower.sent(base.index, now)
        self._watch(follower, now)

    def beat(self) -> None:
        """A sign of life to each."""
        for name, follower in self._followers.items():
            if follower.base is None:
                known = follower.next - 1 if follower.probes else follower.match
                self._send_entries(name, max(known, self._raft.log.base.index), ())

    def _watch(self, follower: Follower, now: int) -> None:
        """See to it that what is under way is repeated if nothing comes back."""
        if not follower.in_flight:
            return
        if not self._resend_at_us or follower.resend_at_us < self._resend_at_us:
            self._resend_at_us = follower.resend_at_us
            self.out.set_timer(Resend(), max(now, follower.resend_at_us))

    @on(Resend)
    def _resend(self, timer: Resend, now: int) -> None:
        self._resend_at_us = 0
        for name, follower in self._followers.items():
            if follower.in_flight and follower.resend_at_us <= now:
                follower.lost(now, self._rng)
                self.send_to(name, now)
            else:
                self._watch(follower, now)
