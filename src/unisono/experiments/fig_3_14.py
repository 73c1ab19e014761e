"""Figure 3.14: what managers handle for the topics of others. The runs are those of figure 3.13."""

from __future__ import annotations

from pathlib import Path

from unisono.experiments import fig_3_13 as stamps
from unisono.experiments import large_scale as large
from unisono.experiments.registry import Claim, Experiment, Table


def claims(table: Table) -> list[Claim]:
    found = {case: stamps.by_held(table, case, "overhead") for case in stamps.CASES}
    best = found["best"]
    told = "; ".join(
        f"{case} " + ", ".join(f"{held}: {share:.1%}" for held, share in shares.items())
        for case, shares in found.items()
    )
    return [
        large.claim(
            "with the best order few messages are for topics of others",
            "quite low (taken as: less than half)",
            told,
            max(best.values()) < 0.5,
        ),
        large.claim(
            "with the best order the overhead is below that of the other orders",
            "best < uniform, worst",
            told,
            all(
                best[held] < min(found["uniform"][held], found["worst"][held])
                for held in stamps.HELD
            ),
        ),
        large.claim(
            "with the best order it does not depend on the number of subscriptions",
            "not affected (taken as: by less than 10 points)",
            f"between {min(best.values()):.1%} and {max(best.values()):.1%}",
            max(best.values()) - min(best.values()) < 0.1,
        ),
    ]


def plot(table: Table, path: Path) -> None:
    stamps.plot_cases(table, "overhead", 100, "messages for other topics (%)", path)


EXPERIMENT = Experiment(
    id="fig-3.14",
    title="Messages that managers handle for other topics",
    source="thesis section 3.5.2, figure 3.14 (report: figure 14)",
    assumed=stamps.ASSUMED,
    settings=stamps.SETTINGS,
    measures=stamps.MEASURES,
    seeds=large.SEEDS,
    quick_seeds=large.QUICK_SEEDS,
    simulate=stamps.simulate,
    claims=claims,
    plot=plot,
)
