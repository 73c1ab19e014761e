"""Clusters, rings and trees: what must hold after any story of joins, leaves and crashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.overlay import Story, clusters_wrong, rings_wrong, sites, trees_wrong, wrong
from support.seeds import seed_range, some

from unisono.ens.scribe.messages import Contact
from unisono.ens.scribe.options import Shape
from unisono.ens.scribe.pastry import Ring, Seen

ROUNDS = 100  # beats within which everything is in order again
TOPIC = "t0"


def shape_of(seed: int) -> Shape:
    return Shape(trees=1 + seed % 3, backups=seed % 2, leaves=2 if seed % 2 else 8)


def grown(seed: int, processes: int, domains: int, shape: Shape | None = None) -> Story:
    """A mesh that was left alone until all was in order."""
    story = Story(seed, shape or shape_of(seed))
    for number in range(processes):
        story.join(f"d{number % domains}")
        story.world.run(story.world.now + story.shape.beat_us)
    assert story.settle(ROUNDS) is not None, f"seed {seed}: " + next(
        wrong(story.world, story.shape, story.keys)
    )
    return story


@pytest.mark.seeded
@pytest.mark.parametrize(
    "seeds", [seed_range(start + 25, start) for start in range(0, some(100), 25)]
)
def test_after_any_story_all_is_in_order_again(seeds: range) -> None:
    """Also when a tenth of all messages was lost meanwhile; and nothing came twice."""
    for seed in seeds:
        story = Story(seed, shape_of(seed), loss=0.1 if seed % 5 == 0 else 0.0)
        story.disturb(40, 4 if seed % 2 else 10)
        story.net.loss = 0.0
        rounds = story.settle(ROUNDS)
        assert rounds is not None, (
            f"seed {seed}: {next(wrong(story.world, story.shape, story.keys))}"
        )
        assert not story.got or max(story.got.values()) == 1, f"seed {seed}: a duplicate"


@pytest.mark.seeded
@pytest.mark.parametrize("seeds", [seed_range(some(16))])
def test_many_sites_that_know_few_of_each_other(seeds: range) -> None:
    """More sites than leaves: routes go by the tables."""
    for seed in seeds:
        story = Story(seed, Shape(trees=1, backups=0, leaves=1 + seed % 2))
        story.disturb(90, 40)
        assert story.settle(ROUNDS) is not None, (
            f"seed {seed}: {next(wrong(story.world, story.shape, story.keys))}"
        )


def test_tables_that_are_wrong_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sort = Ring._sort

    def spoilt(ring: Ring) -> None:
        sort(ring)
        ring._cells = dict.fromkeys(ring._cells, next(iter(ring.known.values())))

    story = grown(1, 30, 30, Shape(trees=1, backups=0, leaves=1))
    monkeypatch.setattr(Ring, "_sort", spoilt)
    for site in sites(story.world, 0).values():
        site.ring._sort()
    assert any(rings_wrong(story.world, 0, story.keys))


_CUTS = [
    *(seed_range(start + some(100), start) for start in (0, 100, 200, 300)),
    range(442, 443),
    range(1494, 1495),
]


@pytest.mark.seeded
@pytest.mark.parametrize("seeds", _CUTS)
def test_a_cluster_that_was_cut_is_one_again(seeds: range) -> None:
    """Also if some were left out by others whom they still took for their followers."""
    for seed in seeds:
        story = Story(seed, Shape())
        for domain in ("rome", "rome", "rome", "rome", "rome", "oslo"):
            story.join(domain)
            story.world.run(story.world.now + 3 * story.shape.beat_us)
        story.cut(1 + seed % 4)
        assert story.settle(ROUNDS) is not None, (
            f"seed {seed}: {next(wrong(story.world, story.shape, story.keys))}"
        )


_TOLD = """
from support.overlay import Story
from unisono.ens.scribe.options import Shape
story = Story(7, Shape(), loss=0.1)
world = story.world
for number in range(12):
    story.join(f"d{number % 2}")
for address in world.nodes:
    for topic in ("a", "b", "c"):
        world.subscribe(address, topic)
world.run(world.now + 20_000_000)
for number in range(20):
    story.publish(next(iter(world.nodes)), "a")
story.disturb(10, 2)
print(sorted(world.sent.items()), sorted(story.got.items()))
"""


def test_a_story_is_the_same_in_every_process() -> None:
    """Though Python goes through sets in another order each time."""
    told = {
        subprocess.run(
            [sys.executable, "-c", _TOLD],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


@pytest.mark.parametrize("seed", [1128, 1152, 1356])
def test_a_mesh_in_two_parts_is_one_again(seed: int) -> None:
    """Whoever still lives and knows of both parts coordinates nothing."""
    story = Story(seed, shape_of(seed))
    story.disturb(60, 2 + seed % 12)
    assert story.settle(ROUNDS) is not None, next(wrong(story.world, story.shape, story.keys))


@pytest.mark.slow
def test_a_thousand_stories() -> None:
    for seed in range(1000, 2000):
        story = Story(seed, shape_of(seed), loss=0.1 if seed % 5 == 0 else 0.0)
        story.disturb(60, 2 + seed % 12)
        story.net.loss = 0.0
        assert story.settle(ROUNDS) is not None, f"seed {seed}"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(8)))
def test_all_that_is_published_arrives_once(seed: int) -> None:
    story = grown(seed, 14, 4)
    world = story.world
    addresses = list(world.nodes)
    tickets = [world.subscribe(address, TOPIC) for address in addresses[1:]]
    assert world.run_until(lambda: world.done.issuperset(tickets), ROUNDS * story.shape.beat_us)
    frames = []
    for _ in range(50):
        frames.append(story.publish(story.rng.choice(addresses), TOPIC))
        world.run(world.now + 20_000)
    world.run(world.now + 10 * story.shape.beat_us)
    for address in addresses[1:]:
        assert [story.got[address, frame] for frame in frames] == [1] * 50


def test_plain_pastry_of_a_hundred_sites() -> None:
    """Every process its own cluster: unmodified Pastry and Scribe."""
    story = grown(5, 100, 100, Shape(trees=1, backups=0, leaves=4, diverse=False))
    assert len(sites(story.world, 0)) == 100
    largest = max(len(site.ring.known) for site in sites(story.world, 0).values())
    assert largest < 60, "a site knows a few others, not all"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [*seed_range(some(8)), 18, 28, 52])
def test_a_crashed_coordinator_is_not_missed(seed: int) -> None:
    """Events go on to arrive at everyone, without a pause, over the other coordinator."""
    story = grown(seed, 12, 3, Shape(trees=2, backups=1))
    world = story.world
    publisher, *others = list(world.nodes)
    for address in others:
        world.subscribe(address, TOPIC)
    world.run(world.now + 10 * story.shape.beat_us)
    coordinators = [a for a in others if world.nodes[a].sites]
    victim = story.rng.choice(coordinators)
    frames = []
    for number in range(60):
        if number == 20:
            world.crash(victim)
        frames.append(story.publish(publisher, TOPIC))
        sent_us = world.now
        world.run(world.now + story.shape.beat_us // 2)
        for address in others:
            if address != victim:
                assert story.got[address, frames[-1]] == 1, f"{number} to {address} at {sent_us}"


@pytest.mark.parametrize("trees", [2, 3, 4])
def test_two_that_miss_the_leader_and_each_other_agree_in_the_end(trees: int) -> None:
    """Both announce a view; neither of them hears the other while the leader is gone."""
    for seed in range(6):
        story = grown(seed, 9, 1, Shape(trees=trees, backups=1))
        world = story.world
        (cluster, *_) = [node.cluster for node in world.nodes.values()]
        leader, one, other = (member.address for member in cluster.candidates[:3])
        story.net.cut = {frozenset((one, other))}
        world.crash(leader)
        world.run(world.now + 8 * story.shape.beat_us)
        story.net.cut = set()
        assert story.settle(ROUNDS) is not None, f"seed {seed}"


def test_who_is_gone_is_not_named_any_more() -> None:
    """By a coordinator or anybody else: `unisono top` shows it."""
    story = grown(2, 9, 3, Shape(trees=2, backups=0))
    world = story.world
    world.run(world.now + 10 * story.shape.beat_us)
    assert all(node.clusters.keys() == {"d0", "d1", "d2"} for node in world.nodes.values())
    for gone in ("d1", "d2"):
        for address in [a for a, node in world.nodes.items() if node.cluster.domain == gone]:
            world.crash(address)
        world.run(world.now + ROUNDS * story.shape.beat_us)
        left = {node.cluster.domain for node in world.nodes.values()}
        assert all(node.clusters.keys() == left for node in world.nodes.values())


def test_the_checks_see_what_is_broken() -> None:
    """A wrong leaf set, a wrong parent, a wrong view: each is told."""
    story = grown(3, 20, 10, Shape(trees=1, backups=0))
    world = story.world
    for address in world.nodes:
        world.subscribe(address, TOPIC)
    assert story.settle(ROUNDS) is not None
    world.run(world.now + 4 * story.shape.beat_us)
    found = sites(world, 0)
    site = next(s for s in found.values() if s.trees[TOPIC].parent is not None)
    parent = site.trees[TOPIC].parent
    assert parent is not None

    found[parent.site].trees[TOPIC].children.pop(site.site)
    assert "does not know its child" in next(trees_wrong(world, 0))
    found[parent.site].trees[TOPIC].children[site.site] = parent
    site.trees[TOPIC].parent = None
    told = [*trees_wrong(world, 0)]
    assert any("is not the root" in problem for problem in told)
    assert any("is not the child of" in problem for problem in told)

    for neighbour in site.ring.neighbours:
        for other in found.values():
            if other is not site:
                other.ring.forget(neighbour.site)
    keys = [found[n.site].ring.id for n in site.ring.neighbours]
    assert any("ends at" in problem for problem in rings_wrong(world, 0, keys))

    node = next(iter(world.nodes.values()))
    node.cluster.found(world.now)
    assert any(clusters_wrong(world))


def test_a_site_that_moved_within_a_view_of_the_same_number_is_noticed() -> None:
    """A leader died while it announced the view, and the next one made another of that number."""
    seen = Seen(Contact("rome", 0, 7, ("a", "b")))
    assert not seen.hear(Contact("rome", 0, 7, ("a", "b")))
    assert seen.hear(Contact("rome", 0, 7, ("b",)))
    assert seen.contact.addresses == ("b",)
