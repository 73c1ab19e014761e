"""Figure 3.24: latency against the event rate, total order against a central sequencer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from unisono.experiments.prototype import (
    MEASURES,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    Setting,
    measure,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

RATES = (5, 10, 25, 50, 75, 100)
COMPARED: dict[str, Setting] = {
    "uniform": Setting(model="uniform"),
    "power-law": Setting(model="power-law"),
    "worst": Setting(model="worst"),
    "exact-power-law": Setting(model="power-law", exact=True),
    "sequencer": Setting(protocol="sequencer"),
}
_CLOSE = 1.5  # at most this many times as long


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    name, _, rate = setting.partition("@")
    chosen = msgspec.structs.replace(COMPARED[name], rate_per_s=float(rate))
    return measure(chosen, seed, quick)


def claims(table: Table) -> list[Claim]:
    latency = {
        name: [table[f"{name}@{rate}"]["latency_ms_mean"] for rate in RATES] for name in COMPARED
    }

    def shown(name: str) -> str:
        return f"{name} {', '.join(f'{value:.0f}' for value in latency[name])} ms"

    ours, central = latency["power-law"], latency["sequencer"]
    uplinks = {name: table[f"{name}@100"]["uplink_mean"] for name in ("power-law", "sequencer")}
    both = f"{shown('power-law')}; {shown('sequencer')} at {RATES} events/s"
    return [
        Claim(
            "at low and medium rates TO with a favourable order is close to the sequencer",
            "close",
            both,
            verdict(all(a <= _CLOSE * b for a, b in zip(ours[:3], central[:3], strict=True))),
        ),
        Claim(
            "at a high rate TO with a favourable order is faster than the sequencer",
            "TO outperforms JGroups",
            f"{ours[-1]:.0f} ms against {central[-1]:.0f} ms at 100 events/s; with exact stamps "
            f"{latency['exact-power-law'][-1]:.0f} ms",
            verdict(ours[-1] < central[-1]),
        ),
        Claim(
            "because the tree spreads what point-to-point channels put on one node",
            "tree-based multicast against point-to-point",
            f"the busiest uplink needs {uplinks['power-law']:.0%} of its time in TO, "
            f"{uplinks['sequencer']:.0%} with the sequencer, at 100 events/s",
            verdict(uplinks["power-law"] < 1 < uplinks["sequencer"]),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = {
        name: [(rate, table[f"{name}@{rate}"]["latency_ms_mean"] / 1000) for rate in RATES]
        for name in COMPARED
    }
    curves(drawn, "events/s", "latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.24",
    title="Total order against a central sequencer over point-to-point channels",
    source="thesis section 3.5.2, figure 3.24",
    assumed=(
        *SETTING,
        "JGroups SEQUENCER over TCP is modelled by one sequencer that sends one copy of each event "
        "to each of the ten other members, publisher included, over its uplink; ten nodes",
        f"close: at most {_CLOSE:g} times the latency up to 25 events/s; where an uplink is "
        "overloaded its queue grows to the end of the run, so the latency is that of such a run",
    ),
    settings=tuple(f"{name}@{rate}" for name in COMPARED for rate in RATES),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
