"""What exact stamps cost beside printed ones: entries, bytes, hops, time; and what they give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table

if TYPE_CHECKING:
    from unisono.sim.columnar.engine import Result

NODES, TOPICS = 500, 100
DURATION_S, QUICK_S = 2000, 300
HELD = (2, 5, 10, 20)
STAMPS = ("printed", "exact")
CASES = tuple(large.HELD_CASES)
SETTINGS = tuple(f"{kind}-{case}-{held}" for kind in STAMPS for case in CASES for held in HELD)
MEASURES = ("entries", "entries_uncompressed", "bytes", "hops", "ordering_s", "latency_s", "tagged")
ASSUMED = (
    *(text for text in large.COMMON if not text.startswith("printed stamps")),
    f"{NODES} nodes, {TOPICS} topics, one event a second, {DURATION_S} s a run (quick: {QUICK_S} "
    f"s); subscriptions per node: {', '.join(map(str, HELD))}, distinct; unbounded buffer",
    "an entry takes 24 bytes, as in the thesis; hops: the managers that a stamp visits, each of "
    "which is one message, beside the request and the answer",
)


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    kind, _, rest = setting.partition("-")
    case, _, held = rest.rpartition("-")
    result = large.held_run(
        case,
        held,
        nodes=NODES,
        topics=TOPICS,
        seed=seed,
        duration_s=QUICK_S if quick else DURATION_S,
        exact=kind == "exact",
        buffer=None,
    )
    return {
        **entries(result),
        "bytes": result.stamp_bytes.mean(),
        "ordering_s": result.ordering_us.mean() / 1e6,
        "latency_s": result.latency_us.mean() / 1e6,
        "tagged": result.tagged_share,
    }


def entries(result: Result) -> dict[str, float]:
    """Entries of a stamp, as sent and with all predecessor entries; and the managers visited."""
    import numpy as np

    stamp, event, place = result.tables.stamp, result.tables.event, result.tables.place[0]
    held = stamp >= 0
    topics = event["topic"]
    below = place["rank"][None, :] > place["rank"][topics][:, None]
    told = held & below
    uncompressed = 0
    for topic in range(stamp.shape[1]):
        mine = told[topics == topic]  # of one topic, by number: events are in the order of requests
        numbers = event["number"][topics == topic]
        uncompressed += int(np.logical_or.accumulate(mine[np.argsort(numbers)], axis=0).sum())
    return {
        "entries": held.sum() / topics.size,
        "entries_uncompressed": ((held & ~below).sum() + uncompressed) / topics.size,
        "hops": (held & ~below).sum() / topics.size,
    }


def by_held(table: Table, kind: str, case: str, measure: str) -> dict[int, float]:
    return {held: table[f"{kind}-{case}-{held}"][f"{measure}_mean"] for held in HELD}


def claims(table: Table) -> list[Claim]:
    ours = "ours; the papers have printed stamps only"

    def ratios(case: str, measure: str) -> str:
        printed = by_held(table, "printed", case, measure)
        exact = by_held(table, "exact", case, measure)
        return large.shown({held: exact[held] / printed[held] for held in HELD}, "")

    def every(kind: str, measure: str) -> list[float]:
        return [x for case in CASES for x in by_held(table, kind, case, measure).values()]

    def told(case: str, measure: str) -> float:
        """Predecessor entries."""
        exact, hops = (by_held(table, "exact", case, name) for name in (measure, "hops"))
        return sum(exact.values()) - sum(hops.values())

    sent = {case: told(case, "entries") / told(case, "entries_uncompressed") for case in CASES}
    first, last = (
        sum(by_held(table, "exact", case, "entries").values()) for case in ("best", "worst")
    )
    return [
        large.claim(
            "with everything delivered exact stamps tag nothing",
            ours,
            f"share of tagged notifications: at most {max(every('exact', 'tagged')):g} (printed: "
            f"{max(every('printed', 'tagged')):.1%})",
            max(every("exact", "tagged")) == 0 < max(every("printed", "tagged")),
        ),
        large.claim(
            "telling only what changed saves predecessor entries (taken as: at least a tenth)",
            ours,
            "sent: " + ", ".join(f"{case} {share:.0%}" for case, share in sent.items()),
            max(sent.values()) < 0.9,
        ),
        large.claim(
            "a stamp visits more managers (the fill) and has more entries than a printed one",
            ours,
            "; ".join(
                f"{case}: hops x {ratios(case, 'hops')}, bytes x {ratios(case, 'bytes')}"
                for case in CASES
            ),
            all(
                exact > printed - 1e-9
                for measure in ("hops", "entries")
                for exact, printed in zip(
                    every("exact", measure), every("printed", measure), strict=True
                )
            ),
        ),
        large.claim(
            "popular topics on top keep exact stamps small",
            ours,
            f"entries with popular topics last: {last / first:.1f} times as many",
            first < last / 2,
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    lines = {
        f"{case}: {name}": list(by_held(table, kind, case, measure).items())
        for case in ("best", "uniform")
        for name, kind, measure in (
            ("printed", "printed", "entries"),
            ("exact", "exact", "entries"),
            ("exact, uncompressed", "exact", "entries_uncompressed"),
        )
    }
    curves(lines, "subscriptions per node", "entries of a stamp", path, log_y=True)


EXPERIMENT = Experiment(
    id="exact-stamps",
    title="What exact stamps cost beside printed ones",
    source="ours: the stamps that leave no residual (docs/total-order.md)",
    assumed=ASSUMED,
    settings=SETTINGS,
    measures=MEASURES,
    seeds=5,
    quick_seeds=1,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
