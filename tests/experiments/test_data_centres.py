"""The experiments of chapter 4, very short: every setting runs, every claim is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from unisono.experiments import data_centres
from unisono.experiments.registry import MET, NOT_MET, UNKNOWN, Table, find

MEASURED_BY_ALL = ("fig-4.3", "fig-4.4", "fig-4.5", "fig-4.6", "fig-4.future")


def tiny(experiment_id: str, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Table:
    """One short run per setting, in the shape of a sweep's summary."""
    monkeypatch.setattr(data_centres, "_QUICK_S", seconds)
    experiment = find(experiment_id)
    table = {}
    for setting in experiment.settings:
        result = experiment.simulate(setting, 1, True)
        figures = ("mean", "min", "max")
        table[setting] = {f"{m}_{f}": result[m] for m in experiment.measures for f in figures}
    return table


@pytest.mark.parametrize("experiment_id", MEASURED_BY_ALL)
def test_every_setting_runs_and_every_claim_is_judged(
    experiment_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    experiment = find(experiment_id)
    table = tiny(experiment_id, monkeypatch, 0.5)
    found = experiment.claims(table)
    assert {claim.verdict for claim in found} <= {MET, NOT_MET, UNKNOWN}
    ours = [c for c in found if c.claim.startswith("ours") and "linear" not in c.claim]
    assert all(claim.verdict == MET for claim in ours)
    experiment.plot(table, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_a_claim_of_ours_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {s: dict(row) for s, row in tiny("fig-4.6", monkeypatch, 0.2).items()}
    table["exact@100"]["rollbacks_max"] = 0.01
    verdicts = {c.claim: c.verdict for c in find("fig-4.6").claims(table)}
    assert verdicts["ours: with exact stamps a sufficient buffer removes every rollback"] == NOT_MET
