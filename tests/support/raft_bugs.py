"""Deliberate faults in Raft. Each must break a property that the cluster checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from unisono.raft import log as log_module
from unisono.raft.followers import Followers
from unisono.raft.keep import Record
from unisono.raft.log import Base, Log
from unisono.raft.messages import (
    Appended,
    AppendEntries,
    Configuration,
    InstallSnapshot,
    RequestVote,
    Vote,
)
from unisono.raft.raft import Beat, Raft, Role

Patch = pytest.MonkeyPatch


def _wrap(patch: Patch, kind: type, change: Callable[[Any, Any], Any]) -> None:
    """The handler sees the message as `change` makes it."""
    handler = Raft.handlers[kind]

    def handle(raft: Raft, message: Any, sender: str, now: int) -> None:
        handler(raft, change(raft, message), sender, now)

    patch.setitem(Raft.handlers, kind, handle)


def obeys_a_stale_term(patch: Patch) -> None:
    def heed(self: Any, message: Any, sender: str, now: int) -> bool:
        self.role, self.leader, self._heard_us = Role.FOLLOWER, sender, now
        return True

    patch.setattr(Raft, "_heed", heed)


def votes_for_a_shorter_log(patch: Patch) -> None:
    _wrap(
        patch,
        RequestVote,
        lambda raft, ask: msgspec.structs.replace(
            ask, last_index=1 << 40, last_term=max(raft.log.last_term, ask.last_term)
        ),
    )


def votes_twice_in_a_term(patch: Patch) -> None:
    handler = Raft.handlers[RequestVote]

    def vote(raft: Any, ask: RequestVote, sender: str, now: int) -> None:
        if not ask.pre and raft.role is not Role.LEADER:
            raft._voted_for = ""
        handler(raft, ask, sender, now)

    patch.setitem(Raft.handlers, RequestVote, vote)


def does_not_store_votes(patch: Patch) -> None:
    def cast(self: Any, term: int, voted_for: str) -> None:
        self.term, self._voted_for = term, voted_for

    patch.setattr(Raft, "_cast", cast)


def counts_one_vote_twice(patch: Patch) -> None:
    handler = Raft.handlers[Vote]

    def count(raft: Any, vote: Vote, sender: str, now: int) -> None:
        if vote.granted and len(raft._votes) == 2 and sender in raft._votes:
            raft._votes.add(f"{sender} again")
            others = sorted(raft.log.configuration.everyone - raft._votes)
            sender = others[0] if others else sender
        handler(raft, vote, sender, now)

    patch.setitem(Raft.handlers, Vote, count)


def commits_an_older_term_by_counting(patch: Patch) -> None:
    def advance(self: Any, now: int) -> None:
        index: int = self._common(self.log.configuration.voters)
        if self.log.configuration.joining:
            index = min(index, self._common(self.log.configuration.joining))
        if index <= self.committed:
            return
        self.committed = index
        if self.log.configured_at <= self.committed:
            self._configured(now)

    patch.setattr(Raft, "_advance", advance)


def tells_one_entry_early(patch: Patch) -> None:
    common = Raft._common

    def early(self: Any, voters: tuple[str, ...]) -> int:
        last: int = self.log.last
        return min(common(self, voters) + 1, last)

    patch.setattr(Raft, "_common", early)


def a_minority_is_enough(patch: Patch) -> None:
    def common(self: Any, voters: tuple[str, ...]) -> int:
        have = [self.stable if name == self.id else self.followers.match(name) for name in voters]
        few = max(0, len(have) // 2 - 1)
        return int(sorted(have, reverse=True)[few])

    patch.setattr(Raft, "_common", common)


def late_append_truncates_what_matches(patch: Patch) -> None:
    handler = Raft.handlers[AppendEntries]

    def append(raft: Any, message: AppendEntries, sender: str, now: int) -> None:
        log, last = raft.log, message.previous + len(message.entries)
        agrees = log.term_at(message.previous) == message.previous_term
        if message.term == raft.term and agrees and raft.committed <= last < log.last:
            log.truncate(last + 1)
            raft._keep(last + 1, ())
            raft._matched = min(raft._matched, last)
        handler(raft, message, sender, now)

    patch.setitem(Raft.handlers, AppendEntries, append)


def believes_what_it_did_not_compare(patch: Patch) -> None:
    def append(raft: Any, message: AppendEntries) -> AppendEntries:
        term = raft.log.term_at(message.previous)
        return message if term is None else msgspec.structs.replace(message, previous_term=term)

    _wrap(patch, AppendEntries, append)


def commits_what_it_did_not_compare(patch: Patch) -> None:
    handler = Raft.handlers[AppendEntries]

    def append(raft: Any, message: AppendEntries, sender: str, now: int) -> None:
        handler(raft, message, sender, now)
        if message.term == raft.term:
            raft.committed = max(raft.committed, min(message.committed, raft.log.last))

    patch.setitem(Raft.handlers, AppendEntries, append)


def a_configuration_counts_when_it_is_committed(patch: Patch) -> None:
    def latest(self: Any) -> Configuration:
        present: Configuration = self._configurations[0][1]
        return present

    patch.setattr(Log, "configuration", property(latest))


def changes_voters_without_an_overlap(patch: Patch) -> None:
    def change_voters(self: Any, voters: tuple[str, ...], now: int) -> bool:
        if not self.serves or self.log.configured_at > self.committed:
            return False
        if not all(self.has_all(name) for name in voters):
            return False
        self._append_own(log_module.change(self.term, Configuration(tuple(voters))), now)
        return True

    patch.setattr(Raft, "change_voters", change_voters)


def one_of_two_sets_is_enough(patch: Patch) -> None:
    agreed = Configuration.agreed

    def only_new(self: Configuration, said: set[str]) -> bool:
        return agreed(Configuration(self.joining or self.voters), said)

    def common(self: Any, voters: tuple[str, ...]) -> int:
        present = self.log.configuration
        return below(self, present.joining or present.voters)

    below = Raft._common
    patch.setattr(Configuration, "agreed", only_new)
    patch.setattr(Raft, "_common", common)


def confirms_before_the_disk_has_it(patch: Patch) -> None:
    keep = Raft._keep

    def hasty(self: Any, first: int, entries: Any) -> None:
        keep(self, first, entries)
        self.stable = self.log.last

    patch.setattr(Raft, "_keep", hasty)


def forgets_a_truncation_on_disk(patch: Patch) -> None:
    keep = Raft._keep

    def lazy(self: Any, first: int, entries: Any) -> None:
        shown = Record(first, entries, self.committed)
        if self._durable and first <= self._asked_upto(first):
            self.stable = min(self.stable, first - 1)
            return
        keep(self, shown.first, entries)

    patch.setattr(Raft, "_asked_upto", lambda self, first: self.stable, raising=False)
    patch.setattr(Raft, "_keep", lazy)


def confirms_what_it_does_not_have(patch: Patch) -> None:
    def confirm(self: Any) -> None:
        self._told = min(self._matched, self.stable)
        self.out.send(self.leader, Appended(self.log_id, self.term, self._matched + 1))

    patch.setattr(Raft, "_confirm", confirm)


def a_snapshot_leaves_out_who_votes(patch: Patch) -> None:
    install = Log.install

    def bad(self: Any, base: Base) -> None:
        install(self, msgspec.structs.replace(base, configuration=self.configuration))

    patch.setattr(Log, "install", bad)


def a_snapshot_begins_anywhere(patch: Patch) -> None:
    """The pieces of two bases are put together."""
    handler = Raft.handlers[InstallSnapshot]

    def install(raft: Any, piece: InstallSnapshot, sender: str, now: int) -> None:
        if raft._incoming is not None and piece.index != raft._incoming[0].index:
            raft._incoming = (piece, raft._incoming[1])
        handler(raft, piece, sender, now)

    patch.setitem(Raft.handlers, InstallSnapshot, install)


def begins_a_term_without_an_entry(patch: Patch) -> None:
    lead = Raft._lead

    def quiet(self: Any, now: int) -> None:
        own = self._append_own
        self._append_own = lambda entry, now: 0
        lead(self, now)
        self._append_own = own

    patch.setattr(Raft, "_lead", quiet)


def stands_without_asking_before(patch: Patch) -> None:
    patch.setattr(Raft, "_stand", lambda self, now: self._campaign(now, transfer=False))
    patch.setattr(Raft, "_leader_lives", lambda self, now: self.leads)


def leads_on_without_a_majority(patch: Patch) -> None:
    handler = Raft.handlers[Beat]

    def beat(raft: Any, timer: Beat, now: int) -> None:
        for follower in raft.followers._followers.values():
            follower.heard_us = now
        handler(raft, timer, now)

    patch.setitem(Raft.handlers, Beat, beat)


def never_repeats(patch: Patch) -> None:
    patch.setattr(Followers, "_watch", lambda self, follower, now: None)


class Bug(NamedTuple):
    inject: Callable[[Patch], None]
    first: int = 0  # the seed to begin with, for bugs that show rarely


_FIRST = {
    "commits_an_older_term_by_counting": 25,
    "a_configuration_counts_when_it_is_committed": 14,
    "one_of_two_sets_is_enough": 43,
    "a_snapshot_leaves_out_who_votes": 76,
    "a_snapshot_begins_anywhere": 72,
}

BUGS = {
    inject.__name__.replace("_", " "): Bug(inject, _FIRST.get(inject.__name__, 0))
    for inject in (
        obeys_a_stale_term,
        votes_for_a_shorter_log,
        votes_twice_in_a_term,
        does_not_store_votes,
        counts_one_vote_twice,
        commits_an_older_term_by_counting,
        tells_one_entry_early,
        a_minority_is_enough,
        late_append_truncates_what_matches,
        believes_what_it_did_not_compare,
        commits_what_it_did_not_compare,
        a_configuration_counts_when_it_is_committed,
        changes_voters_without_an_overlap,
        one_of_two_sets_is_enough,
        confirms_before_the_disk_has_it,
        forgets_a_truncation_on_disk,
        confirms_what_it_does_not_have,
        a_snapshot_leaves_out_who_votes,
        a_snapshot_begins_anywhere,
        begins_a_term_without_an_entry,
        stands_without_asking_before,
        leads_on_without_a_majority,
        never_repeats,
    )
}
