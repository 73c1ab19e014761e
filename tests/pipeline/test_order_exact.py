"""Every count of the audit against a naive oracle, on many small random traces.

First the comparison alone, then all passes as they run in Spark's workers but without Spark, then
the whole audit on Spark with many traces in one. Chunks, cells and groups are cut absurdly small,
so that every boundary is crossed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audits import Random_, missing, of_kind, overtaken, tabulate
from support.global_order import reference
from support.seeds import seed_range, some

from unisono.pipeline import cycles, gaps, order, plan, replay, resolve
from unisono.pipeline.census import Census
from unisono.pipeline.findings import merge_events, merge_groups, merge_streams
from unisono.pipeline.order_kernel import THOROUGH
from unisono.pipeline.report import Report
from unisono.pipeline.window import Window
from unisono.trace.schema import JUDGED, STATUSES


def random_trace(seed: int, prefix: str = "") -> Random_:
    """Partial subscriptions, ties, clocks that run backwards, duplicates, phantoms, losses."""
    rng = Random(seed)
    n_events, n_subscribers = rng.randint(1, 12), rng.randint(1, 5)
    disorder = rng.choice((0.0, 0.0, 0.1, 0.5))
    tick = rng.choice((0, 1, 3))
    events = [f"{prefix}e{at:02d}" for at in range(n_events)]
    published = [
        (event, rng.choice("xyz"), f"{prefix}{rng.choice('pq')}", at, 10 * at + rng.randint(0, 5))
        for at, event in enumerate(events)
        if rng.random() > 0.05
    ]
    deliveries: list[tuple[str, int, str, int, str]] = []
    subscriptions: list[tuple[str, str, int, int | None]] = []
    for number in range(n_subscribers):
        who = f"{prefix}s{number}"
        heard = [event for event in events if rng.random() < 0.6]
        for at in range(len(heard) - 1):
            if rng.random() < disorder:
                other = rng.randrange(len(heard))
                heard[at], heard[other] = heard[other], heard[at]
        heard += [rng.choice(heard) for _ in range(rng.choice((0, 0, 1, 2))) if heard]
        weird = rng.random() < 0.3
        now, place = rng.randint(0, 30), rng.randint(-5, 5)
        for event in heard:
            now += rng.randint(-4, 4) if weird else rng.randint(0, 4) * tick
            place += rng.randint(1, 3)
            status = rng.choice(STATUSES) if rng.random() < 0.2 else "in_order"
            deliveries.append((who, place, event, now, status))
        for _ in range(rng.randint(0, 3)):
            start = rng.randint(-5, 60)
            end = None if rng.random() < 0.5 else start + rng.randint(0, 80)
            subscriptions.append((who, rng.choice("xyz"), start, end))
    rng.shuffle(deliveries)
    return Random_(published, deliveries, subscriptions)


def disagreeing(deliveries: list[tuple[str, int, str, int, str]]) -> set[tuple[str, str]]:
    """All pairs of subscribers against all pairs of events."""
    places: dict[str, dict[str, int]] = {}
    for who, place, event, _, status in deliveries:
        if status in JUDGED:
            mine = places.setdefault(who, {})
            mine[event] = min(place, mine.get(event, place))
    return {
        (a, b)
        for a, b in combinations(sorted(places), 2)
        for x, y in combinations(sorted(set(places[a]) & set(places[b])), 2)
        if (places[a][x] < places[a][y]) != (places[b][x] < places[b][y])
    }


def sequences(deliveries: list[tuple[str, int, str, int, str]]) -> dict[str, list[str]]:
    heard: dict[str, list[str]] = {}
    for who, _, event, _, status in sorted(deliveries):
        if status in JUDGED:
            heard.setdefault(who, []).append(event)
    return heard


def oracle(trace: Random_, deadline_us: int, settle_us: int) -> dict[str, int]:
    """Every count, each in the plainest way."""
    source = {event: (topic, who, seq, at) for event, topic, who, seq, at in trace.publications}
    firsts: dict[tuple[str, str], int] = {}
    copies: dict[tuple[str, str], int] = {}
    for who, place, event, _, status in trace.deliveries:
        if status in JUDGED:
            firsts[who, event] = min(place, firsts.get((who, event), place))
        if status != "duplicate":
            copies[who, event] = copies.get((who, event), 0) + 1

    def descents(with_topic: bool) -> int:
        last: dict[tuple[str, ...], int] = {}
        count = 0
        for who, event in sorted(firsts, key=lambda key: firsts[key]):
            if event in source:
                topic, publisher, seq, _ = source[event]
                key = (who, publisher, topic) if with_topic else (who, publisher)
                count += seq < last.get(key, seq)
                last[key] = seq
        return count

    delivered = {(who, event) for who, _, event, _, _ in trace.deliveries}
    expected: set[tuple[str, str]] = set()
    lost: set[tuple[str, str]] = set()
    unsettled: set[tuple[str, str]] = set()
    for event, topic, _, _, at in trace.publications:
        for who, of, start, end in trace.subscriptions:
            if of == topic and start <= at and (end is None or at < end):
                expected.add((who, event))
                if (who, event) not in delivered:
                    settled = end is None or end - at >= settle_us
                    (lost if settled else unsettled).add((who, event))
    return {
        "total-order": len(disagreeing(trace.deliveries)),
        "global-order": reference(sequences(trace.deliveries))[0],
        "causal-order": len(overtaken(trace) or ()),
        "fifo": descents(with_topic=False),
        "topic-fifo": descents(with_topic=True),
        "duplicates": sum(count - 1 for count in copies.values()),
        "phantoms": sum(event not in source for _, _, event, _, _ in trace.deliveries),
        "losses": len(lost),
        "expected": len(expected),
        "unsettled": len(unsettled - lost),
        "deadline": sum(
            status != "duplicate" and event in source and at - source[event][3] > deadline_us
            for _, _, event, at, status in trace.deliveries
        ),
    }


@settings(max_examples=some(1500), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 7), unique=True, max_size=8), min_size=1, max_size=6),
    st.sampled_from((0, THOROUGH)),
)
def test_comparison_finds_exactly_the_pairs_that_disagree(
    sequences: list[list[int]], thorough: int
) -> None:
    rows = [
        (who, 3 * at, event)
        for who, heard in enumerate(sequences)
        for at, event in enumerate(heard)
    ]
    Random(len(rows)).shuffle(rows)
    columns = np.array(rows, np.int64).reshape(-1, 3)
    found = order.compare(
        columns[:, 0].astype(np.int32), columns[:, 1].copy(), columns[:, 2].copy(), thorough
    )
    wanted = disagreeing([(str(who), at, str(event), 0, "late") for who, at, event in rows])
    assert {(str(a), str(b)) for a, b in found.pairs} == wanted
    assert (found.witness is not None) == bool(wanted)
    if found.witness is not None:
        a, b = found.witness.subscribers
        heard_at = {(who, at): event for who, at, event in rows}
        x, y = (heard_at[a, at] for at in found.witness.first)
        assert [heard_at[b, at] for at in found.witness.second] == [x, y]
        assert found.witness.first[0] < found.witness.first[1]
        assert found.witness.second[0] > found.witness.second[1]


@settings(max_examples=some(500), deadline=None)
@given(st.dictionaries(st.integers(0, 40), st.integers(0, 40)), st.integers(1, 6))
def test_a_cell_and_all_it_reaches_share_a_group(reach: dict[int, int], size: int) -> None:
    reach = {cell: max(cell, far) for cell, far in reach.items()}
    pairs = order.group_cells(reach, 41, size)
    assert len(set(pairs)) == len(pairs) <= 2 * 41 + size
    groups: dict[int, set[int]] = {}
    for cell, group in pairs:
        groups.setdefault(group, set()).add(cell)
    for cell, far in reach.items():
        assert any({*range(cell, far + 1)} <= cells for cells in groups.values())


def passes(
    trace: Random_, deadline_us: int, settle_us: int, cut_at: tuple[float, float] = (0, 1)
) -> dict[str, int]:
    """All passes over one partition, with cells of one microsecond.

    `cut_at` are two shares of the positions and publishing times, between which is judged.
    """
    census, batch = tabulate(trace)
    cuts = np.unique(np.array([row[3] for row in trace.deliveries], np.int64))
    cut = plan.make_plan(census, cuts, window_of(census, cut_at))
    ordered = np.ones(len(census.sources), bool)
    terms = resolve.Terms(deadline_us, settle_us, ordered=ordered)
    worker = resolve._worker(census, cut, terms)
    blocks = pa.Table.from_batches(worker(iter([batch]))).sort_by("key")

    def told(found: pa.Table, type_: Any) -> list[Any]:
        return [msgspec.msgpack.decode(v.as_py(), type=type_) for v in found.columns[-1]]

    (payload,) = (v.as_py() for b in of_kind(blocks, plan.SUMMARY) for v in b["payload"])
    events = merge_events([msgspec.msgpack.decode(payload, type=resolve.EventSummary)])
    numbers = plan.EventNumbers.of(events.events)
    slabs = pa.Table.from_batches(
        replay._worker(census, cut, numbers, terms)(of_kind(blocks, plan.BY_CHUNK))
    )
    streams = merge_streams(
        told(slabs.filter(pa.compute.equal(slabs["kind"], plan.SUMMARY)), replay.StreamSummary)
    )
    assert streams.repeated_position is None
    groups = []
    by_group: dict[int, list[int]] = {}
    for cell, group in order.group_cells(streams.reach, cut.cells, 2):
        by_group.setdefault(group, []).append(cell)
    for cells in by_group.values():
        part = blocks.filter(pa.compute.is_in(blocks["key"], pa.array(cells, pa.int32())))
        part = part.filter(pa.compute.equal(part["kind"], plan.BY_CELL))
        zero = pa.array([0] * len(part), pa.int32())
        part = part.set_column(1, "key", zero).combine_chunks()
        found = pa.Table.from_batches(order._work(iter(part.to_batches())))
        groups += told(found, order.GroupSummary)
    merged = pa.concat_tables([
        blocks.filter(pa.compute.equal(blocks["kind"], plan.HOLDERS)),
        slabs.filter(pa.compute.equal(slabs["kind"], plan.BY_SLAB)),
    ]).sort_by([("kind", "ascending"), ("key", "ascending"), ("part", "ascending")])  # fmt: skip
    merge = cycles._worker(len(census.subscribers), numbers.count, cycles.HELD_MAX, search=True)
    (whole,) = told(pa.Table.from_batches(merge(iter(merged.to_batches()))), cycles.CycleSummary)
    assert whole.complete and (whole.knots > 0) == bool(whole.cycle)
    return {
        "total-order": len(merge_groups(groups).pairs),
        "global-order": whole.knots,
        "causal-order": streams.overtaken,
        "fifo": streams.descents.get("fifo", 0),
        "topic-fifo": streams.descents.get("topic-fifo", 0),
        "duplicates": events.duplicates,
        "phantoms": events.phantoms,
        "losses": events.lost,
        "expected": events.expected,
        "unsettled": events.unsettled,
        "deadline": events.deadline_misses,
    }


def window_of(census: Census, cut_at: tuple[float, float]) -> Window:
    ends = []
    for share in cut_at:
        near = [int(low + share * (high - low + 1)) for _, low, high in census.positions]
        ends.append((np.array(near, np.int64), int(-5 + share * 200)))
    (low, from_us), (high, until_us) = ends
    return Window(low, high, from_us, until_us)


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "ROWS_PER_CHUNK", 3)
    monkeypatch.setattr(plan, "ROWS_PER_CELL", 4)
    monkeypatch.setattr(plan, "ROWS_PER_PARTITION", 20)
    monkeypatch.setattr(order, "CELLS_PER_GROUP", 3)
    monkeypatch.setattr(cycles, "ROWS_AT_ONCE", 5)


@pytest.mark.seeded
@pytest.mark.usefixtures("small_cuts")
def test_the_passes_count_what_the_oracle_counts() -> None:
    seen: dict[str, int] = {}
    for seed in seed_range(some(2400)):
        trace = random_trace(seed)
        if not trace.deliveries:
            continue
        wanted = oracle(trace, deadline_us=10, settle_us=9)
        assert passes(trace, 10, 9) == wanted, f"seed {seed}"
        for name, count in wanted.items():
            seen[name] = seen.get(name, 0) + (count > 0)
    assert all(count > 20 for count in seen.values()), seen  # nothing was tested in vain


@pytest.mark.seeded
@pytest.mark.usefixtures("small_cuts")
def test_consecutive_windows_count_everything_once() -> None:
    for seed in seed_range(some(600)):
        trace = random_trace(seed)
        if not trace.deliveries:
            continue
        wanted = oracle(trace, deadline_us=10, settle_us=9)
        first, then = sorted(Random(seed).random() for _ in range(2))
        shares = [passes(trace, 10, 9, ends) for ends in ((0, first), (first, then), (then, 1))]
        for name, count in wanted.items():
            if name in ("total-order", "global-order"):  # are judged over all rows read
                assert all(share[name] == count for share in shares)
            else:
                assert sum(share[name] for share in shares) == count, f"seed {seed}, {name}"


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize(
    "first", [20_000, 30_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (10_000, 40_000))]
)
def test_the_audit_on_spark_counts_what_the_oracle_counts(
    judge: Callable[..., Report], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "COLLECTED_MAX", first % 20_000)  # 0: Spark adds them up
    monkeypatch.setattr(plan, "ROWS_PER_PARTITION", 120)  # each is a process' work
    traces = [random_trace(seed, f"{seed}-") for seed in range(first, first + 25)]
    wanted: dict[str, int] = {}
    for trace in traces:
        for name, count in oracle(trace, 10, 9).items():
            wanted[name] = wanted.get(name, 0) + count
    # One topic name means one topic for all traces: give each trace its own.
    report = judge(
        [(e, f"{p[:6]}{t}", p, n, at) for trace in traces for e, t, p, n, at in trace.publications],
        [row for trace in traces for row in trace.deliveries],
        [(w, f"{w[:6]}{t}", a, b) for trace in traces for w, t, a, b in trace.subscriptions],
        deadline_us=10,
        settle_us=9,
    )
    found = {name: check.violations for name, check in report.checks.items()}
    more = report.checks["losses"].more
    lacking = sum(len(missing(trace)) for trace in traces)
    assert {**found, **more} == {**wanted, "gaps": lacking, "stalls": None}
