"""The order of transactions, and the place of a late one in it.

Stamps say which of two events comes first. With numbers over all topics (a sequencer, a coalition)
the smaller number does. With the stamps of total order, e comes before f if f's stamp counts e;
if f's stamp says nothing of e's topic, then unless e's stamp counts f. For events published after
all replicas have subscribed, this is one order without circles: with exact stamps always, with
printed stamps if all replicas hold the same topics and links are FIFO (docs/total-order.md).
"""

from __future__ import annotations

from typing import Any

import msgspec

from unisono.core.events import NUMBER, Stamp


class Entry(msgspec.Struct, frozen=True):
    """A transaction in the journal. What it does is the replica's business."""

    event_id: str
    topic: str
    stamp: Stamp
    what: Any = None


def precedes(e: Entry, f: Entry) -> bool:
    """Whether e comes before f in the one order of transactions."""
    if NUMBER in e.stamp:
        return e.stamp[NUMBER] < f.stamp[NUMBER]
    counted = f.stamp.get(e.topic)
    if counted is None or e.topic == f.topic:
        return f.stamp[f.topic] > e.stamp.get(f.topic, 0)
    return e.stamp[e.topic] <= counted


class Journal:
    """The latest transactions in order; the `final` ones before them are not kept."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.final = 0

    def __len__(self) -> int:
        return self.final + len(self.entries)

    def place(self, entry: Entry) -> int | None:
        """Where it belongs, counted from the first of all; None if among the final ones."""
        entries = self.entries
        if not entries or not precedes(entry, entries[-1]):
            return len(self)  # as nearly always
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            if precedes(entry, entries[middle]):
                high = middle
            else:
                low = middle + 1
        return None if low == 0 and self.final else self.final + low

    def insert(self, at: int, entry: Entry) -> None:
        self.entries.insert(at - self.final, entry)

    def since(self, at: int) -> list[Entry]:
        return self.entries[at - self.final :]

    def settle(self, keep: int) -> None:
        """All but the latest `keep` are final from now on."""
        assert keep >= 1, "the first that is kept tells what is too late"
        self.final += max(0, len(self.entries) - keep)
        del self.entries[:-keep]
