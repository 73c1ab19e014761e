"""Small traces for the passes of the audit, without Spark; and causal order in the plainest way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from unisono.pipeline.census import FOREVER_US, Census, Intervals
from unisono.trace.schema import JUDGED, STATUSES


class Random_(NamedTuple):
    """A random trace: rows as the schema has them."""

    publications: list[tuple[str, str, str, int, int]]
    deliveries: list[tuple[str, int, str, int, str]]
    subscriptions: list[tuple[str, str, int, int | None]]


def tabulate(trace: Random_) -> tuple[Census, pa.RecordBatch]:
    """What the census and `tagged` make of a trace, without Spark."""
    subscribers = sorted({r[0] for r in trace.deliveries} | {r[0] for r in trace.subscriptions})
    sources = sorted({(r[2], r[1]) for r in trace.publications})
    topics = sorted({r[1] for r in trace.publications} | {r[1] for r in trace.subscriptions})
    numbers = [[r[3] for r in trace.publications if (r[2], r[1]) == s] for s in sources]
    places = {who: [r[1] for r in trace.deliveries if r[0] == who] for who in subscribers}
    spans = [(len(v), min(v, default=0), max(v, default=0)) for v in places.values()]
    intervals = sorted((topics.index(t), subscribers.index(w), a, b) for w, t, a, b in (
        (w, t, a, FOREVER_US if b is None else b) for w, t, a, b in trace.subscriptions
    ))  # fmt: skip
    of_topic = np.array([row[0] for row in intervals], np.int64)
    columns = np.array(intervals, np.int64).reshape(-1, 4)
    census = Census(
        publications=len(trace.publications),
        deliveries=len(trace.deliveries),
        statuses={},
        subscribers=tuple(subscribers),
        sources=tuple(sources),
        publishers=tuple(sorted({source[0] for source in sources})),
        topics=tuple(topics),
        positions=tuple(spans),
        subscriptions=len(intervals),
        intervals=Intervals(
            np.searchsorted(of_topic, np.arange(len(topics) + 1)).astype(np.int32),
            columns[:, 1].astype(np.int32),
            columns[:, 2].copy(),
            columns[:, 3].copy(),
        ),
        published=tuple((len(seqs), min(seqs), max(seqs)) for seqs in numbers),
    )
    rows = [
        (event, -1 - sources.index((who, topic)), seq, at)
        for event, topic, who, seq, at in trace.publications
    ] + [
        (event, subscribers.index(who) * 8 + STATUSES.index(status), place, at)
        for who, place, event, at, status in trace.deliveries
    ]
    names = ("event_id", "tag", "number", "at_us")
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array([row[at] for row in rows], types[at]) for at in range(4)]
    return census, pa.RecordBatch.from_arrays(arrays, names=list(names))


def of_kind(blocks: pa.Table, kind: int) -> Iterator[pa.RecordBatch]:
    """The blocks of one kind."""
    return iter(blocks.filter(pa.compute.equal(blocks["kind"], kind)).to_batches())


Group = tuple[str, int]  # a publisher and one of its numbers


def pasts(trace: Random_) -> dict[str, set[str]] | None:
    """What is before each published event; None if something is before itself.

    Of events of one publisher with equal numbers, only that is known which is so for each.
    """
    group_of = {event: (who, seq) for event, _, who, seq, _ in trace.publications}
    groups: dict[Group, list[tuple[int, str]]] = {}
    for event, _, who, seq, at in trace.publications:
        groups.setdefault((who, seq), []).append((at, event))
    heard: dict[str, list[tuple[int, int, str]]] = {}
    for who, place, event, at, _ in trace.deliveries:
        heard.setdefault(who, []).append((place, at, event))

    def known(group: Group) -> list[str]:
        """What its publisher had heard by then: nothing from the first that came too late on."""
        earliest = min(groups[group])[0]
        told = []
        for _, at, event in sorted(heard.get(group[0], [])):
            if at >= earliest:
                break
            told.append(event)
        return told

    done: dict[Group, set[str] | None] = {}

    def past(group: Group) -> set[str]:
        if group in done:
            if (found := done[group]) is None:
                raise RecursionError
            return found
        done[group] = None
        before: set[str] = set()
        for other in [g for g in groups if g[0] == group[0] and g[1] < group[1]]:
            before |= past(other) | {event for _, event in groups[other]}
        for event in known(group):
            if event in group_of:
                other = group_of[event]
                before |= past(other) | ({event} if len(groups[other]) == 1 else set())
        done[group] = before
        return before

    try:
        return {event: past(group) for event, group in group_of.items()}
    except RecursionError:
        return None


def overtaken(trace: Random_) -> dict[tuple[str, int], set[str]] | None:
    """Deliveries after an event that they are a cause of, with all those events."""
    before = pasts(trace)
    if before is None:
        return None
    found: dict[tuple[str, int], set[str]] = {}
    earlier: dict[str, list[str]] = {}
    for who, place, event, _, status in sorted(trace.deliveries):
        mine = earlier.setdefault(who, [])
        if status not in JUDGED or event in mine or event not in before:
            continue
        if late := {other for other in mine if event in before[other]}:
            found[who, place] = late
        mine.append(event)
    return found


def missing(trace: Random_) -> set[tuple[str, str]]:
    """Gaps: subscribers, and events that they lack between two of the same source."""
    source = {event: (who, topic, seq) for event, topic, who, seq, _ in trace.publications}
    got: dict[tuple[str, str, str], list[int]] = {}
    delivered = {(who, event) for who, _, event, _, _ in trace.deliveries}
    for who, event in delivered:
        if event in source:
            got.setdefault((who, *source[event][:2]), []).append(source[event][2])
    return {
        (who, event)
        for (who, *of), seqs in got.items()
        for event, (publisher, topic, seq) in source.items()
        if of == [publisher, topic] and min(seqs) <= seq <= max(seqs)
        if (who, event) not in delivered
    }
