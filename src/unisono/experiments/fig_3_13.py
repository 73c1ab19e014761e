"""Figure 3.13: the size of stamps against the number of subscriptions, by topic order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

NODES, TOPICS = 1000, 1000
DURATION_S, QUICK_S = 300, 60
HELD = (10, 20, 50, 100, 200)
CASES = tuple(large.HELD_CASES)
SETTINGS = tuple(f"{case}-{held}" for case in CASES for held in HELD)
MEASURES = ("bytes", "overhead", "overhead_per_manager")
ASSUMED = (
    *large.COMMON,
    f"{NODES:,} nodes, {TOPICS:,} topics, {DURATION_S} s a run (quick: {QUICK_S} s); "
    f"subscriptions per node: {', '.join(map(str, HELD))}, distinct",
    "message overhead: of all messages that managers handle while stamps are made, the share that "
    "is not for their own topic; topics count as managed elsewhere also if the node is the same",
)


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    case, _, held = setting.rpartition("-")
    duration_s = QUICK_S if quick else DURATION_S
    result = large.held_run(
        case, held, nodes=NODES, topics=TOPICS, seed=seed, duration_s=duration_s
    )
    own, others = result.tables.manager["own"], result.tables.manager["others"]
    busy = own + others > 0
    return {
        "bytes": result.stamp_bytes.mean(),
        "overhead": others.sum() / (own + others).sum(),
        "overhead_per_manager": (others[busy] / (own + others)[busy]).mean(),
    }


def by_held(table: Table, case: str, measure: str) -> dict[int, float]:
    return {held: table[f"{case}-{held}"][f"{measure}_mean"] for held in HELD}


def claims(table: Table) -> list[Claim]:
    best, worst, uniform = (by_held(table, case, "bytes") for case in CASES)
    return [
        large.claim(
            "with the best order stamps are small",
            "quite low",
            f"best {large.shown(best, ' B')}; worst {large.shown(worst, ' B')}; "
            f"uniform {large.shown(uniform, ' B')}",
            all(best[held] < min(worst[held], uniform[held]) / 5 for held in HELD),
        ),
        large.claim(
            "with the best order their size does not depend on the number of subscriptions",
            "not affected (taken as: by less than half)",
            f"largest over smallest mean: {max(best.values()) / min(best.values()):.2f}",
            max(best.values()) < 1.5 * min(best.values()),
        ),
    ]


def plot_cases(table: Table, measure: str, scale: float, label: str, path: Path) -> None:
    from unisono.report.plots import curves

    lines = {
        case: [(held, scale * value) for held, value in by_held(table, case, measure).items()]
        for case in CASES
    }
    curves(lines, "subscriptions per node", label, path, log_y=scale == 1)


def plot(table: Table, path: Path) -> None:
    plot_cases(table, "bytes", 1, "stamp (bytes)", path)


EXPERIMENT = Experiment(
    id="fig-3.13",
    title="Size of stamps against the number of subscriptions",
    source="thesis section 3.5.2, figure 3.13 (report: figure 13)",
    assumed=ASSUMED,
    settings=SETTINGS,
    measures=MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
