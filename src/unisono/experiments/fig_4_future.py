"""The future work of thesis section 4.4: more data centres, several sets of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from unisono.experiments.data_centres import (
    MEASURES,
    PROTOCOLS,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    measure,
    names,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

COMPARED = ("to-exact", "sequencer", "uec-1-fast", "uec-3-fast")
# sites x sets; twelve categories; each set also holds one of the next set's.
SHAPES = ("2x1", "3x1", "3x2", "3x3")
_TOPICS = 12
_REPLICAS = 6


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    protocol, _, shape = setting.partition("@")
    sites, sets = map(int, shape.split("x"))
    case = msgspec.structs.replace(
        PROTOCOLS[protocol],
        sites=sites,
        replicas=_REPLICAS,
        sets=sets,
        topics=_TOPICS,
        shared=1 if sets > 1 else 0,
        rate_per_s=50.0,
        fanout=6,  # as likely to reach a node among 18 as 5 among 10
    )
    return measure(case, seed, quick)


def claims(table: Table) -> list[Claim]:
    def by_shape(protocol: str, measured: str) -> list[float]:
        return [table[f"{protocol}@{shape}"][f"{measured}_mean"] for shape in SHAPES]

    def shown(protocol: str, measured: str, unit: str = "", digits: int = 0) -> str:
        values = ", ".join(f"{value:.{digits}f}" for value in by_shape(protocol, measured))
        return f"{protocol} {values}{unit}"

    ours = [table[f"to-exact@{shape}"] for shape in SHAPES]
    worst = max(row["rollbacks_max"] for row in ours)
    equal = all(row["equal_min"] == 1 for row in ours)
    unwanted = by_shape("to-exact", "unwanted")
    latency = by_shape("to-exact", "latency_ms")
    shapes = f"for {', '.join(SHAPES)} (centres x sets)"
    return [
        Claim(
            "TO keeps replicas of several sets in three centres equal without a rollback",
            "left open",
            f"at most {worst:.1%} rollbacks in any run; replicas of a set and copies of a category "
            f"{'equal' if equal else 'not equal'} in all runs; UEC-1 rolls back "
            f"{', '.join(f'{v:.0%}' for v in by_shape('uec-1-fast', 'rollbacks'))}, UEC-3 "
            f"{', '.join(f'{v:.0%}' for v in by_shape('uec-3-fast', 'rollbacks'))} {shapes}",
            verdict(worst == 0 and equal),
        ),
        Claim(
            "with one group for all, nodes also receive events they do not hold; in TO they do not",
            "expected",
            f"per event {shown('sequencer', 'unwanted', digits=1)}; "
            f"{shown('to-exact', 'unwanted', digits=1)}; messages between nodes per event "
            f"{shown('sequencer', 'sends', digits=1)}; {shown('to-exact', 'sends', digits=1)}, "
            f"and {shown('to-exact', 'controls', digits=1)} for stamps, {shapes}",
            verdict(max(unwanted) == 0 and by_shape("sequencer", "unwanted")[-1] > 0),
        ),
        Claim(
            "fewer categories a set make TO faster: stamps take shorter ways",
            "expected: affected by the number of topics",
            f"{shown('to-exact', 'latency_ms', ' ms')}; {shown('sequencer', 'latency_ms', ' ms')} "
            f"{shapes}",
            verdict(latency[-1] < latency[1]),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import bars

    values = {
        f"{short} {shape}": table[f"{protocol}@{shape}"]["latency_ms_mean"]
        for shape in (SHAPES[1], SHAPES[-1])
        for short, protocol in (("TO", "to-exact"), ("sequencer", "sequencer"))
    }
    bars(values, "latency (ms), centres x sets", path)


EXPERIMENT = Experiment(
    id="fig-4.future",
    title="More data centres and several sets of replicas",
    source="thesis section 4.4 (future work)",
    assumed=(
        *SETTING,
        f"{_TOPICS} categories, {_REPLICAS} replicas a centre, 50 events/s, drawn evenly from the "
        "categories of the publishing replica; the sets share the categories out evenly, and each "
        "also holds one of the next set's",
        "UEC with a fan-out of 6 and nodes that serve in no time; the central sequencer publishes "
        "on one tree over all nodes; nodes that only pass an event on in the tree are not counted "
        "as receiving it",
    ),
    settings=names(COMPARED, SHAPES),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
