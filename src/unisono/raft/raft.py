"""Raft: one voter of a replicated log, as in its papers (Ongaro and Ousterhout 2014; Ongaro 2014).

Guarantee: what is committed - up to `committed` in `log` - is the same on all voters, and stays,
whatever is lost, late, doubled or restarted, as long as no voter forgets what it kept. It goes on
while a majority of the voters can talk to one another.

Beyond the first paper: pre-vote and leader stickiness (nobody disturbs a leader that a majority
hears), check-quorum (a leader that no majority hears steps down), leader transfer, learners, joint
consensus, snapshots in pieces, batches with two messages under way to each follower.

Who drives it calls `start`, `receive`, `fire` and `written`, and looks at `term`, `role`, `leader`,
`committed` and `log` afterwards. It must carry out `Store` and `Keep` in the order in which they
come, a Store before any message that comes after it, and call `written` when what a Keep asks for
is synced. Nothing counts before that: no vote, no confirmation, and not the leader's own copy.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from random import Random

import msgspec

from unisono.core.events import Control
from unisono.core.machine import Machine, Outbox, Timer, on
from unisono.raft.followers import Flush, Follower, Followers, Resend
from unisono.raft.keep import STORE_BALLOT, Ballot, Keep, KeepBase
from unisono.raft.log import Base, Log, change, makes_sense
from unisono.raft.messages import (
    Appended,
    AppendEntries,
    Configuration,
    Entry,
    InstallSnapshot,
    Kind,
    Mismatch,
    RaftMessage,
    RequestVote,
    SnapshotTaken,
    TimeoutNow,
    Vote,
)
from unisono.raft.observations import LeaderElected, MessageRefused, OtherLog, SteppedDown

_ENCODER = msgspec.msgpack.Encoder()
_SNAPSHOT_BYTES = 1 << 28  # a larger one is refused
_SOON_US = (100_000, 300_000)  # a voter that started, or met a split vote, stands after this
_LATER = 16  # times as long at most, when nobody is elected again and again


class Role(Enum):
    """What a voter is at present."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Election(Timer, frozen=True):
    """No leader has been heard for too long, or no candidate has won."""


class Beat(Timer, frozen=True):
    """The leader gives a sign of life, and sees who does."""


class Raft(
    Machine,
    inputs=RequestVote
    | Vote
    | AppendEntries
    | Appended
    | Mismatch
    | InstallSnapshot
    | SnapshotTaken
    | TimeoutNow
    | Election
    | Beat
    | Flush
    | Resend,
):
    """One process of one log: a voter, or a learner while the configuration does not name it."""

    def __init__(
        self,
        out: Outbox,
        node_id: str,
        log_id: str,
        log: Log,
        rng: Random,
        *,
        period_us: int = 1_000_000,
        ballot: Ballot | None = None,
        committed: int = 0,
        durable: bool = False,
        most_entries: int = 1024,
        most_bytes: int = 1 << 16,
    ) -> None:
        """`most_entries` and `most_bytes`: of entries, or of a snapshot, in one message."""
        super().__init__(out)
        self.id = node_id
        self.log_id = log_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader = ""  # of this term, once known
        self.term = ballot.term if ballot is not None else 0
        self.committed = max(log.base.index, min(committed, log.last))
        self._voted_for = ballot.voted_for if ballot is not None else ""
        self._rng = rng
        self._period_us = period_us
        self._durable = durable
        self._heard_us = -(1 << 62)  # from the leader
        self._stand_at_us = 0  # the Election timer may be earlier; then it is set again
        self._tries = 0  # elections since a leader was heard
        self._votes: set[str] = set()
        # What is asked to be kept: how often, how often it was, and up to which index each makes
        # the log stable.
        self._asked = self._written = 0
        self._unstable: deque[tuple[int, int]] = deque()
        self.stable = log.last
        # As a follower: how far the log agrees with the leader's, and how far it was told.
        self._matched = self._told = 0
        self._incoming: tuple[InstallSnapshot, bytearray] | None = None
        # As the leader.
        self.followers = Followers(self, rng, most_entries, most_bytes)
        self._successor = ""
        self._successor_until_us = 0
        self._lately = 0  # what was committed at the last sign of life

    # What whoever drives it asks for.

    def start(self, now: int) -> None:
        """Begin. A voter that is alone leads at once."""
        if self.log.configuration.everyone == {self.id}:
            self._campaign(now, transfer=False)
        else:
            self._wait(now, self._soon())

    def found(self, now: int) -> None:
        """Begin a log that is new: what it begins with is kept, too."""
        self._keep_base()
        self.start(now)

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    @property
    def votes(self) -> bool:
        """Whether this process is a voter."""
        return self.id in self.log.configuration.everyone

    @property
    def serves(self) -> bool:
        """Whether it leads and knows what is committed: it has committed an entry of its term."""
        return self.leads and self.log.term_at(self.committed) == self.term

    def propose(self, data: bytes, now: int) -> int:
        """Append to the log, as the leader; its index. 0: not now, a successor takes over."""
        if not self.leads or self._hands_over(now):
            return 0
        return self._append_own(Entry(self.term, Kind.DATA, data), now)

    def change_voters(self, voters: tuple[str, ...], now: int) -> bool:
        """Have these vote from now on, as the leader. False: not yet - another change is under
        way, or one of them does not have what is kept here."""
        present = self.log.configuration
        settled = self.log.configured_at <= self.committed and not present.joining
        if not self.serves or not settled or not voters or self._hands_over(now):
            return False
        if not all(self.has_all(name) for name in voters):
            return False
        entry = change(self.term, Configuration(present.voters, tuple(voters)))
        self._append_own(entry, now)
        return True

    def has_all(self, name: str) -> bool:
        """Whether this process has what the leader keeps, but for what came in the last period or
        two: while entries come all the time nobody has all of them."""
        return name == self.id or self.followers.match(name) >= self._lately

    def teach(self, learners: set[str], now: int) -> None:
        """Send the log to these, too, and to no other learners."""
        if self.leads:
            self.followers.learners = learners - self.log.configuration.everyone - {self.id}
            self.followers.follow(now)

    def is_heard(self, name: str, since_us: int) -> bool:
        """Whether this follower has answered in this term, and since then."""
        follower = self.followers.get(name)
        known = follower is not None and follower.answers and follower.heard_us >= since_us
        return name == self.id or known

    def silent_us(self, name: str, now: int) -> int:
        """How long nothing has come from this follower."""
        follower = self.followers.get(name)
        return now - follower.heard_us if follower is not None else 0

    def transfer(self, successor: str, now: int) -> bool:
        """Have this voter lead; nothing is taken meanwhile. False: it cannot."""
        if not self.leads or successor == self.id or not self._may_lead(successor):
            return False
        self._successor = successor
        self._successor_until_us = now + 2 * self._period_us
        self.followers.send_to(successor, now)
        self._hand_over()
        return True

    def _may_lead(self, name: str) -> bool:
        known = self.followers.get(name) is not None
        return known and name in self.log.configuration.everyone

    def _hands_over(self, now: int) -> bool:
        if self._successor and now >= self._successor_until_us:
            self._successor = ""  # it did not take over
        return bool(self._successor)

    def forget(self, index: int, state: bytes) -> None:
        """Keep no entries up to this index, which is committed: `state` is what they came to."""
        assert self.log.base.index < index <= self.committed
        self.log.forget(index, state)
        self._keep_base()

    def written(self, count: int, now: int) -> None:
        """So many more Keeps, in order, are synced."""
        self._written += count
        assert self._written <= self._asked
        while self._unstable and self._unstable[0][0] <= self._written:
            _, upto = self._unstable.popleft()
            self.stable = max(self.stable, upto)
        self._have_stable(now)

    # The log and the disk.

    def _keep(self, first: int, entries: tuple[Entry, ...]) -> None:
        """The log has these entries now, from `first` on, and none after them."""
        if not self._durable:
            self.stable = self.log.last
            return
        self.stable = min(self.stable, first - 1)
        self._unstable = deque((n, min(upto, first - 1)) for n, upto in self._unstable)
        self._ask_to_keep(Keep(first, entries, self.committed))

    def _keep_base(self) -> None:
        if self._durable:
            self._ask_to_keep(KeepBase(self.log.base))
        else:
            self.stable = self.log.last

    def _ask_to_keep(self, effect: Keep | KeepBase) -> None:
        self._asked += 1
        self._unstable.append((self._asked, self.log.last))
        self.out.do(effect)

    def _have_stable(self, now: int) -> None:
        """More of the log counts now."""
        if self.leads:
            self._advance(now)
        elif self.leader and min(self._matched, self.stable) > self._told:
            self._confirm()

    def _cast(self, term: int, voted_for: str) -> None:
        """Be in this term, with this vote, from now on and after a restart."""
        if (term, voted_for) == (self.term, self._voted_for):
            return
        self.term, self._voted_for = term, voted_for
        if self._durable:
            ballot = Ballot(self.log_id, term, voted_for)
            self.out.store(STORE_BALLOT, _ENCODER.encode(ballot))

    def receive(self, message: Control, sender: str, now: int) -> None:
        assert isinstance(message, RaftMessage)
        if message.log == self.log_id:
            super().receive(message, sender, now)
        else:
            self.out.observe(OtherLog(sender, message.log, self.log_id))

    # Elections.

    def _soon(self) -> int:
        """When to stand (again), if nobody is elected: later each time."""
        least, most = _SOON_US
        return self._rng.randint(least, most) * min(_LATER, 1 << self._tries)

    def _wait(self, now: int, wait_us: int) -> None:
        """Stand after this time, unless a leader or a candidate is heard."""
        self._stand_at_us = now + wait_us
        self.out.set_timer(Election(), self._stand_at_us)

    def _leader_lives(self, now: int) -> bool:
        """Whether a leader was heard so lately that nobody may stand against it."""
        return self.leads or (bool(self.leader) and 0 <= now - self._heard_us < 2 * self._period_us)

    @on(Election)
    def _look(self, timer: Election, now: int) -> None:
        if self.leads:
            return
        if now < self._stand_at_us:
            self.out.set_timer(timer, self._stand_at_us)
        elif not self.votes:
            self._wait(now, self._silence())  # it may become one
        else:
            self._stand(now)

    def _silence(self) -> int:
        """How long a leader may be silent."""
        return self._rng.randint(2 * self._period_us, 3 * self._period_us)

    def _stand(self, now: int) -> None:
        """Ask whether an election would be won; the term stays."""
        self.role, self.leader = Role.PRE_CANDIDATE, ""
        self._incoming = None
        self._votes = {self.id}
        self._wait(now, self._soon())
        self._tries += 1
        self._ask_for_votes(self.term + 1, pre=True, transfer=False)
        if self.log.configuration.agreed(self._votes):
            self._campaign(now, transfer=False)

    def _campaign(self, now: int, transfer: bool) -> None:
        """Stand in a new term."""
        self.role, self.leader = Role.CANDIDATE, ""
        self._votes = {self.id}
        self._cast(self.term + 1, self.id)
        self._wait(now, self._soon())
        self._ask_for_votes(self.term, pre=False, transfer=transfer)
        if self.log.configuration.agreed(self._votes):
            self._lead(now)

    def _ask_for_votes(self, term: int, pre: bool, transfer: bool) -> None:
        log = self.log
        ask = RequestVote(self.log_id, term, log.last, log.last_term, pre, transfer)
        for name in sorted(log.configuration.everyone - {self.id}):
            self.out.send(name, ask)

    @on(RequestVote)
    def _vote(self, ask: RequestVote, sender: str, now: int) -> None:
        log = self.log
        if self._leader_lives(now) and not ask.transfer:
            return  # it stands against a leader that lives
        complete = (ask.last_term, ask.last_index) >= (log.last_term, log.last)
        if ask.pre:
            granted = complete and ask.term > self.term
            term = ask.term if granted else self.term
            self.out.send(sender, Vote(self.log_id, term, True, granted))
            return
        if ask.term > self.term:
            self._follow(ask.term, "", now)
        granted = complete and ask.term == self.term and self._voted_for in ("", sender)
        if granted:
            self._cast(self.term, sender)
            self._wait(now, self._soon() + self._silence() // 2)
        self.out.send(sender, Vote(self.log_id, self.term, False, granted))

    @on(Vote)
    def _count(self, vote: Vote, sender: str, now: int) -> None:
        if vote.term > self.term and not (vote.pre and vote.granted):
            self._follow(vote.term, "", now)
            return
        wanted = Role.PRE_CANDIDATE if vote.pre else Role.CANDIDATE
        term = self.term + 1 if vote.pre else self.term
        if not vote.granted or self.role is not wanted or vote.term != term:
            return
        self._votes.add(sender)
        if self.log.configuration.agreed(self._votes):
            if vote.pre:
                self._campaign(now, transfer=False)
            else:
                self._lead(now)

    @on(TimeoutNow)
    def _succeed(self, message: TimeoutNow, sender: str, now: int) -> None:
        if message.term == self.term and sender == self.leader and self.votes:
            self._campaign(now, transfer=True)

    def _follow(self, term: int, leader: str, now: int) -> None:
        """Be a follower in this term."""
        if self.leads:
            self.out.observe(SteppedDown(self.term, term))
            self._successor = ""
            self.followers.clear()
            self._wait(now, self._soon())
        if term > self.term:
            self._cast(term, "")
            self._incoming = None
            self._matched = self._told = 0
        self.role, self.leader = Role.FOLLOWER, leader

    # As a follower.

    def _heed(self, message: RaftMessage, sender: str, now: int) -> bool:
        """Whether the message comes from the leader of this term, which lives then."""
        if message.term < self.term:  # it does not know that it leads no more
            self.out.send(sender, Mismatch(self.log_id, self.term, 0, 0))
            return False
        if message.term == self.term and (self.leads or self.leader not in ("", sender)):
            self.out.observe(MessageRefused(sender, "two leaders of one term"))
            return False
        if message.term > self.term or self.role is not Role.FOLLOWER or not self.leader:
            self._follow(message.term, sender, now)
        self._heard_us, self._tries = now, 0
        self._stand_at_us = now + self._silence()
        return True

    @on(AppendEntries)
    def _append(self, message: AppendEntries, sender: str, now: int) -> None:
        if not self._heed(message, sender, now):
            return
        log, previous = self.log, message.previous
        entries = message.entries
        if not makes_sense(message.previous_term, entries, message.term):
            self.out.observe(MessageRefused(sender, "entries that no leader writes"))
            return
        if previous < log.base.index:  # the base is committed: it is the leader's, too
            entries = entries[log.base.index - previous :]
            previous = log.base.index
        elif log.term_at(previous) != message.previous_term:
            mismatch = Mismatch(self.log_id, self.term, previous, self._hint(previous))
            self.out.send(sender, mismatch)
            return
        first = previous + 1
        last = previous + len(entries)
        while entries and log.term_at(first) == entries[0].term:
            first, entries = first + 1, entries[1:]
        if entries:
            if first <= self.committed:
                self.out.observe(MessageRefused(sender, "other entries than the committed ones"))
                return
            if first <= log.last:
                log.truncate(first)
            log.append(entries)
            self._keep(first, entries)
        self._matched = max(self._matched, last)
        self.committed = max(self.committed, min(message.committed, self._matched))
        if not entries or self.stable >= self._matched:
            self._confirm()  # else when it is synced

    def _hint(self, previous: int) -> int:
        """Up to where both logs may agree: not within the term that differs."""
        log = self.log
        if previous > log.last:
            return log.last
        term, index = log.term_at(previous), previous - 1
        while index > self.committed and log.term_at(index) == term:
            index -= 1
        return index

    def _confirm(self) -> None:
        self._told = min(self._matched, self.stable)
        self.out.send(self.leader, Appended(self.log_id, self.term, self._told))

    @on(InstallSnapshot)
    def _install(self, piece: InstallSnapshot, sender: str, now: int) -> None:
        if not self._heed(piece, sender, now):
            return
        if piece.index <= self.committed:  # all of it is here
            self._matched = max(self._matched, self.committed)
            self._confirm()
            return
        if piece.size > _SNAPSHOT_BYTES:
            self.out.observe(MessageRefused(sender, f"a snapshot of {piece.size} bytes"))
            return
        if self._incoming is None or self._incoming[0].index != piece.index:
            self._incoming = (piece, bytearray())
        about, state = self._incoming
        if piece.offset == len(state):
            state += piece.data[: about.size - len(state)]
        if len(state) < about.size:
            taken = SnapshotTaken(self.log_id, self.term, piece.index, len(state))
            self.out.send(sender, taken)
            return
        self._incoming = None
        base = Base(about.index, about.index_term, about.configuration, bytes(state))
        if self.log.last >= base.index and self.log.term_at(base.index) != base.term:
            self.log.truncate(base.index)  # it is not the leader's, nor what follows
            self._keep(base.index, ())
        self.log.install(base)
        self.committed = base.index
        self._keep_base()
        self._matched = max(self._matched, base.index)
        self._confirm()

    # As the leader.

    def _lead(self, now: int) -> None:
        self.role, self.leader = Role.LEADER, self.id
        self._lately = self.log.last + 1
        self._tries = 0
        self._successor = ""
        self.followers.clear()
        self.out.cancel_timer(Election())
        self.out.observe(LeaderElected(self.term))
        self._append_own(Entry(self.term, Kind.FIRST), now)
        self.followers.follow(now)
        self.out.set_timer(Beat(), now + self._period_us)

    def _append_own(self, entry: Entry, now: int) -> int:
        index = self.log.last + 1
        self.log.append((entry,))
        self._keep(index, (entry,))
        if entry.kind is Kind.CONFIGURATION:
            self.followers.follow(now)
        self.followers.flush_soon(now)
        self._advance(now)
        return index

    @on(*Followers.handlers)
    def _send(self, timer: Timer, now: int) -> None:
        self.followers.fire(timer, now)

    @on(Beat)
    def _beat(self, timer: Beat, now: int) -> None:
        if not self.leads:
            return
        self.out.set_timer(timer, now + self._period_us)
        self._lately = self.committed
        heard = self.followers.heard_since(now - 2 * self._period_us)
        if not self.log.configuration.agreed(heard | {self.id}):
            self._follow(self.term, "", now)  # a majority may have another leader by now
            return
        if not self._hands_over(now) and self.log.configured_at <= self.committed:
            self._configured(now)
        self.followers.beat()

    def _answered(self, message: RaftMessage, sender: str, now: int) -> Follower | None:
        """The follower, if this is an answer to the leader of this term."""
        if message.term > self.term:
            self._follow(message.term, "", now)
        if not self.leads or message.term != self.term:
            return None
        follower = self.followers.get(sender)
        if follower is not None:
            follower.heard(now)
        return follower

    @on(Appended)
    def _confirmed(self, message: Appended, sender: str, now: int) -> None:
        follower = self._answered(message, sender, now)
        if follower is None:
            return
        if message.index > self.log.last:
            self.out.observe(MessageRefused(sender, "it confirms what was not sent"))
            return
        if follower.confirmed(message.index, now):
            self._advance(now)
        if self.leads and self.followers.get(sender) is not None:
            self.followers.send_to(sender, now)
            self._hand_over()

    @on(Mismatch)
    def _step_back(self, message: Mismatch, sender: str, now: int) -> None:
        follower = self._answered(message, sender, now)
        if follower is not None and follower.mismatch(message.previous, message.hint):
            self.followers.send_to(sender, now)

    @on(SnapshotTaken)
    def _go_on(self, message: SnapshotTaken, sender: str, now: int) -> None:
        follower = self._answered(message, sender, now)
        if follower is not None and follower.taken(message.index, message.offset):
            self.followers.send_snapshot(sender, now)

    def _hand_over(self) -> None:
        """The successor stands once it has everything."""
        known = self.followers.get(self._successor) is not None
        if known and self.followers.match(self._successor) == self.log.last:
            self.out.send(self._successor, TimeoutNow(self.log_id, self.term))

    def _advance(self, now: int) -> None:
        """What a majority has is committed; entries of earlier terms only with one of this."""
        present = self.log.configuration
        index = self._common(present.voters)
        if present.joining:
            index = min(index, self._common(present.joining))
        if index <= self.committed or self.log.term_at(index) != self.term:
            return
        self.committed = index
        if self.log.configured_at <= self.committed:
            self._configured(now)

    def _common(self, voters: tuple[str, ...]) -> int:
        """Up to where a majority of these has the log."""
        have = [self.stable if name == self.id else self.followers.match(name) for name in voters]
        return sorted(have, reverse=True)[len(have) // 2]

    def _configured(self, now: int) -> None:
        """A configuration is committed: the old voters are needed no more."""
        present = self.log.configuration
        if present.joining:
            self._append_own(change(self.term, Configuration(present.joining)), now)
        elif self.id not in present.voters:
            voters = [name for name in present.voters if self.followers.get(name) is not None]
            best = max(voters, key=lambda name: (self.followers.match(name), name))
            self.transfer(best, now)
