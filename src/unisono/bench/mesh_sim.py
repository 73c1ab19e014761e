"""`unisono bench mesh`, its simulated part: trees for ten thousand sites, and events down them.

Figures are medians over several rings, in processor seconds, after compilation. The routing tables
of 10,000 sites and a tree of all of them must take less than 2 s, one event to all less than
5 ms. Beside them, over the same ring and tree and with the same results: tables by plain numpy
(for some of the sites, times as many), events by numpy level by level and by rustworkx's shortest
paths.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unisono.compiled import Ints, Longs
from unisono.sim.columnar import mesh, spreading

T = TypeVar("T")

BUILD_MAX_S = 2.0
MULTICAST_MAX_MS = 5.0
SITES = 10_000
TOPICS = 1_000
RUNS = 5
LEAVES = 8
_SHARE = 0.1  # of the sites, that want one of many topics
_REPEAT = 50  # events are short
_SAMPLE = 200  # sites whose tables numpy makes
_DIGITS = 16


class Case(NamedTuple):
    """A ring, and a tree of all its sites."""

    ring: mesh.Ring
    where: mesh.Plane
    tree: mesh.Tree
    link_us: Longs


def run(
    runs: int, remark: Callable[[str], None], sites: int = SITES, topics: int = TOPICS
) -> dict[str, Any]:
    """Measure everything."""
    _measure(min(sites, 300), 2, 0)  # compiles
    found = []
    for turn in range(runs):
        found.append(_measure(sites, topics, turn))
        told = ", ".join(f"{name} {taken * 1000:.3f} ms" for name, taken in found[-1].items())
        remark(f"run {turn + 1}: {told}")
    return summarise(found, sites, topics)


def summarise(found: list[dict[str, float]], sites: int, topics: int) -> dict[str, Any]:
    """Medians and ratios against their targets."""
    taken = {name: statistics.median(run[name] for run in found) for name in found[0]}
    build_s = statistics.median(run["ring"] + run["tree"] for run in found)
    multicast_ms = taken["multicast"] * 1000
    return {
        "sites": sites,
        "topics": topics,
        "runs": len(found),
        "build_s": round(build_s, 3),
        "ring_s": round(taken["ring"], 3),
        "tree_ms": round(taken["tree"] * 1000, 2),
        "forest_s": round(taken["forest"], 3),
        "multicast_ms": round(multicast_ms, 3),
        "two_trees_ms": round(taken["two_trees"] * 1000, 3),
        "ratios": {
            "tables_numpy": round(taken["tables_numpy"] / taken["tables"], 1),
            "multicast_numpy": round(taken["multicast_numpy"] / taken["multicast"], 1),
            "multicast_rustworkx": round(taken["multicast_rustworkx"] / taken["multicast"], 1),
        },
        "targets": {"build_s_max": BUILD_MAX_S, "multicast_ms_max": MULTICAST_MAX_MS},
        "met": build_s < BUILD_MAX_S and multicast_ms < MULTICAST_MAX_MS,
    }


def _timed(work: Callable[[], T], repeat: int = 1) -> tuple[float, T]:
    started = time.process_time()
    for _ in range(repeat):
        result = work()
    return (time.process_time() - started) / repeat, result


def _measure(sites: int, topics: int, seed: int) -> dict[str, float]:
    """Processor seconds of everything, over one ring."""
    names = [f"{seed}-{site}" for site in range(sites)]
    where = mesh.plane(sites, seed)
    everyone = np.ones(sites, np.bool_)
    taken = {}
    taken["ring"], ring = _timed(lambda: mesh.ring(names, 0, where, LEAVES))
    key = int(mesh.group_keys(["all"], 0)[0])
    taken["tree"], tree = _timed(lambda: mesh.tree(ring, key, everyone))
    case = Case(ring, where, tree, spreading.links_us(tree, where))
    rng = np.random.default_rng(seed)
    wants = rng.random((topics, sites)) < _SHARE
    keys = mesh.group_keys([f"t{topic}" for topic in range(topics)], 0)
    taken["forest"], _ = _timed(lambda: mesh.forest(ring, keys, wants))
    taken["multicast"], came_us = _timed(
        lambda: spreading.multicast(tree, case.link_us, everyone), _REPEAT
    )
    taken["two_trees"] = _two_trees(case, names, seed)
    return taken | _beside(case, came_us, rng)


def _two_trees(case: Case, names: list[str], seed: int) -> float:
    """An event to clusters of three processes, over a tree for each of two coordinators."""
    sites = len(names)
    everyone = np.ones(sites, np.bool_)
    clusters = spreading.Clusters(np.full(sites, 3, np.int32), everyone, 500)
    rings = [case.ring, mesh.ring(names, 1, case.where, LEAVES)]
    keys = [int(mesh.group_keys(["all"], slot)[0]) for slot in range(2)]
    trees = [mesh.tree(ring, key, everyone) for ring, key in zip(rings, keys, strict=True)]
    links = [spreading.links_us(tree, case.where) for tree in trees]
    alive = np.ones((2, sites), np.bool_)

    def publish() -> Longs:
        first_us = spreading.published(rings, keys, case.where, clusters, alive, (seed % sites, 2))
        came_us = spreading.spread(trees, links, clusters, alive, first_us)
        return spreading.members_us(clusters, came_us)[1]

    taken, came_us = _timed(publish, _REPEAT)
    assert came_us.size == 3 * sites and came_us.max() < spreading.NEVER
    return taken


# The same by other means.


def _beside(case: Case, came_us: Longs, rng: np.random.Generator) -> dict[str, float]:
    ring = case.ring
    here = mesh.Plane(case.where.x[ring.site], case.where.y[ring.site])
    taken = {}
    taken["tables"], _ = _timed(lambda: mesh.tables(ring.ids, here))
    sample = rng.choice(ring.ids.size, min(_SAMPLE, ring.ids.size), replace=False)
    some, rows = _timed(lambda: [_rows(ring, here, int(place)) for place in sample])
    taken["tables_numpy"] = some * ring.ids.size / sample.size
    for place, mine in zip(sample, rows, strict=True):
        ours = ring.cell[ring.row_start[place] : ring.row_start[place + 1]]
        _check("tables", np.array_equal(ours, mine))
    levels = _levels(case.tree)
    taken["multicast_numpy"], by_level_us = _timed(lambda: _by_level(case, levels), _REPEAT)
    _check("numpy's times", np.array_equal(came_us[case.tree.node], by_level_us))
    taken["multicast_rustworkx"], by_paths_us = _by_paths(case)
    _check("rustworkx's times", np.array_equal(came_us[case.tree.node], by_paths_us))
    return taken


def _check(what: str, equal: bool) -> None:
    if not equal:
        raise AssertionError(f"{what} differ: they are not the same work")


def _rows(ring: mesh.Ring, here: mesh.Plane, place: int) -> Ints:
    """The table of one site, by numpy: sites with a common prefix are neighbours."""
    ids = ring.ids
    across, along = here.x - here.x[place], here.y - here.y[place]
    delay_us = np.sqrt(across * across + along * along).astype(np.int64)
    rows: list[Ints] = []
    begin, end = 0, ids.size
    while end - begin > 1:
        shift = np.uint64(60 - 4 * len(rows))
        digits = (ids[begin:end] >> shift) & np.uint64(_DIGITS - 1)
        edges = begin + np.searchsorted(digits, np.arange(_DIGITS + 1, dtype=np.uint64))
        mine = int((ids[place] >> shift) & np.uint64(_DIGITS - 1))
        row = np.full(_DIGITS, mesh.NOBODY, np.int32)
        for digit in range(_DIGITS):
            first, last = edges[digit], edges[digit + 1]
            if digit != mine and first < last:
                row[digit] = first + delay_us[first:last].argmin()
        rows.append(row)
        begin, end = edges[mine], edges[mine + 1]
    return np.array(rows, np.int32).reshape(-1, _DIGITS)


def _levels(tree: mesh.Tree) -> list[slice]:
    """Where in the tree the sites of each depth are; made once, as ours is."""
    levels = [slice(0, 1)]
    while levels[-1].stop < tree.node.size:
        begin, end = levels[-1].stop, tree.node.size
        below = np.searchsorted(tree.up[begin:end], levels[-1].stop)
        levels.append(slice(begin, begin + int(below)))
    return levels


def _by_level(case: Case, levels: list[slice]) -> Longs:
    came_us = np.zeros(case.tree.node.size, np.int64)
    for level in levels[1:]:
        came_us[level] = came_us[case.tree.up[level]] + case.link_us[level]
    return came_us


def _by_paths(case: Case) -> tuple[float, Longs]:
    import rustworkx as rx

    tree = case.tree
    graph: rx.PyDiGraph[int, float] = rx.PyDiGraph()
    graph.add_nodes_from(range(tree.node.size))
    above, below = tree.up[1:].tolist(), range(1, tree.node.size)
    graph.add_edges_from(list(zip(above, below, case.link_us[1:].tolist(), strict=True)))
    taken, lengths = _timed(lambda: rx.dijkstra_shortest_path_lengths(graph, 0, float))
    came_us = np.zeros(tree.node.size, np.int64)
    for at, length in lengths.items():
        came_us[at] = int(length)
    return taken, came_us
