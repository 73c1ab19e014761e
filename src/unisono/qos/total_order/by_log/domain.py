"""One process in one domain: routes each message to the part it is for, and lets the parts follow
the log.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from unisono.core.effects import Done, Effect, Fail, Send
from unisono.core.events import Control, Event
from unisono.core.limits import Limits
from unisono.core.machine import Machine, Outbox, Timer, on
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.leader import Leader
from unisono.qos.total_order.by_log.messages import (
    Batch,
    Close,
    Fetch,
    Heartbeat,
    Hello,
    LogMessage,
    Open,
    unknown_log,
)
from unisono.qos.total_order.by_log.observations import FollowsLeader
from unisono.qos.total_order.by_log.publisher import Publisher
from unisono.qos.total_order.by_log.seats import Phase, Seats
from unisono.qos.total_order.by_log.subscriber import Subscriber
from unisono.qos.total_order.by_log.voter import Retention, Voter
from unisono.raft.keep import Ballot
from unisono.raft.log import Base, Log
from unisono.raft.messages import (
    AppendEntries,
    Configuration,
    InstallSnapshot,
    RaftMessage,
    RequestVote,
)
from unisono.raft.observations import OtherLog

_DRAWN_BITS = 48  # of a log's id
_ASK_AGAIN_US = 300_000
_STRANGERS = 64  # other logs that were told of


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a domain's log is kept, and how long is waited for what."""

    voters: int = 3  # as soon as there are enough processes
    period_us: int = 500_000
    discovery_us: int = 400_000
    join_us: int = 10_000_000
    patience_us: int | None = 10_000_000  # until a receipt says that it takes long
    hold_us: int | None = 10_000_000  # until what no voter gives is skipped
    retention: Retention = Retention()


class Stored(NamedTuple):
    """What a process found on its disk."""

    log: Log
    committed: int
    ballot: Ballot


class Asked(NamedTuple):
    """A subscribe operation that waits to hear how far the log is."""

    topics: tuple[str, ...]
    ticket: str | None
    asks: int


class Met(NamedTuple):
    """What was heard of another log first."""

    asks: int  # what a Hello to its process asked
    number: int


class AskAgain(Timer, frozen=True):
    """Nobody has said how far the log is."""


class Domain(Machine):
    """See the package header for the guarantee."""

    def __init__(
        self,
        name: str,
        node_id: str,
        hello: Hello,
        rng: Random,
        limits: Limits,
        options: LogOptions,
        *,
        incarnation: int = 0,
        durable: bool = False,
        stored: Stored | None = None,
    ) -> None:
        super().__init__(Outbox())
        self.id = node_id
        self.known = Known(name)
        self._rng = rng
        self._options = options
        self._manages = hello.manages
        self._durable = durable
        self.voter: Voter | None = None
        self.leader: Leader | None = None
        self.publisher = Publisher(
            self.out,
            self.known,
            node_id,
            rng,
            limits,
            patience_us=options.patience_us,
            life=incarnation,
        )
        self.subscriber = Subscriber(self.out, self.known, rng, limits, hold_us=options.hold_us)
        self.seats = Seats(
            self.out,
            self.known,
            hello,
            node_id,
            rng,
            raft=lambda: self.voter.raft if self.voter is not None else None,
            found=self._found,
            follow=self._follow,
            tick=self._tick,
            number=lambda: self.voter.state.number if self.voter is not None else 0,
            leader=lambda: self.leader,
            gone=lambda: self.voter.state.gone if self.voter is not None else set(),
            wanted=options.voters,
            period_us=options.period_us,
            discovery_us=options.discovery_us,
            patience_us=options.join_us,
        )
        parts = (self.publisher, self.subscriber, self.seats)
        self._parts = {kind: part for part in parts for kind in part.handlers}
        self._asks = 0
        self._asked: list[Asked] = []
        self._strangers: set[str] = set()
        self._met: dict[str, Met] = {}  # other logs
        self._closing = False
        if stored is not None:
            self.known.log = stored.ballot.log
            self.voter = self._voter(stored.log, stored.ballot, stored.committed)

    # What the layer asks for.

    def start(self, now: int) -> None:
        """The process listens to its inbox and to the channel."""
        if self.voter is not None:
            self.voter.raft.start(now)
        self.seats.start(now)

    def publish(self, event: Event, now: int) -> None:
        self.publisher.publish(event, now)

    def subscribe(self, topics: tuple[str, ...], ticket: str | None, now: int) -> None:
        """The bus hands over what is published on these topics."""
        if self.leader is not None and self.voter is not None and self.voter.raft.serves:
            self._begin(Asked(topics, ticket, 0), self.voter.state.number, now)
            return
        self._asks += 1
        self._asked.append(Asked(topics, ticket, self._asks))
        self.seats.greet(self.known.leader, self._asks)
        self.out.set_timer(AskAgain(), now + _ASK_AGAIN_US)

    def unsubscribe(self, topics: tuple[str, ...], now: int) -> None:
        self.subscriber.end(topics, now)

    def interrupted(self, now: int) -> None:
        """The bus was away: what was under way may be lost."""
        self.publisher.interrupted(now)
        self.subscriber.look(now)
        if self._asked:
            self.out.set_timer(AskAgain(), now)

    def close(self, now: int) -> None:
        self._closing = True

    @property
    def closed(self) -> bool:
        return self._closing and self.seats.phase is Phase.OUT

    def written(self, count: int, now: int) -> None:
        """So much more of what was to be kept is synced."""
        assert self.voter is not None
        self.voter.raft.written(count, now)

    def take(self, now: int) -> list[Effect]:
        """What the parts ask for by now; messages to this process itself are handled here."""
        taken: list[Effect] = []
        while True:
            self._catch_up(now)
            effects = self.out.take()
            if not effects:
                return taken
            for effect in effects:
                if isinstance(effect, Send) and effect.to == self.id:
                    self.receive(effect.message, self.id, now)
                else:
                    taken.append(effect)

    # Messages and timers.

    def receive(self, message: Control, sender: str, now: int) -> None:
        if isinstance(message, RaftMessage):
            self._raft_message(message, sender, now)
        elif isinstance(message, Hello | Heartbeat):
            self.seats.receive(message, sender, now)
        elif isinstance(message, LogMessage):
            if message.log != self.known.log:
                self._stranger(message.log, sender)
            elif type(message) in self._parts:
                self._parts[type(message)].receive(message, sender, now)
            else:
                super().receive(message, sender, now)

    def fire(self, timer: Timer, now: int) -> None:
        part = self._parts.get(type(timer))
        if part is not None:
            part.fire(timer, now)
        elif type(timer) in self.handlers:
            super().fire(timer, now)
        elif self.voter is not None:
            self.voter.raft.fire(timer, now)

    @on(Open)
    def _open(self, message: Open, sender: str, now: int) -> None:
        if self.leader is not None:
            self.leader.open(message, sender, now)

    @on(Batch)
    def _batch(self, message: Batch, sender: str, now: int) -> None:
        if self.leader is not None:
            self.leader.take(message, sender, now)

    @on(Close)
    def _close(self, message: Close, sender: str, now: int) -> None:
        if self.leader is not None:
            self.leader.close(message, sender, now)

    @on(Fetch)
    def _fetch(self, message: Fetch, sender: str, now: int) -> None:
        if self.voter is not None:
            self.voter.fetch(message, sender)

    @on(AskAgain)
    def _ask_again(self, timer: AskAgain, now: int) -> None:
        if self._asked:
            self.seats.greet(None, self._asks)
            self.out.set_timer(timer, now + _ASK_AGAIN_US)

    def _raft_message(self, message: RaftMessage, sender: str, now: int) -> None:
        if message.log != self.known.log:
            self._stranger(message.log, sender)
            return
        known = isinstance(message, AppendEntries | InstallSnapshot | RequestVote)
        if self.voter is None and self._manages and known:
            self.voter = self._voter(Log(Base()), None, 0)
            self.voter.raft.start(now)
        if self.voter is not None:
            self.voter.raft.receive(message, sender, now)

    def _voter(self, log: Log, ballot: Ballot | None, committed: int) -> Voter:
        return Voter(
            self.out,
            self.id,
            self.known.log,
            log,
            self._rng,
            retention=self._options.retention,
            period_us=self._options.period_us,
            durable=self._durable,
            ballot=ballot,
            committed=committed,
        )

    # Following the log.

    def _found(self, now: int) -> None:
        """Begin a log; this process is its only voter."""
        drawn = self._rng.getrandbits(_DRAWN_BITS)
        self.known.log = f"{self.known.domain}#{drawn:0{_DRAWN_BITS // 4}x}"
        base = Base(configuration=Configuration((self.id,)))
        self.voter = self._voter(Log(base), None, 0)
        self.voter.raft.found(now)

    def _catch_up(self, now: int) -> None:
        """The log may have gone on, or another may lead."""
        voter = self.voter
        if voter is not None:
            raft = voter.raft
            if not raft.leads:
                self.leader = None
            elif self.leader is None or self.leader.term != raft.term:
                self.leader = Leader(self.out, voter, now)
                self.seats.lead(now)
            if raft.committed > voter.applied or raft.log.base.index > voter.applied:
                self._apply(voter)
                self.seats.committed(now)
            fresh = (raft.term, raft.leader) != (self.known.term, self.known.leader)
            if raft.leader and fresh and raft.term >= self.known.term:
                self.known.voters = raft.log.configuration.voters
                self._led(raft.leader, raft.term, now)
            if raft.serves:
                self.known.heard_us = now
                self.seats.joined(now)
                self._answer(self._asks, voter.state.number, now)
            self.seats.try_target(now)
        here = self.seats.phase in (Phase.JOINING, Phase.IN)
        if self._closing and here and self.publisher.idle:
            self.publisher.close(now)
            self.seats.leave(now)

    def _apply(self, voter: Voter) -> None:
        if self.leader is not None:
            self.leader.committed(voter.apply(self.leader.decoded))
        else:
            for _ in voter.apply(lambda index, entry: None):
                pass

    def _led(self, leader: str, term: int, now: int) -> None:
        """Another process leads, or again."""
        self.known.leader, self.known.term = leader, term
        self.known.heard_us = now
        self.out.observe(FollowsLeader(leader, term))
        self.publisher.new_leader(now)
        self.seats.new_leader(now)

    def _follow(self, message: Heartbeat, sender: str, now: int) -> None:
        known = self.known
        if message.log != known.log:
            if known.log != unknown_log(known.domain):
                self._meet(message, sender, now)
                return
            known.log = message.log
        if message.term < known.term:
            return
        changed = (message.term, message.leader) != (known.term, known.leader)
        known.voters, known.spares = message.voters, message.spares
        known.number = max(known.number, message.number)
        if changed:
            self._led(message.leader, message.term, now)
        if sender == message.leader:
            known.heard_us = now
        self.seats.joined(now)
        self._answer(message.answers, message.number, now)
        self.subscriber.look(now)

    def _answer(self, asks: int, number: int, now: int) -> None:
        """The log is this far: subscriptions that asked for it begin."""
        while self._asked and self._asked[0].asks <= asks:
            self._begin(self._asked.pop(0), number, now)

    def _begin(self, asked: Asked, number: int, now: int) -> None:
        self.subscriber.begin(asked.topics, number, now)
        if asked.ticket is not None:
            self.out.do(Done(asked.ticket))

    def _tick(self, now: int) -> None:
        """Once a period."""
        if self.voter is None:
            return
        self.voter.forget(now)
        if self.leader is not None:
            self.leader.tick(now)
            self.known.voters = self.voter.raft.log.configuration.voters
            self.known.number = max(self.known.number, self.voter.state.number)
            self.subscriber.look(now)

    # Another log of the domain.

    def _stranger(self, log: str, sender: str) -> None:
        """A message about another log: it changes nothing, and is told once."""
        if log not in self._strangers and len(self._strangers) < _STRANGERS:
            self._strangers.add(log)
            self.out.observe(OtherLog(sender, log, self.known.log))

    def _meet(self, message: Heartbeat, sender: str, now: int) -> None:
        """Two logs were begun apart. A late message must not end one: whoever sent it is asked."""
        self._stranger(message.log, sender)
        met = self._met.get(message.log)
        if met is None or message.answers < met.asks:
            self._asks += 1
            if len(self._met) < _STRANGERS:
                self._met.setdefault(message.log, Met(self._asks, message.number))
            self.seats.greet(sender, self._asks)
            return
        mine = self.number
        if message.number and mine:
            if len(self.known.voters) <= len(message.voters):
                self.out.do(
                    Fail(
                        f"two logs of domain {self.known.domain!r} were begun apart and both have "
                        f"events: this one ({self.known.log}) ends, {message.log} goes on if it "
                        "has more voters; start anew, with the same voters named everywhere"
                    )
                )
        elif not mine and (message.number or message.log < self.known.log):
            self._give_in(message, sender, met.number, now)

    @property
    def number(self) -> int:
        """The last number of this process's log, as far as it knows."""
        state = self.voter.state.number if self.voter is not None else 0
        return max(self.known.number, self.subscriber.highest, state)

    def _give_in(self, message: Heartbeat, sender: str, start: int, now: int) -> None:
        """Nothing was put in order here: go over to the other log. Subscriptions begin there with
        what came since it was first heard of."""
        self.voter = self.leader = None
        self._met.clear()
        known = self.known
        known.log, known.term, known.leader, known.number = message.log, 0, None, 0
        topics = tuple(self.subscriber.starts)
        self.subscriber.end(topics, now)
        self.subscriber.highest = 0
        self.publisher.forget_session()
        self._follow(msgspec.structs.replace(message, answers=0), sender, now)
        if topics:
            self.subscriber.begin(topics, start, now)
        if self._asked:
            self.seats.greet(sender, self._asks)
