"""Who begins a log, who votes in it, and how a process leaves.

A process greets everyone and listens. If it hears of a log it belongs to that one; if it hears of
none for a while, and of nobody else who would begin one and has a smaller id, it begins one and is
its only voter. The leader then has others vote, up to three (or five), and replaces voters that
fall silent. Silence never makes voters fewer; a process that leaves may.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

import msgspec

from unisono.core.effects import Cast, Done
from unisono.core.machine import Machine, Outbox, Timer, on
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.leader import Leader
from unisono.qos.total_order.by_log.messages import CHANNEL, Heartbeat, Hello, Leave, Left
from unisono.qos.total_order.by_log.observations import NoLeader, VotersChange
from unisono.raft.raft import Raft

_SILENT = 4  # periods after which a voter is replaced
_SILENT_REBORN = 2  # if its name greets with another id
_GREET_EVERY = 4  # periods: a spare says that it is there
_GONE = 3 * _GREET_EVERY + 1  # periods after which a spare is not counted on
_GREETED_MAX = 4096
_SPARES_SHOWN = 8
_ROUNDS = 3  # of greeting, before a process begins a log


class Phase(Enum):
    """Of a process in its domain."""

    JOINING = "joining"
    IN = "in"
    LEAVING = "leaving"
    OUT = "out"


class Greeted(msgspec.Struct):
    """A process that said hello."""

    hello: Hello
    heard_us: int


class Discover(Timer, frozen=True):
    """Nobody told of a log so far."""


class Period(Timer, frozen=True):
    """A sign of life is due, or overdue."""


class Seats(Machine, inputs=Hello | Heartbeat | Leave | Left | Discover | Period):
    """One process's part. `raft` is its voter's, if it has one; `found` begins a log; `follow`
    takes over what a heartbeat says."""

    def __init__(
        self,
        out: Outbox,
        known: Known,
        hello: Hello,
        node_id: str,
        rng: Random,
        *,
        raft: Callable[[], Raft | None],
        found: Callable[[int], None],
        follow: Callable[[Heartbeat, str, int], None],
        tick: Callable[[int], None],
        number: Callable[[], int],
        leader: Callable[[], Leader | None],
        gone: Callable[[], set[str]],
        wanted: int,
        period_us: int,
        discovery_us: int,
        patience_us: int,
    ) -> None:
        super().__init__(out)
        self.phase = Phase.JOINING
        self._known = known
        self._hello = hello
        self._id = node_id
        self._rng = rng
        self._raft = raft
        self._found = found
        self._follow = follow
        self._tick = tick
        self._number = number
        self._leader = leader
        self._gone = gone  # voters that have left, as far as that is committed
        self._wanted = wanted
        self._period_us = period_us
        self._discovery_us = discovery_us
        self._patience_us = patience_us
        self._channel = CHANNEL + known.domain
        self._begun_us = 0
        self._round = 0
        self._heard_self = False
        self._rivals: dict[str, int] = {}  # who else would begin a log; when heard
        self.greeted: dict[str, Greeted] = {}  # processes that may vote
        self._leaving: set[str] = set()  # voters that want to go, as they have told this leader
        self._target: tuple[str, ...] = ()  # who shall vote
        self._periods = 0
        self._told_silence = False

    # Joining.

    def start(self, now: int) -> None:
        """The process listens to the channel."""
        self._begun_us = now
        self.greet(None, 0)
        self.out.set_timer(Discover(), now + self._discovery_us // _ROUNDS)
        self.out.set_timer(Period(), now + self._rng.randint(1, self._period_us))

    def greet(self, to: str | None, asks: int) -> None:
        """Say hello to one, or to everyone."""
        joins = self.phase is Phase.JOINING
        hello = msgspec.structs.replace(
            self._hello, log=self._known.log, found=self._hello.found and joins, asks=asks
        )
        if to is None:
            self.out.do(Cast(self._channel, hello))
        else:
            self.out.send(to, hello)

    @on(Discover)
    def _discover(self, timer: Discover, now: int) -> None:
        if self.phase is not Phase.JOINING:
            return
        self._round += 1
        since = now - 2 * self._discovery_us
        self._rivals = {node: at for node, at in self._rivals.items() if at >= since}
        waited = now - self._begun_us
        first = all(self._id < rival for rival in self._rivals)
        asked = self._round >= _ROUNDS and self._heard_self
        if self._hello.found and asked and first and self._raft() is None:
            self._found(now)
            return
        if waited >= self._patience_us:
            self._begun_us = now
            self.out.do(Done("join", self._why_not()))
        if self._round >= _ROUNDS:
            self._round, self._heard_self = 0, False
        self.greet(None, 0)
        self.out.set_timer(timer, now + self._discovery_us // _ROUNDS)

    def _why_not(self) -> str:
        waited = f"no log of domain {self._known.domain!r} within {self._patience_us / 1e6:g} s"
        if self._raft() is not None:
            voters = ", ".join(self._raft().log.configuration.voters)  # type: ignore[union-attr]
            return f"{waited}: its voters are {voters}, start a majority of them with their disks"
        if not self._hello.found:
            return f"{waited}: start a process that may begin one"
        return f"{waited}, and others would begin one: {', '.join(self._rivals) or 'none'}"

    def joined(self, now: int) -> None:
        """The process belongs to a log that is led."""
        if self.phase is Phase.JOINING:
            self.phase = Phase.IN
            self._rivals.clear()
            self.out.cancel_timer(Discover())
            self.out.do(Done("join"))

    @on(Hello)
    def _greeted(self, hello: Hello, sender: str, now: int) -> None:
        if sender == self._id:
            self._heard_self = True
            return
        if hello.found:
            if self.phase is Phase.JOINING and sender not in self._rivals:
                self.greet(sender, 0)  # it may not have listened yet when this one greeted
            self._rivals[sender] = now
        if hello.manages:
            self.greeted.pop(sender, None)
            self.greeted[sender] = Greeted(hello, now)
            while len(self.greeted) > _GREETED_MAX:
                del self.greeted[next(iter(self.greeted))]
            leader = self._leader()
            if leader is not None and sender in leader.gone and sender not in self._leaving:
                leader.mark(sender, True, now)  # it is back
        raft = self._raft()
        if raft is not None and raft.votes and raft.leader:
            # Only the leader knows how far the log is.
            self.out.send(sender, self.heartbeat(hello.asks if raft.serves else 0))

    # Signs of life.

    def heartbeat(self, answers: int = 0) -> Heartbeat:
        raft = self._raft()
        assert raft is not None
        return Heartbeat(
            raft.log_id,
            raft.term,
            raft.leader,
            raft.log.configuration.voters,
            self._number(),
            self._spares()[:_SPARES_SHOWN] if raft.leads else (),
            answers,
        )

    @on(Heartbeat)
    def _heard(self, message: Heartbeat, sender: str, now: int) -> None:
        if sender != self._id:
            self._follow(message, sender, now)

    def lead(self, now: int) -> None:
        """This process has just become the leader: everyone hears it at once."""
        self._leaving.clear()
        self._target = ()
        self.out.do(Cast(self._channel, self.heartbeat()))

    @on(Period)
    def _period(self, timer: Period, now: int) -> None:
        self.out.set_timer(timer, now + self._period_us)
        self._periods += 1
        raft = self._raft()
        if raft is not None and raft.leads:
            self._tick(now)
            self.out.do(Cast(self._channel, self.heartbeat()))
            self._forget_silent(now)
            self.seat(now)
            self._told_silence = False
            if self.phase is Phase.LEAVING:
                self._ask_to_leave(now)
            return
        silent = now - self._known.heard_us > _SILENT * self._period_us
        if self.phase is Phase.IN and self._periods % _GREET_EVERY == 0:
            if silent:
                self.greet(None, 0)
            elif self._hello.manages and not (raft is not None and raft.votes):
                self.greet(self._known.leader, 0)
        if self.phase is Phase.IN and silent and not self._told_silence:
            self._told_silence = True
            self.out.observe(NoLeader((now - self._known.heard_us) / 1e6, self._known.voters))
        elif not silent:
            self._told_silence = False
        if self.phase is Phase.LEAVING:
            self._ask_to_leave(now)

    def _forget_silent(self, now: int) -> None:
        since = now - _GONE * self._period_us
        self.greeted = {n: g for n, g in self.greeted.items() if g.heard_us >= since}

    # Who votes.

    def _spares(self) -> tuple[str, ...]:
        """Who may vote and does not: those of other hosts first, and those with a disk."""
        raft = self._raft()
        assert raft is not None
        voters = raft.log.configuration.everyone
        hosts = {self._hello.host}
        hosts.update(self.greeted[v].hello.host for v in voters if v in self.greeted)
        spares = [
            (greeted.hello.host in hosts, not greeted.hello.disk, node)
            for node, greeted in self.greeted.items()
            if node not in voters
        ]
        return tuple(node for _, _, node in sorted(spares))

    def _missing(self, voters: tuple[str, ...], now: int) -> set[str]:
        """Voters that are silent."""
        raft = self._raft()
        assert raft is not None
        names = {g.hello.name for n, g in self.greeted.items() if n not in voters}
        missing = set()
        for voter in voters:
            if voter == self._id:
                continue
            known = self.greeted.get(voter)
            reborn = known is not None and known.hello.name in names - {""}
            periods = _SILENT_REBORN if reborn else _SILENT
            if raft.silent_us(voter, now) > periods * self._period_us:
                missing.add(voter)
        return missing

    def _staying(self, voters: list[str], gone: set[str], now: int) -> list[str]:
        """Voters that were heard lately and do not leave."""
        raft = self._raft()
        assert raft is not None
        since = now - _SILENT_REBORN * self._period_us
        return [voter for voter in voters if voter not in gone and raft.is_heard(voter, since)]

    def seat(self, now: int) -> None:
        """As the leader: have the right ones vote."""
        raft, leader = self._raft(), self._leader()
        if raft is None or leader is None or not raft.serves or not self._is_settled(raft):
            return
        voters = raft.log.configuration.voters
        for node in sorted(leader.gone - set(voters)):
            leader.mark(node, True, now)
        target = self._targeted(voters, leader.gone, now)
        if set(target) == set(voters):
            raft.teach(set(), now)
            self._target = ()
        else:
            if target != self._target:
                self._target = target
                self.out.observe(VotersChange(target))
            raft.teach(set(target) - set(voters), now)
            self.try_target(now)
        self._let_go(now)

    @staticmethod
    def _is_settled(raft: Raft) -> bool:
        """No change of voters is under way."""
        settled = raft.log.configured_at <= raft.committed
        return settled and not raft.log.configuration.joining

    def try_target(self, now: int) -> None:
        """The change is made once those who shall vote have the log."""
        raft = self._raft()
        if raft is None or not raft.leads or not self._target:
            return
        if raft.change_voters(self._target, now):
            self._target = ()

    def _targeted(self, voters: tuple[str, ...], gone: set[str], now: int) -> tuple[str, ...]:
        """Who shall vote: spares for those that are silent or have left; fewer voters only if one
        that leaves would else take the majority with it."""
        spares = list(self._spares())
        gone = gone | ({self._id} if self.phase is Phase.LEAVING else set())
        absent = self._missing(voters, now) | gone
        target = [spares.pop(0) if voter in absent and spares else voter for voter in voters]
        while len(target) < self._wanted:
            more = 1 + len(target) % 2  # to an odd number
            if len(spares) < more:
                break
            target += [spares.pop(0) for _ in range(more)]
        rest = self._staying(target, gone, now)
        leaves = self.phase is Phase.LEAVING or any(node in voters for node in self._leaving)
        if leaves and rest and 2 * len(rest) <= len(target):
            target = rest[: len(rest) - (len(rest) + 1) % 2]  # an odd number
        return tuple(sorted(target))

    # Leaving.

    def leave(self, now: int) -> None:
        """This process wants to go."""
        if self.phase in (Phase.LEAVING, Phase.OUT):
            return
        joined = self.phase is Phase.IN
        self.phase = Phase.LEAVING
        if not joined:
            self._out_of_it()
            return
        self._ask_to_leave(now)

    def new_leader(self, now: int) -> None:
        """Another process leads: it hears of this one."""
        if self.phase is Phase.LEAVING:
            self._ask_to_leave(now)
        elif self._hello.manages and self._known.leader not in (None, self._id):
            self.greet(self._known.leader, 0)

    def _out_of_it(self) -> None:
        self.phase = Phase.OUT
        self.out.cancel_timer(Period())
        self.out.cancel_timer(Discover())

    def _ask_to_leave(self, now: int) -> None:
        raft, known = self._raft(), self._known
        if raft is not None and raft.leads:
            self._leave_as_leader(raft, now)
            return
        votes = raft is not None and raft.votes
        silent = now - known.heard_us > _SILENT * self._period_us
        if not self._hello.manages or (silent and not votes):
            self._out_of_it()  # nobody counts on it
        elif known.leader and known.leader != self._id:
            self.out.send(known.leader, Leave(known.log))

    def _leave_as_leader(self, raft: Raft, now: int) -> None:
        """Give the lead to another voter, who then lets this one go, or the seat to a spare."""
        leader = self._leader()
        if leader is None:
            return
        leader.mark(self._id, False, now)
        voters = raft.log.configuration.voters
        others = self._staying(list(voters), leader.gone, now)
        if others:
            raft.transfer(max(others, key=lambda v: (raft.has_all(v), v)), now)
        elif self._spares():
            self.seat(now)
        else:  # all go: the log ends here, or stays on their disks
            for voter in voters:
                if voter != self._id:
                    self.out.send(voter, Left(raft.log_id))
            self._out_of_it()

    @on(Leave)
    def _asked_to_go(self, message: Leave, sender: str, now: int) -> None:
        raft, leader = self._raft(), self._leader()
        if raft is None or leader is None or not raft.serves:
            return
        self.greeted.pop(sender, None)
        self._leaving.add(sender)
        if sender in raft.log.configuration.everyone:
            leader.mark(sender, False, now)
        self.seat(now)
        self._let_go(now)

    def _let_go(self, now: int) -> None:
        """Those whose seats are others' now, and those whose seats may stay empty."""
        raft = self._raft()
        if raft is None or not self._leaving or not self._is_settled(raft) or self._target:
            return
        voters = raft.log.configuration.voters
        rest = self._staying(list(voters), self._gone(), now)
        for node in sorted(self._leaving):
            if node not in voters or (node in self._gone() and 2 * len(rest) > len(voters)):
                self._leaving.discard(node)
                self.out.send(node, Left(raft.log_id))

    def committed(self, now: int) -> None:
        """More of the log is: somebody may go."""
        if self._leaving:
            self.seat(now)
            self._let_go(now)

    @on(Left)
    def _is_let_go(self, message: Left, sender: str, now: int) -> None:
        if self.phase is Phase.LEAVING:
            self._out_of_it()
