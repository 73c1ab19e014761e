"""Figure 3.22: latency against the size of the event service, one publisher at 1 event/s."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unisono.experiments.prototype import (
    MEASURES,
    MODELS,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    Setting,
    measure,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

SIZES = tuple(range(1, 11))


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    model, _, size = setting.partition("@")
    return measure(Setting(model=model, nodes=int(size)), seed, quick)


def claims(table: Table) -> list[Claim]:
    latency = {
        model: [table[f"{model}@{size}"]["latency_ms_mean"] for size in SIZES] for model in MODELS
    }
    shown = "; ".join(
        f"{model} {', '.join(f'{value:.0f}' for value in latency[model])} ms" for model in MODELS
    )
    growth = {
        model: ((values[4] - values[0]) / 4, (values[9] - values[4]) / 5)
        for model, values in latency.items()
    }
    steps = "; ".join(f"{m} {a:.0f}, then {b:.0f} ms" for m, (a, b) in growth.items())
    alone = [values[0] for values in latency.values()]
    return [
        Claim(
            "latency grows with the number of nodes",
            "grows",
            f"{shown} for 1 to 10 nodes",
            verdict(all(values[-1] > values[0] for values in latency.values())),
        ),
        Claim(
            "it quickly reaches a stable point: the length of stamps drives it",
            "stable",
            f"growth per node up to 5 nodes and beyond: {steps}",
            verdict(all(later <= first / 4 for first, later in growth.values())),
        ),
        Claim(
            "a single node is a central sequencer: the publication model does not matter",
            "collapses into a centralized sequencer",
            f"{', '.join(f'{value:.0f}' for value in alone)} ms for {', '.join(MODELS)}",
            verdict(max(alone) <= 1.02 * min(alone)),
        ),
        Claim(
            "with ten nodes a favourable order is faster than the worst case",
            "power law below worst",
            f"{latency['power-law'][-1]:.0f} ms against {latency['worst'][-1]:.0f} ms",
            verdict(latency["power-law"][-1] < latency["worst"][-1]),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = {
        model: [(size, table[f"{model}@{size}"]["latency_ms_mean"]) for size in SIZES]
        for model in MODELS
    }
    curves(drawn, "nodes", "latency (ms)", path)


EXPERIMENT = Experiment(
    id="fig-3.22",
    title="Latency of the prototype against the size of the event service",
    source="thesis section 3.5.2, figure 3.22",
    assumed=(
        *SETTING,
        "stable: beyond 5 nodes, latency grows by at most a quarter per node of what it did before",
    ),
    settings=tuple(f"{model}@{size}" for model in MODELS for size in SIZES),
    measures=MEASURES,
    seeds=2 * SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
