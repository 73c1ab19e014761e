"""Figure 4.4: events that UEC discards, and how often each event is sent against total order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from unisono.experiments.data_centres import (
    MEASURES,
    PROTOCOLS,
    QUICK_SEEDS,
    SEEDS,
    SERVICE_MS,
    SETTING,
    UEC_SETTING,
    lines,
    measure,
    names,
    spread,
    verdict,
)
from unisono.experiments.registry import NOT_MET, UNKNOWN, Claim, Experiment, Table

RATES = (1, 10, 25, 50, 100)
COALITIONS = ("uec-1", "uec-2", "uec-3")
# What the text does not give: how losses depend on the service time, and reach on the fan-out.
SERVICES_MS = (1, 2, 8)
FANOUTS = (3, 4, 5, 6, 7)
_LOST = 0.01  # more than gossip alone misses with a fan-out of 5
_FEW = 0.01


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    name, _, value = setting.partition("@")
    if name == "fanout":
        case = msgspec.structs.replace(PROTOCOLS["uec-1-fast"], fanout=int(value))
    elif name.startswith("service-"):
        service_ms = float(name.removeprefix("service-"))
        case = msgspec.structs.replace(
            PROTOCOLS["uec-1"], service_ms=service_ms, rate_per_s=float(value)
        )
    else:
        case = msgspec.structs.replace(PROTOCOLS[name], rate_per_s=float(value))
    return measure(case, seed, quick)


def claims(table: Table) -> list[Claim]:
    def lost(name: str, *values: object) -> list[float]:
        return [table[f"{name}@{value}"]["lost_mean"] for value in values]

    heavy = [share for name in COALITIONS for share in lost(name, 50, 100)]
    light = [share for name in COALITIONS for share in lost(name, 1, 10, 25)]
    sends = {name: table[f"{name}@10"]["sends_mean"] for name in (*COALITIONS, "to-exact")}
    ratio = sends["uec-1"] / sends["to-exact"]
    busiest = {name: table[f"{name}@10"]["busiest_mean"] for name in ("uec-1", "to-exact")}
    load = {name: 100 * messages * SERVICE_MS / 1000 for name, messages in busiest.items()}
    other = "; ".join(
        f"{service} ms: {spread(lost(f'service-{service}', 50, 100))}" for service in SERVICES_MS
    )
    reach = "; ".join(
        f"{fanout}: {table[f'fanout@{fanout}']['lost_mean']:.3%}" for fanout in FANOUTS
    )
    return [
        Claim(
            "UEC discards events at 50 and 100 events/s and not below",
            "discards at 50 and 100",
            f"lost {spread(heavy)} (k = 1, 1, 2, 2, 3, 3), at most {max(light):.2%} at 25 or "
            f"fewer, with {SERVICE_MS:g} ms a message, chosen so; k = 1 at 50, 100 with {other}",
            UNKNOWN if min(heavy) > _LOST and max(light) < _FEW else NOT_MET,
        ),
        Claim(
            "an event is sent almost five times as often as in TO",
            "almost 5 times",
            f"{ratio:.1f} times: {sends['uec-1']:.1f} against {sends['to-exact']:.1f} messages "
            f"with a fan-out of 5; not notified by fan-out: {reach}",
            verdict(4 <= ratio <= 6),
        ),
        Claim(
            "it is the gossip that makes nodes discard: such nodes carry TO at 100 events/s",
            "gossip's overhead leads nodes to discard",
            f"the busiest node takes {busiest['uec-1']:.1f} messages per event in UEC-1, "
            f"{busiest['to-exact']:.1f} in TO, stamps included; at {SERVICE_MS:g} ms each and 100 "
            f"events/s that is {load['uec-1']:.0%} and {load['to-exact']:.0%} of its time",
            verdict(load["to-exact"] < 1 < load["uec-1"]),
        ),
    ]


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = lines(table, COALITIONS, RATES, "lost", 100)
    curves(drawn, "events/s", "notifications lost (%)", path)


EXPERIMENT = Experiment(
    id="fig-4.4",
    title="Events that UEC discards, and how often an event is sent",
    source="thesis section 4.3.2, figure 4.4",
    assumed=(
        *SETTING,
        *UEC_SETTING,
        "lost is the share of notifications that did not happen; sends are messages between "
        "different nodes that carry the event, without the managers' messages of TO",
    ),
    settings=(
        *names(COALITIONS, RATES),
        "to-exact@10",
        *(setting for s in SERVICES_MS for setting in names([f"service-{s}"], (50, 100))),
        *names(["fanout"], FANOUTS),
    ),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
