"""Figure 3.12: the share of events notified to all subscribers within a second."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table


def claims(table: Table) -> list[Claim]:
    found = {model: large.by_size(table, model, "within_1_s") for model in large.MODELS}
    told = "; ".join(
        f"{model} " + ", ".join(f"{size:,}: {share:.0%}" for size, share in shares.items())
        for model, shares in found.items()
    )
    pairs = [
        (found[better][size], found[worse][size])
        for size in large.SIZES
        for better, worse in (("power-law", "uniform"), ("uniform", "worst"))
    ]
    return [
        large.claim(
            "a favourable topic order lets more events be notified within a second",
            "power law > uniform > worst",
            told,
            all(better >= worse for better, worse in pairs)
            and any(better > worse for better, worse in pairs),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    lines = {
        model: {size: 100 * share for size, share in by_size.items()}
        for model in large.MODELS
        for by_size in [large.by_size(table, model, "within_1_s")]
    }
    large.size_plot(lines, "events notified within 1 s (%)", path)


EXPERIMENT = Experiment(
    id="fig-3.12",
    title="Events notified to all subscribers within a second",
    source="thesis section 3.5.2, figure 3.12 (report: figure 12)",
    assumed=large.SIZE_ASSUMED,
    settings=large.size_settings(list(large.MODELS)),
    measures=large.SIZE_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.size_simulate,
    claims=claims,
    plot=plot,
)
