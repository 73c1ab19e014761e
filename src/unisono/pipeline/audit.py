"""The audit of one trace: passes over the deliveries, each a Spark job.

1. `census`: a plain group-by per table counts, validates, and numbers all names.
2. `resolve`: by event; duplicates, phantoms, losses, latencies, deadline; kept on disk as integers.
3. `replay`: by subscriber in delivery order; FIFO, and inversions against reference order.
4. `order`: only where pass 3 saw inversions; exact, and linear while the order holds.
5. `cycles`: only if pass 3 saw inversions; all sequences merged into one, in one task.

Every pass is linear in the rows. Nothing here knows any protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unisono.errors import BadInput, UnisonoError
from unisono.pipeline import cycles, order, replay, resolve
from unisono.pipeline.census import Census, take_census
from unisono.pipeline.findings import (
    GlobalOrder,
    Place,
    build_report,
    merge_events,
    merge_groups,
    merge_streams,
    places_of,
)
from unisono.pipeline.kernel import Longs
from unisono.pipeline.plan import EventNumbers, cut_time, make_plan
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


def default_promises(trace: Trace, deadline_us: int | None) -> tuple[str, ...]:
    """What is promised when nobody says: every check that can be judged on this trace."""
    without = set()
    if trace.subscriptions is None:
        without.add("losses")
    if deadline_us is None:
        without.add("deadline")
    return tuple(name for name in CHECKS if name not in without)


def audit(
    spark: SparkSession,
    trace: Trace,
    promises: Sequence[str] | None = None,
    deadline_us: int | None = None,
    settle_us: int | None = None,
    progress: Progress | None = None,
    share: Share | None = None,
) -> Report:
    """Audit an opened trace, or with `share` a share of a growing one.

    What is not given comes from the trace's run.json; promises that nobody gave are all checks
    that can be judged. Raises BadInput for data that cannot be used.
    """
    deadline_us = trace.run.deadline_us if deadline_us is None else deadline_us
    settle_us = (trace.run.settle_us or 0) if settle_us is None else settle_us
    if promises is None:
        promises = trace.run.promises
    if promises is None:
        promises = default_promises(trace, deadline_us)
    promises = check_names(list(promises), str(trace.path))
    if settle_us < 0 or (deadline_us is not None and deadline_us < 0):
        raise BadInput("a deadline or settling time cannot be negative")
    with reading(trace.path):
        return _audit(spark, trace, promises, deadline_us, settle_us, progress, share)


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
    deadline_us: int | None,
    settle_us: int,
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
        ordered = np.array([trace.run.ordered(topic) for _, topic in census.sources], bool)
        blocks = resolve.resolve(rows, census, plan, deadline_us, settle_us, ordered)
        held.append(blocks.persist(StorageLevel.DISK_ONLY))
        events: resolve.EventSummary = step(
            "by event", lambda: merge_events(resolve.summaries(blocks))
        )
        _refuse_published_twice(trace, events)
        numbers = EventNumbers.of(events.events)
        fits = numbers.count <= cycles.EVENTS_MAX
        slabs = replay.replay(blocks, census, plan, numbers if fits else None)
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
        places = places_of(streams, orders, whole)
        names = _event_names(trace.deliveries.rows, census, places)
        if share is not None:
            step("keep what may matter", lambda: share.keep(trace, census, blocks, orders.pairs))
    finally:
        for frame in held:
            frame.unpersist()
    return build_report(census, events, streams, orders, whole, names, promises, deadline_us)


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


def _as_bad_input(path: Path, error: Exception) -> BadInput:
    """Spark's own refusal of a file, in one line. Anything else is a fault of ours: raised on."""
    marks = ("FAILED_READ_FILE", "CANNOT_READ", "CSV header")
    for line in str(error).splitlines():
        if any(mark in line for mark in marks):
            reason = line.removeprefix(": org.apache.spark.SparkException: ")
            return BadInput(f"{path}: Spark cannot read the trace: {reason}")
    raise error
