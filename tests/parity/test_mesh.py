"""The mesh on arrays: the same hops, trees and times of arrival as the object nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from random import Random

import numpy as np
import pytest
from support.overlay import clusters_wrong, sites
from support.seeds import seed_range, some

from unisono.compiled import Bools, Ints
from unisono.ens.scribe import pastry
from unisono.ens.scribe.ids import RING, group_id, site_id
from unisono.ens.scribe.messages import Contact
from unisono.ens.scribe.options import Shape
from unisono.sim.columnar import mesh, spreading
from unisono.sim.mesh import MeshWorld

LOCAL_US = 700
LEAVES = (1, 2, 4, 8)
POOL = [f"p{number}" for number in range(4000)]


def names_of(rng: Random, count: int) -> list[str]:
    """Half of the time crowded: many with the same first digits."""
    if rng.random() < 0.5 or count > 200:
        return rng.sample(POOL, count)
    centre = rng.getrandbits(64)
    return sorted(POOL, key=lambda name: (site_id(name, 0) ^ centre) >> 50)[:count]


def plane_of(rng: Random, count: int) -> mesh.Plane:
    """Small ones have many equal delays."""
    return mesh.plane(count, rng.getrandbits(32), rng.choice((3, 40, 60_000)))


def object_ring(
    names: list[str], at: int, slot: int, where: mesh.Plane, leaves: int, rng: Random
) -> pastry.Ring:
    """One that has heard of everyone, in any order."""
    ring = pastry.Ring(names[at], slot, leaves)
    for other in rng.sample(range(len(names)), len(names)):
        contact = Contact(names[other], slot, 0, (names[other],))
        ring.hear(contact, 2 * mesh.delay_us(where, at, other))
    return ring


def keys_of(rng: Random, ids: list[int], count: int) -> list[int]:
    """Anywhere, and where it is close: at ids, between two and halfway, at the ends of prefixes."""
    keys = [0, 1, RING - 1, RING // 2]
    ids = sorted(ids)
    for _ in range(count):
        at = rng.randrange(len(ids))
        one, gap = ids[at - 1], (ids[at] - ids[at - 1]) % RING or RING
        step = rng.choice((-1, 0, 1))
        keys += [(one + step) % RING, (one + gap // 2 + rng.choice((0, step))) % RING]
        keys += [rng.getrandbits(64), (one + rng.randrange(gap)) % RING]
        low = (1 << 4 * rng.randrange(16)) - 1
        keys += [one & ~low, one | low, one ^ 1 << rng.randrange(64)]
    return keys


def hops_differ(seed: int, most: int, looked_at: int) -> int:
    """Of how many pairs of a site and a key."""
    rng = Random(seed)
    count = rng.randint(1, most)
    names, where = names_of(rng, count), plane_of(rng, count)
    slot, leaves = seed % 3, rng.choice([n for n in LEAVES if 2 * n < count] or LEAVES)
    ring = mesh.ring(names, slot, where, leaves)
    keys = keys_of(rng, [site_id(name, slot) for name in names], 10)
    wrong = 0
    for at in rng.sample(range(count), min(count, looked_at)):
        known = object_ring(names, at, slot, where, leaves, rng)
        found = mesh.next_hops(ring, np.full(len(keys), at, np.int32), np.array(keys, np.uint64))
        for key, hop in zip(keys, found, strict=True):
            contact = known.next_hop(key)
            expected = None if contact is None else contact.site
            wrong += expected != (None if hop == mesh.NOBODY else names[hop])
    return wrong


@pytest.mark.parametrize(
    ("cases", "most", "looked_at"), [(800, 9, 9), (80, 60, 60), (3, 300, 300), (20, 300, 12)]
)
def test_the_next_hop_of_every_site_and_key(cases: int, most: int, looked_at: int) -> None:
    """In small rings the leaves of either side meet; in large ones tables decide."""
    for seed in range(cases):
        assert hops_differ(seed, most, looked_at) == 0, f"seed {seed}"


def test_of_two_that_are_equally_near_the_lower_id_is_the_root() -> None:
    """Also around the end of the ring, where the lower one is the next one clockwise."""
    far = 1 << 63
    for ids, key, root in (
        ([10, 20], 15, 0),
        ([10, RING - 10], 0, 0),
        ([4, far, RING - 6], RING - 1, 0),
        ([4, far, RING - 6], RING - 2, 2),
        ([far], 0, 0),
        ([0, far], far // 2 + far, 0),
    ):
        assert mesh.nearest_to(np.array(ids, np.uint64), np.uint64(key)) == root


# Against living nodes.


class Fixed:
    """Delays that do not change: those of the plane, and a constant within a site."""

    def __init__(self, where: mesh.Plane) -> None:
        self._where = where

    def delay_us(self, source: str, target: str) -> int:
        one, other = (int(address.split("/")[0]) for address in (source, target))
        return LOCAL_US if one == other else int(mesh.delay_us(self._where, one, other))

    def way(self, source: str, target: str) -> frozenset[str]:
        return frozenset()


class Living:
    """A world whose coordinators all know each other, before anybody subscribes."""

    def __init__(self, seed: int, count: int, trees: int, leaves: int, largest: int = 1) -> None:
        rng = self.rng = Random(seed)
        self.shape = Shape(trees=trees, backups=0, leaves=leaves, diverse=False, recover="all")
        self.names = names_of(rng, count)
        self.where = plane_of(rng, count)
        self.sizes = np.array([rng.randint(1, largest) for _ in range(count)], np.int32)
        self.arrived: dict[tuple[str, bytes], int] = {}
        self.twice: Counter[tuple[str, bytes]] = Counter()
        self.world = MeshWorld(Fixed(self.where), self.shape, seed, self._arrive)
        self._start()
        self._introduce()
        self.rings = [
            mesh.ring(self.names, slot, self.where, self.shape.leaves) for slot in range(trees)
        ]

    def _arrive(self, address: str, topic: str, frame: bytes, now: int) -> None:
        self.twice[address, frame] += 1
        self.arrived[address, frame] = now

    def _start(self) -> None:
        world = self.world
        for process in range(int(self.sizes.max())):
            for site, size in enumerate(self.sizes):
                if process < size:
                    seeds = ["0/0"] if world.nodes else []
                    world.start(f"{site}/{process}", self.names[site], seeds)
                    if not seeds:
                        world.run(world.now + self.shape.beat_us)
            assert world.run_until(lambda: not any(clusters_wrong(world)), 60_000_000)
        for address, node in world.nodes.items():
            process = int(address.split("/")[1])
            assert node.cluster.candidates[process].address == address, "they came in this order"

    def _introduce(self) -> None:
        """All speak to all: more than once to those that still know an address of a younger cluster
        of the same domain, which has given in. On the way over that, a message takes longer."""
        for slot in range(self.shape.trees):
            found = sites(self.world, slot)
            for one, name in enumerate(self.names):
                for other, process in enumerate(self.coordinators(slot)):
                    if one != other:
                        contact = self.world.nodes[process].contact(slot)
                        delay = mesh.delay_us(self.where, one, other)
                        ring = found[name].ring
                        ring.hear(contact, 2 * delay)
                        known = ring.known.get(contact.site)
                        while known is not None and known.contact != contact:
                            ring.hear(contact, 2 * delay)

    def coordinators(self, slot: int) -> list[str]:
        trees = self.shape.trees
        return [f"{site}/{slot % min(trees, size)}" for site, size in enumerate(self.sizes)]

    def some(self, share: float) -> set[str]:
        return {a for a in self.world.nodes if self.rng.random() < share}

    def subscribe(self, topic: str, wanting: set[str]) -> None:
        tickets = [self.world.subscribe(address, topic) for address in wanting]
        assert self.world.run_until(lambda: self.world.done.issuperset(tickets), 60_000_000)

    def wants(self, wanting: set[str]) -> Bools:
        wants = np.zeros(len(self.names), np.bool_)
        for address in wanting:
            wants[int(address.split("/")[0])] = True
        return wants

    def parents(self, topic: str, slot: int) -> list[int]:
        found = sites(self.world, slot)
        parents = []
        for name in self.names:
            tree = found[name].trees.get(topic)
            if tree is None:
                parents.append(mesh.OUTSIDE)
            elif tree.parent is None:
                assert tree.root
                parents.append(mesh.NOBODY)
            else:
                parents.append(self.names.index(tree.parent.site))
        return parents

    def publish(self, address: str, topic: str, frame: bytes) -> dict[str, int]:
        """When who has it, from now."""
        began = self.world.now
        self.world.publish(address, topic, frame)
        self.world.run(began + 1_000_000)
        return {
            address: at - began for (address, what), at in self.arrived.items() if what == frame
        }


def by_columns(
    living: Living,
    topic: str,
    wants: Bools,
    publisher: str,
    roots_known: bool = False,
    casting: Bools | None = None,
    dead: Container[str] = (),
) -> dict[str, int]:
    """When every process could have it. `casting`: sites whose coordinators tell each other."""
    slots = range(living.shape.trees)
    keys = [group_id(topic, slot) for slot in slots]
    clusters = spreading.Clusters(living.sizes, wants if casting is None else casting, LOCAL_US)
    alive = np.array([[a not in dead for a in living.coordinators(slot)] for slot in slots])
    site, process = (int(part) for part in publisher.split("/"))
    first_us = spreading.published(
        living.rings, keys, living.where, clusters, alive, (site, process), roots_known
    )
    trees = [mesh.tree(ring, key, wants) for ring, key in zip(living.rings, keys, strict=True)]
    links = [spreading.links_us(tree, living.where) for tree in trees]
    came_us = spreading.spread(trees, links, clusters, alive, first_us)
    start, members_us = spreading.members_us(clusters, came_us)
    times = {
        f"{at}/{number}": int(members_us[start[at] + number])
        for at, size in enumerate(living.sizes)
        for number in range(size)
    }
    return {**times, publisher: 0}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(12)))
def test_trees_are_those_of_living_nodes(seed: int) -> None:
    living = Living(seed, 10 + 6 * (seed % 12), 1 + seed % 2, LEAVES[seed % 3])
    for topic in ("a", "b", "c", "d"):
        wanting = living.some(living.rng.choice((0.1, 0.3, 1.0)))
        living.subscribe(topic, wanting)
        wants = living.wants(wanting)
        for slot, ring in enumerate(living.rings):
            key = group_id(topic, slot)
            expected = living.parents(topic, slot)
            assert mesh.parents(ring, key, wants).tolist() == expected
            assert unfolded(mesh.tree(ring, key, wants), wants.size).tolist() == expected


def unfolded(tree: mesh.Tree, count: int) -> Ints:
    """The parents again, out of the lists of children."""
    parent = np.full(count, mesh.OUTSIDE, np.int32)
    if tree.node.size:
        parent[tree.node[0]] = mesh.NOBODY
    ends = np.append(tree.first[1:], tree.node.size)
    for at, node in enumerate(tree.node):
        children = tree.node[tree.first[at] : ends[at]]
        assert (parent[children] == mesh.OUTSIDE).all()
        parent[children] = node
        assert (tree.up[tree.first[at] : ends[at]] == at).all()
    return parent


GAVE_IN = 400179  # where two clusters of a domain were one before all had heard of it


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [*seed_range(some(16)), 17, 26, GAVE_IN])
def test_times_of_arrival_are_those_of_living_nodes(seed: int) -> None:
    """Of events from anywhere, in clusters of several processes, over one to three trees."""
    living = Living(seed, 12 + 2 * (seed % 30), 1 + seed % 3, 1 + seed % 2, 1 + seed % 5)
    for topic in ("a", "b", "c"):
        wanting = living.some(living.rng.choice((0.1, 0.3, 1.0)))
        living.subscribe(topic, wanting)
        wants = living.wants(wanting)
        knowing: set[str] = set()  # sites whose coordinators the roots have answered
        for publisher in 2 * living.rng.sample(sorted(living.world.nodes), 3):
            site = publisher.split("/")[0]
            frame = f"{topic} {publisher} {len(living.arrived)}".encode()
            measured = living.publish(publisher, topic, frame)
            computed = by_columns(living, topic, wants, publisher, roots_known=site in knowing)
            assert measured == {address: computed[address] for address in wanting}
            knowing.add(site)
    assert max(living.twice.values()) == 1


def test_where_nobody_subscribes_coordinators_tell_each_other_nothing() -> None:
    """Subscribers are drawn until it would make a difference."""
    living = Living(3, 24, 2, 1, largest=3)
    everywhere = np.ones(24, np.bool_)
    publisher = "0/0"
    for draw in range(1000):
        topic, wanting = f"t{draw}", living.some(0.06)
        wants = living.wants(wanting)
        expected = by_columns(living, topic, wants, publisher)
        other = by_columns(living, topic, wants, publisher, casting=everywhere)
        if any(expected[address] != other[address] for address in wanting):
            break
    else:
        raise AssertionError("no such draw")
    living.subscribe(topic, wanting)
    measured = living.publish(publisher, topic, b"x")
    assert measured == {address: expected[address] for address in wanting}


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(12)))
def test_the_dead_cut_off_the_same_processes(seed: int) -> None:
    """A sixth of the coordinators, right after they have died."""
    living = Living(seed, 30, 1 + seed % 3, 1 + seed % 2, 3)
    wanting = living.some(1.0)
    living.subscribe("a", wanting)
    active = sorted({a for slot in range(living.shape.trees) for a in living.coordinators(slot)})
    dead = set(living.rng.sample(active, len(active) // 6))
    publisher = living.rng.choice(sorted(wanting - dead))
    for address in dead:
        living.world.crash(address)
    measured = living.publish(publisher, "a", b"x")
    computed = by_columns(living, "a", living.wants(wanting), publisher, dead=dead)
    reached = {a for a in wanting - dead if computed[a] < spreading.NEVER}
    assert measured == {address: computed[address] for address in reached}


def test_one_tree_brings_events_down_from_the_root() -> None:
    living = Living(7, 30, 1, 2)
    wanting = living.some(0.5)
    living.subscribe("a", wanting)
    wants = living.wants(wanting)
    tree = mesh.tree(living.rings[0], group_id("a", 0), wants)
    links = spreading.links_us(tree, living.where)
    came_us = spreading.multicast(tree, links, np.ones(30, np.bool_))
    measured = living.publish(f"{tree.node[0]}/0", "a", b"x")
    assert measured == {a: came_us[int(a.split("/")[0])] for a in wanting}

    victim = int(tree.node[tree.first[0]])  # a child of the root
    living.world.crash(f"{victim}/0")
    alive = np.ones(30, np.bool_)
    alive[victim] = False
    cut_us = spreading.multicast(tree, links, alive)
    began = living.world.now
    living.world.publish(f"{tree.node[0]}/0", "a", b"y")
    living.world.run(began + living.shape.beat_us)  # before anybody notices
    for address in wanting:
        site = int(address.split("/")[0])
        expected = cut_us[site] if cut_us[site] < spreading.NEVER else None
        came = living.arrived.get((address, b"y"))
        assert (came if came is None else came - began) == expected
    assert (cut_us[victim], cut_us[tree.node[0]]) == (spreading.NEVER, 0)


# These can fail.


def test_another_rule_gives_other_hops_and_trees() -> None:
    rng = Random(5)
    names, where = names_of(rng, 200), mesh.plane(200, 5)
    keys = np.array([rng.getrandbits(64) for _ in range(2000)], np.uint64)
    at = np.array([rng.randrange(200) for _ in keys], np.int32)
    ring = mesh.ring(names, 0, where, 4)
    hops = mesh.next_hops(ring, at, keys)
    fewer = mesh.next_hops(ring._replace(leaves=2), at, keys)
    moved = mesh.next_hops(mesh.ring(names, 0, mesh.plane(200, 6), 4), at, keys)
    other = mesh.next_hops(mesh.ring(names, 1, where, 4), at, keys)
    for wrong in (fewer, moved, other):
        assert (hops != wrong).any()
