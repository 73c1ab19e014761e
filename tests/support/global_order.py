"""What one order over all subscribers means, in the plainest way: every pair of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from unisono.core.events import Delivery, Status
from unisono.sim.global_order import GlobalOrderCheck
from unisono.sim.run import Outcome


def heard_before(sequences: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Pairs of events that somebody heard in this order; of a repeated event the first counts."""
    return {
        (first, then)
        for heard in (list(dict.fromkeys(events)) for events in sequences.values())
        for at, first in enumerate(heard)
        for then in heard[at + 1 :]
    }


def reference(sequences: Mapping[str, Sequence[str]]) -> tuple[int, int | None]:
    """How many knots there are, and how many steps the shortest cycle has."""
    before = heard_before(sequences)
    events = {event for events in sequences.values() for event in events}
    steps: dict[tuple[str, str], int] = dict.fromkeys(before, 1)
    for middle, first, then in product(events, repeat=3):  # Floyd and Warshall
        if (first, middle) in steps and (middle, then) in steps:
            way = steps[first, middle] + steps[middle, then]
            steps[first, then] = min(way, steps.get((first, then), way))
    knots = {
        frozenset(b for b in events if (a, b) in steps and (b, a) in steps)
        for a in events
        if (a, a) in steps
    }
    return len(knots), min((steps[event, event] for event in events if (event, event) in steps),
                           default=None)  # fmt: skip


def one_order(outcome: Outcome, gaps: bool = True) -> GlobalOrderCheck:
    """The online check over a finished run; without `gaps` as the audit judges it."""
    check = GlobalOrderCheck()
    for row in outcome.recorder.tables["deliveries"]:
        status = Status(row["status"])
        if gaps or status is not Status.GAP_SKIPPED:
            at = row["position"]
            delivery = Delivery("", b"", status, row["event_id"], "", at, 0, 0)
            check.delivered(row["subscriber"], delivery)
    check.finish()
    return check


def check_witness(witness: dict[str, Any], heard: Mapping[tuple[str, int], str]) -> None:
    """A cycle that is one, and happened; `heard` is the event by subscriber and position."""
    cycle = witness["cycle"]
    assert [step["events"][0] for step in cycle] == witness["events"]
    assert len(set(witness["events"])) == len(cycle) >= 2
    for step, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        assert step["events"][1] == following["events"][0]
        first, then = step["positions"]
        assert first < then
        assert [heard[step["subscriber"], at] for at in (first, then)] == step["events"]
