"""When an event of the mesh is where: down the trees of `mesh.py`, and in the clusters.

Everybody passes an event on when it first hears of it, without a pause, as the object nodes do.
With several trees a cluster has a coordinator for each, and these tell each other: an event that is
late in one tree goes on from where another has brought it. Times are in microseconds; NEVER is
later than all others.

Coordinators are numbered by slot and site: `at_us[slot, site]`. A cluster with fewer processes than
there are slots has processes that coordinate several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unisono.compiled import Bools, Ints, Longs, compiled, in_place
from unisono.sim.columnar.mesh import Plane, Ring, Tree, delay_us, hop_from, nearest_to

NEVER = 1 << 62


class Clusters(NamedTuple):
    """The processes of the sites. They take turns: the first coordinates the first slot."""

    size: Ints  # by site
    wants: Bools  # by site: does anybody there subscribe?
    local_us: int  # between two processes of a site


@compiled
def links_us(tree: Tree, where: Plane) -> Longs:
    """What a message takes from each site's parent, in the tree's order; the root has none."""
    taken = np.zeros(tree.node.size, np.int64)
    for at in range(1, tree.node.size):
        taken[at] = delay_us(where, tree.node[tree.up[at]], tree.node[at])
    return taken


@in_place
def _down(tree: Tree, link_us: Longs, alive: Bools, at_us: Longs) -> bool:
    """One pass from the root to the leaves. Whether anybody hears of it earlier than before."""
    earlier = False
    for at in range(1, tree.node.size):
        site = tree.node[at]
        came_us = at_us[tree.node[tree.up[at]]] + link_us[at]
        if came_us < at_us[site] and alive[site]:
            at_us[site] = came_us
            earlier = True
    return earlier


def multicast(tree: Tree, link_us: Longs, alive: Bools, at_us: int = 0) -> Longs:
    """When each site has an event that the root has at `at_us`; `alive`: by site.

    Who is dead passes nothing on.
    """
    came_us = np.full(alive.size, NEVER)
    if tree.node.size and alive[tree.node[0]]:
        came_us[tree.node[0]] = at_us
        _down(tree, link_us, alive, came_us)
    return came_us


@in_place
def _coordinates(slots: int, size: int, process: int, slot: int) -> bool:
    """Whether this process of a site is the slot's coordinator."""
    return process == slot % min(slots, size)


@in_place
def _across(clusters: Clusters, alive: Bools, at_us: Longs) -> bool:
    """Coordinators tell each other; where nobody subscribes, only those that are one process."""
    slots, sites = at_us.shape
    earlier = False
    for site in range(sites):
        size = clusters.size[site]
        for slot in range(slots):
            process = slot % min(slots, size)
            for other in range(slots):
                same = _coordinates(slots, size, process, other)
                came_us = at_us[slot, site] + (0 if same else clusters.local_us)
                told = same or clusters.wants[site]
                if told and came_us < at_us[other, site] and alive[other, site]:
                    at_us[other, site] = came_us
                    earlier = True
    return earlier


def spread(
    trees: Sequence[Tree],
    link_us: Sequence[Longs],
    clusters: Clusters,
    alive: Bools,
    at_us: Longs,
) -> Longs:
    """When each coordinator has an event that some have at `at_us`, the others NEVER."""
    came_us = np.where(alive, at_us, NEVER)
    earlier = True
    while earlier:
        for tree, links, lives, times in zip(trees, link_us, alive, came_us, strict=True):
            _down(tree, links, lives, times)
        earlier = _across(clusters, alive, came_us)
    return came_us


@compiled
def members_us(clusters: Clusters, at_us: Longs) -> tuple[Longs, Longs]:
    """When each process has it from its coordinators: where a site's begin, and times."""
    slots, sites = at_us.shape
    start = np.zeros(sites + 1, np.int64)
    for site in range(sites):
        start[site + 1] = start[site] + clusters.size[site]
    came_us = np.full(start[sites], NEVER)
    for site in range(sites):
        size = clusters.size[site]
        for process in range(size):
            for slot in range(slots):
                same = _coordinates(slots, size, process, slot)
                gap_us = 0 if same else clusters.local_us
                at = start[site] + process
                came_us[at] = min(came_us[at], at_us[slot, site] + gap_us)
    return start, came_us


@compiled
def _to_root(
    ring: Ring, where: Plane, site: int, key: np.uint64, alive: Bools, direct: bool
) -> tuple[int, int]:
    """The root, and how long a message takes to it; NEVER over somebody dead."""
    at, root = ring.place[site], nearest_to(ring.ids, key)
    if direct:
        return ring.site[root], delay_us(where, site, ring.site[root])
    taken_us = 0
    while at != root:
        hop = hop_from(ring, at, key, root)
        taken_us += delay_us(where, ring.site[at], ring.site[hop])
        if not alive[ring.site[hop]]:
            return ring.site[root], NEVER
        at = hop
    return ring.site[root], taken_us


def published(
    rings: Sequence[Ring],
    keys: Sequence[int],
    where: Plane,
    clusters: Clusters,
    alive: Bools,
    publisher: tuple[int, int],
    roots_known: bool = True,
) -> Longs:
    """Who has an event first: the coordinators of the publisher, and the roots.

    `publisher` is a process of a site. Its coordinators know the roots from the first event that
    these have confirmed; before, an event goes there hop by hop.
    """
    site, process = publisher
    at_us = np.full(alive.shape, NEVER)
    for slot, (ring, key) in enumerate(zip(rings, keys, strict=True)):
        if alive[slot, site]:
            same = _coordinates(len(rings), int(clusters.size[site]), process, slot)
            gap_us = 0 if same else clusters.local_us
            root, up_us = _to_root(ring, where, site, np.uint64(key), alive[slot], roots_known)
            at_us[slot, root] = min(gap_us + up_us, NEVER)
            at_us[slot, site] = gap_us
    return at_us
