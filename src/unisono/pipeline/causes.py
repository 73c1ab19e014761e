"""Causal order: was anybody notified of an event before one that it may have come from?

An event d is before e if e's publisher was notified of d before it published e, or published d
itself with a smaller number, or if a chain of such steps leads from d to e. A publisher was
notified of what the subscriber of its name was: of all positions before the first one that is not
before published_us. Who hears e and later d, both judged, hears d overtaken. Of events of one
publisher with equal numbers only that is taken as known which is so for each of them.

If nobody publishes and subscribes under one name, only numbers count, and the pass by subscriber
has the answer. Otherwise there are vector clocks, a column per publisher. Columns do not depend
on each other: they are cut into blocks, a task for each. It orders what relays (names that do
both) heard and said such that causes come first, which gives the clocks; then it reads all
deliveries, subscriber by subscriber. What a relay knew is kept once for all that it published
meanwhile. All is bounded: see the constants; beyond them the answer is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unisono.pipeline import cause_kernel as k
from unisono.pipeline import plan as p
from unisono.pipeline.census import Census
from unisono.pipeline.kernel import Bools, Ints, Longs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EVENTS_MAX = 50_000_000  # about 60 bytes each in a task while they are sorted
HEARD_MAX = 200_000_000  # deliveries to relays; 4 bytes each
CLOCKS_PER_TASK = 25_000_000  # entries of clocks; 8 bytes each
TASKS_MAX = 64  # each reads all deliveries,
TASKS = 4  # so there are no more if memory allows, and one if they are few

Said = tuple[int, int]  # publisher and publisher_seq


class Link(msgspec.Struct, frozen=True, order=True):
    """A relay (by its number as a publisher) that heard one event before it published another."""

    relay: int
    heard: Said
    published: Said


class Overtaken(msgspec.Struct, frozen=True, order=True):
    """A delivery, an earlier one of an event that it is a cause of, and how the cause got there."""

    subscriber: int
    position: int
    earlier_position: int
    through: list[Link] = []


class CauseSummary(msgspec.Struct, frozen=True):
    """What one block of columns found.

    `contradiction`: a relay was notified of this event before something that the event comes from.
    """

    overtaken: int = 0
    witness: Overtaken | None = None
    contradiction: Link | None = None


@dataclass(frozen=True)
class Relays:
    """Names that publish and subscribe, by their numbers as one and as the other."""

    publisher: Ints
    subscriber: Ints
    views: int  # at most so many times one of them may have published with new knowledge
    too_large: str | None

    def hears(self, census: Census) -> Bools | None:
        """By subscriber: whether what it hears is wanted; None if nothing is."""
        if not self.publisher.size or self.too_large:
            return None
        wanted = np.zeros(len(census.subscribers), bool)
        wanted[self.subscriber] = True
        return wanted

    def columns(self, census: Census) -> list[tuple[int, int]]:
        """The blocks of columns: the first of each and how many."""
        publishers = len(census.publishers)
        width = max(1, CLOCKS_PER_TASK // max(1, self.views + self.publisher.size))
        width = max(1, min(width, -(-publishers // min(TASKS, p.partitions(census)))))
        return [(low, min(width, publishers - low)) for low in range(0, publishers, width)]


def find_relays(census: Census) -> Relays:
    """Who publishes and was notified of something, and whether clocks for them are affordable."""
    publisher = {name: at for at, name in enumerate(census.publishers)}
    said = np.bincount(
        census.publisher_of_source(),
        [count for count, _, _ in census.published],
        minlength=len(publisher),
    ).astype(np.int64)
    both = [
        (publisher[name], at)
        for at, name in enumerate(census.subscribers)
        if name in publisher and census.positions[at][0]
    ]
    pairs = np.array(both, np.int32).reshape(-1, 2)
    heard = np.array([census.positions[at][0] for _, at in both], np.int64)
    views = int(np.minimum(said[pairs[:, 0]], heard).sum())
    relays = Relays(pairs[:, 0].copy(), pairs[:, 1].copy(), views, None)
    too_large = None
    if census.publications > EVENTS_MAX:
        too_large = f"{census.publications:,} events; causes are looked for among {EVENTS_MAX:,}"
    elif heard.sum() > HEARD_MAX:
        too_large = f"{heard.sum():,} deliveries to publishers; at most {HEARD_MAX:,} are merged"
    elif len(relays.columns(census)) > TASKS_MAX:
        too_large = f"{views:,} clocks of {len(publisher):,} publishers"
    return Relays(relays.publisher, relays.subscriber, views, too_large)


def find_overtaken(
    blocks: DataFrame, census: Census, relays: Relays, record: np.dtype[Any]
) -> list[CauseSummary]:
    """The clocks, and all deliveries (as `record`) against them; a summary per block of columns."""
    from pyspark.sql import functions as F

    columns = relays.columns(census)
    everywhere = F.explode(F.sequence(F.lit(0), F.lit(len(columns) - 1)))
    found = (
        blocks.where(f"kind in ({p.BY_PUBLISHER}, {p.BY_RELAY}, {p.BY_CHUNK})")
        .select("kind", "key", everywhere.alias("part"), "payload")
        .repartitionById(len(columns), F.col("part"))
        .sortWithinPartitions(F.col("kind").desc(), "key")
        .mapInArrow(_worker(census, relays, columns, record), "summary binary")
        .collect()
    )
    return [msgspec.msgpack.decode(row.summary, type=CauseSummary) for row in found]


def merge_causes(found: Sequence[CauseSummary]) -> CauseSummary:
    """Sums and the first witness; what contradicts itself does so in every block."""
    return CauseSummary(
        overtaken=sum(summary.overtaken for summary in found),
        witness=min((s.witness for s in found if s.witness is not None), default=None),
        contradiction=next((s.contradiction for s in found if s.contradiction), None),
    )


Batches = Iterator["pa.RecordBatch"]


def _worker(
    census: Census, relays: Relays, columns: list[tuple[int, int]], record: np.dtype[Any]
) -> Callable[[Batches], Batches]:
    publisher_of_source = census.publisher_of_source()
    publishers = len(census.publishers)

    def rows(batches: Batches) -> Iterator[tuple[int, int, int, bytes]]:
        for batch in batches:
            cells = (batch[name].to_pylist() for name in ("kind", "key", "part", "payload"))
            yield from zip(*cells, strict=True)

    def work(batches: Batches) -> Batches:
        import pyarrow as pa

        said: list[p.Records] = []
        task: Task | None = None
        for (kind, _), same in groupby(rows(batches), key=lambda row: row[:2]):
            parts = list(same)
            payloads = [row[3] for row in parts]
            if kind == p.BY_PUBLISHER:
                said += [np.frombuffer(payload, p.SAID) for payload in payloads]
                continue
            if task is None:
                low, width = columns[parts[0][2]]
                task = Task(relays, publishers, low, width, _joined(said))
            dtype = p.HEARD if kind == p.BY_RELAY else record
            records = np.concatenate([np.frombuffer(payload, dtype) for payload in payloads])
            records = records[np.lexsort((records["position"], records["subscriber"]))]
            if kind == p.BY_RELAY:
                task.hear(records)
                continue
            if not task.learnt and not task.learn():
                break
            records = records[records["source"] >= 0]
            task.deliver(records, publisher_of_source[records["source"]])
        if task is not None:
            summary = msgspec.msgpack.encode(task.summary())
            yield pa.RecordBatch.from_pydict({"summary": pa.array([summary], pa.binary())})

    return work


def _joined(parts: list[p.Records]) -> p.Records:
    """All of them in one, so that nobody holds the parts."""
    joined = np.concatenate(parts)
    parts.clear()
    return joined


class Task:
    """One block of columns: all that was said, then what relays heard, then all deliveries."""

    def __init__(
        self, relays: Relays, publishers: int, low: int, width: int, said: p.Records
    ) -> None:
        self._relays = relays
        self._low, self._width = low, width
        order = np.lexsort((said["published_us"], said["publisher_seq"], said["publisher"]))
        said = said[order]
        publisher, seq = p.column(said, "publisher"), p.column(said, "publisher_seq")
        fresh = np.ones(said.size, bool)
        fresh[1:] = (np.diff(publisher) != 0) | (np.diff(seq) != 0)
        at = np.flatnonzero(fresh)
        self._alone: Bools = np.diff(at, append=said.size) == 1
        self._publisher: Ints = publisher[at]
        self._seq: Longs = seq[at]
        self._first: Longs = np.searchsorted(self._publisher, np.arange(publishers + 1))
        # By what was said: how much its relay had heard, of what came before this time.
        self._until_us: Longs = said["published_us"][at]
        for mine in self._own():
            np.maximum.accumulate(self._until_us[mine], out=self._until_us[mine])
        self._after: Ints = np.zeros(at.size, np.int32)
        self._last: Longs = np.full(publishers, -2, np.int64)
        self._relay_of = {int(who): at for at, who in enumerate(relays.subscriber)}
        self._heard: list[list[Ints]] = [[] for _ in relays.subscriber]
        self._latest_us = np.full(relays.subscriber.size, k.NOTHING, np.int64)
        self._contradiction: Link | None = None
        self.learnt = False

    def _own(self) -> Iterator[slice]:
        for who in self._relays.publisher:
            yield slice(int(self._first[who]), int(self._first[who + 1]))

    def _look_up(self, publisher: Ints, records: p.Records) -> Ints:
        seq = p.column(records, "publisher_seq")
        return k.look_up(publisher, seq, self._first, self._seq, self._last)

    def hear(self, records: p.Records) -> None:
        """What some relays heard next, in their order."""
        subscriber = records["subscriber"]
        event = self._look_up(p.column(records, "publisher"), records)
        cuts = [0, *(1 + np.flatnonzero(np.diff(subscriber))), subscriber.size]
        for low, high in pairwise(cuts):
            relay = self._relay_of[int(subscriber[low])]
            self._heard[relay].append(event[low:high])
            at_us = np.maximum.accumulate(records["delivered_us"][low:high])
            at_us = np.maximum(at_us, self._latest_us[relay])
            self._latest_us[relay] = at_us[-1]
            who = self._relays.publisher[relay]
            mine = slice(int(self._first[who]), int(self._first[who + 1]))
            self._after[mine] += np.searchsorted(at_us, self._until_us[mine]).astype(np.int32)

    def learn(self) -> bool:
        """The clocks, after everything was heard; False if the trace contradicts itself."""
        self.learnt = True
        counts = [sum(part.size for part in parts) for parts in self._heard]
        self._start: Longs = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._all: Ints = np.concatenate([np.zeros(0, np.int32), *chain(*self._heard)])
        self._heard.clear()
        self._view: Ints = np.full(self._seq.size, -1, np.int32)
        first_view, after = [0], []
        for mine in self._own():
            known = self._after[mine]
            distinct = np.unique(known[known > 0])  # it never falls
            place = first_view[-1] + np.searchsorted(distinct, known)
            self._view[mine] = np.where(known > 0, place, -1)
            after.append(distinct)
            first_view.append(first_view[-1] + distinct.size)
        self._clock, waits = k.learn(
            self._start, self._all, np.array(first_view, np.int64),
            np.concatenate([np.zeros(0, np.int32), *after]), self._publisher, self._seq,
            self._alone, self._view, self._low, self._width,
        )  # fmt: skip
        self._state = np.zeros(k.N_STATE, np.int64)
        self._state[k.SUBSCRIBER] = -1
        self._known = np.full(self._width, k.NOTHING, np.int64)
        self._told_at = np.zeros(self._width, np.int64)
        self._told_by = np.zeros(self._width, np.int32)
        if (waits >= 0).any():
            self._contradiction = self._circle(waits)
        return self._contradiction is None

    def _circle(self, waits: Ints) -> Link:
        """Of relays that wait for what others say, one of those that wait for each other."""
        relay_of = {int(who): at for at, who in enumerate(self._relays.publisher)}
        relay = int(np.argmax(waits >= 0))
        seen: list[int] = []
        while relay not in seen:
            seen.append(relay)
            relay = relay_of[int(self._publisher[waits[relay]])]
        said = self._said(int(waits[relay]))
        return Link(int(self._relays.publisher[relay]), said, said)

    def deliver(self, records: p.Records, publisher: Ints) -> None:
        """Judged deliveries of published events, by subscriber and position."""
        event = self._look_up(publisher, records)
        k.overtaken(
            p.column(records, "subscriber"), p.column(records, "position"), event,
            self._publisher, self._seq, self._view, self._clock, self._low, self._state,
            self._known, self._told_at, self._told_by,
        )  # fmt: skip

    def summary(self) -> CauseSummary:
        if not self.learnt or self._contradiction is not None:
            return CauseSummary(contradiction=self._contradiction)
        if not self._state[k.COUNT]:
            return CauseSummary()
        who, position, earlier, cause, later = (int(value) for value in self._state[k.AT :])
        witness = Overtaken(who, position, earlier, self._chain(cause, later))
        return CauseSummary(int(self._state[k.COUNT]), witness)

    def _said(self, event: int) -> Said:
        return int(self._publisher[event]), int(self._seq[event])

    def _chain(self, cause: int, later: int) -> list[Link]:
        """From an event to a later one, through as few relays as heard of it first.

        Going back from the later one: the first thing that its publisher heard that knows the
        cause. No relay comes twice, as it knew the cause from then on.
        """
        relay_of = {int(who): at for at, who in enumerate(self._relays.publisher)}
        publisher, seq = self._said(cause)
        value = 2 * seq + 1
        column = publisher - self._low
        links: list[Link] = []
        while self._publisher[later] != publisher:
            relay = relay_of[int(self._publisher[later])]
            start = int(self._start[relay])
            heard = self._all[start : start + int(self._after[later])]
            event = heard[heard >= 0]
            own = self._publisher[event] == publisher
            view = self._view[event]
            knows = own & (2 * self._seq[event] + self._alone[event] >= value)
            knows[view >= 0] |= self._clock[view[view >= 0], column] >= value
            first = int(event[np.argmax(knows)])
            links.append(Link(int(self._publisher[later]), self._said(first), self._said(later)))
            later = first
        return links[::-1]
