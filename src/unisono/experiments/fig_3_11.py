"""Figure 3.11: ordering and dissemination latency apart, for the power law of shape 0.901."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

MODEL = "power-law"


def claims(table: Table) -> list[Claim]:
    ordering = large.by_size(table, MODEL, "ordering_s")
    ens = large.by_size(table, MODEL, "ens_s")
    ratios = {size: ordering[size] / ens[size] for size in large.SIZES}
    return [
        large.claim(
            "ordering takes about as long as dissemination",
            "comparable (taken as: between half and twice)",
            f"ordering over dissemination: {large.shown(ratios, '')}",
            all(0.5 <= ratio <= 2 for ratio in ratios.values()),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    large.parts_plot(table, MODEL, path)


EXPERIMENT = Experiment(
    id="fig-3.11",
    title="Ordering and dissemination latency, the power law of shape 0.901",
    source="thesis section 3.5.2, figure 3.11 (report: figure 11)",
    assumed=large.SIZE_ASSUMED,
    settings=large.size_settings([MODEL]),
    measures=large.SIZE_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.size_simulate,
    claims=claims,
    plot=plot,
)
