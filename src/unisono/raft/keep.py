"""What a voter keeps on its disk, and how the log is put together from it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from unisono.core.effects import RANK_STORE, Effect
from unisono.core.events import Number
from unisono.errors import BadInput
from unisono.raft.log import Base, Log
from unisono.raft.messages import Entry, LogId

STORE_BALLOT = "ballot"


class Ballot(msgspec.Struct, frozen=True, array_like=True):
    """The log, the term, and whom this voter voted for in it."""

    log: LogId
    term: Number
    voted_for: str


class Keep(Effect, frozen=True):
    """Append to what is kept: from `first` on the log is these entries. Unlike a Store it is
    synced beside the loop; whoever asked for it is told then."""

    rank: ClassVar[int] = RANK_STORE
    first: int
    entries: tuple[Entry, ...]
    committed: int


class KeepBase(Effect, frozen=True):
    """Keep this base; then what is below it need not be kept. In line with the Keeps."""

    rank: ClassVar[int] = RANK_STORE
    base: Base


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A Keep, as it is written."""

    first: Number
    entries: tuple[Entry, ...]
    committed: Number


def recovered(base: Base, records: Iterable[Record]) -> tuple[Log, int]:
    """The log, and what was known to be committed."""
    log, committed = Log(base), base.index
    for record in records:
        entries = record.entries[max(0, log.first - record.first) :]
        first = max(record.first, log.first)
        if first > log.last + 1:
            raise BadInput(
                f"the log on disk has a hole: entries {log.last + 1} to {first - 1} are missing"
            )
        if first <= log.last:
            log.truncate(first)
        log.append(entries)
        committed = max(committed, record.committed)
    return log, min(committed, log.last)
