"""A network of brokers under probabilistic FIFO: nodes and columns agree on every notification."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import numpy as np
import pytest
from support.seeds import seed_range, some

from unisono.core.events import Delivery, Status
from unisono.core.node import Node
from unisono.core.stack import TimerKey
from unisono.models import latch
from unisono.qos.fifo.options import Fifo
from unisono.sim.brokers import Brokers, BrokerService, low_degree
from unisono.sim.channels import Wan
from unisono.sim.columnar import brokers, latches
from unisono.sim.world import World
from unisono.trace.memory import NullRecorder

HOW = {
    latches.IN_ORDER: Status.IN_ORDER,
    latches.GAP_SKIPPED: Status.GAP_SKIPPED,
    latches.OUT_OF_ORDER: Status.OUT_OF_ORDER,
}
Seen = list[tuple[str, str, int, int, Status]]  # client, publisher, number, when, how
PER_BROKER = 2


def drawn(seed: int) -> tuple[brokers.Plan, Fifo]:
    rng = Random(seed)
    count = rng.randint(2, 8)
    network = Brokers(
        parents=low_degree(count, rng.randint((count + 1) // 2, count - 1), seed),
        threads=rng.choice((1, 2, 8)),
        match_ms=rng.choice((1.0, 20.0)),
        link_ms=rng.choice((0.0, 50.0)),
    )
    clients, topics, messages = count * PER_BROKER, 4, rng.randint(50, 400)
    draw = np.random.default_rng(seed)
    publishers = draw.integers(0, clients, 3)
    plan = brokers.Plan(
        network=network,
        home=np.repeat(np.arange(count, dtype=np.int32), PER_BROKER),
        wants=draw.random((clients, topics)) < rng.choice((0.2, 0.6, 1.0)),
        published_us=np.sort(draw.choice(3_000_000, messages, replace=False)).astype(np.int64),
        publisher=publishers[draw.integers(0, 3, messages)].astype(np.int32),
        topic=draw.integers(0, topics, messages).astype(np.int32),
    )
    rule = rng.choice(("conditional", "paper", "chebyshev", "static"))
    options = Fifo(
        rule=rule,  # type: ignore[arg-type]
        latch_ms=rng.choice((0, 30, 200)) if rule == "static" else None,
        violation=rng.choice((0.3, 0.05, 0.005)),
        record=rng.choice((0, 1, 5, 25)),
        window=rng.choice((5, 25)),
        hold_ms=rng.choice((20.0, 2000.0)),
        buffer=rng.choice((2, 4096)),
    )
    return plan, options


def name(client: int) -> str:
    return f"c{client:02d}"


class Watching:
    def __init__(self) -> None:
        self.seen: Seen = []

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None:
        pass

    def delivered(self, node: str, delivery: Delivery) -> None:
        publisher, _, number = delivery.id.rpartition("-")
        self.seen.append((node, publisher, int(number), delivery.delivered_us, delivery.status))


class ArrivalsFirst(World):
    """Of what happens in the same microsecond, timers are the last."""

    def _fire(self, node: Node, key: TimerKey, at_us: int) -> None:
        self.at(self.now, lambda now: World._fire(self, node, key, at_us))


def by_nodes(plan: brokers.Plan, options: Fifo, seed: int) -> Seen:
    watching = Watching()
    home = {name(client): int(broker) for client, broker in enumerate(plan.home)}
    world = ArrivalsFirst(
        list(home),
        Wan(),
        seed,
        NullRecorder(),
        watching,
        service=lambda at, reach: BrokerService(plan.network, home, seed, at, reach),
    )

    def publish(source: str, topic: str, now: int) -> None:
        world.publish(source, topic, b"")

    for client, wanted in enumerate(plan.wants):
        world.add(Node(name(client), [options.layer(name(client))]))
        if wanted.any():
            world.subscribe(name(client), [f"t{t}" for t in np.flatnonzero(wanted)], "s")
    for message, at in enumerate(plan.published_us):
        where = name(plan.publisher[message]), f"t{plan.topic[message]}"
        world.at(int(at), partial(publish, *where))
    world.run()
    return sorted(watching.seen)


def by_columns(plan: brokers.Plan, options: Fifo, seed: int) -> Seen:
    came = latches.arrivals(plan, brokers.run(plan, seed))
    released = latches.replay(came, options)
    pair = np.repeat(np.arange(came.client.size), np.diff(came.pair_start))
    return sorted(
        (name(came.client[p]), name(came.publisher[p]), int(number), int(when), HOW[int(how)])
        for p, number, when, how in zip(
            pair, came.number, released.released_us, released.status, strict=True
        )
    )


def agreed(seed: int) -> Counter[Status]:
    """How many were notified how, where nodes and columns say the same."""
    plan, options = drawn(seed)
    nodes, columns = by_nodes(plan, options, seed), by_columns(plan, options, seed)
    assert nodes == columns, f"seed {seed}: {options}"
    return Counter(how for *_, how in nodes)


@pytest.mark.seeded
def test_nodes_and_columns_agree() -> None:
    found: Counter[Status] = Counter()
    for seed in seed_range(some(400)):
        found.update(agreed(seed))
    assert min(found[how] for how in HOW.values()) > 100, found


def test_nobody_gets_anything() -> None:
    assert not agreed(1213133114)


@pytest.mark.parametrize("seed", [315, 2144900220])
def test_what_comes_in_the_microsecond_in_which_a_hold_ends_is_in_time(seed: int) -> None:
    """Held as long as the rule that is asked for takes, and as long as Chebyshev's."""
    assert agreed(seed)


@pytest.mark.parametrize("violation", [0.4, 0.05, 1e-4])
@pytest.mark.parametrize("distance", [2.0, 2.7, 9.0, 50.0, 699.0, 1e5])
def test_the_latches_are_those_of_the_model(violation: float, distance: float) -> None:
    """Lambert's W by Newton's method here, by scipy there."""
    expected = latch.latch(violation, distance - 2, 1.0)
    assert latches._held(distance, violation) == pytest.approx(expected, rel=1e-12)
    quantile = latches._lower(2 - np.log(4) - np.log(violation)) - 2
    assert quantile == pytest.approx(latch.quantile(1 - violation, 1.0), rel=1e-12)
