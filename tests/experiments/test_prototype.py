"""The experiments on the prototype, very short: every setting runs, every claim is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from unisono.experiments import prototype
from unisono.experiments.prototype import MODELS, TOPICS, Setting, measure, shares
from unisono.experiments.registry import MET, NOT_MET, UNKNOWN, find


@pytest.mark.parametrize("experiment_id", ["fig-3.22", "fig-3.23", "fig-3.24"])
def test_every_setting_runs_and_every_claim_is_judged(
    experiment_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prototype, "_QUICK_S", 2.0)
    experiment = find(experiment_id)
    table = {}
    for setting in experiment.settings:
        result = experiment.simulate(setting, 1, True)
        table[setting] = {
            f"{m}_{f}": result[m] for m in experiment.measures for f in ("mean", "sd")
        }
    assert {claim.verdict for claim in experiment.claims(table)} <= {MET, NOT_MET, UNKNOWN}
    experiment.plot(table, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


@pytest.mark.parametrize("model", MODELS)
def test_publication_models_are_distributions(model: str) -> None:
    assert len(shares(model)) == len(TOPICS)
    assert sum(shares(model)) == pytest.approx(1)


def test_the_power_law_gives_the_first_topic_four_fifths() -> None:
    assert shares("power-law")[0] == pytest.approx(0.8)
    assert list(shares("power-law")) == sorted(shares("power-law"), reverse=True)
    assert shares("worst")[-1] == 1


def test_copies_to_every_member_fill_the_uplink_of_the_sequencer() -> None:
    slow = measure(Setting(protocol="sequencer", rate_per_s=100, duration_s=3), 1, False)
    fine = measure(Setting(protocol="sequencer", rate_per_s=10, duration_s=3), 1, False)
    assert slow["uplink"] > 1 > fine["uplink"]
    assert slow["latency_ms"] > 2 * fine["latency_ms"]
    assert slow["messages"] == fine["messages"] == 11
