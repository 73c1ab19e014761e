"""Figure 3.20: the adaptive topic order when popularities change abruptly at 300 s."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

SHUFFLE_S, DURATION_S = 300, 900
KINDS = ("paper", "window")
# Spans of publication times, in seconds: their mean latency, and the highest mean of ten events.
SPANS = {"before": (200, 300), "change": (300, 400), "after": (800, 900)}
MEASURES = tuple(f"{name}_{what}_s" for name in SPANS for what in ("mean", "peak"))


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    from unisono.sim.columnar.engine import Adaptive

    adaptive = Adaptive(metric="paper" if setting == "paper" else "window")
    result = large.dynamic_run(seed, quick, "random", adaptive, DURATION_S, SHUFFLE_S)
    latency = result.latency_us / 1e6
    second = result.tables.event["published"] // 1_000_000
    figures: dict[str, float] = {"swaps": result.swaps}
    for name, (begin, end) in SPANS.items():
        span = latency[(second >= begin) & (second < end)].tolist()
        points = [fmean(span[at : at + 10]) for at in range(0, len(span) - 9, 10)]
        figures |= {f"{name}_mean_s": fmean(span), f"{name}_peak_s": max(points)}
    return figures | large.bucketed("latency_s", latency.tolist(), DURATION_S)


def claims(table: Table) -> list[Claim]:
    found = []
    for kind in KINDS:
        mean = {name: table[kind][f"{name}_mean_s_mean"] for name in SPANS}
        peak = {name: table[kind][f"{name}_peak_s_mean"] for name in SPANS}
        found += [
            large.claim(
                f"{kind} counts: latency rises steeply when popularities change",
                "a steep increase (taken as: the highest mean of ten events rises by half)",
                f"from {peak['before']:.1f} s before the change to {peak['change']:.1f} s after it",
                peak["change"] > 1.5 * peak["before"],
            ),
            large.claim(
                f"{kind} counts: it quickly comes back to the values before",
                "quickly (taken as: within 500 s, to at most 1.2 of the mean before)",
                ", ".join(
                    f"{mean[name]:.1f} s in {begin}-{end} s" for name, (begin, end) in SPANS.items()
                ),
                mean["after"] <= 1.2 * mean["before"],
            ),
        ]
    return found


def plot(table: Table, path: Path) -> None:
    large.dynamic_plot(table, KINDS, "latency_s", "end-to-end latency (s)", path, DURATION_S)


EXPERIMENT = Experiment(
    id="fig-3.20",
    title="Adaptive topic order when popularities change abruptly",
    source="thesis section 3.5.2, figure 3.20 (report: figure 20)",
    assumed=(
        *(text for text in large.DYNAMIC_ASSUMED if "s a run" not in text),
        f"{DURATION_S} s a run; quick: 1,000 nodes and 200 topics",
        "alpha 0.1, beta 0.2; at 300 s popularities are dealt out anew to the topics, at random; "
        "subscriptions stay",
    ),
    settings=KINDS,
    measures=("swaps", *MEASURES, *large.series("latency_s", DURATION_S)),
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
