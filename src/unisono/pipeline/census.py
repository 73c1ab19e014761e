"""The first pass: counts, names and extremes of every table, and with them the validation.

One plain group-by per table finds every null where none may be, every unknown status and every
time beyond reason, and yields the lists of subscribers, publishers and topics, so that all later
passes move small integers instead of strings. Names are numbered in their sorted order: the
smallest number is the smallest name, whatever Spark did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unisono.errors import BadInput
from unisono.pipeline.kernel import Ints, Longs
from unisono.pipeline.read import Table, Trace
from unisono.trace.schema import IN_ORDER, STATUSES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

FAR_US = 2**61  # times beyond it leave no room for differences
FOREVER_US = 2**62  # stands for an `until_us` that is null


@dataclass(frozen=True)
class Intervals:
    """The subscriptions in columns, sorted by topic; `start` has one more entry than topics."""

    start: Ints
    subscriber: Ints
    from_us: Longs
    until_us: Longs


@dataclass(frozen=True)
class Census:
    """What the first pass over a trace learned."""

    publications: int
    deliveries: int
    statuses: dict[str, int]
    subscribers: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]  # the pairs (publisher, topic), numbered by their place
    publishers: tuple[str, ...]
    topics: tuple[str, ...]
    positions: tuple[tuple[int, int, int], ...]  # by subscriber: how many, smallest, largest
    subscriptions: int | None
    intervals: Intervals | None
    published: tuple[tuple[int, int, int], ...]  # by source: how many, smallest, largest number
    latest_us: int = -FAR_US  # of all times of publications and deliveries

    def publisher_of_source(self) -> Ints:
        number = {name: at for at, name in enumerate(self.publishers)}
        return np.array([number[publisher] for publisher, _ in self.sources], dtype=np.int32)

    def topic_of_source(self) -> Ints:
        number = {name: at for at, name in enumerate(self.topics)}
        return np.array([number[topic] for _, topic in self.sources], dtype=np.int32)


def take_census(trace: Trace) -> Census:
    """Count and validate; raises BadInput that names file, column and value."""
    deliveries, publications = _tallies(trace)
    n_deliveries = sum(row.rows for row in deliveries)
    n_publications = sum(row.rows for row in publications)
    if not n_deliveries and not n_publications:
        raise BadInput(f"{trace.path}: the trace is empty: no publications and no deliveries")
    statuses = dict.fromkeys(STATUSES, 0)
    for row in deliveries:
        statuses[row.status or IN_ORDER] += row.rows
    subscriptions = _subscriptions(trace.subscriptions)
    subscribers = {row.subscriber for row in deliveries} | {row[0] for row in subscriptions or ()}
    publications.sort(key=lambda row: (row.publisher, row.topic))
    sources = [(row.publisher, row.topic) for row in publications]
    topics = {topic for _, topic in sources} | {row[1] for row in subscriptions or ()}
    names = tuple(sorted(subscribers)), tuple(sorted(topics))
    return Census(
        publications=n_publications,
        deliveries=n_deliveries,
        statuses=statuses,
        subscribers=names[0],
        sources=tuple(sources),
        publishers=tuple(sorted({publisher for publisher, _ in sources})),
        topics=names[1],
        positions=_positions(deliveries, names[0]),
        subscriptions=None if subscriptions is None else len(subscriptions),
        intervals=None if subscriptions is None else _intervals(subscriptions, *names),
        latest_us=max(
            [row.max_delivered_us for row in deliveries]
            + [row.max_published_us for row in publications]
        ),
        published=tuple(
            (row.rows, row.min_publisher_seq, row.max_publisher_seq) for row in publications
        ),
    )


def _positions(
    deliveries: list[Row], subscribers: tuple[str, ...]
) -> tuple[tuple[int, int, int], ...]:
    found: dict[str, tuple[int, int, int]] = {}
    for row in deliveries:
        count, low, high = found.get(row.subscriber, (0, row.min_position, row.max_position))
        low, high = min(low, row.min_position), max(high, row.max_position)
        found[row.subscriber] = count + row.rows, low, high
    return tuple(found.get(name, (0, 0, 0)) for name in subscribers)


DELIVERY_KEYS = ("subscriber", "status")
SOURCE_KEYS = ("publisher", "topic")


def _tallies(trace: Trace) -> tuple[list[Row], list[Row]]:
    """Of deliveries and publications, by one query."""
    tables = (trace.deliveries, DELIVERY_KEYS), (trace.publications, SOURCE_KEYS)
    first, then = (_tally(table, keys) for table, keys in tables)
    found = first.unionByName(then, allowMissingColumns=True).collect()
    deliveries, publications = (
        _validated(table, columns, [row for row in found if row.table == table.name])
        for (table, _), columns in zip(tables, (first.columns, then.columns), strict=True)
    )
    return deliveries, publications


def _tally(table: Table, keys: tuple[str, ...]) -> DataFrame:
    """Per key: how many rows, how many values per column, and the extremes of the numbers."""
    from pyspark.sql import functions as F

    rows = table.rows
    measures = [F.count(F.lit(1)).alias("rows")]
    for name, kind in rows.dtypes:
        if name in keys:
            continue
        measures.append(F.count(name).alias(f"n_{name}"))
        if kind == "bigint":
            measures += [F.min(name).alias(f"min_{name}"), F.max(name).alias(f"max_{name}")]
    return rows.groupBy(*keys).agg(*measures).withColumn("table", F.lit(table.name))


def _validated(table: Table, columns: list[str], found: list[Row]) -> list[Row]:
    """The tally's rows, unless one of them shows a value that cannot be used."""
    for row in found:
        for name in columns:
            value = row[name]
            if name in (*DELIVERY_KEYS[:1], *SOURCE_KEYS) and value is None:
                raise table.example(name)
            if name == "status" and value not in (None, *STATUSES):
                raise table.example(name)
            if name.startswith("n_") and value != row.rows:
                raise table.example(name[2:])
            if name[:4] in ("min_", "max_") and abs(value) > FAR_US:
                raise BadInput(
                    f"{table.parts[0].files[0]}: column {name[4:]} of table {table.name} holds "
                    f"{value}; expected a number between -2**61 and 2**61"
                )
    return found


def _subscriptions(table: Table | None) -> list[tuple[str, str, int, int]] | None:
    """All intervals, validated and in a fixed order; the table is small by nature."""
    if table is None:
        return None
    rows = []
    for row in table.rows.collect():
        for name in ("subscriber", "topic", "from_us"):
            if row[name] is None:
                raise table.example(name)
        until = FOREVER_US if row.until_us is None else row.until_us
        if abs(row.from_us) > FAR_US or (row.until_us is not None and abs(until) > FAR_US):
            raise BadInput(f"table {table.name}: {row.from_us} to {until} is out of range")
        rows.append((row.subscriber, row.topic, row.from_us, until))
    # In text, a null may be a value that did not convert: such a one is not `forever`.
    doubtful = table.is_text and any(until == FOREVER_US for *_, until in rows)
    if doubtful and table.bad_row("until_us") is not None:
        raise table.example("until_us")
    return sorted(rows)


def _intervals(
    rows: list[tuple[str, str, int, int]], subscribers: tuple[str, ...], topics: tuple[str, ...]
) -> Intervals:
    subscriber_number = {name: at for at, name in enumerate(subscribers)}
    topic_number = {name: at for at, name in enumerate(topics)}
    topic = np.array([topic_number[row[1]] for row in rows], dtype=np.int32)
    order = np.argsort(topic, kind="stable")
    start = np.searchsorted(topic[order], np.arange(len(topics) + 1)).astype(np.int32)
    return Intervals(
        start,
        np.array([subscriber_number[row[0]] for row in rows], dtype=np.int32)[order],
        np.array([row[2] for row in rows], dtype=np.int64)[order],
        np.array([row[3] for row in rows], dtype=np.int64)[order],
    )
