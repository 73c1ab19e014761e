"""Figure 4.6: rollbacks and latency against the buffer size, printed and exact stamps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unisono.cases.active_database.simulate import Case
from unisono.experiments.data_centres import (
    MEASURES,
    QUICK_SEEDS,
    SETTING,
    lines,
    measure,
    names,
    spread,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table

BUFFERS = (0, 5, 10, 20, 40, 70, 100)
STAMPS = ("paper", "exact")
PAPER_RESIDUAL = 0.21
_TOLERANCE = 0.05  # "a mean value of 21 %"
_NO_GAIN = 0.005


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    stamps, _, size = setting.partition("@")
    buffer = int(size)
    case = Case(
        stamps="paper" if stamps == "paper" else "exact",
        buffer=buffer,
        hold_s=1.0 if buffer else None,  # without a buffer nothing is held
        rate_per_s=50.0,
    )
    return measure(case, seed, quick)


def claims(table: Table) -> list[Claim]:
    def by_buffer(stamps: str, measured: str) -> list[float]:
        return [table[f"{stamps}@{buffer}"][f"{measured}_mean"] for buffer in BUFFERS]

    paper, exact = by_buffer("paper", "rollbacks"), by_buffer("exact", "rollbacks")
    latency = by_buffer("paper", "latency_ms")
    at_40, at_70 = paper[BUFFERS.index(40)], paper[BUFFERS.index(70)]
    gain, until_40 = paper[0] - paper[-1], paper[0] - at_40
    worst = max(table[f"exact@{buffer}"]["rollbacks_max"] for buffer in BUFFERS[-3:])
    return [
        Claim(
            "a buffer from 0 to 40 brings little",
            "little improvement: the buffer is always full",
            f"{until_40 / gain if gain else 0:.0%} of all that 100 brings is there at 40: "
            f"{spread(paper)} for {BUFFERS}",
            verdict(gain > 0 and until_40 < gain / 2),
        ),
        Claim(
            "beyond 70 a larger buffer brings nothing",
            "no benefit",
            f"{at_70:.1%} at 70, {paper[-1]:.1%} at 100",
            verdict(abs(at_70 - paper[-1]) <= _NO_GAIN),
        ),
        Claim(
            "printed stamps leave a residual of rollbacks that no buffer removes",
            "mean of 21 %",
            f"{paper[-1]:.1%}",
            verdict(abs(paper[-1] - PAPER_RESIDUAL) <= _TOLERANCE),
        ),
        Claim(
            "a buffer costs latency",
            "higher latency",
            f"{latency[0]:.0f} ms at 0, {latency[-1]:.0f} ms at 100",
            verdict(latency[-1] > latency[0]),
        ),
        Claim(
            "ours: with exact stamps a sufficient buffer removes every rollback",
            "not in the paper",
            f"{spread(exact)} for {BUFFERS}; at most {worst:.1%} in any run with 40 or more",
            verdict(worst == 0),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    rollbacks = lines(table, STAMPS, BUFFERS, "rollbacks", 100)
    latency = lines(table, STAMPS, BUFFERS, "latency_ms", 0.1)
    drawn = {f"{stamps}: rollbacks (%)": points for stamps, points in rollbacks.items()}
    drawn |= {f"{stamps}: latency (10 ms)": points for stamps, points in latency.items()}
    curves(drawn, "buffer (events)", "rollbacks, latency", path)


EXPERIMENT = Experiment(
    id="fig-4.6",
    title="Rollbacks and latency against the buffer size",
    source="thesis section 4.3.2, figure 4.6",
    assumed=(
        *SETTING,
        "50 events/s, 5 categories, 2 centres of 5 replicas, 1 s to live in the buffer",
        "a full buffer lets go the head of the queue, or of what precedes it the first; waiting is "
        "judged by what has been seen, not by the clock (docs/deviations.md)",
    ),
    settings=names(STAMPS, BUFFERS),
    measures=MEASURES,
    seeds=5,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
