"""The thesis' large simulations (section 3.5.2) at small scale, and the rule of the adaptive order.

The full figures come from `unisono reproduce`; here each qualitative claim is one cheap run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unisono.experiments import large_scale as large
from unisono.experiments.registry import MET, NOT_MET, registry
from unisono.sim.columnar import engine, models
from unisono.sim.columnar.engine import Adaptive, Result
from unisono.sim.columnar.swaps import popularity

LARGE = [f"fig-3.{number}" for number in range(9, 21)]


def static(publish: str, **options: Any) -> Result:
    return large.columnar_run(
        nodes=200, topics=20, seed=1, duration_s=60, publish=publish, **options
    )


def dynamic(adaptive: Adaptive | None) -> Result:
    """From the most unfavourable order."""
    return large.columnar_run(
        nodes=100,
        topics=60,
        held=20,
        seed=2,
        duration_s=400,
        publish=large.POWER,
        subscribe=large.POWER,
        order="popular-last",
        adaptive=adaptive,
    )


def late(result: Result) -> float:
    return float(result.latency_us[-100:].mean())


def test_figure_3_9_latency_by_publication_model() -> None:
    worst, uniform, power = (static(m).latency_us.mean() for m in ("last", "uniform", large.POWER))
    assert worst > uniform > power


def test_figure_3_9_latency_grows_with_the_size() -> None:
    small, great = (
        large.columnar_run(nodes=nodes, topics=20, seed=1, duration_s=60, publish="last")
        for nodes in (10, 1000)
    )
    assert great.latency_us.mean() > 2 * small.latency_us.mean()


def test_figures_3_10_and_3_11_ordering_drives_the_worst_case_only() -> None:
    worst, power = static("last"), static(large.POWER)
    assert worst.ordering_us.mean() > 2 * worst.dissemination_us.mean()
    assert power.ordering_us.mean() < power.dissemination_us.mean()


def test_figure_3_13_stamps_are_small_where_popular_topics_come_first() -> None:
    best, worst = (
        static(large.POWER, order=order).stamp_bytes.mean()
        for order in ("popular-first", "popular-last")
    )
    assert best < worst / 3


def test_figure_3_14_messages_are_counted_per_manager() -> None:
    """All topics are related: an event on the topic of rank r passes by r managers."""
    result = static("uniform")
    manager, event = result.tables.manager, result.tables.event
    assert (manager["own"] == np.bincount(event["topic"], minlength=20)).all()
    expected = [int((event["topic"] > topic).sum()) for topic in range(20)]
    assert manager["others"].tolist() == expected


def test_figure_3_15_a_small_buffer_and_exact_stamps() -> None:
    none, small, exact = (
        static("uniform", buffer=buffer, exact=exact).tagged_share
        for buffer, exact in ((0, False), (5, False), (None, True))
    )
    assert none > 2 * small > 0
    assert exact == 0


@pytest.mark.parametrize("metric", ["paper", "window"])
def test_figures_3_16_to_3_19_the_order_adapts(metric: Any) -> None:
    fixed, adapted = dynamic(None), dynamic(Adaptive(metric=metric))
    assert late(adapted) < late(fixed) / 2
    assert adapted.stamp_bytes[-100:].mean() < fixed.stamp_bytes[-100:].mean() / 2
    assert adapted.swaps > 0


def test_figure_3_17_a_larger_threshold_means_fewer_swaps() -> None:
    swaps = [dynamic(Adaptive(metric="paper", beta=b)).swaps for b in (0.1, 0.2, 0.3)]
    assert swaps[0] > swaps[2] and swaps == sorted(swaps, reverse=True)


def test_s1_counts_since_the_start_let_no_topic_lose_its_place() -> None:
    """f(44) + 0.2 > 1: nothing can exceed it. Recent counts do follow a change (figure 3.20)."""
    assert popularity(0.1, 44) + 0.2 > 1 > popularity(0.1, 43) + 0.2
    tops = {metric: highest_after_a_change(metric) for metric in ("paper", "window")}
    assert tops == {"paper": 0, "window": 1}


def highest_after_a_change(metric: Any) -> int:
    """Topic 0 is popular for 150 s, then topic 1; which one is above at the end?"""
    topic = np.repeat(np.array([0, 1], np.int32), (150, 300))
    times = np.arange(topic.size) * 1_000_000
    plan = engine.Plan(
        network=engine.pastry(20, 2, 1),
        subscriptions=models.subscriptions(20, 2, 2, "all", 1),
        publications=(times, topic, np.zeros(topic.size, np.int32)),
        order=np.array([0, 1], np.int32),
        seed=1,
        exact=False,
        buffer=0,
        adaptive=Adaptive(metric=metric),
    )
    result = engine.run(plan)
    return int(result.tables.place[result.swaps]["topic"][0])


@pytest.mark.parametrize("name", LARGE)
def test_every_large_experiment_measures_claims_and_draws(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On tiny runs: what `simulate` gives is what `measures` says, and claims and plot take it."""
    whole = large.columnar_run

    def tiny(**options: Any) -> Result:
        options["nodes"] = min(options["nodes"], 30)
        options["topics"] = min(options["topics"], 12)
        options["held"] = min(options.get("held", 0), 6)
        return whole(**options)

    monkeypatch.setattr(large, "columnar_run", tiny)
    experiment = registry()[name]
    table: dict[str, Mapping[str, float]] = {}
    for setting in experiment.settings:
        found = experiment.simulate(setting, 0, True)
        assert set(found) == set(experiment.measures)
        table[setting] = {
            f"{measure}_{figure}": float(value)
            for measure, value in found.items()
            for figure in ("mean", "sd", "min", "max")
        }
    claims = experiment.claims(table)
    assert claims and {claim.verdict for claim in claims} <= {MET, NOT_MET}
    experiment.plot(table, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000
