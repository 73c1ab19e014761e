"""Figure 3.19: the size of stamps as a run goes on. The runs are those of figure 3.18."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import fig_3_18 as latency
from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

PAPER_BYTES = 100


def claims(table: Table) -> list[Claim]:
    late = {setting: table[setting]["late_bytes_mean"] for setting in latency.SETTINGS}
    middle = {setting: table[setting]["late_median_bytes_mean"] for setting in latency.SETTINGS}
    start = large.curve(table, "random-static", "bytes")[0][1]
    found = []
    for setting in latency.DYNAMIC:
        found += [
            large.claim(
                f"{setting}: stamps become much smaller as the order adapts",
                "drastically (taken as: to less than a fifth)",
                f"from {start:.0f} B (first 10 events, random static order) to "
                f"{late[setting]:.0f} B (last 100); "
                f"random static {late['random-static']:.0f} B",
                late[setting] < start / 5,
            ),
            large.claim(
                f"{setting}: converges to about 100 bytes on average",
                "about 100 B (taken as: 50 to 200)",
                f"mean {late[setting]:.0f} B, median {middle[setting]:.0f} B; best static order: "
                f"mean {late['best-static']:.0f} B, median {middle['best-static']:.0f} B",
                PAPER_BYTES / 2 <= late[setting] <= 2 * PAPER_BYTES,
            ),
        ]
    return found


def plot(table: Table, path: Path) -> None:
    large.dynamic_plot(table, latency.SETTINGS, "bytes", "stamp (bytes)", path)


EXPERIMENT = Experiment(
    id="fig-3.19",
    title="Size of stamps with the adaptive topic order, and with static ones",
    source="thesis section 3.5.2, figure 3.19 (report: figure 19)",
    assumed=latency.ASSUMED,
    settings=latency.SETTINGS,
    measures=large.DYNAMIC_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=latency.simulate,
    claims=claims,
    plot=plot,
)
