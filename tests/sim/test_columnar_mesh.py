"""The mesh on arrays at full size: what must hold of rings and trees whoever made them."""

from __future__ import annotations

import numpy as np
import pytest

from unisono.compiled import Bools
from unisono.sim.columnar import mesh, spreading

SITES = 10_000


@pytest.fixture(scope="module")
def where() -> mesh.Plane:
    return mesh.plane(SITES, 1)


@pytest.fixture(scope="module")
def ring(where: mesh.Plane) -> mesh.Ring:
    return mesh.ring([f"s{site}" for site in range(SITES)], 0, where, 8)


def everyone() -> Bools:
    return np.ones(SITES, np.bool_)


def test_every_route_ends_at_the_nearest_in_few_hops(ring: mesh.Ring) -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 20_000, np.uint64)
    at = rng.integers(0, SITES, keys.size).astype(np.int32)
    for _ in range(8):
        hops = mesh.next_hops(ring, at, keys)
        at = np.where(hops == mesh.NOBODY, at, hops)
    assert (mesh.next_hops(ring, at, keys) == mesh.NOBODY).all()
    ids = ring.ids[ring.place]
    for site, key in zip(at[:200], keys[:200], strict=True):
        assert np.minimum(ids - key, key - ids).argmin() == site


def test_a_tree_covers_all_and_is_not_deep(ring: mesh.Ring, where: mesh.Plane) -> None:
    tree = mesh.tree(ring, int(mesh.group_keys(["a"], 0)[0]), everyone())
    assert np.array_equal(np.sort(tree.node), np.arange(SITES))
    assert (tree.up[1:] < np.arange(1, SITES)).all(), "parents come first: no circles"
    steps = spreading.multicast(tree, np.ones(SITES, np.int64), everyone())
    assert steps.max() <= 8
    assert (np.diff(steps[tree.node]) >= 0).all(), "by depth"


def test_the_dead_cut_off_what_is_below_and_nothing_else(
    ring: mesh.Ring, where: mesh.Plane
) -> None:
    tree = mesh.tree(ring, int(mesh.group_keys(["a"], 0)[0]), everyone())
    links = spreading.links_us(tree, where)
    alive = np.random.default_rng(2).random(SITES) > 0.05
    alive[tree.node[0]] = True
    whole = spreading.multicast(tree, links, everyone(), 10)
    came = spreading.multicast(tree, links, alive, 10)
    reached = np.zeros(SITES, np.bool_)
    for site, up in zip(tree.node, tree.up, strict=True):
        reached[site] = alive[site] and (up == mesh.NOBODY or reached[tree.node[up]])
    assert 0 < reached.sum() < alive.sum()
    assert np.array_equal(came, np.where(reached, whole, spreading.NEVER))
    alive[tree.node[0]] = False
    assert (spreading.multicast(tree, links, alive) == spreading.NEVER).all()


def test_a_second_tree_reaches_whom_the_first_has_lost(ring: mesh.Ring, where: mesh.Plane) -> None:
    """A coordinator in fifty is dead, none of the roots: most that hangs below hears of it."""
    rings = [ring, mesh.ring([f"s{site}" for site in range(SITES)], 1, where, 8)]
    keys = [int(mesh.group_keys(["a"], slot)[0]) for slot in range(2)]
    trees = [mesh.tree(r, key, everyone()) for r, key in zip(rings, keys, strict=True)]
    links = [spreading.links_us(tree, where) for tree in trees]
    clusters = spreading.Clusters(np.full(SITES, 3, np.int32), everyone(), 500)
    alive = np.random.default_rng(3).random((2, SITES)) > 0.02
    for slot, tree in enumerate(trees):
        alive[slot, tree.node[0]] = True
    first_us = spreading.published(rings, keys, where, clusters, alive, (5, 2))
    both = spreading.spread(trees, links, clusters, alive, first_us)
    alone = [
        spreading.multicast(tree, link_us, lives)
        for tree, link_us, lives in zip(trees, links, alive, strict=True)
    ]
    heard = both.min(axis=0) < spreading.NEVER
    either = np.array(alone).min(axis=0) < spreading.NEVER
    assert heard[either].all() and heard.sum() > either.sum()
    assert (both[~alive] == spreading.NEVER).all()


def test_a_forest_is_its_trees(ring: mesh.Ring) -> None:
    rng = np.random.default_rng(4)
    keys = mesh.group_keys([f"t{topic}" for topic in range(5)], 0)
    wants = rng.random((5, SITES)) < np.array([[0.0], [0.0001], [0.01], [0.3], [1.0]])
    forest = mesh.forest(ring, keys, wants)
    for topic, key in enumerate(keys):
        for one, other in zip(
            forest.tree(topic), mesh.tree(ring, int(key), wants[topic]), strict=True
        ):
            assert np.array_equal(one, other)
        assert np.isin(np.flatnonzero(wants[topic]), forest.tree(topic).node).all()
    assert forest.tree(0).node.size == 0 and forest.tree(4).node.size == SITES


def test_a_site_alone_is_its_own_root() -> None:
    ring = mesh.ring(["a"], 0, mesh.plane(1, 1), 4)
    tree = mesh.tree(ring, 5, np.ones(1, np.bool_))
    assert (tree.node.tolist(), tree.up.tolist(), tree.first.tolist()) == ([0], [-1], [1])
    assert mesh.next_hops(ring, np.zeros(1, np.int32), np.zeros(1, np.uint64)).tolist() == [-1]
    none = np.zeros(1, np.bool_)
    assert mesh.parents(ring, 5, none).tolist() == [mesh.OUTSIDE]
    assert (spreading.multicast(mesh.tree(ring, 5, none), np.zeros(0, np.int64), ~none) > 1).all()
