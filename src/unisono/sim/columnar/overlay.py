"""Who passes what on to whom: routes between nodes and dissemination trees.

Two kinds. `direct`: messages between two nodes take their own link, and each topic has a random
recursive tree - as the simulator's event service does. `pastry`: nodes have random ids; a message
goes, hop by hop, to a node that shares one more hexadecimal digit with its target's id, or to the
target itself when that is among the nearest eight on either side; the tree of a topic is made of
the routes to its root, as in SCRIBE. Nodes are numbered by rising id, so that all nodes with a
common prefix are neighbours.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from unisono.compiled import Bools, Ints, Longs, Words, compiled, mix
from unisono.core.entropy import digest

Routing = Literal["direct", "pastry"]
_LEAVES = 8  # of the leaf set, on either side


class Overlay(NamedTuple):
    """`ids` is empty where messages take the direct link."""

    ids: Words
    root: Ints  # by tree: its root
    tree: Ints  # by topic: its tree, or -1
    child_start: Longs  # by tree and node: where its children begin in `child`
    child: Ints


def node_ids(nodes: int, seed: int) -> Words:
    """Random ids, rising."""
    rng = np.random.default_rng(digest(seed, "ids"))
    ids = np.unique(rng.integers(0, 2**64, nodes, np.uint64, endpoint=False))
    assert ids.size == nodes, "two nodes drew the same id"
    return ids


def nearest(ids: Words, key: int) -> int:
    """The node whose id is nearest to a key on the ring."""
    place = int(np.searchsorted(ids, np.uint64(key)))
    beside = [(place - 1) % ids.size, place % ids.size]

    def distance(node: int) -> int:
        gap = (int(ids[node]) - key) % 2**64
        return min(gap, 2**64 - gap)

    return min(beside, key=distance)


@compiled
def first_at_least(ids: Words, key: np.uint64) -> int:
    low, high = 0, ids.size
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def next_hop(ids: Words, node: int, target: int) -> int:
    """Where `node` sends what is for `target`."""
    if ids.size == 0 or node == target:
        return target
    apart = abs(node - target)
    if min(apart, ids.size - apart) <= _LEAVES:
        return target
    differ = ids[node] ^ ids[target]
    digits = np.uint64(1)  # how many leading digits the next node shares with the target
    while differ >> (np.uint64(64) - np.uint64(4) * digits) == np.uint64(0):
        digits += np.uint64(1)
    if digits == np.uint64(16):
        return target
    span = np.uint64(64) - np.uint64(4) * digits
    low = (ids[target] >> span) << span
    high = low | ((np.uint64(1) << span) - np.uint64(1))
    begin = first_at_least(ids, low)
    end = ids.size if high == ~np.uint64(0) else first_at_least(ids, high + np.uint64(1))
    draw = mix(ids[node] ^ low ^ digits)
    return int(begin + np.int64((draw >> np.uint64(1)) % np.uint64(end - begin)))


@compiled
def routed_parents(ids: Words, root: int) -> Ints:
    """The parents of all nodes in the tree of the routes to a root; the root has none (-1)."""
    parent = np.empty(ids.size, np.int32)
    for node in range(ids.size):
        parent[node] = -1 if node == root else next_hop(ids, node, root)
    return parent


def random_parents(nodes: int, root: int, seed: int, topic: int) -> Ints:
    """A random recursive tree: each node, in random order, hangs below an earlier one."""
    rng = np.random.default_rng(digest(seed, "tree", topic))
    others = np.delete(np.arange(nodes), root)
    placed = np.concatenate(([root], rng.permutation(others)))
    parent = np.full(nodes, -1, np.int32)
    earlier = (rng.random(nodes) * np.arange(nodes)).astype(np.int64)
    parent[placed[1:]] = placed[earlier[1:]]
    return parent


@compiled
def branches(parent: Ints, subscribed: Bools) -> tuple[Ints, Ints]:
    """Start and list of the children of each node, only where they lead to subscribers."""
    nodes = parent.size
    needed = np.zeros(nodes, np.bool_)
    for node in range(nodes):
        if subscribed[node]:
            at = node
            while at >= 0 and not needed[at]:
                needed[at] = True
                at = parent[at]
    start = np.zeros(nodes + 1, np.int32)
    for node in range(nodes):
        if needed[node] and parent[node] >= 0:
            start[parent[node] + 1] += 1
    for node in range(nodes):
        start[node + 1] += start[node]
    free = start[:-1].copy()
    child = np.empty(start[nodes], np.int32)
    for node in range(nodes):
        if needed[node] and parent[node] >= 0:
            child[free[parent[node]]] = node
            free[parent[node]] += 1
    return start, child
