"""Who coordinates what, as processes of a cluster come and go."""

from __future__ import annotations

from random import Random

import pytest
from support.seeds import seed_range, some

from unisono.ens.scribe.cluster import Cluster
from unisono.ens.scribe.messages import Enter, Member, View
from unisono.ens.scribe.options import Shape

SHAPES = [Shape(trees=trees, backups=backups) for trees in (1, 2, 3) for backups in (0, 1, 2)]


def member(number: int) -> Member:
    return Member(f"p{number}", f"a{number}", candidate=number % 5 != 4)


def decides(cluster: Cluster, alive: list[Member]) -> None:
    """Time goes by, and only these are heard."""
    for now in range(0, 40 * cluster.shape.beat_us, cluster.shape.beat_us):
        for one in alive:
            cluster.hear(one.name, now)
        cluster.tick(now)
        if cluster.leads:
            cluster.enter(Enter("d", member(100)), now)


@pytest.mark.seeded
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_who_is_active_keeps_its_slot(shape: Shape) -> None:
    """Whoever else ends or comes; whether the leader decides or the one that is next."""
    for seed in seed_range(some(200)):
        rng = Random(seed)
        members = [member(number) for number in rng.sample(range(20), 12)]
        candidates = [one for one in members if one.candidate]
        alive = set(rng.sample(candidates, rng.randint(shape.trees, len(candidates))))
        me = next(one for one in candidates if one in alive)
        cluster = Cluster("d", me, shape, lambda to, message: None)
        cluster.views(View("d", 7, tuple(members)), members[0].address, 0)
        active = cluster.actives
        decides(cluster, [one for one in members if one in alive])
        assert cluster.leads
        assert set(cluster.candidates) - {member(100)} == alive, f"seed {seed}"
        for slot, one in enumerate(active):
            if one in alive:
                assert cluster.active(slot) == one, f"seed {seed}, slot {slot}"


def test_a_backup_takes_the_place_of_a_coordinator() -> None:
    members = tuple(member(number) for number in range(4))
    cluster = Cluster("d", members[1], SHAPES[4], lambda to, message: None)
    cluster.views(View("d", 7, members), members[0].address, 0)
    assert (cluster.actives, cluster.backups(0)) == (list(members[:2]), [members[2]])
    decides(cluster, list(members[1:]))
    assert cluster.actives == [members[2], members[1]]
    assert cluster.leader == members[1]


def test_who_has_all_slots_gives_some_to_those_that_it_hears() -> None:
    """Nobody was heard when it took them."""
    members = tuple(member(number) for number in range(4))
    cluster = Cluster("d", members[1], SHAPES[4], lambda to, message: None)
    cluster.views(View("d", 7, members), members[0].address, 0)
    for now in range(0, 8 * cluster.shape.beat_us, cluster.shape.beat_us):
        cluster.tick(now)
    assert cluster.leads
    assert cluster.actives == [members[1]]
    decides(cluster, list(members[1:]))
    one, other = cluster.actives
    assert one == members[1]
    assert other in members[2:]
