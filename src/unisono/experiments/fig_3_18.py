"""Figure 3.18: latency as a run goes on, with the adaptive order, the best and a random one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

SETTINGS = ("best-static", "random-static", "dynamic-paper", "dynamic-no-wait", "dynamic-window")
DYNAMIC = SETTINGS[2:]
ASSUMED = (*large.DYNAMIC_ASSUMED, "alpha 0.1, beta 0.2, as the thesis says")


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    from unisono.sim.columnar.engine import Adaptive

    adaptive = None
    if setting in DYNAMIC:
        metric: Literal["paper", "window"] = "paper" if setting == "dynamic-paper" else "window"
        adaptive = Adaptive(metric=metric, waits=setting == "dynamic-window")
    order = "popular-first" if setting == "best-static" else "random"
    return large.dynamic_figures(large.dynamic_run(seed, quick, order, adaptive))


def claims(table: Table) -> list[Claim]:
    late = {setting: table[setting]["late_latency_s_mean"] for setting in SETTINGS}
    middle = {setting: table[setting]["late_median_s_mean"] for setting in SETTINGS}
    popular = {setting: table[setting]["late_popular_s_mean"] for setting in SETTINGS}
    best, random = late["best-static"], late["random-static"]
    start = large.curve(table, "random-static", "latency_s")[0][1]
    found = []
    for setting in DYNAMIC:
        found += [
            large.claim(
                f"{setting}: converges to a small latency from a random order",
                "quickly, to a small average latency (taken as: below a fifth of the start)",
                f"from {start:.1f} s (first 10 events, random static order) to "
                f"{late[setting]:.1f} s (last 100); {early(table, setting)}",
                late[setting] < start / 5,
            ),
            large.claim(
                f"{setting}: beats the random static order",
                "far below",
                f"{late[setting]:.1f} s against {random:.1f} s (last 100 events)",
                late[setting] < random,
            ),
            large.claim(
                f"{setting}: beats the best static order",
                "outperforms it",
                f"mean {late[setting]:.2f} s against {best:.2f} s, median {middle[setting]:.2f} s "
                f"against {middle['best-static']:.2f} s (last 100 events)",
                late[setting] < best,
            ),
            large.claim(
                f"{setting}: comes close to the best static order on the popular topics",
                "outperforms it (taken as: at most a fifth slower)",
                f"mean {popular[setting]:.2f} s against {popular['best-static']:.2f} s (those of "
                "the last 100 events on the topics that get 80 % of the publications)",
                popular[setting] <= 1.2 * popular["best-static"],
            ),
        ]
    return found


def early(table: Table, setting: str) -> str:
    """The first points of the curve."""
    points = [value for _, value in large.curve(table, setting, "latency_s")[:5]]
    return "its first 50 events, by ten: " + ", ".join(f"{value:.1f} s" for value in points)


def plot(table: Table, path: Path) -> None:
    large.dynamic_plot(table, SETTINGS, "latency_s", "end-to-end latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.18",
    title="Latency with the adaptive topic order, and with static ones",
    source="thesis section 3.5.2, figure 3.18 (report: figure 18)",
    assumed=ASSUMED,
    settings=SETTINGS,
    measures=large.DYNAMIC_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
