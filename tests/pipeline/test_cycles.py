"""One order for all: the merge, the online check and the audit against a plain reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.global_order import check_witness, reference
from support.seeds import some

from unisono.core.events import Delivery, Status
from unisono.pipeline import cycles, plan
from unisono.pipeline.report import Report, sentence
from unisono.sim.global_order import GlobalOrderCheck

Judge = Callable[..., Report]

# Few events per subscriber: cycles of three and more that no two subscribers show.
SPARSE = st.lists(
    st.lists(st.integers(0, 7), unique=True, min_size=1, max_size=3), min_size=1, max_size=8
)
DENSE = st.lists(st.lists(st.integers(0, 7), unique=True, max_size=8), min_size=1, max_size=6)
HEARD = st.one_of(SPARSE, DENSE)

ROUND = {"ann": ["a", "b"], "bob": ["b", "c"], "eve": ["c", "a"]}


def named(heard: Sequence[Sequence[int]]) -> dict[str, list[str]]:
    return {f"s{who}": [f"e{event}" for event in mine] for who, mine in enumerate(heard)}


def merge(heard: Sequence[Sequence[int]], order: Sequence[int], held_max: int = 99) -> cycles.Merge:
    """Feed the sequences in pieces, cut and interleaved by `order` (numbers of subscribers)."""
    events = 1 + max((event for mine in heard for event in mine), default=-1)
    holders = np.bincount([event for mine in heard for event in mine], minlength=events)
    task = cycles.Merge(len(heard), events, held_max)
    task.expect(holders[: events // 2].astype(np.int32))
    task.expect(holders[events // 2 :].astype(np.int32))
    rest = [list(mine) for mine in heard]
    for who in [*order, *range(len(heard))]:
        size = len(rest[who]) if who not in order else 1
        piece, rest[who] = rest[who][:size], rest[who][size:]
        task.take(np.array([(who, event) for event in piece], plan.STEP))
        if task.full:
            return task
    for who, left in enumerate(rest):
        task.take(np.array([(who, event) for event in left], plan.STEP))
    return task


@settings(max_examples=some(1000), deadline=None)
@given(HEARD, st.lists(st.integers(0, 99), max_size=20), st.integers(1, 9))
def test_the_merge_finds_the_knots_and_a_shortest_cycle(
    heard: list[list[int]], order: list[int], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cycles, "ROWS_AT_ONCE", at_once)
        found = merge(heard, [who % len(heard) for who in order]).finish(search=True)
    knots, steps = reference(named(heard))
    assert (found.knots, found.complete) == (knots, True)
    assert (len(found.cycle) or None) == steps
    for (who, a, b), (_, following, _) in zip(
        found.cycle, [*found.cycle[1:], *found.cycle[:1]], strict=True
    ):
        assert heard[who].index(a) < heard[who].index(b) and b == following


@settings(max_examples=some(500), deadline=None)
@given(HEARD)
def test_the_online_check_finds_the_same(heard: list[list[int]]) -> None:
    online = check_online(named(heard))
    knots, steps = reference(named(heard))
    assert online.violations == knots
    assert (online.witness is None) == (steps is None)
    if online.witness is not None:
        assert len(online.witness["cycle"]) == steps
        places = {(w, at): e for w, mine in named(heard).items() for at, e in enumerate(mine)}
        check_witness(online.witness, places)


def check_online(heard: dict[str, list[str]], **statuses: Status) -> GlobalOrderCheck:
    """`statuses`: of deliveries, as subscriber_position."""
    check = GlobalOrderCheck()
    for who, events in heard.items():
        for at, event in enumerate(events):
            status = statuses.get(f"{who}_{at}", Status.IN_ORDER)
            check.delivered(who, Delivery("t", b"", status, event, "p", at, 0, 0))
    check.finish()
    return check


def deliveries(heard: dict[str, list[str]], status: str = "in_order") -> list[Any]:
    return [
        (who, at, event, 1000 + at, status) for who, mine in heard.items()
        for at, event in enumerate(mine)
    ]  # fmt: skip


def publications(heard: dict[str, list[str]]) -> list[Any]:
    events = sorted({event for mine in heard.values() for event in mine})
    return [(event, "x", "p", at, at) for at, event in enumerate(events)]


def test_a_cycle_of_three_that_pairwise_agreement_misses(judge: Judge) -> None:
    report = judge(publications(ROUND), deliveries(ROUND), promises=["total-order", "global-order"])
    assert report.checks["total-order"].verdict == "valid"
    check = report.checks["global-order"]
    assert (report.verdict, check.violations) == ("invalid", 1)
    assert check.witness == {
        "events": ["a", "b", "c"],
        "cycle": [
            {"subscriber": "ann", "events": ["a", "b"], "positions": [0, 1]},
            {"subscriber": "bob", "events": ["b", "c"], "positions": [0, 1]},
            {"subscriber": "eve", "events": ["c", "a"], "positions": [0, 1]},
        ],
    }
    assert sentence("global-order", check.witness) == (
        "ann heard a before b (positions 0, 1), bob heard b before c (positions 0, 1), "
        "eve heard c before a (positions 0, 1)"
    )
    assert check_online(ROUND).witness == check.witness


@pytest.mark.parametrize(
    ("statuses", "audited"),
    [(("in_order", "late", None), 3), (("out_of_order", "duplicate", "gap_skipped"), 0)],
)
def test_statuses_count_as_for_total_order(
    judge: Judge, statuses: tuple[str | None, ...], audited: int
) -> None:
    """A circle for each."""
    heard: dict[str, list[str]] = {}
    rows = []
    for at, status in enumerate(statuses):
        mine = {f"{who}{at}": [f"{event}{at}" for event in two] for who, two in ROUND.items()}
        heard |= mine
        for row in deliveries(mine):
            rows.append((*row[:4], status) if row[:2] == (f"eve{at}", 1) else row)
        found = check_online(ROUND, eve_1=Status(status or "in_order")).violations
        assert found == (audited > 0 or status == "gap_skipped")
    assert judge(publications(heard), rows).checks["global-order"].violations == audited


def test_of_an_event_delivered_twice_the_first_counts(judge: Judge) -> None:
    again = {"ann": ["a", "b", "a"], "bob": ["b", "c"], "eve": ["a", "c", "a"]}
    report = judge(publications(again), deliveries(again))
    assert report.checks["duplicates"].violations == 2
    assert report.checks["global-order"].violations == check_online(again).violations == 0


def test_a_disagreement_of_two_is_a_cycle_of_two(judge: Judge) -> None:
    heard = {"ann": ["a", "b", "c"], "bob": ["c", "b"]}
    report = judge(publications(heard), deliveries(heard))
    check = report.checks["global-order"]
    assert check.violations == 1 and check.witness is not None
    assert report.checks["total-order"].witness is not None
    assert check.witness["events"] == report.checks["total-order"].witness["events"]
    check_witness(check.witness, {row[:2]: row[2] for row in deliveries(heard)})


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
def test_audit_online_check_and_reference_agree(judge: Judge, seed: int) -> None:
    """Many groups of events in one trace: what there is in each adds up."""
    rng = Random(seed)
    heard: dict[str, list[str]] = {}
    knots, lengths = 0, []
    for group in range(40):
        part = {
            f"{group}-s{who}": [f"{group}-e{e}" for e in rng.sample(range(6), rng.randint(1, 3))]
            for who in range(rng.randint(1, 6))
        }
        count, steps = reference(part)
        knots += count
        lengths += [steps] if steps else []
        heard |= part
    rows = deliveries(heard)
    rng.shuffle(rows)
    check = judge(publications(heard), rows).checks["global-order"]
    online = check_online(heard)
    assert check.violations == online.violations == knots > 0
    assert check.witness is not None and online.witness is not None
    assert len(check.witness["cycle"]) == len(online.witness["cycle"]) == min(lengths)
    places = {row[:2]: row[2] for row in rows}
    check_witness(check.witness, places)
    check_witness(online.witness, places)


def test_topics_without_order_are_not_judged(judge: Judge, write: Any, spark: Any) -> None:
    import json

    from unisono.pipeline.audit import audit
    from unisono.pipeline.read import open_trace

    run = write({"publications": publications(ROUND), "deliveries": deliveries(ROUND)})
    folder = run.parent / "run"
    folder.mkdir()
    run.rename(folder / "trace")
    about = {"promises": ["global-order"], "order": {"x": "none"}}
    (folder / "run.json").write_text(json.dumps(about))
    assert audit(spark, open_trace(spark, folder)).verdict == "valid"
    (folder / "run.json").write_text(json.dumps(about | {"order": {"x": "total"}}))
    assert audit(spark, open_trace(spark, folder)).verdict == "invalid"


def test_too_many_events_are_unknown_and_not_valid(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycles, "EVENTS_MAX", 2)
    report = judge(publications(ROUND), deliveries(ROUND), promises=["global-order"])
    check = report.checks["global-order"]
    assert (report.verdict, check.verdict, check.violations) == ("unknown", "unknown", None)
    assert check.remark is not None and check.remark.startswith("too large: 3 events")
    # Without an inversion one order is known, however many events there are.
    fine = {"ann": ["a", "b"], "bob": ["b", "c"]}
    assert judge(publications(fine), deliveries(fine)).checks["global-order"].verdict == "valid"


def test_too_many_that_wait_are_unknown_unless_a_cycle_is_among_them(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cycles, "ROWS_AT_ONCE", 1)
        waits = merge([[0, 1, 2, 3], [0]], [0, 0, 0, 0], held_max=2).finish(search=True)
        tied = merge([[1, 2, 3], [2, 1], [4, 3]], [0, 0, 1, 1, 0], held_max=4).finish(search=True)
    assert waits == cycles.CycleSummary(0, False, [])
    assert (tied.knots, tied.complete, len(tied.cycle)) == (1, False, 2)
    monkeypatch.setattr(cycles, "find_cycles", lambda *_: waits)
    check = judge(publications(ROUND), deliveries(ROUND)).checks["global-order"]
    assert check.verdict == "unknown" and "too large" in (check.remark or "")
    two = {"ann": ["a", "b", "c"], "bob": ["c", "b"]}
    monkeypatch.setattr(cycles, "find_cycles", lambda *_: tied)
    check = judge(publications(two), deliveries(two)).checks["global-order"]
    assert (check.verdict, check.more) == ("invalid", {"at_least": True})


def test_one_cycle_hidden_in_many_deliveries() -> None:
    """A long valid order with one circle through three subscribers near its end."""
    events, subscribers = 60_000, 12
    rng = Random(1)
    heard = [[e for e in range(events) if rng.random() < 0.3] for _ in range(subscribers)]
    late = {events - 9, events - 8, events - 7}
    heard = [[e for e in mine if e not in late] for mine in heard]
    a, b, c = sorted(late)
    for who, (first, then) in zip((2, 5, 7), ((a, b), (b, c), (c, a)), strict=True):
        at = sum(e < a for e in heard[who])
        heard[who][at:at] = [first, then]
    holders = np.bincount(np.concatenate(heard), minlength=events).astype(np.int32)
    found = []
    for search in (False, True):
        task = cycles.Merge(subscribers, events, 10**6)
        task.expect(holders)
        for low in range(0, events, 1000):
            for who, mine in enumerate(heard):
                part = mine[low * len(mine) // events : (low + 1000) * len(mine) // events]
                task.take(np.array([(who, e) for e in part], plan.STEP))
        found.append(task.finish(search))
    assert found[0] == cycles.CycleSummary(1, True, [])
    assert found[1].knots == 1
    assert {(who, x, y) for who, x, y in found[1].cycle} == {(2, a, b), (5, b, c), (7, c, a)}


@pytest.mark.parametrize("size", [0, 1, 7])
def test_events_are_numbered_without_gaps(size: int) -> None:
    numbers = plan.EventNumbers.of({2: 3, 0: size})
    assert numbers.count == size + 3
    events = [(0 << 32) + at for at in range(size)] + [(2 << 32) + at for at in range(3)]
    assert list(numbers.number(np.array(events, np.int64))) == list(range(size + 3))
    assert [numbers.event(number) for number in range(size + 3)] == events
