"""`python -m unisono.experiments.warm`: compile the large loops for this machine.

They are kept beside their sources, so the first experiment or test does not wait for them.
"""

from __future__ import annotations

import multiprocessing

import numpy as np

from unisono.experiments.large_scale import columnar_run
from unisono.qos.reliable.options import Reliability
from unisono.sim.columnar.delivery import NO_COSTS, Plan, run, star_parents


def delivery() -> None:
    run(
        Plan(
            parents=star_parents(3),
            published_us=np.array([1_000_000]),
            publishers=np.zeros(1, np.int32),
            subscribes=np.ones(3, np.bool_),
            costs=NO_COSTS,
            options=Reliability(),
        ),
        seed=1,
    )


def total_order() -> None:
    columnar_run(nodes=3, topics=2, seed=1, duration_s=3, publish="last")


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    works = [spawn.Process(target=work) for work in (delivery, total_order)]
    for work in works:
        work.start()
    for work in works:
        work.join()
    raise SystemExit(any(work.exitcode for work in works))
