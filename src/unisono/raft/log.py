"""The log as one voter keeps it: a base, and the entries after it.

The base is the state just below the first entry kept: what a snapshot is to Raft. To forget entries
is to move the base up over committed ones; to install a snapshot is to begin with another's base.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unisono.core.events import Number
from unisono.errors import UNDECODABLE
from unisono.raft.messages import Configuration, Entry, Kind

ENTRY_BYTES = 16  # what an entry takes beside its data

_CONFIGURATION = msgspec.msgpack.Decoder(Configuration)
_ENCODER = msgspec.msgpack.Encoder()


class Base(msgspec.Struct, frozen=True, array_like=True):
    """The state below the log: everything up to and with `index`."""

    index: Number = 0
    term: Number = 0
    configuration: Configuration = Configuration()
    state: bytes = b""


def change(term: int, configuration: Configuration) -> Entry:
    """The entry that makes this the configuration."""
    return Entry(term, Kind.CONFIGURATION, _ENCODER.encode(configuration))


def makes_sense(term: int, entries: tuple[Entry, ...], upto: int) -> bool:
    """Whether a leader of term `upto` may have these entries after one of `term`."""
    for entry in entries:
        if not term <= entry.term <= upto:
            return False
        term = entry.term
        if entry.kind is Kind.CONFIGURATION:
            try:
                if not _CONFIGURATION.decode(entry.data).voters:
                    return False
            except UNDECODABLE:
                return False
    return True


class Log:
    """Entries by index, from `first` to `last`. Those above what is committed may be replaced."""

    def __init__(self, base: Base, entries: Iterable[Entry] = ()) -> None:
        self._install(base)
        self.append(entries)

    def _install(self, base: Base) -> None:
        self.base = base
        self._entries: list[Entry] = []
        self.bytes = 0  # of the entries
        # Index of the entry, and what it says; the base's first. A configuration counts as soon as
        # it is in the log.
        self._configurations = [(base.index, base.configuration)]

    @property
    def first(self) -> int:
        return self.base.index + 1

    @property
    def last(self) -> int:
        return self.base.index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base.term

    @property
    def configuration(self) -> Configuration:
        return self._configurations[-1][1]

    @property
    def configured_at(self) -> int:
        """The index of the entry that says so."""
        return self._configurations[-1][0]

    def term_at(self, index: int) -> int | None:
        """The term of the entry at this index; None if it is not here (any more)."""
        if index == self.base.index:
            return self.base.term
        if not self.base.index < index <= self.last:
            return None
        return self._entries[index - self.first].term

    def __getitem__(self, index: int) -> Entry:
        assert self.first <= index <= self.last, (self.first, index, self.last)
        return self._entries[index - self.first]

    def between(self, first: int, last: int) -> list[Entry]:
        """The entries from first to last, both included."""
        assert self.first <= first, (self.first, first)
        return self._entries[first - self.first : last - self.first + 1]

    def batch(self, first: int, most: int, most_bytes: int) -> tuple[Entry, ...]:
        """Entries from `first` on, as many as fit into one message, and at least one if there is
        one."""
        batch: list[Entry] = []
        size = 0
        for at in range(first - self.first, len(self._entries)):
            entry = self._entries[at]
            size += len(entry.data) + ENTRY_BYTES
            if batch and (len(batch) == most or size > most_bytes):
                break
            batch.append(entry)
        return tuple(batch)

    def append(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self.bytes += len(entry.data) + ENTRY_BYTES
            if entry.kind is Kind.CONFIGURATION:
                self._configurations.append((self.last, _CONFIGURATION.decode(entry.data)))

    def truncate(self, first: int) -> None:
        """Drop the entries from `first` on: another leader has others."""
        assert first > self.base.index
        dropped = self._entries[first - self.first :]
        del self._entries[first - self.first :]
        self.bytes -= sum(len(entry.data) + ENTRY_BYTES for entry in dropped)
        while self._configurations[-1][0] >= first:
            self._configurations.pop()

    def forget(self, index: int, state: bytes) -> None:
        """Drop the entries up to this index; `state` is what they came to."""
        term = self.term_at(index)
        assert term is not None and index > self.base.index
        dropped = self._entries[: index - self.base.index]
        del self._entries[: index - self.base.index]
        self.bytes -= sum(len(entry.data) + ENTRY_BYTES for entry in dropped)
        while len(self._configurations) > 1 and self._configurations[1][0] <= index:
            del self._configurations[0]
        self.base = Base(index, term, self._configurations[0][1], state)

    def install(self, base: Base) -> None:
        """Begin with another's base. What fits behind it stays."""
        kept: list[Entry] = []
        if self.term_at(base.index) == base.term:
            kept = self._entries[base.index - self.base.index :]
        self._install(base)
        self.append(kept)
