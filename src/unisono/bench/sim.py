"""`unisono bench sim`: the simulator's queues against SimPy's, and the largest experiment's run.

All queues carry out the same random hops, in turn; figures are medians, in processor seconds
(each uses one core), so that what else runs on the machine matters little. The columnar engine must
be at least 20 times as fast as SimPy, the object driver not slower. A run of figure 3.18 - 10,000
nodes, 1,000 topics, 100 subscriptions each, 500 s at one event per second, adaptive order - must
take less than 60 s on one core and 4 GiB, measured in a process of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from unisono.bench import hops
from unisono.bench.machine import machine

COLUMNAR_MIN = 20.0
OBJECTS_MIN = 1.0
SCENARIO_MAX_S = 60.0
SCENARIO_MAX_GIB = 4.0
HOPS = {"columnar": 5_000_000, "objects": 500_000, "simpy": 500_000}
WORK: dict[str, Callable[..., int]] = {
    "columnar": hops.columnar,
    "objects": hops.objects,
    "simpy": hops.simpy,
}
RUNS = 3


def run(runs: int, remark: Callable[[str], None], counts: dict[str, int] = HOPS) -> dict[str, Any]:
    """Measure everything; the JSON object of the command."""
    delay_us = hops.delays()
    _check_equal(delay_us)
    speeds: dict[str, list[float]] = {name: [] for name in WORK}
    for turn in range(runs):
        for name, work in WORK.items():
            started = time.process_time()
            work(delay_us, hops.TOKENS, counts[name])
            speeds[name].append(counts[name] / (time.process_time() - started))
        told = ", ".join(f"{name} {speeds[name][-1]:,.0f}" for name in WORK)
        remark(f"run {turn + 1}, hops per second: {told}")
    remark("one run of figure 3.18 ...")
    scenario = [_scenario() for _ in range(runs)]
    return {"machine": machine(), "sim": summarise(speeds, scenario)}


def summarise(speeds: dict[str, list[float]], scenario: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and ratios against their targets."""
    median = {name: statistics.median(found) for name, found in speeds.items()}
    columnar, objects = (median[name] / median["simpy"] for name in ("columnar", "objects"))
    taken = statistics.median(found["process_s"] for found in scenario)
    peak = max(found["peak_gib"] for found in scenario)
    return {
        "hops_per_s": {name: round(speed) for name, speed in median.items()},
        "columnar_over_simpy": round(columnar, 2),
        "objects_over_simpy": round(objects, 2),
        "fig_3_18": {**scenario[0], "process_s": round(taken, 1), "peak_gib": round(peak, 2)},
        "targets": {
            "columnar_over_simpy_min": COLUMNAR_MIN,
            "objects_over_simpy_min": OBJECTS_MIN,
            "fig_3_18_s_max": SCENARIO_MAX_S,
            "fig_3_18_gib_max": SCENARIO_MAX_GIB,
        },
        "met": columnar >= COLUMNAR_MIN
        and objects >= OBJECTS_MIN
        and taken < SCENARIO_MAX_S
        and peak < SCENARIO_MAX_GIB,
    }


def _check_equal(delay_us: Any) -> None:
    """The same work, hop by hop; also compiles what will be measured."""
    sums = {name: work(delay_us, 1000, 20_000) for name, work in WORK.items()}
    if len(set(sums.values())) != 1:
        raise AssertionError(f"not the same hops: {sums}")


def _scenario() -> dict[str, Any]:
    """A run of figure 3.18 in a fresh process on one core; times include its start."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "from unisono.bench.sim import scenario; scenario()"],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        check=True,
    )
    taken = time.perf_counter() - started
    figures: dict[str, Any] = json.loads(done.stdout)
    return {**figures, "process_s": round(taken, 1)}


def scenario() -> None:
    """What the fresh process does."""
    import resource

    from unisono.experiments.large_scale import dynamic_run
    from unisono.sim.columnar.engine import Adaptive

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    started = time.perf_counter()
    result = dynamic_run(0, False, "random", Adaptive())
    taken = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {
        "run_s": round(taken, 1),
        "peak_gib": round(peak / 2**30, 2),
        "events": int(result.tables.event.size),
        "notifications": int(result.tables.node["notified"].sum()),
        "steps": result.steps,
    }
    print(json.dumps(figures))
