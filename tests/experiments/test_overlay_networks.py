"""The experiments of paper 004: settings run and repeat; every claim can hold and can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from unisono.experiments import paper_004
from unisono.experiments.registry import MET, NOT_MET, Experiment, registry

TEN, ELEVEN = paper_004.EXPERIMENTS
Figures = dict[str, dict[str, float]]


def as_printed(settings: tuple[str, ...]) -> Figures:
    """What the paper says, in figures."""
    table: Figures = {}
    for setting in settings:
        protocol, faults, *numbers = setting.split("/")
        nodes, upstreams, clusters = (int(number[1:]) for number in numbers)
        plain = protocol == "scribe"
        found = {
            "success": 0.9 - nodes / 1000 if plain else 1.0,
            "incomplete": 0.3 if plain else 0.0,
            "latency_ms": 60 + nodes / 10 + 2 * clusters,
            "median_ms": 60 + nodes / 100 + 2 * clusters,
            "jitter_ms": 10 + nodes / 10 if plain else 30 + nodes / 100,
            "late": 0.0,
            "messages": 300.0,
            "copies": 100.0,
        }
        if protocol == "paper" and faults == "links" and upstreams == 1:
            found |= {"success": 0.99, "incomplete": 0.05}
        table[setting] = {f"{m}_{f}": v for m, v in found.items() for f in ("mean", "min", "max")}
    return table


@pytest.mark.parametrize("experiment", paper_004.EXPERIMENTS, ids=lambda one: one.id)
def test_what_the_paper_says_meets_every_claim(experiment: Experiment, tmp_path: Path) -> None:
    assert registry()[experiment.id] is experiment
    table = as_printed(experiment.settings)
    assert {claim.verdict for claim in experiment.claims(table)} == {MET}
    experiment.plot(table, tmp_path / "plot.svg")
    for name in ("plot", "plot-latency", "plot-jitter"):
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("setting", "figure", "value", "claims"),
    [
        ("ours/links/n50/u1/c8", "success_min", 0.94, 1),
        ("ours/links/n100/u2/c8", "success_min", 0.999999, 1),
        ("paper/links/n20/u2/c8", "success_min", 0.999, 1),
        ("paper/links/n20/u1/c8", "incomplete_mean", 0.9, 1),
        ("scribe/links/n200/u1/c8", "success_mean", 0.995, 2),
        ("ours/links/n200/u1/c8", "success_mean", 0.98, 1),
        ("ours/links/n200/u1/c8", "median_ms_mean", 200.0, 2),
        ("ours/links/n50/u1/c4", "median_ms_mean", 200.0, 1),
        ("ours/links/n200/u1/c8", "jitter_ms_mean", 500.0, 1),
        ("scribe/links/n20/u1/c8", "jitter_ms_mean", 100.0, 3),
    ],
)
def test_a_claim_on_link_crashes_can_fail(
    setting: str, figure: str, value: float, claims: int
) -> None:
    table = as_printed(TEN.settings)
    table[setting][figure] = value
    assert [claim.verdict for claim in TEN.claims(table)].count(NOT_MET) == claims


@pytest.mark.parametrize(
    ("setting", "figure", "value"),
    [
        ("ours/processes/n50/u1/c8", "success_min", 0.999999),
        ("paper/processes/n50/u1/c8", "success_min", 0.999999),
        ("ours/processes/n20/u1/c8", "latency_ms_mean", 900.0),
    ],
)
def test_a_claim_on_process_crashes_can_fail(setting: str, figure: str, value: float) -> None:
    table = as_printed(ELEVEN.settings)
    table[setting][figure] = value
    assert [claim.verdict for claim in ELEVEN.claims(table)].count(NOT_MET) == 1


@pytest.mark.parametrize("protocol", ["ours", "paper", "scribe"])
def test_a_setting_runs_and_repeats(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_004, "QUICK_S", 60)
    setting = paper_004.setting_of(protocol, 20)
    assert setting in TEN.settings
    first = paper_004.simulate(setting, 1, True)
    assert first.keys() == set(paper_004.MEASURES)
    assert first == paper_004.simulate(setting, 1, True)
    assert first["success"] > 0.5 and 10 < first["median_ms"] < 300


def test_latency_follows_the_clusters_and_not_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without crashes, so that a short run tells it."""
    monkeypatch.setattr(paper_004, "QUICK_S", 20)

    def latency(nodes: int, clusters: int) -> float:
        setting = paper_004.setting_of("ours", nodes, "none", clusters=clusters)
        return sum(paper_004.simulate(setting, seed, True)["median_ms"] for seed in range(3)) / 3

    few, many, spread = latency(25, 4), latency(75, 4), latency(25, 16)
    assert abs(many / few - 1) < 0.25
    assert spread > 1.5 * few
