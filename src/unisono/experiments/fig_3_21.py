"""Figure 3.21: how often two detectors agree on event patterns, without and with total order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import msgspec

from unisono.experiments.registry import MET, NOT_MET, Claim, Experiment, Table
from unisono.sim.detector import agreement
from unisono.sim.run import DETECTION, Outcome, run_scenario
from unisono.sim.scenario import Publishers, Scenario, Subscribers

# The same as scenarios/pattern-detection.toml, which a test holds together with this.
SCENARIO = Scenario(
    name="pattern-detection",
    nodes=100,
    topics=5,
    duration_s=120,
    publishers=Publishers(count=5, rate_per_s=5, kinds=3),
    subscribers=Subscribers(count=2, pattern="abc"),
)
SETTINGS = ("bare", "buffer-0", "buffer-30", "unbounded")
PAPER_BARE = 0.35
_TOLERANCE = 0.1  # the figure is read from the text as "about 35 %"
_QUICK_S = 60


def scenario(setting: str, quick: bool = False) -> Scenario:
    """The scenario of one setting."""
    base = msgspec.structs.replace(SCENARIO, name=setting)
    if quick:
        base = msgspec.structs.replace(base, duration_s=_QUICK_S)
    if setting == "bare":
        return msgspec.structs.replace(base, order="none")
    if setting == "unbounded":
        return base
    return msgspec.structs.replace(base, buffer=int(setting.removeprefix("buffer-")))


def run_agreement(outcome: Outcome) -> float:
    """The share of detections on which the detectors of a run agree."""
    found: dict[str, set[str]] = {}
    for row in outcome.recorder.tables["control"]:
        if row["kind"] == DETECTION:
            found.setdefault(row["node"], set()).add(row["detail"])
    count = SCENARIO.subscribers.count
    return agreement([*found.values(), *([set()] * (count - len(found)))])


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    outcome = run_scenario(scenario(setting, quick), seed)
    published = {
        row["event_id"]: row["published_us"] for row in outcome.recorder.tables["publications"]
    }
    latencies = [
        row["delivered_us"] - published[row["event_id"]]
        for row in outcome.recorder.tables["deliveries"]
    ]
    return {
        "agreement": run_agreement(outcome),
        "tagged": outcome.tagged_share,
        "violations": outcome.checks["total-order"].violations,
        "latency_ms": fmean(latencies) / 1000 if latencies else 0.0,
    }


def claims(table: Table) -> list[Claim]:
    means = {setting: table[setting]["agreement_mean"] for setting in SETTINGS}
    shown = {setting: f"{mean:.1%}" for setting, mean in means.items()}
    tagged = max(table[setting]["violations_max"] for setting in SETTINGS[1:])
    return [
        Claim(
            "without order both detectors agree on about 35 % of the patterns",
            "35 %",
            shown["bare"],
            _verdict(abs(means["bare"] - PAPER_BARE) <= _TOLERANCE),
        ),
        Claim(
            "without order the detectors disagree on most patterns",
            "65 % not agreed on",
            f"{1 - means['bare']:.1%} not agreed on",
            _verdict(means["bare"] < 0.5),
        ),
        Claim(
            "total order with buffer 0 improves on the bare service",
            "bare < buffer 0",
            f"{shown['bare']} < {shown['buffer-0']}",
            _verdict(means["bare"] < means["buffer-0"]),
        ),
        Claim(
            "a larger buffer means more agreement",
            "buffer 0 < buffer 30 < unbounded",
            f"{shown['buffer-0']} < {shown['buffer-30']} < {shown['unbounded']}",
            _verdict(means["buffer-0"] < means["buffer-30"] < means["unbounded"]),
        ),
        Claim(
            "with an unbounded buffer every pattern is detected by both",
            "100 %",
            f"{table['unbounded']['agreement_min']:.1%} in the worst run",
            _verdict(table["unbounded"]["agreement_min"] == 1.0),
        ),
        Claim(
            "untagged events keep total notification order (Theorem 1)",
            "no violation",
            f"{tagged:.0f} violations in the worst run with order",
            _verdict(tagged == 0),
        ),
    ]


def _verdict(holds: bool) -> str:
    return MET if holds else NOT_MET


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import bars

    values = {setting: 100 * table[setting]["agreement_mean"] for setting in SETTINGS}
    spread = {setting: 100 * table[setting]["agreement_sd"] for setting in SETTINGS}
    bars(
        values,
        "patterns both detectors agree on (%)",
        path,
        spread=spread,
        mark=("paper, bare", 35),
    )


EXPERIMENT = Experiment(
    id="fig-3.21",
    title="Agreement of two pattern detectors, bare service against total order",
    source="thesis section 3.5.2, figure 3.21 (report: figure 21)",
    assumed=(
        "the event service is a random tree per topic over 100 nodes, not SCRIBE; links are FIFO, "
        "delays truncated at 1 ms",
        "publishers send at Poisson times with mean 5 per second, for 120 s a run (quick: 60 s)",
        "patterns are matched without overlap over untagged notifications; a detection is its "
        "three event ids; agreement is found by both over found by either",
        "exact stamps; no time to live in the buffer",
    ),
    settings=SETTINGS,
    measures=("agreement", "tagged", "violations", "latency_ms"),
    seeds=40,
    quick_seeds=8,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
