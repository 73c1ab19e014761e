"""What the experiments on probabilistic FIFO share: networks of brokers on the columnar engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unisono.core.entropy import digest
from unisono.errors import EnvironmentLacks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from unisono.sim.columnar.brokers import Plan
    from unisono.sim.columnar.latches import Arrivals, Released

    Floats = npt.NDArray[np.float64]
    Longs = npt.NDArray[np.int64]

SEEDS, QUICK_SEEDS = 3, 1
PUBLISHED_PER_S = 10.0  # by one client of each broker
TOPICS, SELECTIVITY = 100, 0.1
MATCH_MS, LINK_MS, THREADS = 20.0, 50.0, 16
ASSUMED = (
    f"a broker matches {THREADS} messages at a time, in {MATCH_MS:g} ms on average (exponential), "
    f"and others wait; links take {LINK_MS:g} ms; the paper gives the links of figure 1a only",
    "the network is a tree; a message goes to the brokers behind which somebody wants it",
    "contents are topics: what a message says of those before it tells exactly whether they are "
    "wanted (16 bytes of a Bloom filter err once in 100,000 with one attribute)",
    "samples pair consecutive arrivals; all subscriptions hold from the beginning; all messages "
    "count, also the first ones, before anything is measured",
)


def needs_numpy() -> Any:
    try:
        import numpy as np

        import unisono.sim.columnar.latches  # noqa: F401
    except ImportError as error:
        raise EnvironmentLacks(
            f"this experiment needs numpy, numba and scipy ({error}): "
            "pip install 'unisono[spark,fifo]'"
        ) from error
    return np


def group_plan(
    seed: int, *, brokers: int, diameter: int, per_broker: int, duration_s: float
) -> Plan:
    """Many clients at each broker, one of which publishes, at random times on random topics."""
    np = needs_numpy()
    from unisono.sim.brokers import Brokers, low_degree
    from unisono.sim.columnar.brokers import Plan

    draw = np.random.default_rng(digest(seed, "clients"))
    messages = round(brokers * PUBLISHED_PER_S * duration_s)
    clients = brokers * per_broker
    return Plan(
        network=Brokers(
            parents=low_degree(brokers, diameter, seed),
            threads=THREADS,
            match_ms=MATCH_MS,
            link_ms=LINK_MS,
        ),
        home=np.repeat(np.arange(brokers, dtype=np.int32), per_broker),
        wants=draw.random((clients, TOPICS)) < SELECTIVITY,
        published_us=np.sort(draw.integers(0, round(duration_s * 1e6), messages)),
        publisher=(draw.integers(0, brokers, messages) * per_broker).astype(np.int32),
        topic=draw.integers(0, TOPICS, messages).astype(np.int32),
    )


def pair_plan(parents: tuple[int, ...], away: int, published_us: Longs, threads: int) -> Plan:
    """One publisher at the first broker, one subscriber of everything at broker `away`."""
    np = needs_numpy()
    from unisono.sim.brokers import Brokers
    from unisono.sim.columnar.brokers import Plan

    count = published_us.size
    return Plan(
        network=Brokers(parents=parents, threads=threads, match_ms=MATCH_MS, link_ms=LINK_MS),
        home=np.array([0, away], np.int32),
        wants=np.array([[False], [True]]),
        published_us=published_us,
        publisher=np.zeros(count, np.int32),
        topic=np.zeros(count, np.int32),
    )


def arrivals_of(plan: Plan, seed: int) -> Arrivals:
    from unisono.sim.columnar.brokers import run
    from unisono.sim.columnar.latches import arrivals

    return arrivals(plan, run(plan, seed))


def delays_ms(came: Arrivals, pair: int = 0) -> Floats:
    """Of one pair, as they arrive."""
    begin, end = came.pair_start[pair], came.pair_start[pair + 1]
    first = came.first[came.publisher[pair]] - 1
    departed = came.departed_us[first + came.number[begin:end]]
    found: Floats = (came.arrived_us[begin:end] - departed) / 1000
    return found


def violations(released: Released) -> int:
    from unisono.sim.columnar.latches import OUT_OF_ORDER

    return int((released.status == OUT_OF_ORDER).sum())


def extra_ms(came: Arrivals, released: Released) -> Floats:
    """How long messages were held, on average, by pair."""
    np = needs_numpy()
    held = (released.released_us - came.arrived_us) / 1000
    found: Floats = np.add.reduceat(held, came.pair_start[:-1]) / np.diff(came.pair_start)
    return found


def static_latch_ms(came: Arrivals, most: int, record: int) -> float:
    """The smallest constant latch with at most so many violations, to a millisecond."""
    from unisono.qos.fifo.options import Fifo
    from unisono.sim.columnar.latches import replay

    low, high = 0, 4096
    while low < high:
        middle = (low + high) // 2
        options = Fifo(rule="static", latch_ms=middle, hold_ms=10_000, record=record)
        if violations(replay(came, options)) <= most:
            high = middle
        else:
            low = middle + 1
    return float(low)
