"""Figure 3.15: tagged notifications and latency against the size of the reorder buffer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

NODES, TOPICS, HELD = 1000, 1000, 100
DURATION_S, QUICK_S = 500, 100
BUFFERS = ("0", "1", "2", "3", "5", "10", "30", "unbounded")
EXACT = "exact-unbounded"
SETTINGS = (*(f"buffer-{size}" for size in BUFFERS), EXACT)
SMALL = "buffer-3"


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    size = setting.rpartition("-")[2]
    result = large.columnar_run(
        nodes=NODES,
        topics=TOPICS,
        held=HELD,
        seed=seed,
        duration_s=QUICK_S if quick else DURATION_S,
        publish=large.POWER,
        subscribe=large.POWER,
        buffer=None if size == "unbounded" else int(size),
        exact=setting == EXACT,
    )
    return {
        "tagged": result.tagged_share,
        "latency_s": result.latency_us.mean() / 1e6,
        "buffered": int(result.tables.node["waited"].max()),
    }


def claims(table: Table) -> list[Claim]:
    tagged = {setting: table[setting]["tagged_mean"] for setting in SETTINGS}
    latency = {setting: table[setting]["latency_s_mean"] for setting in SETTINGS}
    told = ", ".join(f"{setting} {tagged[setting]:.1%}" for setting in SETTINGS)
    slower = latency[SMALL] / latency["buffer-0"] - 1
    residual = tagged["buffer-unbounded"]
    return [
        large.claim(
            "a buffer means more ordered notifications",
            "the larger, the more",
            told,
            residual < tagged["buffer-2"] <= tagged["buffer-1"] < tagged["buffer-0"]
            or residual == tagged["buffer-2"] < tagged["buffer-1"] < tagged["buffer-0"],
        ),
        large.claim(
            "a small buffer greatly reduces the share of tagged notifications",
            "greatly (taken as: to less than half)",
            f"from {tagged['buffer-0']:.1%} without to {tagged[SMALL]:.1%} with 3 events",
            tagged[SMALL] < tagged["buffer-0"] / 2,
        ),
        large.claim(
            "a small buffer affects the latency little",
            "not too negatively (taken as: by less than a tenth)",
            f"{latency['buffer-0']:.2f} s without, {latency[SMALL]:.2f} s with 3 events "
            f"({slower:+.1%})",
            slower < 0.1,
        ),
        large.claim(
            "exact stamps and an unbounded buffer leave nothing tagged (not in the papers)",
            f"printed stamps leave {residual:.1%}",
            f"{tagged[EXACT]:.1%} tagged, {latency[EXACT]:.2f} s",
            table[EXACT]["tagged_max"] == 0,
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    sizes = [int(size) for size in BUFFERS if size != "unbounded"]
    lines = {
        label: [(size, scale * table[f"buffer-{size}"][measure]) for size in sizes]
        for label, measure, scale in (
            ("tagged (%)", "tagged_mean", 100),
            ("latency (s)", "latency_s_mean", 1),
        )
    }
    curves(lines, "buffer (events)", "tagged (%), latency (s)", path)


EXPERIMENT = Experiment(
    id="fig-3.15",
    title="Tagged notifications and latency against the size of the buffer",
    source="thesis section 3.5.2, figure 3.15 (report: figure 15)",
    assumed=(
        *(text for text in large.COMMON if "no buffer" not in text),
        f"{NODES:,} nodes, {TOPICS:,} topics, {HELD} subscriptions each, {DURATION_S} s a run "
        f"(quick: {QUICK_S} s); the most popular topics come first in the topic order",
        "printed stamps but for one setting; no time to live in the buffer",
    ),
    settings=SETTINGS,
    measures=("tagged", "latency_s", "buffered"),
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
