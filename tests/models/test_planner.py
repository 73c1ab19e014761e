"""The prediction of recovery against simulation, and the planner's advice."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from unisono.errors import BadInput, Unsupported
from unisono.models.channel import Channel
from unisono.models.planner import (
    INFEASIBLE,
    LIKELY,
    SURE,
    Target,
    parse_target,
    plan,
    settings,
)
from unisono.models.recovery import Group, course
from unisono.qos.reliable.options import Reliability
from unisono.sim.columnar.delivery import Plan, Result, run, star_parents
from unisono.sim.losses import Loss

GROUP = Group(nodes=40, packets=16, channel=Channel(0.02, 2))
TIMES_S = (0.3, 0.5, 1.0, 2.0)


def simulated(setting: Reliability, group: Group, events: int = 400) -> Result:
    return run(
        Plan(
            parents=star_parents(group.nodes),
            published_us=np.arange(1, events + 1) * 1_000_000,
            publishers=(np.arange(events) % group.nodes).astype(np.int32),
            subscribes=np.ones(group.nodes, np.bool_),
            packets=group.packets,
            options=setting,
            loss=Loss(rate=group.channel.loss, burst=group.channel.burst),
        ),
        seed=1,
    )


@pytest.mark.parametrize("loss", [0.02, 0.05, 0.1])
@pytest.mark.parametrize(
    "setting",
    [
        Reliability(),
        Reliability(redundancy=0, period_s=0.2),
        Reliability(redundancy=4, period_s=1.0, fan_out=4),
        Reliability(fan_in=2, spare=2),
        Reliability(gossip="push", redundancy=0),
        Reliability(gossip="push", fan_out=4),
        Reliability(gossip="none", redundancy=4, period_s=0.3),
    ],
)
def test_the_prediction_is_near_the_simulation(loss: float, setting: Reliability) -> None:
    """Never less than a third of the misses is predicted; too many at most, for push, by six."""
    group = Group(nodes=40, packets=16, channel=Channel(loss, 2))
    predicted, seen = course(group, setting, 4.0), simulated(setting, group)
    for time in TIMES_S:
        expected, missed = 1 - predicted.within(time), 1 - seen.within(time)
        assert missed / 3 - 0.005 <= expected <= 6 * missed + 0.01, time
    assert seen.overhead(16) == pytest.approx(predicted.overhead, rel=0.15)


def test_shares_only_grow_and_never_pass_one() -> None:
    for setting in settings(GROUP)[::37]:
        shares = course(GROUP, setting, 3.0).shares
        assert all(0 <= a <= b <= 1 + 1e-9 for a, b in pairwise(shares))


def test_advice_is_the_cheapest_that_meets_the_targets_and_simulation_confirms_it() -> None:
    targets = [Target(1000, 0.95), Target(2000, 0.998)]
    advice = plan(GROUP, targets)
    assert advice.confidence == SURE and advice.nearest == ()
    mine = course(GROUP, advice.setting, 2.1)
    cost = mine.overhead + mine.idle
    for setting in settings(GROUP)[::11]:
        other = course(GROUP, setting, 2.1)
        sure = all(1 - other.within(t.within_ms / 1000) <= 0.4 * (1 - t.share) for t in targets)
        assert not sure or other.overhead + other.idle >= cost - 1e-6
    seen = simulated(advice.setting, GROUP)
    assert all(seen.within(t.within_ms / 1000) >= t.share for t in targets)


def test_a_tight_target_is_likely_only() -> None:
    best = max(course(GROUP, s, 1.0).within(0.3) for s in settings(GROUP))
    assert plan(GROUP, [Target(300, best - 1e-6)]).confidence == LIKELY


def test_what_cannot_be_met_is_said_with_what_can() -> None:
    advice = plan(Group(nodes=40, packets=16, channel=Channel(0.3, 4)), [Target(150, 0.99)])
    assert advice.confidence == INFEASIBLE
    (nearest,) = advice.nearest
    assert nearest.share == 0.99 and nearest.within_ms > 150
    later = plan(
        Group(nodes=40, packets=16, channel=Channel(0.3, 4)), [Target(nearest.within_ms + 1, 0.99)]
    )
    assert later.confidence != INFEASIBLE


def test_rounds_cost_something_even_if_nothing_is_published() -> None:
    quick, slow = (course(GROUP, Reliability(period_s=p), 1.0).idle for p in (0.1, 1.0))
    assert quick == pytest.approx(10 * slow)


@pytest.mark.parametrize("text", ["", "1000", "x:0.9", "1000:1.5", "-1:0.9", "1000:0", "nan:0.5"])
def test_targets_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_target(text)


@pytest.mark.parametrize(
    "wrong", [{"nodes": 2}, {"packets": 0}, {"link_s": 0.0}, {"rate_per_s": 0.0}]
)
def test_groups_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    given: dict[str, object] = {"nodes": 40, "packets": 16, "channel": Channel(0.02, 2), **wrong}
    with pytest.raises(BadInput):
        Group(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        Reliability(redundancy="adaptive"),
        Reliability(coding=False),
        Reliability(gossip="push", pushed=1),
        Reliability(gossip="push-pull"),
    ],
)
def test_what_is_not_modelled_is_refused(setting: Reliability) -> None:
    with pytest.raises(Unsupported, match="predicted"):
        course(GROUP, setting, 1.0)
