"""Figure 3.10: ordering and dissemination latency apart, for the worst case."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

MODEL = "worst"


def claims(table: Table) -> list[Claim]:
    ordering = large.by_size(table, MODEL, "ordering_s")
    ens = large.by_size(table, MODEL, "ens_s")
    most = large.SIZES[-1]
    ratio = ordering[most] / ens[most]
    entries = large.by_size(table, MODEL, "entries")
    return [
        large.claim(
            "a stamp travels through all managers",
            f"{large.SIZE_TOPICS} of {large.SIZE_TOPICS}",
            f"{min(entries.values()):g} on average at the least",
            min(entries.values()) == large.SIZE_TOPICS,
        ),
        large.claim(
            "ordering completely drives the latency",
            "ordering drives the total",
            f"at {most:,} nodes ordering takes {ordering[most]:.2f} s, {ratio:.1f} times the "
            f"dissemination's {ens[most]:.2f} s",
            ratio > 3,
        ),
        large.claim(
            "ordering grows with the size",
            "grows",
            large.shown(ordering),
            ordering[most] > ordering[large.SIZES[0]],
        ),
    ]


def plot(table: Table, path: Path) -> None:
    large.parts_plot(table, MODEL, path)


EXPERIMENT = Experiment(
    id="fig-3.10",
    title="Ordering and dissemination latency, the worst case",
    source="thesis section 3.5.2, figure 3.10 (report: figure 10)",
    assumed=large.SIZE_ASSUMED,
    settings=large.size_settings([MODEL]),
    measures=large.SIZE_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.size_simulate,
    claims=claims,
    plot=plot,
)
