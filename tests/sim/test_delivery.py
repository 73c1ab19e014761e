"""Losses on links and the columnar engine of reliable delivery, against closed forms."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import numpy as np
import pytest

from unisono.errors import BadInput, Unsupported
from unisono.models.channel import Channel, lost
from unisono.models.tree import Tree
from unisono.qos.reliable.options import Reliability
from unisono.sim.channels import Wan
from unisono.sim.columnar import heap
from unisono.sim.columnar.delivery import (
    NO_COSTS,
    PAPERS_COSTS,
    Plan,
    balanced_parents,
    run,
    star_parents,
)
from unisono.sim.losses import Later, Loss, Losses

SECOND = 1_000_000
QUIET: dict[str, Any] = {"gossip": "none", "ask": False, "remind": 0, "keep_s": 1}


def plan(parents: Any, events: int = 400, **changes: Any) -> Plan:
    """The root publishes; all others subscribe, and with `inner` the root too."""
    subscribes = np.ones(parents.size, np.bool_)
    subscribes[0] = "inner" in changes
    given = {
        "parents": parents,
        "published_us": np.arange(1, events + 1) * SECOND,
        "publishers": np.zeros(events, np.int32),
        "subscribes": subscribes,
        "costs": NO_COSTS,
        "options": Reliability(redundancy=0, **QUIET),
        **changes,
    }
    return Plan(**given)


@pytest.mark.parametrize(("rate", "burst"), [(0.02, 2.0), (0.2, 1.0), (0.3, 5.0)])
def test_links_lose_packets_as_the_channel_says(rate: float, burst: float) -> None:
    losses = Losses(Loss(rate=rate, burst=burst), 1)
    trains, packets = 20_000, 8
    found = [0] * (packets + 1)
    for train in range(trains):
        found[sum(losses.lost("a", "b", True, train) for _ in range(packets))] += 1
    for count, chance in zip(found, lost(Channel(rate, burst), packets), strict=True):
        assert abs(count - trains * chance) <= 4 * (trains * chance + 1) ** 0.5


def test_losses_on_links_are_independent_unless_shared() -> None:
    for shared, agree in ((0.0, False), (1.0, True)):
        losses = Losses(Loss(rate=0.3, shared=shared), 1)
        one = [losses.lost("a", "b", False, now) for now in range(1000)]
        other = [losses.lost("c", "d", False, now) for now in range(1000)]
        assert (one == other) == agree
        assert 250 < sum(one) < 350


def test_conditions_change_at_their_time() -> None:
    losses = Losses(Loss(later=(Later(at_s=1, rate=0.9, burst=20), Later(at_s=2, rate=0))), 1)
    found = [losses.lost("a", "b", True, at) for at in range(0, 3 * SECOND, SECOND // 100)]
    assert not any(found[:100]) and sum(found[100:200]) > 70 and not any(found[200:])


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.9, "burst": 1}, {"later": (Later(at_s=1, rate=0.9),)}]
)
def test_impossible_losses_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="burst"):
        Loss(**wrong)
    with pytest.raises(BadInput, match="rise"):
        Loss(later=(Later(at_s=2, rate=0), Later(at_s=1, rate=0)))


@pytest.mark.parametrize("redundancy", [0, 1, 3])
def test_one_hop_succeeds_as_often_as_the_channel_says(redundancy: int) -> None:
    channel = Channel(0.05, 2)
    result = run(
        plan(
            star_parents(51),
            loss=Loss(rate=0.05, burst=2),
            options=Reliability(redundancy=redundancy, **QUIET),
        ),
        seed=1,
    )
    chance = sum(lost(channel, 16 + redundancy)[: redundancy + 1])
    # A combination is of no use once in 256 times.
    assert chance - 0.012 < result.success < chance + 0.009


@pytest.mark.parametrize("redundancy", [0, 3])
def test_recoding_in_a_tree_succeeds_as_often_as_the_model_says(redundancy: int) -> None:
    parents = balanced_parents(2, 3)
    options = Reliability(redundancy=redundancy, **QUIET)
    common: dict[str, Any] = {"events": 3000, "loss": Loss(rate=0.02, burst=2), "options": options}
    recoded = run(plan(parents, inner="recode", **common), seed=1)
    copied = run(plan(parents, **common), seed=1)
    tree = Tree(
        degree=2, depth=3, packets=16, channel=Channel(0.02, 2), redundancy=redundancy
    ).success(0)[0]
    below = (recoded.latency_us[:, 1:] >= 0).mean()
    assert abs(below - tree) < 0.01
    assert copied.success <= below + 0.005


def test_coding_takes_the_time_it_is_said_to() -> None:
    """Two hops of 50 ms; without a loss nobody decodes, the coded packets come later."""
    parents = np.array([-1, 0, 1], np.int32)
    for costs, expected in ((NO_COSTS, 100_000), (PAPERS_COSTS, 100_000)):
        result = run(plan(parents, events=5, costs=costs), seed=1)
        assert (result.latency_us[:, 1] == expected).all()
    lossy = Loss(rate=0.2, burst=1)
    options = Reliability(redundancy=4, **QUIET)
    result = run(plan(star_parents(20), loss=lossy, options=options, costs=PAPERS_COSTS), seed=1)
    assert set(np.unique(result.latency_us)) == {-1, 50_000, 50_000 + 4 * 5_000 + 10_000}


@pytest.mark.parametrize("gossip", ["push", "pull", "push-pull"])
def test_gossip_delivers_everything_in_the_end(gossip: Any) -> None:
    options = Reliability(gossip=gossip, period_s=0.3)
    busy = plan(
        star_parents(40),
        events=60,
        published_us=np.sort(np.arange(60) // 20 * SECOND * 13 + SECOND),  # twenty at a time
        options=options,
        loss=Loss(rate=0.2, burst=3),
    )
    result = run(busy, seed=1)
    assert result.success == 1.0 and result.given_up == 0
    assert result.latency_us.tolist() == run(busy, seed=1).latency_us.tolist()
    assert result.latency_us.tolist() != run(busy, seed=2).latency_us.tolist()


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"packets": 0}, BadInput, "packets"),
        ({"packets": 62}, Unsupported, "63 at most"),
        ({"wan": Wan()}, Unsupported, "fifo"),
        ({"options": Reliability(redundancy="adaptive")}, Unsupported, "adaptive"),
        ({"options": Reliability(partners="likely")}, Unsupported, "partners"),
        ({"options": Reliability(fan_out=9)}, BadInput, "fan_out"),
        ({"published_us": np.array([2, 1])}, BadInput, "rising"),
        ({"published_us": np.arange(1, 1000)}, Unsupported, "held at a time"),
        ({"parents": np.array([-1, -1, 0, 0, 0], np.int32)}, BadInput, "root"),
        ({"inner": "recode", "options": Reliability(coding=False)}, Unsupported, "recode"),
    ],
)
def test_what_the_engine_cannot_run_is_refused(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"options": Reliability(), **changes}
    parents = given.pop("parents", star_parents(6))
    with pytest.raises(error, match=text):
        run(plan(parents, **given), seed=1)


def test_the_heap_gives_what_is_due_in_order() -> None:
    rng = Random(1)
    entry, state = np.zeros(1000, heap.ENTRY), np.zeros(2, np.int64)
    expected: list[tuple[int, int]] = []
    turn = 0
    for _ in range(5000):
        if expected and (len(expected) == 1000 or rng.random() < 0.5):
            time, item = heapq.heappop(expected)
            assert heap.next_time(entry, state) == time
            assert heap.pop(entry, state) == item
        else:
            time = rng.randrange(50)
            heapq.heappush(expected, (time, turn))
            heap.push(entry, state, time, turn)
            turn += 1
    assert heap.next_time(np.zeros(1, heap.ENTRY), np.zeros(2, np.int64)) == -1
