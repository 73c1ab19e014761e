"""Audits of a growing trace: each reads the parts that are new, and a context of earlier rows.

Parts are only added. With the latest time seen, less the horizon, as watermark W, `context.py`
keeps what may still matter. New rows are taken only if

1. no new publication is older than W,
2. a subscriber's new deliveries are at positions beyond those judged, and
3. the events of the context that they are about have no row older than W;

else the whole trace is audited once more. A delivery that nothing explains waits for its
publication until W has passed it. Before it is called a phantom, or order is said to be broken,
earlier parts are searched for it, and if it is there the whole trace is audited as well.

Then *two subscribers that disagree are found, exactly*. Let s hear x before y and t hear y before
x, and let one of the four deliveries be new, one of x, say (else swap the names). By 3, if x is in
the context, all its rows are of W or later; so s heard it at its border or beyond (2 puts new rows
there, too) and y further on, and from the border on everything is read. So all rows of x and y are
read; and as no event is read in part, what is found is true. No clock needs to be right for that.
Cycles of three or more subscribers are found if their events are read together: longer ones need
an audit of the whole.

*What concerns single deliveries is counted once*, when it is judged: duplicates, phantoms, FIFO and
deadline up to the first delivery that waits for its publication, losses once W has passed the
publication. So nothing is called lost, or a phantom, because a part is not there yet. Order is
judged over all rows read: a disagreement is told again while the context holds it.

Not noticed: an event id that is published again, or first published, after all rows with this id
are older than the horizon. Subscriptions are few and read whole each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono.errors import BadInput
from unisono.files import hold
from unisono.pipeline import history
from unisono.pipeline.audit import audit, reading
from unisono.pipeline.census import Census
from unisono.pipeline.context import waiting, write_context
from unisono.pipeline.kernel import Longs
from unisono.pipeline.locate import Parts, find_files, find_parts, group_parts
from unisono.pipeline.read import Trace, no_table, table_of, trace_folder, trace_of
from unisono.pipeline.report import Report, Verdict
from unisono.pipeline.window import ALWAYS, Window
from unisono.trace.schema import DELIVERIES, GLOBAL_ORDER, PUBLICATIONS, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROWING = (PUBLICATIONS, DELIVERIES)
HORIZON_US = 600_000_000


@dataclass(frozen=True)
class Grown:
    """One audit of a growing trace, and what all of them say."""

    report: Report
    audits: int
    whole: str | None  # why the whole trace was audited, if it was
    rows: dict[str, dict[str, int]]  # new, carried and total, by table
    judged_until_us: int
    verdict: Verdict  # of all audits so far
    checks: dict[str, history.Sofar]

    def to_json(self) -> dict[str, Any]:
        sofar = {
            name: {"verdict": of.verdict, "violations": of.violations}
            for name, of in self.checks.items()
        }
        return self.report.to_json() | {
            "new": self.rows["new"],
            "carried": self.rows["carried"],
            "whole": self.whole,
            "judged_until_us": self.judged_until_us,
            "history": {
                "audits": self.audits,
                "verdict": self.verdict,
                "rows": self.rows["total"],
                "checks": sofar,
            },
        }


@dataclass
class _Share:
    """The part of one audit that is about growth (`audit.Share`)."""

    past: history.State | None  # None: the whole trace is audited
    horizon_us: int
    final: bool
    folder: Path
    watermark_us: int = 0
    judged: dict[str, int] = field(default_factory=dict)
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def window(self, trace: Trace, census: Census) -> Window:
        past = self.past
        self.watermark_us = census.latest_us + (1 if self.final else -self.horizon_us)
        if past is not None:
            self.watermark_us = max(self.watermark_us, past.watermark_us)
        waits = {} if self.final else waiting(trace, self.watermark_us)
        names = census.subscribers
        end = self._end(census)
        low = [past.judged.get(name, -ALWAYS) if past else -ALWAYS for name in names]
        high = [min(int(end[at]), waits.get(name, ALWAYS)) for at, name in enumerate(names)]
        self.judged = (past.judged if past else {}) | dict(zip(names, high, strict=True))
        return Window(
            np.array(low, np.int64),
            np.array(high, np.int64),
            past.watermark_us if past else -ALWAYS,
            self.watermark_us,
        )

    def keep(
        self, trace: Trace, census: Census, blocks: DataFrame, pairs: list[tuple[int, int]]
    ) -> None:
        end = self._end(census)
        write_context(trace, census, blocks, self.watermark_us, end, self.folder)
        self.pairs = {(census.subscribers[a], census.subscribers[b]) for a, b in pairs}

    def _end(self, census: Census) -> Longs:
        """By subscriber: beyond all its positions so far."""
        judged = self.past.judged if self.past else {}
        spans = zip(census.subscribers, census.positions, strict=True)
        return np.array(
            [
                max(judged.get(name, -ALWAYS), last + 1 if rows else -ALWAYS)
                for name, (rows, _, last) in spans
            ],
            np.int64,
        )


def audit_growing(
    spark: SparkSession,
    path: Path,
    folder: Path | None = None,
    horizon_us: int = HORIZON_US,
    final: bool = False,
    **options: Any,
) -> Grown:
    """Audit what is new in a trace since the last call; `options` are those of `audit`.

    `folder` is where the history is kept, by default `audit` in the trace's own folder. `final`
    says that the trace has ended: nothing waits for later parts.
    """
    if horizon_us < 0:
        raise BadInput("a horizon cannot be negative")
    root = trace_folder(path)
    folder = path / "audit" if folder is None else folder
    with hold(folder, ".lock", "audits"):
        return _audit_growing(spark, path, root, folder, horizon_us, final, options)


def _audit_growing(
    spark: SparkSession,
    path: Path,
    root: Path,
    folder: Path,
    horizon_us: int,
    final: bool,
    options: dict[str, Any],
) -> Grown:
    past = history.load(folder)
    files = {name: find_files(root, name) for name in GROWING}
    for name in GROWING:
        if not files[name]:
            raise no_table(root, name)
    now = history.survey(root, (file for name in GROWING for file in files[name]))
    new = set(history.new_parts(root, past.parts if past else {}, now))
    audits = past.audits + 1 if past else 1
    target = history.context_folder(folder, audits)
    share = _Share(past, horizon_us, final, target)
    report, whole = None, "it is the first audit"
    if past is not None:
        context = history.context_folder(folder, past.audits)
        report, whole = _audit_new(spark, path, files, new, context, past, share, options)
    if report is None:
        share = _Share(None, horizon_us, final, target)
        parts = {name: group_parts(files[name], name) for name in GROWING}
        report = audit(spark, _opened(spark, path, parts), share=share, **options)
    rows = _count_rows(past, report, bool(whole))
    verdict, checks, pairs = history.sum_up(None if whole else past, report, share.pairs)
    state = history.State(
        format=history.FORMAT,
        audits=audits,
        watermark_us=share.watermark_us,
        judged=share.judged,
        parts=now,
        rows=rows["total"],
        carried=history.carried_rows(target),
        verdict=verdict,
        checks=checks,
        pairs=pairs,
    )
    grown = Grown(report, audits, whole or None, rows, share.watermark_us, verdict, checks)
    entry = {
        "audit": audits,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "whole": grown.whole,
        "parts": len(new),
        "rows": rows,
        "judged_until_us": share.watermark_us,
        "verdict": report.verdict,
        "checks": {name: check.to_json() for name, check in report.checks.items()},
        "overall": verdict,
    }
    history.commit(folder, state, entry)
    return grown


PartsOf = dict[str, tuple[Parts, ...]]


def _opened(spark: SparkSession, path: Path, parts: PartsOf) -> Trace:
    """These parts as a trace, with the subscriptions as they are now."""
    subscriptions = find_parts(trace_folder(path), SUBSCRIPTIONS)
    return trace_of(spark, path, {**parts, SUBSCRIPTIONS: subscriptions})


def _audit_new(
    spark: SparkSession,
    path: Path,
    files: dict[str, list[Path]],
    new: set[Path],
    context: Path,
    past: history.State,
    share: _Share,
    options: dict[str, Any],
) -> tuple[Report | None, str]:
    """The report of the new parts, or else why the whole trace is to be audited."""
    fresh = {name: group_parts([f for f in files[name] if f in new], name) for name in GROWING}
    carried = {name: find_parts(context, name) for name in GROWING}
    with reading(path):
        why = _straggler(spark, past, fresh, carried)
    if why:
        return None, why
    trace = _opened(spark, path, {name: fresh[name] + carried[name] for name in GROWING})
    report = audit(spark, trace, share=share, **options)
    if any(report.checks[name].violations for name in ("phantoms", "total-order", GLOBAL_ORDER)):
        old = [file for file in files[PUBLICATIONS] if file not in new]
        with reading(path):
            why = _published_before(spark, trace, old)
    return (None, why) if why else (report, "")


def _count_rows(
    past: history.State | None, report: Report, whole: bool
) -> dict[str, dict[str, int]]:
    read = {name: report.rows[name] or 0 for name in GROWING}
    none = dict.fromkeys(GROWING, 0)
    before = past.rows if past else none
    carried = past.carried if past and not whole else none
    new = {name: read[name] - (before if whole else carried)[name] for name in GROWING}
    total = {name: before[name] + new[name] for name in GROWING}
    return {"new": new, "carried": carried, "total": total}


_NEWS = "there is news of {}, which is older than the horizon"


def _straggler(spark: SparkSession, past: history.State, fresh: PartsOf, carried: PartsOf) -> str:
    """Why the new rows need the whole trace, if they do."""
    from pyspark.sql import functions as F

    rows = {name: table_of(spark, name, parts).rows for name, parts in fresh.items() if parts}
    if PUBLICATIONS in rows:
        old = rows[PUBLICATIONS].where(F.col("published_us") < past.watermark_us).head()
        if old is not None:
            return f"the publication of {old.event_id} came later than the horizon"
    if DELIVERIES in rows:
        lowest = rows[DELIVERIES].groupBy("subscriber").agg(F.min("position").alias("position"))
        for who, at in lowest.where("position IS NOT NULL").collect():
            if at < past.judged.get(who, -ALWAYS):
                return f"{who} has a new delivery at position {at}, judged before"
    if not rows:
        return ""
    times = {PUBLICATIONS: "published_us", DELIVERIES: "delivered_us"}
    about = (table.select("event_id") for table in rows.values())
    stale = (
        table_of(spark, name, parts)
        .rows.where(F.col(times[name]) < past.watermark_us)
        .select("event_id")
        for name, parts in carried.items()
    )
    found = _union(about).join(_union(stale), "event_id", "left_semi").head()
    return "" if found is None else _NEWS.format(found.event_id)


def _union(tables: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda a, b: a.unionAll(b), tables)


def _published_before(spark: SparkSession, trace: Trace, files: list[Path]) -> str:
    """An event that nobody published lately, but somebody did in these earlier parts."""
    unknown = trace.deliveries.rows.select("event_id").join(
        trace.publications.rows.select("event_id"), "event_id", "left_anti"
    )
    if unknown.isEmpty():
        return ""
    parts = group_parts(files, PUBLICATIONS)
    earlier = table_of(spark, PUBLICATIONS, parts).rows.select("event_id")
    found = earlier.join(unknown, "event_id", "left_semi").head()
    return "" if found is None else _NEWS.format(found.event_id)
