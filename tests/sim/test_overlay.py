"""A publisher and subscribers on a random internet, while links or processes crash."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from support.seeds import seed_range, some

from unisono.ens.scribe.options import SECOND, Recover, Shape
from unisono.sim.outages import PAPER, Rhythm
from unisono.sim.overlay import BACK_US, LAST_US, Plan, Result, Trial
from unisono.sim.topologies import Internet

LONG_US = 20 * SECOND  # until a silent site is gone, and what it had under way is sent again

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
    one, same, other = (run(plan(seed, duration_s=60)) for seed in (1, 1, 2))
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


class Crashes(Trial):
    """Processes crash and come back; when what came to whom is written down."""

    def __init__(self, made: Plan) -> None:
        self.came: dict[tuple[str, int], int] = {}
        super().__init__(made)

    def _arrive(self, address: str, topic: str, frame: bytes, now: int) -> None:
        super()._arrive(address, topic, frame, now)
        self.came[address, int(frame)] = now

    def noticed(self) -> Iterator[tuple[str, str, int]]:
        """What should have come and did not, or came so late that it is not what was published
        for this subscriber."""
        for address, numbers in self.run().missed.items():
            for number in numbers:
                if not self._held_up(address, number):
                    yield "missed", address, number
        for (address, number), at_us in self.came.items():
            late = at_us - self._published_us(number) >= LONG_US
            if late and not self._untold(address, number, at_us):
                yield "late", address, number

    def _down(self, address: str) -> list[tuple[int, int]]:
        spared = self._absent.get(address, ())
        return [(begin + LAST_US, end - BACK_US) for begin, end in spared]

    def _held_up(self, address: str, number: int) -> bool:
        """Whether it was on its way past broken trees, to others as well, when this one crashed."""
        published_us = self._published_us(number)
        last_us = max(at for (_, which), at in self.came.items() if which == number)
        return any(
            published_us <= crash_us < min(published_us + LONG_US, last_us)
            for crash_us, _ in self._down(address)
        )

    def _untold(self, address: str, number: int, at_us: int) -> bool:
        """Whether it was published while this one was down, and nobody of its cluster was there
        when it came back, to say what was before."""
        back_us = max((end for _, end in self._down(address) if end <= at_us), default=0)
        system_of = self.topology.system_of
        fellows = [
            other
            for other in (self.publisher, *self.subscribers)
            if other != address and system_of[int(other)] == system_of[int(address)]
        ]
        return self._published_us(number) <= back_us and all(
            any(begin <= back_us < end for begin, end in self._down(other)) for other in fellows
        )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_crashes_of_processes_are_not_noticed(seed: int) -> None:
    """But where all trees break at once: then it takes until others are in their places."""
    trial = Crashes(plan(seed, faults="processes"))
    assert not list(trial.noticed())
    assert sum(1 for _ in trial._due()) < 300 * 19


# Seeds that once failed, by what was wrong, and how long they are played.
PAST = {
    "a-newcomer-is-told-by-one-of-two-what-was-before": (354742908, 150),
    "crashed-while-both-trees-were-broken": (613487895, 90),
    "came-back-to-a-cluster-of-which-nobody-was-left": (380241218, 282),
}


@pytest.mark.parametrize("fault", PAST)
def test_past_failures_stay_mended(fault: str) -> None:
    seed, duration_s = PAST[fault]
    assert not list(Crashes(plan(seed, faults="processes", duration_s=duration_s)).noticed())


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
