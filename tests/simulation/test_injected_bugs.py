"""A checker that cannot fail is a defect: every injected bug must be caught by the checks named."""

from __future__ import annotations

import pytest
from support.bugs import BUGS
from support.seeds import some

from unisono.sim import run
from unisono.sim.run import Outcome, run_scenario

_SEEDS = 60


def caught(outcome: Outcome) -> set[str]:
    broken = {failure.check for failure in outcome.failures}
    return broken | ({"tagged"} if outcome.tagged else set())


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    monkeypatch.setattr(run, "_PATIENCE_US", 20_000_000)  # most leave something waiting
    bug.inject(monkeypatch)
    seen: set[str] = set()
    for seed in range(bug.first, bug.first + _SEEDS):
        try:
            seen |= caught(run_scenario(bug.scenario, seed))
        except AssertionError:
            seen.add("stuck")  # an invariant of the protocol stopped the run
        if seen & bug.caught_by:
            return
    raise AssertionError(f"not caught in {_SEEDS} seeds; seen: {seen}")


@pytest.mark.parametrize("name", BUGS)
def test_without_the_bug_the_same_scenario_is_clean(name: str) -> None:
    bug = BUGS[name]
    for seed in range(some(3)):
        seen = caught(run_scenario(bug.scenario, seed))
        bounded = bug.scenario.buffer != "unbounded" or bug.scenario.order == "fifo"
        if bounded or bug.scenario.loses_events:
            seen -= {"tagged"}
        assert seen == set()
