"""Gaps and stalls: what is missing between two events, and who was silent for how long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.seeds import some

from unisono.errors import BadInput
from unisono.pipeline import gaps, plan
from unisono.pipeline.report import Report, sentence
from unisono.pipeline.stalls import MARKED, NO_LATENCY, Stall, Stalls

Judge = Callable[..., Report]

PUBLISHED = [(f"e{at}", "xy"[at % 2], "p", at, 1000 * at) for at in range(10)]


def heard(who: str, *events: int) -> list[Any]:
    return [(who, at, f"e{event}", 1000 * event + 10) for at, event in enumerate(events)]


def test_only_what_lies_between_two_events_of_a_source_is_missing(judge: Judge) -> None:
    rows = heard("ann", *range(10)) + heard("bob", 1, 2, 5, 7) + heard("eve", 4, 3)
    report = judge(PUBLISHED, rows)
    check = report.checks["gaps"]
    # bob got 1, 5 and 7 of topic y; of x he got 2 only.
    assert (check.violations, check.promised, check.more) == (1, True, {"declared": 0})
    assert check.witness == {
        "subscriber": "bob", "publisher": "p", "topic": "y", "event": "e3", "publisher_seq": 3,
        "between": [1, 7],
    }  # fmt: skip
    assert sentence("gaps", check.witness) == (
        "bob got numbers 1 to 7 of p on y, but not e3 (number 3)"
    )
    assert report.verdict == "invalid"


def test_spark_adds_up_what_is_too_much_for_one(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = heard("ann", *range(10)) + heard("bob", 1, 2, 5, 7) + heard("eve", 0, 9, 8)
    few = judge(PUBLISHED, rows).checks["gaps"]
    monkeypatch.setattr(gaps, "COLLECTED_MAX", 0)
    monkeypatch.setattr(plan, "ROWS_PER_PARTITION", 5)
    monkeypatch.setattr(plan, "ROWS_PER_CELL", 4)
    assert judge(PUBLISHED, rows).checks["gaps"] == few
    assert few.violations == 4


def test_with_subscriptions_gaps_are_told_and_not_promised(judge: Judge) -> None:
    rows = [(*row, "gap_skipped" if row[1] == 2 else None) for row in heard("bob", 0, 2, 6)]
    report = judge(PUBLISHED, rows, [("bob", "x", 0, 2500), ("bob", "x", 5500, 6500)])
    check = report.checks["gaps"]
    assert (check.violations, check.promised, check.more) == (1, False, {"declared": 1})
    assert report.verdict == "valid"


def test_any_delivery_closes_a_gap_and_equal_numbers_count_each(judge: Judge) -> None:
    twins = [("a", "x", "p", 1, 0), ("b", "x", "p", 2, 0), ("c", "x", "p", 2, 0),
             ("d", "x", "p", 3, 0)]  # fmt: skip
    rows = [("ann", 0, "a", 1, None), ("ann", 1, "d", 2, None), ("ann", 2, "b", 3, "out_of_order"),
            ("ann", 3, "b", 4, "duplicate")]  # fmt: skip
    check = judge(twins, rows).checks["gaps"]
    assert check.violations == 1
    assert check.witness is not None and check.witness["event"] == "c"


def test_too_many_incomplete_pairs_are_unknown(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "PAIRS_MAX", 1)
    check = judge(PUBLISHED, heard("ann", 0, 1, 4), promises=["gaps"]).checks["gaps"]
    assert check.verdict == "unknown"
    assert check.remark is not None and check.remark.startswith("too large")


def test_a_stall_is_silence_while_something_was_on_its_way(judge: Judge) -> None:
    # ann: e1 is quick, e5 comes after a silence of 4 ms but is fresh, e2 is late and e6 as well.
    rows = [
        ("ann", 0, "e1", 1100, None), ("ann", 1, "e5", 5100, None), ("ann", 2, "e2", 7200, None),
        ("ann", 3, "e2", 9500, "duplicate"), ("ann", 4, "e6", 9600, None),
        ("bob", 0, "e0", 9900, None), ("bob", 1, "e1", 11_000, None),
    ]  # fmt: skip
    report = judge(PUBLISHED, rows, promises=["stalls"], stall_us=2000)
    check = report.checks["stalls"]
    assert (report.verdict, check.violations, check.more) == ("invalid", 2, {"stall_us": 2000})
    assert check.witness == {
        "subscriber": "ann", "event": "e6", "positions": [2, 4], "silence_us": 2400,
        "latency_us": 3600,
    }  # fmt: skip
    assert sentence("stalls", check.witness) == (
        "ann heard nothing for 2.4 ms between positions 2 and 4, where it got e6, "
        "published 3.6 ms before"
    )
    assert judge(PUBLISHED, rows, stall_us=2400).checks["stalls"].violations == 0


def test_without_a_time_nothing_is_a_stall(judge: Judge) -> None:
    report = judge(PUBLISHED, heard("ann", *range(10)), promises=["stalls"])
    assert report.verdict == "unknown"
    assert report.checks["stalls"].remark == "no stall time was given"
    with pytest.raises(BadInput, match="stall time"):
        judge(PUBLISHED, [], stall_us=-1)


LATENCIES = st.sampled_from((MARKED, NO_LATENCY, 0, 5, 11, 50))


@settings(max_examples=some(500), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 30), LATENCIES), max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_stalls_are_found_across_pieces(rows: list[tuple[int, int, int]], cuts: list[int]) -> None:
    rows.sort(key=lambda row: row[0])
    records = np.zeros(len(rows), plan.TIMED)
    latest: dict[int, tuple[int, int]] = {}
    wanted: list[Stall] = []
    for at, (who, at_us, latency_us) in enumerate(rows):
        records["subscriber"][at], records["position"][at] = who, at
        records["delivered_us"][at], records["latency_us"][at] = at_us, latency_us
        if latency_us == MARKED:
            continue
        before, since_us = latest.get(who, (at, at_us))
        if at_us - since_us > 10 and latency_us > 10:
            wanted.append(Stall(since_us - at_us, who, at, before, latency_us))
        latest[who] = at, max(at_us, since_us)
    looking = Stalls(10)
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for low, high in pairwise(ends):
        looking.take(records[low:high])
    assert looking.count == len(wanted)
    assert looking.longest == min(wanted, default=None)
