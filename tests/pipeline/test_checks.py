"""Each check passes on a good trace and fails on a bad one, with exactly the right witness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unisono.pipeline.report import CHECKS, Report

Judge = Callable[..., Report]

# event, topic, publisher, publisher_seq, published_us
PUBLISHED = [
    ("e1", "x", "p", 1, 1000),
    ("e2", "y", "p", 2, 2000),
    ("e3", "x", "q", 1, 3000),
    ("e4", "y", "q", 2, 4000),
]
GOOD = [
    (who, at, f"e{at}", 1000 * at + late)
    for who, late in (("ann", 500), ("bob", 900))
    for at in range(1, 5)
]
SUBSCRIBED = [(who, topic, 0, None) for who in ("ann", "bob") for topic in "xy"]


def swapped(rows: list[Any], who: str, first: int, second: int) -> list[Any]:
    """The same deliveries, but `who` hears the events at two positions the other way round."""
    at = {(row[0], row[1]): row[2] for row in rows}
    swap = {(who, first): at[who, second], (who, second): at[who, first]}
    return [(row[0], row[1], swap.get((row[0], row[1]), row[2]), *row[3:]) for row in rows]


def broken(report: Report) -> dict[str, int | None]:
    return {name: c.violations for name, c in report.checks.items() if c.verdict == "invalid"}


def test_a_good_trace_is_valid_in_every_check(judge: Judge) -> None:
    report = judge(PUBLISHED, GOOD, SUBSCRIBED, deadline_us=900, stall_us=999)
    assert report.verdict == "valid"
    assert {name: check.verdict for name, check in report.checks.items()} == dict.fromkeys(
        CHECKS, "valid"
    )
    assert all(c.violations == 0 and c.witness is None for c in report.checks.values())
    assert report.rows == {"publications": 4, "deliveries": 8, "subscriptions": 4}
    assert report.latency == {"mean": 0.7, "p50": 0.5, "p95": 0.9, "p99": 0.9, "max": 0.9}
    assert report.statuses["in_order"] == 8 and report.tagged == 0


def test_two_subscribers_that_hear_two_events_in_opposite_order(judge: Judge) -> None:
    report = judge(PUBLISHED, swapped(GOOD, "bob", 2, 3), SUBSCRIBED)
    assert broken(report) == {"total-order": 1, "global-order": 1}
    assert report.checks["total-order"].witness == {
        "subscribers": ["ann", "bob"],
        "events": ["e2", "e3"],
        "positions": {"ann": [2, 3], "bob": [3, 2]},
    }
    assert report.verdict == "invalid"


def test_the_witness_is_the_closest_disagreement_and_pairs_are_counted(judge: Judge) -> None:
    rows = GOOD + [("eve", at, f"e{at}", 1000 * at + 700) for at in range(1, 5)]
    report = judge(PUBLISHED, swapped(swapped(rows, "ann", 1, 4), "bob", 3, 4))
    # ann disagrees with both others, bob with eve on e3 and e4 only: three pairs.
    assert report.checks["total-order"].violations == 3
    assert report.checks["total-order"].witness == {
        "subscribers": ["ann", "bob"],
        "events": ["e4", "e2"],
        "positions": {"ann": [1, 2], "bob": [3, 2]},
    }


def test_a_cycle_of_three_subscribers_is_no_disagreement_of_two(judge: Judge) -> None:
    heard = {"ann": ("e1", "e2"), "bob": ("e2", "e3"), "eve": ("e3", "e1")}
    rows = [
        (who, at, event, 9000 + at) for who, two in heard.items() for at, event in enumerate(two)
    ]
    report = judge(PUBLISHED, rows, promises=["total-order"])
    assert broken(report) == {"global-order": 1}
    assert report.verdict == "valid"  # only the pairwise check was promised


@pytest.mark.parametrize(
    ("statuses", "violations", "tagged"),
    [(("in_order", "late", None), 3, 0), (("out_of_order", "gap_skipped"), 0, 1 / 16)],
)
def test_order_is_judged_over_deliveries_that_claim_order(
    judge: Judge, statuses: tuple[str | None, ...], violations: int, tagged: float
) -> None:
    """For each status two subscribers and events of their own."""
    published, rows = [], []
    for at, status in enumerate(statuses):
        published += [(f"{event}-{at}", *rest) for event, *rest in PUBLISHED]
        rows += [
            (f"{who}-{at}", position, f"{event}-{at}", at_us,
             status if (who, position) == ("bob", 3) else "in_order")
            for who, position, event, at_us in swapped(GOOD, "bob", 2, 3)
        ]  # fmt: skip
    report = judge(published, rows)
    assert report.checks["total-order"].violations == violations
    assert report.tagged == tagged


def test_of_an_event_delivered_twice_the_first_is_judged(judge: Judge) -> None:
    rows = [*GOOD, ("bob", 9, "e1", 9000)]
    report = judge(PUBLISHED, rows)
    assert broken(report) == {"duplicates": 1}
    assert report.checks["duplicates"].witness == {
        "subscriber": "bob",
        "event": "e1",
        "positions": [1, 9],
    }


def test_a_suppressed_duplicate_is_none(judge: Judge) -> None:
    rows = [(*row, None) for row in GOOD] + [("bob", 9, "e1", 9000, "duplicate")]
    report = judge(PUBLISHED, rows, SUBSCRIBED, deadline_us=900)
    assert broken(report) == {}
    assert report.statuses["duplicate"] == 1


def test_fifo_across_topics_and_within_a_topic(judge: Judge) -> None:
    both = [swapped(swapped(GOOD, "ann", 1, 2), "bob", 1, 2), swapped(GOOD, "ann", 1, 2)]
    report = judge(PUBLISHED, both[0])
    assert broken(report) == {"fifo": 2, "causal-order": 2}  # e1 and e2 are of two topics
    assert report.checks["fifo"].witness == {
        "subscriber": "ann",
        "publisher": "p",
        "topic": "x",
        "events": ["e2", "e1"],
        "publisher_seqs": [2, 1],
        "positions": [1, 2],
    }
    one_topic = [(event, "x", *rest) for event, _, *rest in PUBLISHED]
    report = judge(one_topic, both[1], promises=["topic-fifo"])
    both_kinds = ("total-order", "global-order", "fifo", "topic-fifo", "causal-order")
    assert broken(report) == dict.fromkeys(both_kinds, 1)
    assert report.checks["topic-fifo"].witness == report.checks["fifo"].witness
    assert report.verdict == "invalid"


def test_an_event_nobody_published(judge: Judge) -> None:
    rows = [*GOOD, ("ann", 9, "ghost", 9000), ("ann", 8, "e0", 8000)]
    report = judge(PUBLISHED, rows, deadline_us=1)
    assert report.checks["phantoms"].violations == 2
    assert report.checks["phantoms"].witness == {"subscriber": "ann", "event": "e0", "position": 8}
    assert report.checks["deadline"].violations == 8  # what was not published cannot be late
    assert report.latency["max"] == 0.9


def test_losses_need_subscriptions(judge: Judge) -> None:
    report = judge(PUBLISHED, GOOD, promises=["losses"])
    assert report.verdict == "unknown"
    assert report.checks["losses"].violations is None
    report = judge(PUBLISHED, GOOD)
    assert report.verdict == "valid"  # what cannot be judged is not promised by itself
    assert not report.checks["losses"].promised


def test_an_event_that_a_subscriber_never_got(judge: Judge) -> None:
    rows = [row for row in GOOD if row[:2] not in (("bob", 2), ("ann", 3))]
    report = judge(PUBLISHED, rows, SUBSCRIBED)
    assert broken(report) == {"losses": 2}
    assert report.checks["losses"].witness == {
        "subscriber": "bob",
        "event": "e2",
        "published_us": 2000,
    }
    assert report.checks["losses"].more == {"expected": 8, "unsettled": 0}


def test_events_outside_the_subscription_are_not_expected(judge: Judge) -> None:
    intervals = [
        ("ann", "x", 0, None),
        ("ann", "x", 0, 5000),  # overlaps: still expected once
        ("ann", "y", 2001, 4000),  # e2 is before it, e4 at its end
        ("bob", "x", 1000, 3000),  # e1 at its beginning, e3 at its end
    ]
    report = judge(PUBLISHED, [], intervals)
    assert report.checks["losses"].violations == 3
    assert report.checks["losses"].more["expected"] == 3  # ann e1, ann e3, bob e1
    assert report.checks["losses"].witness == {
        "subscriber": "ann",
        "event": "e1",
        "published_us": 1000,
    }


def test_what_was_published_just_before_the_end_is_unsettled(judge: Judge) -> None:
    intervals = [("ann", "x", 0, 3400), ("bob", "x", 0, 3400), ("bob", "x", 2000, 9000)]
    report = judge(PUBLISHED, [("ann", 1, "e1", 1500)], intervals, settle_us=500)
    # ann's e3 came 400 us before the end; bob's other interval goes on.
    assert report.checks["losses"].violations == 2
    assert report.checks["losses"].more == {"expected": 4, "unsettled": 1}


def test_deadline(judge: Judge) -> None:
    rows = [(*row, "out_of_order" if row[:2] == ("bob", 4) else "in_order") for row in GOOD]
    report = judge(PUBLISHED, rows, deadline_us=899)
    assert broken(report) == {"deadline": 4}
    assert report.checks["deadline"].witness == {
        "subscriber": "bob",
        "event": "e1",
        "position": 1,
        "latency_us": 900,
    }
    unlimited = judge(PUBLISHED, rows, promises=["deadline"])
    assert unlimited.verdict == "unknown"


def test_a_broken_check_that_is_not_promised_does_not_decide(judge: Judge) -> None:
    report = judge(PUBLISHED, swapped(GOOD, "bob", 2, 3), promises=["duplicates", "fifo"])
    assert report.checks["total-order"].verdict == "invalid"
    assert not report.checks["total-order"].promised
    assert report.verdict == "valid"


def test_clocks_that_disagree_give_negative_latencies(judge: Judge) -> None:
    report = judge(PUBLISHED[:2], [("ann", 1, "e1", 400), ("ann", 2, "e2", 500)])
    assert report.latency["mean"] == -1.05
    assert report.latency["p50"] == -1.5
    assert report.latency["max"] == -0.6


def test_json_has_the_keys_that_others_script_against(judge: Judge) -> None:
    told = judge(PUBLISHED, GOOD).to_json()
    assert list(told)[:3] == ["verdict", "checks", "rows"]
    assert set(told["checks"]) == set(CHECKS)
    for check in told["checks"].values():
        assert {"verdict", "violations", "witness", "promised"} <= set(check)
