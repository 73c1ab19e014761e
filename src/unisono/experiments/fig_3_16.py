"""Figure 3.16: the adaptive topic order for different alpha."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

VALUES = (0.1, 0.3, 0.5)
SETTINGS = large.tuned_settings(VALUES)


def claims(table: Table) -> list[Claim]:
    found = []
    for kind in large.KINDS:
        late = {value: table[f"{kind}-{value}"]["late_latency_s_mean"] for value in VALUES}
        swaps = {value: table[f"{kind}-{value}"]["swaps_mean"] for value in VALUES}
        random = table[large.STATIC]["late_latency_s_mean"]
        found += [
            large.claim(
                f"{kind} counts: converges to a small latency for alpha {value}",
                "converges (taken as: below half of the random static order's)",
                f"{late[value]:.1f} s over the last 100 events; static {random:.1f} s",
                late[value] < random / 2,
            )
            for value in VALUES[:2]
        ]
        found += [
            large.claim(
                f"{kind} counts: alpha 0.5 brings no benefit",
                "no benefit (taken as: at least 0.9 of the random static order's)",
                f"{late[0.5]:.1f} s over the last 100 events; static {random:.1f} s",
                late[0.5] >= 0.9 * random,
            ),
            large.swaps_claim(f"{kind} counts, alpha 0.1", 15.1, swaps[0.1]),
            large.swaps_claim(f"{kind} counts, alpha 0.5", 7.4, swaps[0.5]),
            large.claim(
                f"{kind} counts: a larger alpha means fewer swaps",
                "15.1 for 0.1 .. 7.4 for 0.5",
                ", ".join(f"{swaps[value]:.1f} for {value}" for value in VALUES),
                swaps[0.1] > swaps[0.3] > swaps[0.5],
            ),
        ]
    return found


def plot(table: Table, path: Path) -> None:
    large.dynamic_plot(table, SETTINGS, "latency_s", "end-to-end latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.16",
    title="Adaptive topic order for different alpha",
    source="thesis section 3.5.2, figure 3.16 (report: figure 16)",
    assumed=(*large.DYNAMIC_ASSUMED, "beta 0.2, as the other tests of the thesis have it"),
    settings=SETTINGS,
    measures=large.DYNAMIC_MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=large.tuned_simulate("alpha"),
    claims=claims,
    plot=plot,
)
