"""Figure 3.23: the share of events notified in a second against the event rate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unisono.experiments.prototype import (
    MEASURES,
    MODELS,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    Setting,
    measure,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

RATES = (5, 10, 25, 50, 75, 100)
_DROP = 0.05  # less than this is "not affected"


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    model, _, rate = setting.partition("@")
    return measure(Setting(model=model, rate_per_s=float(rate)), seed, quick)


def claims(table: Table) -> list[Claim]:
    def by_rate(model: str, measured: str) -> list[float]:
        return [table[f"{model}@{rate}"][f"{measured}_mean"] for rate in RATES]

    def shown(model: str) -> str:
        shares = ", ".join(f"{share:.0%}" for share in by_rate(model, "same_second"))
        within = min(by_rate(model, "within_a_second"))
        return f"{shares} at {RATES} events/s; within 1 s of publication at least {within:.1%}"

    def drop(model: str) -> float:
        shares = by_rate(model, "same_second")
        return shares[0] - shares[-1]

    return [
        Claim(
            "in the worst case fewer events are notified in a second when the rate grows",
            "drops",
            shown("worst"),
            verdict(drop("worst") >= _DROP),
        ),
        Claim(
            "with a favourable publication model the rate hardly matters",
            "not affected",
            shown("power-law"),
            verdict(abs(drop("power-law")) < _DROP),
        ),
        Claim(
            "a favourable model has more events notified in a second than the worst case",
            "above",
            f"at 100 events/s {by_rate('power-law', 'same_second')[-1]:.0%} against "
            f"{by_rate('worst', 'same_second')[-1]:.0%}",
            verdict(
                all(
                    good > bad
                    for good, bad in zip(
                        by_rate("power-law", "same_second"),
                        by_rate("worst", "same_second"),
                        strict=True,
                    )
                )
            ),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = {
        model: [(rate, 100 * table[f"{model}@{rate}"]["same_second_mean"]) for rate in RATES]
        for model in MODELS
    }
    curves(drawn, "events/s", "published and notified in a second (%)", path)


EXPERIMENT = Experiment(
    id="fig-3.23",
    title="Events published and notified in a second against the event rate",
    source="thesis section 3.5.2, figure 3.23",
    assumed=(
        *SETTING,
        "the text's measure (events published and notified to all in a second) is read as: in the "
        "same second of a clock that starts at any time; the share notified within 1 s of "
        "publication is given, too",
        "ten nodes; a drop is 5 points or more from 5 to 100 events/s",
    ),
    settings=tuple(f"{model}@{rate}" for model in MODELS for rate in RATES),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
