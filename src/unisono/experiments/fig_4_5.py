"""Figure 4.5: latency against the number of topics, total order against UEC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import correlation

import msgspec

from unisono.experiments.data_centres import (
    MEASURES,
    PROTOCOLS,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    UEC_SETTING,
    lines,
    measure,
    names,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

TOPICS = (1, 5, 10, 15, 20, 30)
COMPARED = ("to-exact", "to-paper", "uec-1", "uec-2", "uec-3", "sequencer")
RATE = 10.0
_LINEAR = 0.95  # of the correlation, squared
_FLAT = 1.1


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    protocol, _, topics = setting.partition("@")
    case = msgspec.structs.replace(PROTOCOLS[protocol], topics=int(topics), rate_per_s=RATE)
    return measure(case, seed, quick)


def claims(table: Table) -> list[Claim]:
    latency = {
        name: [table[f"{name}@{topics}"]["latency_ms_mean"] for topics in TOPICS]
        for name in COMPARED
    }

    def shown(name: str) -> str:
        return ", ".join(f"{value:.0f}" for value in latency[name]) + f" ms for {TOPICS}"

    def linear(name: str) -> float:
        return correlation(TOPICS, latency[name]) ** 2

    gossip = [latency[name] for name in ("uec-1", "uec-2", "uec-3")]
    flat = max(max(values) / min(values) for values in gossip)
    return [
        Claim(
            "TO's latency grows almost linearly with the number of topics (printed stamps)",
            "almost linear",
            f"{shown('to-paper')}; R^2 = {linear('to-paper'):.3f}",
            verdict(
                linear("to-paper") >= _LINEAR and latency["to-paper"][-1] > latency["to-paper"][0]
            ),
        ),
        Claim(
            "UEC's latency does not depend on the number of topics",
            "always the same",
            f"UEC-1 {shown('uec-1')}; largest over smallest at most {flat:.2f} for k = 1, 2, 3",
            verdict(flat <= _FLAT),
        ),
        Claim(
            "TO's lower share of rollbacks costs latency",
            "higher latency",
            f"with 5 topics {latency['to-paper'][1]:.0f} ms against "
            f"UEC-1 {latency['uec-1'][1]:.0f} ms",
            verdict(latency["to-paper"][1] > latency["uec-1"][1]),
        ),
        Claim(
            "ours: exact stamps are linear in the number of topics, too",
            "not in the paper",
            f"{shown('to-exact')}; R^2 = {linear('to-exact'):.3f}; a central sequencer on one "
            f"tree: {shown('sequencer')}",
            verdict(linear("to-exact") >= _LINEAR),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    curves(lines(table, COMPARED, TOPICS, "latency_ms"), "topics", "latency (ms)", path)


EXPERIMENT = Experiment(
    id="fig-4.5",
    title="Latency against the number of topics",
    source="thesis section 4.3.2, figure 4.5",
    assumed=(
        *SETTING,
        *UEC_SETTING,
        f"{RATE:g} events/s (the text does not say); every replica holds all topics; managers are "
        "spread over the ten nodes",
    ),
    settings=names(COMPARED, TOPICS),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
