"""The audit of one trace: passes over the deliveries, each a Spark job.

1. `census`: a plain group-by per table counts, validates, and numbers all names.
2. `resolve`: by event; duplicates, phantoms, losses, latencies, deadline; kept on disk as integers.
3. `replay`: by subscriber in delivery order; FIFO, and inversions against reference order.
4. `order`: only where pass 3 saw inversions; exact, and linear while the order holds.
5. `cycles`: only if pass 3 saw inversions; all sequences merged into one, in one task.
6. `causes`: only if a name publishes and subscribes; vector clocks, a task per block of columns.
7. `gaps`: publications are counted only for subscribers that did not get all of a source.
8. `breakdown`: only if asked for; the figures by topic and by link.

Every pass is linear in the rows. Nothing here knows any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unisono.errors import BadInput, UnisonoError
from unisono.pipeline import breakdown as shares
from unisono.pipeline import causes, cycles, gaps, order, replay, resolve
from unisono.pipeline.census import Census, take_census
from unisono.pipeline.findings import (
    Findings,
    GlobalOrder,
    Place,
    build_report,
    merge_events,
    merge_groups,
    merge_streams,
)
from unisono.pipeline.kernel import Longs
from unisono.pipeline.plan import EventNumbers, cut_time, make_plan, partitions
from unisono.pipeline.progress import run_with_progress
from unisono.pipeline.read import Trace
from unisono.pipeline.report import CHECKS, Report, check_names
from unisono.pipeline.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.progress import Progress


class Share(Protocol):
    """One audit of a growing trace (see `growing.py`)."""

    def window(self, trace: Trace, census: Census) -> Window:
        """What is judged this time."""

    def keep(
        self, trace: Trace, census: Census, blocks: DataFrame, pairs: list[tuple[int, int]]
    ) -> None:
        """What later audits need; `pairs` of subscribers disagree."""


def default_promises(
    trace: Trace, deadline_us: int | None, stall_us: int | None, whole: bool
) -> tuple[str, ...]:
    """What is promised when nobody says: every check that can be judged on this trace.

    Gaps only in a `whole` trace, and as long as nothing is known of subscriptions, which may leave
    them.
    """
    without = {"losses" if trace.subscriptions is None else "gaps"}
    if not whole:
        without.add("gaps")
    if deadline_us is None:
        without.add("deadline")
    if stall_us is None:
        without.add("stalls")
    return tuple(name for name in CHECKS if name not in without)


def audit(
    spark: SparkSession,
    trace: Trace,
    promises: Sequence[str] | None = None,
    deadline_us: int | None = None,
    settle_us: int | None = None,
    progress: Progress | None = None,
    stall_us: int | None = None,
    breakdown: bool = False,
    share: Share | None = None,
) -> Report:
    """Audit an opened trace, or with `share` a share of a growing one; with `breakdown` also tell
    figures by topic and by link.

    What is not given comes from the trace's run.json; promises that nobody gave are all checks
    that can be judged. Raises BadInput for data that cannot be used.
    """
    deadline_us = trace.run.deadline_us if deadline_us is None else deadline_us
    settle_us = (trace.run.settle_us or 0) if settle_us is None else settle_us
    stall_us = trace.run.stall_us if stall_us is None else stall_us
    if promises is None:
        promises = trace.run.promises
    if promises is None:
        promises = default_promises(trace, deadline_us, stall_us, share is None)
    promises = check_names(list(promises), str(trace.path))
    if min(settle_us, deadline_us or 0, stall_us or 0) < 0:
        raise BadInput("a deadline, settling time or stall time cannot be negative")
    if share is not None and (stall_us is not None or breakdown):
        raise BadInput("stalls and figures by topic are for audits of whole traces")
    terms = resolve.Terms(deadline_us, settle_us, stall_us, breakdown=breakdown)
    with reading(trace.path):
        return _audit(spark, trace, promises, terms, progress, share)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Where Spark may find that a file of the trace cannot be read."""
    try:
        yield
    except UnisonoError:
        raise
    except Exception as error:  # those of PySpark and of its gateway have no base in common
        raise _as_bad_input(path, error) from error


def _audit(
    spark: SparkSession,
    trace: Trace,
    promises: Sequence[str],
    terms: resolve.Terms,
    progress: Progress | None,
    share: Share | None,
) -> Report:
    from pyspark import StorageLevel

    def step(label: str, action: Callable[[], Any]) -> Any:
        return run_with_progress(spark, label, progress, action)

    held: list[DataFrame] = []
    try:
        for table in (trace.publications, trace.deliveries):
            if table.is_text:  # parsed once, read by two passes
                held.append(table.rows.persist(StorageLevel.DISK_ONLY))
        census: Census = step("count and validate", lambda: take_census(trace))
        cuts_us: Longs = step(
            "sample times", lambda: cut_time(trace.deliveries.rows, census.deliveries)
        )
        window = None
        if share is not None:
            window = step("find what to judge", lambda: share.window(trace, census))
        plan = make_plan(census, cuts_us, window)
        rows = resolve.tagged(trace.publications.rows, trace.deliveries.rows, census)
        relays = causes.find_relays(census)
        terms = replace(
            terms,
            ordered=np.array([trace.run.ordered(topic) for _, topic in census.sources], bool),
            relays=relays.hears(census),
        )
        blocks = resolve.resolve(rows, census, plan, terms)
        held.append(blocks.persist(StorageLevel.DISK_ONLY))
        events: resolve.EventSummary = step(
            "by event", lambda: merge_events(resolve.summaries(blocks))
        )
        _refuse_published_twice(trace, events)
        numbers = EventNumbers.of(events.events)
        fits = numbers.count <= cycles.EVENTS_MAX
        slabs = replay.replay(blocks, census, plan, numbers if fits else None, terms)
        held.append(slabs.persist(StorageLevel.DISK_ONLY))
        streams: replay.StreamSummary = step(
            "by subscriber", lambda: merge_streams(replay.summaries(slabs))
        )
        _refuse_repeated_position(trace, census, streams)
        orders = order.GroupSummary([], None)
        whole = GlobalOrder()
        if streams.reach:
            cell_groups = order.group_cells(streams.reach, plan.cells, order.CELLS_PER_GROUP)
            orders = step(
                "compare orders", lambda: merge_groups(order.disagreements(blocks, cell_groups))
            )
            whole = GlobalOrder(too_many=numbers.count)
            if fits:
                whole = step(
                    "one order for all",
                    lambda: _global_order(blocks, slabs, census, numbers, orders),
                )
        caused, untraced = causes.CauseSummary(streams.overtaken, streams.first_overtaken), None
        if relays.publisher.size:
            caused, untraced = step(
                "causes first", lambda: _causes(blocks, census, relays, terms, caused)
            )
        lacking: gaps.GapSummary | None = None
        if share is None:
            lacking = step(
                "gaps",
                lambda: gaps.find_gaps(
                    blocks, trace.publications.rows, trace.deliveries.rows, census
                ),
            )
        figures: shares.Shares | None = None
        if terms.breakdown:
            tasks = partitions(census)
            figures = step("break down", lambda: shares.break_down(blocks, census, tasks))
        found = Findings(events, streams, orders, whole, caused, untraced, lacking, figures)
        names = _event_names(trace.deliveries.rows, census, found.places())
        said = _said_names(trace.publications.rows, census, found.said())
        if share is not None:
            step("keep what may matter", lambda: share.keep(trace, census, blocks, orders.pairs))
    finally:
        for frame in held:
            frame.unpersist()
    return build_report(census, found, names, said, promises, terms)


def _causes(
    blocks: DataFrame,
    census: Census,
    relays: causes.Relays,
    terms: resolve.Terms,
    known: causes.CauseSummary,
) -> tuple[causes.CauseSummary, str | None]:
    """Causes through relays as well; if they cannot be traced, what is `known` and why."""
    if relays.too_large:
        return known, f"too large: {relays.too_large}"
    found = causes.merge_causes(causes.find_overtaken(blocks, census, relays, terms.record))
    if (link := found.contradiction) is not None:
        publisher, number = link.heard
        return known, (
            f"the trace contradicts itself: {census.publishers[link.relay]} was notified of number "
            f"{number} of {census.publishers[publisher]} before it published a cause of it"
        )
    return found, None


def _global_order(
    blocks: DataFrame,
    slabs: DataFrame,
    census: Census,
    numbers: EventNumbers,
    orders: order.GroupSummary,
) -> GlobalOrder:
    """Two subscribers that disagree are the shortest cycle: then no other is looked for."""
    search = orders.witness is None
    found = cycles.find_cycles(blocks, slabs, len(census.subscribers), numbers, search)
    cycle = cycles.locate(blocks, found.cycle, numbers) if found.cycle else []
    if found.knots and orders.witness is not None:
        cycle = cycles.of_two(orders.witness)
    return GlobalOrder(found.knots, found.complete, cycle)


def _refuse_published_twice(trace: Trace, events: resolve.EventSummary) -> None:
    if events.published_twice is not None:
        raise BadInput(
            f"{trace.publications.parts[0].files[0]}: column event_id must be unique, but "
            f"{events.published_twice!r} is published more than once"
        )


def _refuse_repeated_position(trace: Trace, census: Census, streams: replay.StreamSummary) -> None:
    if streams.repeated_position is not None:
        subscriber, position = streams.repeated_position
        raise BadInput(
            f"{trace.deliveries.parts[0].files[0]}: column position must increase, but subscriber "
            f"{census.subscribers[subscriber]!r} has position {position} more than once"
        )


def _event_names(deliveries: DataFrame, census: Census, places: set[Place]) -> dict[Place, str]:
    """The ids of the events delivered at these places."""
    from pyspark.sql import functions as F

    if not places:
        return {}
    number = {name: at for at, name in enumerate(census.subscribers)}
    rows = deliveries.where(
        F.col("position").isin(sorted({at for _, at in places}))
        & F.col("subscriber").isin(sorted({census.subscribers[who] for who, _ in places}))
    ).select("subscriber", "position", "event_id")
    return {(number[row.subscriber], row.position): row.event_id for row in rows.collect()}


def _said_names(
    publications: DataFrame, census: Census, wanted: set[causes.Said]
) -> dict[causes.Said, str]:
    """The ids of the events with these publishers and numbers."""
    from pyspark.sql import functions as F

    if not wanted:
        return {}
    number = {census.publishers[who]: who for who, _ in wanted}
    rows = publications.where(
        F.col("publisher_seq").isin(sorted({seq for _, seq in wanted}))
        & F.col("publisher").isin(sorted(number))
    ).select("publisher", "publisher_seq", "event_id")
    names = sorted(
        (row.event_id, number[row.publisher], row.publisher_seq) for row in rows.collect()
    )
    return {(who, seq): name for name, who, seq in reversed(names)}


def _as_bad_input(path: Path, error: Exception) -> BadInput:
    """Spark's own refusal of a file, in one line. Anything else is a fault of ours: raised on."""
    marks = ("FAILED_READ_FILE", "CANNOT_READ", "CSV header")
    for line in str(error).splitlines():
        if any(mark in line for mark in marks):
            reason = line.removeprefix(": org.apache.spark.SparkException: ")
            return BadInput(f"{path}: Spark cannot read the trace: {reason}")
    raise error
