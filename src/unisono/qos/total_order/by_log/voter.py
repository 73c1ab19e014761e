"""A process that keeps the log of its domain: Raft, the state of what is committed, and where each
number is. It serves what subscribers missed.

It keeps entries for a time and up to a number of bytes, and forgets what is older, from its base
on. What it keeps of an entry is what Raft keeps; it is decoded again when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from unisono.core.machine import Outbox
from unisono.qos.total_order.by_log import state as entries
from unisono.qos.total_order.by_log.messages import (
    BATCH_BYTES,
    BATCH_EVENTS,
    TOPICS_MAX,
    Events,
    Fetch,
    Forgotten,
    Page,
)
from unisono.qos.total_order.by_log.state import State
from unisono.raft.keep import Ballot
from unisono.raft.log import Log
from unisono.raft.messages import Entry, Kind
from unisono.raft.raft import Raft

_MAP_NUMBERS = 1 << 13  # in one page


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the log voters keep for subscribers that missed something."""

    seconds: float = 60.0
    bytes: int = 64 << 20


class Stored(msgspec.Struct, frozen=True):
    """What a voter found on its disk."""

    log: Log
    committed: int
    ballot: Ballot


class Voter:
    """One voter or learner of a domain's log."""

    def __init__(
        self,
        out: Outbox,
        node_id: str,
        log_id: str,
        log: Log,
        rng: Random,
        *,
        retention: Retention,
        period_us: int,
        durable: bool,
        ballot: Ballot | None = None,
        committed: int = 0,
    ) -> None:
        self._out = out
        self.raft = Raft(
            out,
            node_id,
            log_id,
            log,
            rng,
            period_us=period_us,
            durable=durable,
            ballot=ballot,
            committed=committed,
        )
        self._retention = retention
        self._ages: deque[tuple[int, int]] = deque()  # when the log had ended where
        self._load()

    def _load(self) -> None:
        """The base is another: begin with it."""
        base = self.raft.log.base
        self._base = State(base.state)
        self.state = State(base.state)  # of what is committed and applied
        self.applied = base.index
        # Of the entries with events that are applied: the first number of each, and its index.
        self._firsts: list[int] = []
        self._indexes: list[int] = []

    @property
    def floor(self) -> int:
        """The last number that is not kept any more."""
        return self._base.number

    def apply(self, decoded: Callable[[int, Entry], Events | None]) -> Iterator[tuple[int, Events]]:
        """What has become committed: the first number and the events of each entry that has some.
        `decoded`: what an entry says, if it is known already."""
        raft = self.raft
        if raft.log.base.index > self.applied:  # from a snapshot
            self._load()
        while self.applied < raft.committed:
            index = self.applied + 1
            entry = raft.log[index]
            self.applied = index
            if entry.kind is not Kind.DATA:
                continue
            written = decoded(index, entry) or entries.decode(entry.data)
            first = self.state.number + 1
            self.state.apply(index, written)
            if isinstance(written, Events):
                self._firsts.append(first)
                self._indexes.append(index)
                yield first, written

    def tail(self) -> State:
        """The state of the whole log, with what is not committed."""
        raft = self.raft
        state = State(self.state.encode())
        for index in range(self.applied + 1, raft.log.last + 1):
            entry = raft.log[index]
            if entry.kind is Kind.DATA:
                state.apply(index, entries.decode(entry.data))
        return state

    # What subscribers missed.

    def fetch(self, fetch: Fetch, sender: str) -> None:
        """A page of it, or the floor."""
        raft = self.raft
        if fetch.first > self.state.number:
            return  # it is not known here to be committed
        if fetch.first <= self.floor:
            self._out.send(sender, Forgotten(raft.log_id, self.floor))
            return
        wanted = set(fetch.topics)
        places: dict[str, int] = {}
        which = bytearray()
        numbers: list[int] = []
        events: list[msgspec.Raw] = []
        size = 0
        for number, topic, event in self._between(fetch.first, fetch.last):
            place = places.setdefault(topic, len(places))
            if place >= TOPICS_MAX or len(which) >= _MAP_NUMBERS:
                break
            if topic in wanted:
                size += len(event)
                if numbers and (size > BATCH_BYTES or len(numbers) >= BATCH_EVENTS):
                    break
                numbers.append(number)
                events.append(event)
            which.append(place)
        topics = tuple(places)[:TOPICS_MAX]
        page = Page(raft.log_id, fetch.first, topics, bytes(which), tuple(numbers), tuple(events))
        self._out.send(sender, page)

    def _between(self, first: int, last: int) -> Iterator[tuple[int, str, msgspec.Raw]]:
        """Number, topic and event, as far as they are committed."""
        at = bisect_right(self._firsts, first) - 1
        for begin, index in zip(self._firsts[at:], self._indexes[at:], strict=True):
            written = entries.decode(self.raft.log[index].data)
            assert isinstance(written, Events)
            for place in range(max(0, first - begin), len(written.events)):
                if begin + place > last:
                    return
                topic = written.topics[written.which[place]]
                yield begin + place, topic, written.events[place]

    # Forgetting.

    def forget(self, now: int) -> None:
        """Drop what is too old, or too much; only what is applied."""
        raft, keep = self.raft, self._retention
        self._ages.append((now, self.applied))
        upto = raft.log.base.index
        while len(self._ages) > 1 and now - self._ages[0][0] > keep.seconds * 1e6:
            upto = max(upto, self._ages.popleft()[1])
        spare = raft.log.bytes - keep.bytes
        if spare > 0:
            spare += keep.bytes // 8  # not at every turn
            index = raft.log.base.index
            while spare > 0 and index < self.applied:
                index += 1
                spare -= len(raft.log[index].data)
            upto = max(upto, index)
        upto = min(upto, self.applied)
        if upto <= raft.log.base.index:
            return
        for index in range(raft.log.base.index + 1, upto + 1):
            entry = raft.log[index]
            if entry.kind is Kind.DATA:
                self._base.apply(index, entries.decode(entry.data))
        gone = bisect_right(self._indexes, upto)
        del self._indexes[:gone], self._firsts[:gone]
        raft.forget(upto, self._base.encode())
