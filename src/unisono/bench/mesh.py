"""`unisono bench mesh`: datagrams per core, latency beside NATS and Zenoh, trees of many sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unisono.bench import datagrams, latency, mesh_sim
from unisono.bench.machine import machine

RUNS = 3


def run(runs: int, remark: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything; the JSON object of the command."""
    found = {
        "datagrams": datagrams.run(runs, remark),
        "latency": latency.run(runs, remark),
        "simulator": mesh_sim.run(runs, remark),
    }
    met = all(part["met"] is not False for part in found.values())
    return {"machine": machine(), "mesh": {**found, "met": met}}
