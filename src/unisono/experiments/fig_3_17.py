"""Figure 3.17: the adaptive topic order for different beta."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

VALUES = (0.1, 0.2, 0.3)
SETTINGS = large.tuned_settings(VALUES)


def claims(table: Table) -> list[Claim]:
    found = []
    for kind in large.KINDS:
        late = {value: table[f"{kind}-{value}"]["late_latency_s_mean"] for value in VALUES}
        swaps = {value: table[f"{kind}-{value}"]["swaps_mean"] for value in VALUES}
        random = table[large.STATIC]["late_latency_s_mean"]
        told = ", ".join(f"{late[value]:.1f} s for {value}" for value in VALUES)
        found += [
            large.swaps_claim(f"{kind} counts, beta 0.1", 51.8, swaps[0.1]),
            large.swaps_claim(f"{kind} counts, beta 0.3", 7.8, swaps[0.3]),
            large.claim(
                f"{kind} counts: a larger beta means fewer swaps",
                "51.8 for 0.1 .. 7.8 for 0.3",
                ", ".join(f"{swaps[value]:.1f} for {value}" for value in VALUES),
                swaps[0.1] > swaps[0.2] > swaps[0.3],
            ),
            large.claim(
                f"{kind} counts: beta 0.1 has the lowest latency",
                "lowest for 0.1",
                f"{told} over the last 100 events",
                late[0.1] < min(late[0.2], late[0.3]),
            ),
            large.claim(
                f"{kind} counts: beta 0.3 brings no benefit",
                "no benefit (taken as: at least 0.9 of the random static order's)",
                f"{late[0.3]:.1f} s over the last 100 events; static {random:.1f} s",
                late[0.3] >= 0.9 * random,
            ),
            large.claim(
                f"{kind} counts: beta 0.2 still converges, with fewer swaps than 0.1",
                "a good trade-off (taken as: below half of the random static order's latency)",
                f"{late[0.2]:.1f} s, {swaps[0.2]:.1f} swaps",
                late[0.2] < random / 2 and swaps[0.2] < swaps[0.1],
            ),
        ]
    return found


def plot(table: Table, path: Path) -> None:
    large.dynamic_plot(table, SETTINGS, "latency_s", "end-to-end latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.17",
    title="Adaptive topic order for different beta",
    source="thesis section 3.5.2, figure 3.17 (report: figure 17)",
    assumed=(*large.DYNAMIC_ASSUMED, "alpha 0.1, as the other tests of the thesis have it"),
    settings=SETTINGS,
    measures=large.DYNAMIC_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.tuned_simulate("beta"),
    claims=claims,
    plot=plot,
)
