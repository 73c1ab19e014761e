"""The experiments on coding and gossip, very short: every setting runs, every claim is judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unisono.experiments import chapter_5, chapter_5_model, lossy_group, paper_003, paper_003_model
from unisono.experiments.registry import MET, NOT_MET, Experiment, Table, registry

ALL = (
    *chapter_5.EXPERIMENTS,
    *chapter_5_model.EXPERIMENTS,
    *paper_003.EXPERIMENTS,
    *paper_003_model.EXPERIMENTS,
)
SIMULATED: dict[object, dict[str, float]] = {}


def tiny(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> Table:
    """One short run per setting, in the shape of a sweep's summary; figures share runs."""
    monkeypatch.setattr(lossy_group, "QUICK_EVENTS", 10)
    monkeypatch.setattr(lossy_group, "CHANGE_EVENT", 10)
    table = {}
    for setting in experiment.settings:
        key = (experiment.simulate, setting)
        if key not in SIMULATED:
            SIMULATED[key] = dict(experiment.simulate(setting, 1, True))
        result = SIMULATED[key]
        figures = ("mean", "min", "max")
        table[setting] = {f"{m}_{f}": result[m] for m in experiment.measures for f in figures}
    return table


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.id)
def test_every_setting_runs_and_every_claim_is_judged(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert registry()[experiment.id] is experiment
    table = tiny(experiment, monkeypatch)
    found = experiment.claims(table)
    assert found and {claim.verdict for claim in found} <= {MET, NOT_MET}
    assert all(claim.measured and claim.paper for claim in found)
    experiment.plot(table, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_runs_of_lost_events_are_counted_per_subscriber() -> None:
    came = np.array([[1, 0], [0, 0], [0, 1], [1, 0]], np.bool_)
    assert sorted(lossy_group.consecutive(came)) == [1, 2, 2]
    assert lossy_group.consecutive(np.ones((3, 2), np.bool_)) == []


def test_a_claim_that_does_not_hold_is_said_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Push that is worse than the others is not called the best."""
    experiment = registry()["fig-5.11"]
    table = {
        setting: {"success_mean": 0.5 if setting.startswith("push f") else 0.9}
        for setting in experiment.settings
    }
    assert [claim.verdict for claim in experiment.claims(table)] == [NOT_MET]
