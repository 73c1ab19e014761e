"""How the voters of a view choose the next one: single-decree Paxos, one instance a view.

Whoever proposes asks the voters to promise, and then to accept; what a majority accepts is chosen.
A vote is on the disk before anyone is told of it, so a restart changes no mind.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from unisono.core.effects import Effect, Send, Store
from unisono.core.events import Control
from unisono.qos.views import (
    Accept,
    Accepted,
    Ballot,
    NewView,
    Prepare,
    Promise,
    Refuses,
    View,
    Vote,
    majority,
)

STORE_KEY = "membership"


class _Proposal(msgspec.Struct):
    """A choice under way, at its proposer."""

    ballot: Ballot
    since: int
    promises: dict[str, Promise] = {}
    accepts: set[str] = set()
    proposed: View | None = None


class Choice:
    """One node's part: its vote, and what it proposes. `wanted` says which view should follow, if
    any should; `chosen` is told when a majority has agreed."""

    def __init__(
        self,
        node_id: str,
        vote: Vote | None,
        wanted: Callable[[int], View | None],
        chosen: Callable[[View, int], list[Effect]],
    ) -> None:
        self._node_id = node_id
        self._vote = vote
        self._wanted = wanted
        self._chosen = chosen
        self._round = 0
        self._proposal: _Proposal | None = None

    def install(self, view: View) -> list[Effect]:
        """This is the view whose successor is chosen."""
        self._vote = Vote(view)
        self._proposal = None
        return [self._store()]

    def _store(self) -> Effect:
        assert self._vote is not None
        return Store(STORE_KEY, msgspec.msgpack.encode(self._vote))

    def begin(self, now: int, period_us: int | None) -> list[Effect]:
        """Propose, or again if nothing came of it in two periods."""
        pending, vote = self._proposal, self._vote
        assert vote is not None
        if pending is not None and (period_us is None or now - pending.since < 2 * period_us):
            return []
        self._round = max(self._round, vote.promised[0]) + 1
        # Promised to oneself, voter or not: after a restart no ballot is used for another view.
        ballot = vote.promised = (self._round, self._node_id)
        self._proposal = _Proposal(ballot, now)
        return [self._store(), *self._to_voters(vote.view, Prepare(vote.view, ballot), now)]

    def _to_voters(self, view: View, message: Control, now: int) -> list[Effect]:
        out: list[Effect] = []
        for voter in view.voters:
            if voter != self._node_id:
                out.append(Send(voter, message))
        if self._node_id in view.voters:
            out += self.receive(message, self._node_id, now)
        return out

    def _answer(self, to: str, message: Control, now: int) -> list[Effect]:
        if to == self._node_id:
            return self.receive(message, to, now)
        return [Send(to, message)]

    def receive(self, message: Control, sender: str, now: int) -> list[Effect]:
        if isinstance(message, Prepare):
            return self._prepare(message, sender, now)
        if isinstance(message, Accept):
            return self._accept(message, sender, now)
        if isinstance(message, Promise):
            return self._promised(message, sender, now)
        if isinstance(message, Accepted):
            return self._accepted(message, sender, now)
        assert isinstance(message, Refuses), message
        self._round = max(self._round, message.ballot[0])
        return []

    # As a voter.

    def _prepare(self, message: Prepare, sender: str, now: int) -> list[Effect]:
        vote = self._vote
        if vote is None or message.view.bus != vote.view.bus:
            return []
        if message.view.number < vote.view.number:
            return [Send(sender, NewView(vote.view))]
        if message.view.number > vote.view.number:
            return []
        if message.ballot < vote.promised:
            return self._answer(sender, Refuses(vote.view.number, vote.promised), now)
        vote.promised = message.ballot
        promise = Promise(vote.view.number, message.ballot, vote.accepted_in, vote.accepted)
        return [self._store(), *self._answer(sender, promise, now)]

    def _accept(self, message: Accept, sender: str, now: int) -> list[Effect]:
        vote = self._vote
        if vote is None or message.number != vote.view.number:
            return []
        if message.ballot < vote.promised:
            return self._answer(sender, Refuses(vote.view.number, vote.promised), now)
        if message.view.number != message.number + 1 or message.view.bus != vote.view.bus:
            return []
        vote.promised = vote.accepted_in = message.ballot
        vote.accepted = message.view
        agreed = Accepted(message.number, message.ballot)
        return [self._store(), *self._answer(sender, agreed, now)]

    # As the proposer.

    def _proposed(self, number: int, ballot: Ballot) -> tuple[_Proposal, View] | None:
        """The proposal that an answer is for, and the view that it follows."""
        proposal, vote = self._proposal, self._vote
        if proposal is None or vote is None or number != vote.view.number:
            return None
        return (proposal, vote.view) if ballot == proposal.ballot else None

    def _promised(self, message: Promise, sender: str, now: int) -> list[Effect]:
        found = self._proposed(message.number, message.ballot)
        if found is None or found[0].proposed is not None:
            return []
        proposal, view = found
        proposal.promises[sender] = message
        if len(proposal.promises) < majority(len(view.voters)):
            return []
        best = max(proposal.promises.values(), key=lambda promise: promise.accepted_in)
        proposal.proposed = best.accepted or self._wanted(now)  # who promised is not silent
        if proposal.proposed is None:
            self._proposal = None
            return []
        return self._to_voters(view, Accept(view.number, proposal.ballot, proposal.proposed), now)

    def _accepted(self, message: Accepted, sender: str, now: int) -> list[Effect]:
        found = self._proposed(message.number, message.ballot)
        if found is None or found[0].proposed is None:
            return []
        proposal, view = found
        proposal.accepts.add(sender)
        if len(proposal.accepts) < majority(len(view.voters)):
            return []
        assert proposal.proposed is not None
        return self._chosen(proposal.proposed, now)
