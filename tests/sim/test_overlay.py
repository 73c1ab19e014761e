"""A publisher and subscribers on a random internet, while links or processes crash."""

from __future__ import annotations

import msgspec
import pytest
from support.seeds import seed_range, some

from unisono.ens.scribe.options import SECOND, Recover, Shape
from unisono.sim.outages import PAPER, Rhythm
from unisono.sim.overlay import Plan, Result, Trial
from unisono.sim.topologies import Internet

# As many links down at a time as in the paper, ten times as often for a tenth of the time.
OFTEN = Rhythm(mean_up_s=500, least_down_s=1, most_down_s=120)


def plan(seed: int = 1, recover: Recover = "all", **changes: object) -> Plan:
    shape = Shape(beat_us=2 * SECOND, silence=3, keep_us=60 * SECOND, recover=recover)
    made = Plan(
        internet=Internet(seed=seed, upstreams=2),
        shape=shape,
        seed=seed,
        nodes=20,
        rhythm=OFTEN,
        duration_s=300,
    )
    return msgspec.structs.replace(made, **changes)


def scribe(seed: int) -> Plan:
    one_tree = Shape(
        trees=1, backups=0, leaves=4, beat_us=2 * SECOND, diverse=False, recover="none"
    )
    return plan(seed, shape=one_tree, own_clusters=True)


def run(made: Plan) -> Result:
    return Trial(made).run()


def test_a_run_is_a_function_of_its_plan() -> None:
    one, same, other = run(plan()), run(plan()), run(plan(seed=2))
    assert one == same
    assert one.latency_us != other.latency_us


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_with_two_upstreams_everything_comes(seed: int) -> None:
    result = run(plan(seed))
    assert not result.missed and result.success == 1 and result.incomplete == 0
    assert result.due == 300 * 19 == len(result.latency_us)


def test_a_node_that_is_cut_off_and_becomes_the_root_asks_its_children() -> None:
    """It is a cluster of its own then, and has nobody above it who has what it missed."""
    made = plan(3, nodes=50, rhythm=PAPER, duration_s=300)
    assert not run(msgspec.structs.replace(made, internet=Internet(seed=3, systems=4))).missed


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_crashes_of_processes_are_not_noticed(seed: int) -> None:
    result = run(plan(seed, faults="processes"))
    assert not result.missed and result.due < 300 * 19
    assert max(result.latency_us) < 20 * SECOND  # not what was kept from before it came back


def test_plain_scribe_loses_and_the_papers_rule_loses_less() -> None:
    lost = {
        name: sum(1 - run(make(seed)).success for seed in range(2))
        for name, make in (("scribe", scribe), ("paper", lambda seed: plan(seed, "paper")))
    }
    assert lost["scribe"] > 2 * lost["paper"]


def test_a_crash_that_would_cut_a_node_off_does_not_take_place() -> None:
    trial = Trial(plan(faults="none"))
    topology = trial.topology
    nodes = [int(trial.publisher), *map(int, trial.subscribers)]
    for link in range(len(topology.links)):
        trial._crash(link)
    reached, left = [nodes[0]], set(nodes[1:])
    for one in reached:
        near = {other for other in left if topology.alive(one, other)}
        left -= near
        reached += near
    assert not left
    assert not all(topology.alive(a, b) for a in nodes for b in nodes if a != b)


def test_what_was_missed_is_counted() -> None:
    """The subscribers' side is cut off: everything from then on is missed."""
    trial = Trial(plan(faults="none", duration_s=100))
    victim = trial.subscribers[0]
    trial.world.at(trial.begin_us + 50 * SECOND - 1, lambda: trial.world.crash(victim))
    result = trial.run()
    assert result.missed == {victim: list(range(50, 100))}
    assert result.incomplete == 0.5 and result.success == 1 - 50 / (100 * 19)
    assert result.published == 100 and result.sent["Cast"] > 0
