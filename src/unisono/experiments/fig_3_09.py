"""Figure 3.9: end-to-end latency against the size of the event service, by publication model."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table


def claims(table: Table) -> list[Claim]:
    found = {model: large.by_size(table, model, "latency_s") for model in large.MODELS}
    least, most = large.SIZES[0], large.SIZES[-1]
    spread = max(
        table[setting]["latency_s_sd"] / table[setting]["latency_s_mean"]
        for setting in EXPERIMENT.settings
    )
    growth = {model: by_size[most] - by_size[least] for model, by_size in found.items()}
    return [
        large.claim(
            "the worst case grows steeply with the size",
            "grows steeply",
            large.shown(found["worst"]),
            found["worst"][most] > 2 * found["worst"][least],
        ),
        large.claim(
            "with the power law the increment remains reasonable",
            "reasonable",
            f"{large.shown(found['power-law'])}; it grows by {growth['power-law']:.2f} s where the "
            f"worst case grows by {growth['worst']:.2f} s",
            growth["power-law"] < growth["worst"] / 4,
        ),
        large.claim(
            "the publication model has a strong impact: worst above uniform above power law",
            "worst > uniform > power law",
            f"at {most:,} nodes {found['worst'][most]:.2f} s, {found['uniform'][most]:.2f} s, "
            f"{found['power-law'][most]:.2f} s",
            all(
                found["worst"][size] > found["uniform"][size] > found["power-law"][size]
                for size in large.SIZES
            ),
        ),
        large.claim(
            "the standard deviation over the runs is at most 5 % of the mean",
            "at most 5 %",
            f"at most {spread:.1%}",
            spread <= 0.05,
        ),
    ]


def plot(table: Table, path: Path) -> None:
    lines = {model: large.by_size(table, model, "latency_s") for model in large.MODELS}
    large.size_plot(lines, "end-to-end latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.9",
    title="End-to-end latency against the size of the event service",
    source="thesis section 3.5.2, figure 3.9 (report: figure 9)",
    assumed=large.SIZE_ASSUMED,
    settings=large.size_settings(list(large.MODELS)),
    measures=large.SIZE_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.size_simulate,
    claims=claims,
    plot=plot,
)
