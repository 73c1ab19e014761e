"""Which stamps keep one order for all, seen by the online check in simulated runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.global_order import one_order
from support.seeds import seed_range

from unisono.sim.run import run_scenario
from unisono.sim.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.mark.seeded
def test_exact_stamps_keep_one_order_for_all() -> None:
    for name in ("partial-subscriptions", "changing-subscriptions", "everything-at-once"):
        scenario = load_scenario(SCENARIOS / f"{name}.toml")
        for seed in seed_range(5):
            assert one_order(run_scenario(scenario, seed)).witness is None, f"{name} seed {seed}"


def test_printed_stamps_keep_every_two_subscribers_together_but_not_all() -> None:
    scenario = load_scenario(SCENARIOS / "partial-subscriptions-paper.toml")
    cycles = []
    for seed in range(15):
        outcome = run_scenario(scenario, seed)
        assert outcome.checks["total-order"].violations == 0
        witness = one_order(outcome).witness
        cycles += [] if witness is None else [witness["cycle"]]
    assert cycles and all(len(cycle) >= 3 for cycle in cycles)
