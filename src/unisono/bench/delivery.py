"""`unisono bench delivery`: how fast reliable delivery is simulated on columns.

Push and pull with coding, two redundant packets, 2 % of all packets lost in bursts of two, events
of 16 packets, one a second. Targets: a thousand events among 40 nodes in less than 5 s, among
10,000 nodes in less than 120 s, in processor seconds of one core. The small one is the median of
several runs, the large one is run once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.bench.machine import machine
from unisono.qos.reliable.options import Reliability
from unisono.sim.columnar.delivery import Plan
from unisono.sim.columnar.delivery import run as simulate
from unisono.sim.columnar.overlay import random_parents
from unisono.sim.losses import Loss

EVENTS = 1000
SMALL, LARGE = 40, 10_000
MOST_S = {SMALL: 5.0, LARGE: 120.0}
STYLES = ("push", "pull")
RUNS = 3


def run(
    runs: int, remark: Callable[[str], None], sizes: dict[int, int] | None = None
) -> dict[str, Any]:
    """Measure everything; the JSON object of the command. `sizes`: events by number of nodes."""
    simulate(_plan("push", 5, 1), 1)  # compiles
    found: dict[str, dict[str, Any]] = {}
    for nodes, events in (sizes or {SMALL: EVENTS, LARGE: EVENTS}).items():
        for style in STYLES:
            taken = []
            for turn in range(runs if nodes == SMALL else 1):
                started = time.process_time()
                result = simulate(_plan(style, nodes, events), turn)
                taken.append(time.process_time() - started)
            seconds = statistics.median(taken)
            remark(f"{nodes} nodes, {style}: {seconds:.2f} s")
            found[f"{style}, {nodes} nodes"] = {
                "s": round(seconds, 2),
                "s_max": MOST_S[nodes],
                "events": events,
                "success": result.success,
                "packets": result.tree_packets + result.gossip_packets,
                "met": seconds < MOST_S[nodes],
            }
    met = all(figures["met"] for figures in found.values())
    return {"machine": machine(), "delivery": {"runs": found, "met": met}}


def _plan(style: Any, nodes: int, events: int) -> Plan:
    return Plan(
        parents=random_parents(nodes, 0, 1, 0),
        published_us=np.arange(1, events + 1) * 1_000_000,
        publishers=np.zeros(events, np.int32),
        subscribes=np.ones(nodes, np.bool_),
        options=Reliability(gossip=style),
        loss=Loss(rate=0.02, burst=2),
    )
