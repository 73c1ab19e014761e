"""Figures by topic and by link against plain sums; and skew: one name with nearly all the rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.audits import Random_, of_kind, tabulate

from unisono.cli.main import main
from unisono.pipeline import breakdown, cycles, order, plan, resolve
from unisono.pipeline.audit import audit
from unisono.pipeline.census import take_census
from unisono.pipeline.read import open_trace
from unisono.pipeline.report import Report

Judge = Callable[..., Report]

EVENTS = 400
LIMIT = 150


def skewed(seed: int = 1) -> Random_:
    """95 % of the events are of topic `hot`, by `p0`; of the deliveries, as many are to `s0`, who
    publishes as well. Every 40th event goes to all of 12 subscribers; some things go wrong."""
    rng = Random(seed)
    published = []
    deliveries: list[tuple[Any, ...]] = []
    places = dict.fromkeys([f"s{at}" for at in range(12)], 0)
    for number in range(EVENTS):
        hot = rng.random() < 0.95
        publisher = "p0" if hot else rng.choice(("p1", "s0"))
        at_us = 100 * number
        published.append((f"e{number:04d}", "hot" if hot else "cold", publisher, number, at_us))
    order_of = list(range(EVENTS))
    for at in range(0, EVENTS - 9, 37):
        order_of[at], order_of[at + 3] = order_of[at + 3], order_of[at]
    for turn, number in enumerate(order_of):
        to = list(places) if number % 40 == 0 else ["s0"] if number % 50 else []
        for who in to:
            late_us = rng.choice((-7, 20, 90, 3000, 70_000)) if number % 11 == 0 else 150
            status = "out_of_order" if number % 13 == 0 else "in_order"
            deliveries.append((who, places[who], f"e{number:04d}", 100 * turn + late_us, status))
            places[who] += 1
    places_of = {"e0080": 3, "e0120": 2}  # s2 hears these two the other way round
    deliveries = [
        (who, places_of[event] if who == "s2" and event in places_of else place, event, *rest)
        for who, place, event, *rest in deliveries
    ]
    deliveries.append(("s3", 500, "e0040", 9000, "in_order"))
    deliveries.append(("s3", 501, "e0040", 9000, "duplicate"))
    return Random_(published, deliveries, [(who, "hot", 0, None) for who in ("s0", "s1")])


def expected(trace: Random_, of: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> Any:
    """Per key: deliveries, tagged, duplicates, and the latencies in order."""
    source = {row[0]: row for row in trace.publications}
    found: dict[Any, list[Any]] = {}
    seen = set()
    for row in sorted(trace.deliveries):
        figures = found.setdefault(of(source[row[2]], row), [0, 0, 0, []])
        figures[0] += 1
        figures[1] += row[4] == "out_of_order"
        if row[4] != "duplicate":
            figures[2] += (row[0], row[2]) in seen
            seen.add((row[0], row[2]))
            figures[3].append(row[3] - source[row[2]][4])
    return found


def check_shares(shares: list[dict[str, Any]], names: tuple[str, ...], wanted: Any) -> None:
    keys = [tuple(share[name] for name in names) for share in shares]
    assert keys == sorted(wanted)
    for key, share in zip(keys, shares, strict=True):
        *counts, latencies_us = wanted[key]
        assert [share[name] for name in ("deliveries", "tagged", "duplicates")] == counts
        latencies_us.sort()
        latency = share["latency"]
        assert latency["mean"] == pytest.approx(np.mean(latencies_us) / 1000)
        assert latency["max"] == latencies_us[-1] / 1000
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            exact_us = latencies_us[max(0, int(np.ceil(part * len(latencies_us))) - 1)]
            assert latency[name] == pytest.approx(exact_us / 1000, rel=1 / 64)


def audited(judge: Judge, trace: Random_) -> Report:
    return judge(*trace, breakdown=True, stall_us=100, deadline_us=1000)


def test_figures_by_topic_and_by_link(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = skewed()
    report = audited(judge, trace)
    assert report.breakdown is not None
    topics, links = report.breakdown["topics"], report.breakdown["links"]
    check_shares(topics, ("topic",), expected(trace, lambda said, got: (said[1],)))
    by_link = expected(trace, lambda said, got: (said[2], got[0]))
    check_shares(links, ("publisher", "subscriber"), by_link)
    assert report.breakdown["omitted"] == {"topics": 0, "links": 0}
    losses = report.checks["losses"].violations
    assert losses and sum(topic["lost"] for topic in topics) == losses
    assert list(report.to_json())[-3:] == ["topics", "links", "omitted"]

    # One hot topic, subscriber and publisher, cut absurdly small: the same in every figure.
    cuts = {"ROWS_PER_CHUNK": LIMIT, "ROWS_PER_CELL": 40, "ROWS_PER_PARTITION": LIMIT}
    with monkeypatch.context() as patch:
        for name, rows in cuts.items():
            patch.setattr(plan, name, rows)
        patch.setattr(order, "CELLS_PER_GROUP", 3)
        patch.setattr(cycles, "ROWS_AT_ONCE", 30)
        assert audited(judge, trace).to_json() == report.to_json()
    for name in ("total-order", "causal-order", "gaps", "stalls", "losses", "duplicates"):
        assert report.checks[name].violations, name  # nothing was compared in vain
    monkeypatch.setattr(breakdown, "TOLD_MAX", 2)
    few = audited(judge, trace).breakdown
    assert few is not None
    assert few["omitted"] == {"topics": 0, "links": len(links) - 2}
    most = sorted(links, key=lambda link: -link["deliveries"])[:2]
    assert sorted(few["links"], key=lambda link: -link["deliveries"]) == most


def test_no_piece_of_work_is_much_larger_than_its_limit(
    spark: SparkSession, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROWS_PER_CHUNK", "ROWS_PER_PARTITION"):
        monkeypatch.setattr(plan, name, LIMIT)
    trace = skewed()
    tables = dict(zip(("publications", "deliveries", "subscriptions"), trace, strict=True))
    opened = open_trace(spark, write(tables))
    rows = resolve.tagged(
        opened.publications.rows, opened.deliveries.rows, census := take_census(opened)
    )
    parts = rows.repartition(plan.partitions(census), "event_id")
    sizes = parts.groupBy(F.spark_partition_id()).count().collect()
    assert max(row["count"] for row in sizes) <= 3 * LIMIT

    census, batch = tabulate(trace)
    cut = plan.make_plan(census, np.zeros(0, np.int64))
    terms = resolve.Terms(stall_us=1, relays=np.ones(12, bool), breakdown=True)
    blocks = pa.Table.from_batches(resolve._worker(census, cut, terms)(iter([batch])))
    for kind, record in ((plan.BY_CHUNK, terms.record), (plan.BY_RELAY, plan.HEARD)):
        chunks: Counter[int] = Counter()
        for part in of_kind(blocks, kind):
            for key, payload in zip(part["key"], part["payload"], strict=True):
                chunks[key.as_py()] += len(payload.as_py()) // record.itemsize
        assert chunks.total() == len(trace.deliveries)
        assert max(chunks.values()) <= 2 * LIMIT


@pytest.mark.usefixtures("spark")
def test_people_see_the_slowest(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    trace = skewed()
    tables = dict(zip(("publications", "deliveries", "subscriptions"), trace, strict=True))
    path = str(write(tables))
    assert main(["audit", path, "--promise", "phantoms", "--stall-ms", "0.1", "--breakdown"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "slowest topics" in text and "slowest links" in text
    assert main(["audit", path, "--promise", "phantoms", "--json"]) == 0
    assert "topics" not in json.loads(capsys.readouterr().out)
    assert main(["audit", path, "--stall-ms", "-3", "--json"]) == 2


def test_run_json_gives_the_stall_time(spark: SparkSession, write: Callable[..., Path]) -> None:
    folder = write({"publications": [("e", "x", "p", 1, 0)], "deliveries": [("s", 1, "e", 9)]})
    (folder / "run.json").write_text('{"stall_us": 5}')
    report = audit(spark, open_trace(spark, folder))
    assert report.checks["stalls"].verdict == "valid" and report.checks["stalls"].promised
