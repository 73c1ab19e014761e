"""Rings and trees of the mesh on arrays, for ten thousand sites: the rules of `ens/scribe`.

A ring is what the sites' `pastry.Ring` objects hold once every site has heard of all others: the
same leaves, the same cells, the same next hop for every key. A tree is what their `trees.Trees`
build on it when parents are those on the route (`diverse=False`): a site hangs below its next hop
to the topic's key, and whoever is on the way of a subscriber is in the tree.

Callers number sites as they like. Inside, sites are numbered by rising id, so that all with a
common prefix are neighbours: these numbers are called places.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from unisono.compiled import Bools, Ints, Longs, Words, compiled, in_place
from unisono.ens.scribe.ids import BASE_BITS, BITS, DIGITS, group_id, site_id
from unisono.sim.columnar.models import Floats
from unisono.sim.columnar.overlay import branches, first_at_least

NOBODY = (
    -1
)  # there is no further hop, or no site for a cell: the key has arrived, the cell is empty
OUTSIDE = -2  # instead of a parent: not in the tree
_WIDTH = np.uint64(BASE_BITS)
_BITS = np.uint64(BITS)
_WAYS = 1 << BASE_BITS  # cells of a row


class Plane(NamedTuple):
    """Where the sites are. A message takes a microsecond for every unit of the way.

    Coordinates are whole numbers: with them no step but the last of `delay_us` rounds, so that all
    machines agree.
    """

    x: Floats
    y: Floats


class Ring(NamedTuple):
    """All sites' routing tables, for one slot."""

    ids: Words  # by place, rising
    site: Ints  # by place
    place: Ints  # by site
    leaves: int  # of the leaf set, on either side
    row_start: Ints  # by place: where its rows begin
    cell: Ints  # by row and digit: a place


class Tree(NamedTuple):
    """The sites of a tree, root first, by depth. The children of a site stand together."""

    node: Ints  # sites
    up: Ints  # where the parent stands in `node`
    first: Ints  # where the children begin; they end where those of the next one begin


class Forest(NamedTuple):
    """The trees of many topics, one after the other."""

    start: Longs  # by topic
    node: Ints
    up: Ints
    first: Ints

    def tree(self, topic: int) -> Tree:
        part = slice(self.start[topic], self.start[topic + 1])
        return Tree(self.node[part], self.up[part], self.first[part])


# Rings.


def ring_ids(sites: Sequence[str], slot: int) -> tuple[Words, Ints]:
    """The ids in the ring of a slot, rising, and whose they are."""
    ids = np.array([site_id(site, slot) for site in sites], np.uint64)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    assert (ids[1:] > ids[:-1]).all(), "two sites have the same id"
    return ids, order.astype(np.int32)


def group_keys(topics: Sequence[str], slot: int) -> Words:
    """What the roots of the topics are the nearest to."""
    return np.array([group_id(topic, slot) for topic in topics], np.uint64)


def plane(sites: int, seed: int, side_us: int = 60_000) -> Plane:
    """Sites anywhere in a square."""
    rng = np.random.default_rng(seed)
    x, y = np.floor(rng.random((2, sites)) * side_us)
    return Plane(x, y)


def ring(sites: Sequence[str], slot: int, where: Plane, leaves: int) -> Ring:
    """The ring of a slot, of sites that all know of each other."""
    assert sites and len(sites) == where.x.size and leaves > 0
    ids, site = ring_ids(sites, slot)
    place = np.empty_like(site)
    place[site] = np.arange(site.size, dtype=np.int32)
    row_start, cell = tables(ids, Plane(where.x[site], where.y[site]))
    return Ring(ids, site, place, leaves, row_start, cell)


@in_place
def delay_us(where: Plane, one: int, other: int) -> int:
    """Of a message between two."""
    across, along = where.x[one] - where.x[other], where.y[one] - where.y[other]
    return int(sqrt(across * across + along * along))


@in_place
def _common(one: np.uint64, other: np.uint64) -> int:
    """How many digits two different ids share from the left."""
    differ = one ^ other
    digits = 0
    while digits < DIGITS and differ >> (_BITS - _WIDTH * np.uint64(digits + 1)) == np.uint64(0):
        digits += 1
    return digits


@in_place
def _digit(identity: np.uint64, place: int) -> int:
    shift = _BITS - _WIDTH * np.uint64(place + 1)
    return int((identity >> shift) & np.uint64(_WAYS - 1))


@compiled
def tables(ids: Words, where: Plane) -> tuple[Ints, Ints]:
    """For every place, row and digit the site with the shortest way, the lower id among equals.

    The rows of a place are those in which there is anybody.
    """
    count = ids.size
    row_start = np.zeros(count + 1, np.int32)
    for place in range(1, count):
        rows = _common(ids[place - 1], ids[place]) + 1
        row_start[place] = max(row_start[place], rows)
        row_start[place + 1] = rows
    for place in range(count):
        row_start[place + 1] += row_start[place]
    cell = np.full((row_start[count], _WAYS), NOBODY, np.int32)
    for place in range(count):
        begin, end = 0, count  # those that share the digits before this row
        for row in range(row_start[place + 1] - row_start[place]):
            mine = _digit(ids[place], row)
            left, right = begin, end
            at = begin
            while at < end:
                digit = _digit(ids[at], row)
                last = _after(ids, at, end, row)
                if digit == mine:
                    left, right = at, last
                else:
                    cell[row_start[place] + row, digit] = _closest(where, place, at, last)
                at = last
            begin, end = left, right
    return row_start, cell


@in_place
def _after(ids: Words, at: int, end: int, row: int) -> int:
    """Where the next digit begins, among those up to `end` that share the digits before it."""
    digit = _digit(ids[at], row)
    low, high = at + 1, end
    while low < high:
        middle = (low + high) // 2
        if _digit(ids[middle], row) == digit:
            low = middle + 1
        else:
            high = middle
    return low


@in_place
def _closest(where: Plane, place: int, begin: int, end: int) -> int:
    best, least = begin, delay_us(where, place, begin)
    for other in range(begin + 1, end):
        delay = delay_us(where, place, other)
        if delay < least:
            best, least = other, delay
    return best


# Routes.


@in_place
def _distance(one: np.uint64, other: np.uint64) -> np.uint64:
    """Around the ring, the shorter way."""
    return min(one - other, other - one)


@in_place
def nearest_to(ids: Words, key: np.uint64) -> int:
    """The place nearest to a key; the lower one of two."""
    after = first_at_least(ids, key)
    low, high = after - 1, after
    if after == 0 or after == ids.size:
        low, high = 0, ids.size - 1
    return low if _distance(ids[low], key) <= _distance(ids[high], key) else high


@in_place
def hop_from(ring: Ring, at: int, key: np.uint64, root: int) -> int:
    """Where a message for this key, whose nearest place is `root`, goes from a place."""
    ids, leaves = ring.ids, ring.leaves
    count = ids.size
    if at == root:
        return NOBODY
    if count <= 2 * leaves:
        return root  # the leaves are everyone
    begin, end = ids[(at - leaves) % count], ids[(at + leaves) % count]
    if key - begin <= end - begin:
        return root  # it is among the leaves
    row = _common(ids[at], key)
    low, high = ring.row_start[at] + row, ring.row_start[at + 1]
    cell = ring.cell[low, _digit(key, row)]
    if cell != NOBODY:
        return int(cell)
    best, least = at, _distance(ids[at], key)
    for step in range(-leaves, leaves + 1):
        leaf = (at + step) % count
        gap = _distance(ids[leaf], key)
        if (gap, leaf) < (least, best) and _common(ids[leaf], key) >= row:
            best, least = leaf, gap
    for line in range(low, high):
        for cell in ring.cell[line]:
            if cell != NOBODY:
                gap = _distance(ids[cell], key)
                if (gap, cell) < (least, best):
                    best, least = int(cell), gap
    return best if best != at else NOBODY


@compiled
def next_hops(ring: Ring, sites: Ints, keys: Words) -> Ints:
    """Where a message for each key goes from each site."""
    hops = np.empty(sites.size, np.int32)
    for at in range(sites.size):
        hop = hop_from(ring, ring.place[sites[at]], keys[at], nearest_to(ring.ids, keys[at]))
        hops[at] = hop if hop == NOBODY else ring.site[hop]
    return hops


# Trees.


@compiled
def _parents(ring: Ring, key: np.uint64, wants: Bools) -> Ints:
    """By place. The way of everyone who wants it, up to where somebody was before."""
    parent = np.full(ring.ids.size, OUTSIDE, np.int32)
    root = nearest_to(ring.ids, key)
    for site in range(wants.size):
        at = ring.place[site] if wants[site] else NOBODY
        while at != NOBODY and parent[at] == OUTSIDE:
            parent[at] = hop_from(ring, at, key, root)
            at = parent[at]
    return parent


def parents(ring: Ring, key: int, wants: Bools) -> Ints:
    """The parents of all sites in the tree of a key; of its root NOBODY."""
    parent = _parents(ring, np.uint64(key), wants)[ring.place]
    return np.where(parent >= 0, ring.site[np.maximum(parent, 0)], parent)


@compiled
def _tree(ring: Ring, key: np.uint64, wants: Bools) -> tuple[Ints, Ints, Ints]:
    parent = _parents(ring, key, wants)
    start, child = branches(parent, parent != OUTSIDE)
    root = nearest_to(ring.ids, key)
    size = 0 if parent[root] == OUTSIDE else child.size + 1
    node, up, first = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    end = 0
    if size:
        node[0], up[0] = root, NOBODY
        end = 1
    for at in range(size):
        first[at] = end
        for below in range(start[node[at]], start[node[at] + 1]):
            node[end], up[end] = child[below], at
            end += 1
    return ring.site[node], up, first


def tree(ring: Ring, key: int, wants: Bools) -> Tree:
    """The tree of a key for those sites that want it; empty if none does."""
    return Tree(*_tree(ring, np.uint64(key), wants))


def forest(ring: Ring, keys: Words, wants: Bools) -> Forest:
    """The trees of many topics. `wants`: by topic and site."""
    assert keys.size and wants.shape == (keys.size, ring.ids.size)
    trees = [_tree(ring, key, wanted) for key, wanted in zip(keys, wants, strict=True)]
    start = np.zeros(keys.size + 1, np.int64)
    np.cumsum([node.size for node, _, _ in trees], out=start[1:])
    node, up, first = (np.concatenate(parts) for parts in zip(*trees, strict=True))
    return Forest(start, node, up, first)
