"""The messages of Raft, each declared once, in its papers' words.

Every one names the log that it is about: what comes from another log changes nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

import msgspec

from unisono.core.events import Control, Number

LogId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]  # drawn when the log is founded
NodeId = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Voters = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=16)]


class Kind(IntEnum):
    """What an entry is about."""

    DATA = 0  # the application's
    FIRST = 1  # the first of a term: with it, what earlier terms left is committed
    CONFIGURATION = 2  # who votes


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One entry of the log. Its index is its place."""

    term: Number
    kind: Kind
    data: bytes = b""


class Configuration(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who votes. While voters change, `joining` is the set after it, and both must agree."""

    voters: Voters = ()
    joining: Voters = ()

    @property
    def everyone(self) -> frozenset[str]:
        """Whoever votes now or will."""
        return frozenset(self.voters) | frozenset(self.joining)

    def agreed(self, said: set[str]) -> bool:
        """Whether these are a majority: of both sets, while there are two."""
        return _majority(self.voters, said) and (not self.joining or _majority(self.joining, said))


def _majority(voters: tuple[str, ...], said: set[str]) -> bool:
    return 2 * sum(voter in said for voter in voters) > len(voters)


class RaftMessage(Control, frozen=True):
    """Base of the messages."""

    urgent: ClassVar[bool] = True
    log: LogId
    term: Number


class RequestVote(RaftMessage, frozen=True, tag="raft-request-vote"):
    """A candidate asks for a vote; `pre`: it asks whether it would get one.

    `transfer`: the leader told it to stand, so nobody needs to wait for the leader to fall silent.
    """

    last_index: Number
    last_term: Number
    pre: bool
    transfer: bool = False


class Vote(RaftMessage, frozen=True, tag="raft-vote"):
    """The answer. To a pre-vote that is granted, `term` is the one that was asked about."""

    pre: bool
    granted: bool


class AppendEntries(RaftMessage, frozen=True, tag="raft-append-entries"):
    """The leader's entries that follow the entry at `previous`; none: a sign of life."""

    previous: Number
    previous_term: Number
    entries: tuple[Entry, ...]
    committed: Number


class Appended(RaftMessage, frozen=True, tag="raft-appended"):
    """A follower has, synced, the leader's log up to `index`."""

    index: Number


class Mismatch(RaftMessage, frozen=True, tag="raft-mismatch"):
    """A follower does not have the entry at `previous`; both logs may agree up to `hint`."""

    previous: Number
    hint: Number


class InstallSnapshot(RaftMessage, frozen=True, tag="raft-install-snapshot"):
    """A piece of the leader's base, for a follower that lacks what the leader no longer keeps."""

    index: Number
    index_term: Number
    configuration: Configuration
    size: Number  # of the whole state
    offset: Number
    data: bytes


class SnapshotTaken(RaftMessage, frozen=True, tag="raft-snapshot-taken"):
    """A follower has the first `offset` bytes of the base at `index`."""

    index: Number
    offset: Number


class TimeoutNow(RaftMessage, frozen=True, tag="raft-timeout-now"):
    """The leader asks its successor to stand at once."""


MESSAGES: tuple[type[RaftMessage], ...] = (
    RequestVote,
    Vote,
    AppendEntries,
    Appended,
    Mismatch,
    InstallSnapshot,
    SnapshotTaken,
    TimeoutNow,
)
