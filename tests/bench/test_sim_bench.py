"""`unisono bench sim`: all queues do the same work, and targets can be missed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.bench import hops, sim

SPEEDS = {"columnar": [50.0, 60.0, 10.0], "objects": [2.0, 3.0, 2.5], "simpy": [2.0, 2.0, 2.5]}
SCENARIO = {"process_s": 20.0, "peak_gib": 1.0, "run_s": 19.0, "events": 5}


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 50), st.integers(0, 500))
def test_all_queues_do_the_same_hops(tokens: int, more: int) -> None:
    delay_us = hops.delays()[:37]
    sums = {work(delay_us, tokens, tokens + more) for work in sim.WORK.values()}
    assert len(sums) == 1


def test_figures_are_medians_and_ratios() -> None:
    found = sim.summarise(SPEEDS, [SCENARIO, {**SCENARIO, "process_s": 30.0}])
    assert found["columnar_over_simpy"] == 25.0 and found["objects_over_simpy"] == 1.25
    assert found["fig_3_18"]["process_s"] == 25.0
    assert found["met"]


@pytest.mark.parametrize(
    ("speeds", "scenario"),
    [
        ({**SPEEDS, "columnar": [39.0]}, SCENARIO),
        ({**SPEEDS, "objects": [1.9]}, SCENARIO),
        (SPEEDS, {**SCENARIO, "process_s": 61.0}),
        (SPEEDS, {**SCENARIO, "peak_gib": 4.1}),
    ],
)
def test_each_target_can_be_missed(
    speeds: dict[str, list[float]], scenario: dict[str, Any]
) -> None:
    assert not sim.summarise(speeds, [scenario])["met"]


def test_the_command_tells_speeds_and_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "_scenario", lambda: SCENARIO)
    monkeypatch.setattr(hops, "TOKENS", 100)
    remarks: list[str] = []
    found = sim.run(1, remarks.append, dict.fromkeys(sim.WORK, 2000))
    assert found["machine"]["cores"] >= 1
    assert set(found["sim"]["hops_per_s"]) == set(sim.WORK)
    assert remarks
