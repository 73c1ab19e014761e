"""What the experiments of thesis chapter 4 share: settings by name, assumptions, measuring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from unisono.cases.active_database.simulate import Case, run_case
from unisono.experiments.registry import MET, NOT_MET, Table

MEASURES = (
    "rollbacks",
    "tagged",
    "undone",
    "lost",
    "latency_ms",
    "sends",
    "controls",
    "busiest",
    "unwanted",
    "inconsistent",
    "disordered",
    "window_ms",
    "longest_ms",
    "refused",
    "equal",
)
SEEDS = 3
QUICK_SEEDS = 2
_QUICK_S = 30.0

# The protocols by name. Below 4 ms a node serves all gossip of 50 events/s; see fig-4.4.
PAPER_BUFFER = 70
SERVICE_MS = 4.0
PROTOCOLS: dict[str, Case] = {
    "to-paper": Case(stamps="paper", buffer=PAPER_BUFFER),
    "to-exact": Case(stamps="exact"),
    "sequencer": Case(protocol="sequencer"),
    "uec-1": Case(protocol="uec", coalition=1, service_ms=SERVICE_MS),
    "uec-2": Case(protocol="uec", coalition=2, service_ms=SERVICE_MS),
    "uec-3": Case(protocol="uec", coalition=3, service_ms=SERVICE_MS),
    "uec-1-fast": Case(protocol="uec", coalition=1),
    "uec-3-fast": Case(protocol="uec", coalition=3),
}

SETTING = (
    "within a data centre N(0.5, 0.1) ms, between them N(21, 10.85) ms (the text gives the mean; "
    "the deviation is that of its fast links), FIFO, no loss; nodes need no time for messages of "
    "total order",
    "all replicas publish at Poisson times; the rate is that of all together; the event service "
    "is a random tree per topic, not SCRIBE",
    "a rollback is a notification of a transaction that precedes one already applied; its share "
    "is of all notifications; rolling back and replaying takes no time",
    "latency is from publication to the last replica, over events that reached all",
)
UEC_SETTING = (
    f"UEC: push gossip, each node passes an event it hears for the first time to 5 others; "
    f"{SERVICE_MS:g} ms to serve a message and an inbox of 100 - the text gives neither; it says "
    "that events are discarded from 50 events/s on, which takes about 4 ms. uec-1-fast serves in "
    "no time. Sequencers alternate between the centres",
)


def verdict(holds: bool) -> str:
    return MET if holds else NOT_MET


def names(protocols: Iterable[str], values: Iterable[object]) -> tuple[str, ...]:
    """Settings such as uec-2@50."""
    values = tuple(values)
    return tuple(f"{protocol}@{value}" for protocol in protocols for value in values)


def measure(case: Case, seed: int, quick: bool) -> Mapping[str, float]:
    """One run, five simulated minutes unless quick."""
    if quick:
        case = msgspec.structs.replace(case, duration_s=_QUICK_S)
    return run_case(case, seed)


def lines(
    table: Table,
    protocols: Sequence[str],
    values: Sequence[float],
    measured: str,
    scale: float = 1.0,
) -> dict[str, list[tuple[float, float]]]:
    """Curves over the settings of `names`, by protocol."""
    return {
        protocol: [
            (value, scale * table[f"{protocol}@{value:g}"][f"{measured}_mean"]) for value in values
        ]
        for protocol in protocols
    }


def spread(values: Iterable[float], digits: int = 1) -> str:
    """Shares as one text: 1.0 %, 2.5 %, ..."""
    return ", ".join(f"{value:.{digits}%}" for value in values)
