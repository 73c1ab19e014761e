"""Random internets of autonomous systems (paper 004 section 4.1), a pure function of `Internet`.

Between systems: the positive-feedback preference model (Zhou and Mondragon, Phys. Rev. E 70, 2004).
It starts with three systems, in a row or a ring. Each further one attaches to one or two hosts, and
one of its hosts gets one or two new peers; hosts and peers with k links are preferred by
k^(1 + delta log10 k), so the rich get richer, and connect with each other.

Inside a system: the heuristically optimal model (Li et al., SIGCOMM 2004), in the four levels that
the generator ReaSE has: a few core routers, all linked with each other; gateways, which take the
core routers in turn; access routers; leaves. Access routers and leaves prefer busy devices above
them, by the same rule; so degrees are spread widely, and the highest are near the edge, not in the
core. Links to other systems take the core routers in turn.

Sizes come out exactly. Systems are of equal size but for one node. Every device below the core has
one link upwards, which makes each system connected; what is left of the links, once those between
systems and in the cores are counted, is spent from the core outwards: gateways get a second core
router, then a third and so on, then access routers a second gateway, then leaves a second access
router. By default that is just about all core routers for all gateways, and trees below them, as in
ReaSE. `link_bounds` says which numbers of links fit.

A link between systems takes longer than any detour inside them, but not as long as two such links:
`2 * 20 > 30 + 2 * 4` ms below. So the route between two nodes of neighbouring systems is over the
link between these, and that between two nodes of one system stays inside.

With `upstreams=2` each system has links to two others at least, at two different border routers,
and no link between systems is the only one between two halves of the network: a system that was
host or peer got a link back into the network by it, and those with one link get another. So:
- routes from a system to two of its neighbours leave over different links, and to some two of them
  over different border routers, too;
- while any one link between systems is down, each system reaches a neighbour over their own link,
  and from neighbour to neighbour all others.
Not promised: that routes to two systems that are not neighbours differ; that a pair of nodes is
connected while a link on its route is down (routes are fixed: see `routes.py`); anything about two
links that are down at once; anything about links inside a system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, cycle, pairwise
from math import ceil, comb, log10
from random import Random
from typing import Annotated, NamedTuple

import msgspec
import rustworkx as rx
from msgspec import Meta

from unisono.core.entropy import stream
from unisono.core.limits import check_fields
from unisono.errors import BadInput
from unisono.sim.routes import DeviceLevel, Level, Link, Topology

# The model's constants for the internet. ReaSE has 0 and 0.4 for P and Q.
P = 0.3  # a new system with one host, that gets one peer
Q = 0.1  # with one host, that gets two; else two hosts, and one of them gets a peer
DELTA = 0.048

# One-way delays, drawn per link. The paper says "default end-to-end delays" of ReaSE. Its published
# generator writes 1 us for every link, and data rates from 1 Mbit/s to 10 Gbit/s; delays then come
# from sending, which is not simulated here. These are ours: the thesis' 21 ms between sites, a few
# milliseconds across a country, about one to the access network.
DELAYS_US: dict[Level, tuple[int, int]] = {
    "transit": (20_000, 30_000),
    "core": (2_000, 4_000),
    "gateway": (1_000, 2_000),
    "access": (500, 1_500),
    "leaf": (500, 1_500),
}

LEAST_PER_SYSTEM = 7  # two of each kind of router, and a leaf

Pair = tuple[int, int]
Wire = tuple[int, int, Level]  # the upper device, the lower one


class Internet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to draw. `upstreams`: neighbours that each system has at least."""

    nodes: Annotated[int, Meta(ge=2 * LEAST_PER_SYSTEM, le=2000)] = 300
    systems: Annotated[int, Meta(ge=2, le=100)] = 8
    edges: Annotated[int, Meta(ge=1, le=100_000)] = 500
    seed: int = 1
    upstreams: Annotated[int, Meta(ge=1, le=2)] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.nodes < LEAST_PER_SYSTEM * self.systems:
            raise BadInput(
                f"nodes = {self.nodes}: {self.systems} systems have at least "
                f"{LEAST_PER_SYSTEM} each"
            )
        if self.upstreams >= self.systems:
            raise BadInput(f"upstreams = {self.upstreams} needs more than that many systems")
        least, most = link_bounds(self.nodes, self.systems, self.upstreams)
        if not least <= self.edges <= most:
            raise BadInput(
                f"edges = {self.edges}: {self.nodes} nodes in {self.systems} systems "
                f"have {least} to {most}"
            )


class _System(NamedTuple):
    """The devices of one system, by level."""

    core: range
    gateway: range
    access: range
    leaf: range

    @property
    def below(self) -> int:
        return len(self.gateway) + len(self.access) + len(self.leaf)

    @property
    def levels(self) -> list[DeviceLevel]:
        names: tuple[DeviceLevel, ...] = ("core", "gateway", "access", "leaf")
        return [name for name, devices in zip(names, self, strict=True) for _ in devices]

    @property
    def steps(self) -> tuple[tuple[range, range, Level], ...]:
        """Each level with the one below it."""
        return (
            (self.core, self.gateway, "gateway"),
            (self.gateway, self.access, "access"),
            (self.access, self.leaf, "leaf"),
        )


def link_bounds(nodes: int, systems: int, upstreams: int = 1) -> Pair:
    """The least and the greatest number of links that fit, whatever the seed."""
    layout = _layout(nodes, systems)
    needed = sum(system.below + comb(len(system.core), 2) for system in layout)
    grown = 3 * systems - 6 if systems > 2 else 1
    added = systems - 1 if upstreams > 1 else 0
    spare = sum(system.below + len(system.gateway) * (len(system.core) - 2) for system in layout)
    return needed + min(comb(systems, 2), grown + added), needed + systems - 1 + spare


def build(internet: Internet) -> Topology:
    """The internet of these parameters, with exactly so many nodes and links."""
    layout = _layout(internet.nodes, internet.systems)
    borders = [cycle(system.core) for system in layout]
    grown = grow_systems(internet.systems, internet.upstreams, _rng(internet, "systems"))
    wires: list[Wire] = [(next(borders[a]), next(borders[b]), "transit") for a, b in grown]
    uplink: dict[int, int] = {}
    for number, system in enumerate(layout):
        wires += [(a, b, "core") for a, b in combinations(system.core, 2)]
        for upper, lower, level in _uplinks(system, _rng(internet, "uplinks", number)):
            uplink[lower] = upper
            wires.append((upper, lower, level))
    more = _more_uplinks(layout, uplink, _rng(internet, "more uplinks"))
    wires += [next(more) for _ in range(internet.edges - len(wires))]
    rng = _rng(internet, "delays")
    links = [Link(a, b, rng.randint(*DELAYS_US[level]), level) for a, b, level in wires]
    levels = [level for system in layout for level in system.levels]
    systems = [number for number, system in enumerate(layout) for _ in system.levels]
    return Topology(links, systems, levels)


def grow_systems(systems: int, upstreams: int, rng: Random) -> list[Pair]:
    """Which systems are linked: positive-feedback preference, then what `upstreams` asks for."""
    graph: rx.PyGraph[int, None] = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(min(3, systems)))
    graph.add_edges_from_no_data([(a, a + 1) for a in range(graph.num_nodes() - 1)])
    if systems > 2 and rng.random() < 0.5:
        graph.add_edge(0, 2, None)
    while graph.num_nodes() < systems:
        draw = rng.random()
        hosts = [_preferred_system(graph, graph.node_indices(), rng)]
        if draw >= P + Q:
            others = [node for node in graph.node_indices() if node != hosts[0]]
            hosts.append(_preferred_system(graph, others, rng))
        host = rng.choice(hosts)
        for _ in range(2 if P <= draw < P + Q else 1):
            if strangers := _strangers(graph, host):  # none: it is linked with all others
                graph.add_edge(host, _preferred_system(graph, strangers, rng), None)
        new = graph.add_node(graph.num_nodes())
        graph.add_edges_from_no_data([(host, new) for host in hosts])
    for system in graph.node_indices():  # who is host or peer is part of a ring; see to the rest
        while graph.degree(system) < upstreams:
            graph.add_edge(system, _preferred_system(graph, _strangers(graph, system), rng), None)
    return list(graph.edge_list())


def _rng(internet: Internet, *purpose: object) -> Random:
    return stream(internet.seed, "topology", *purpose)


def _preference(degree: int) -> float:
    return float(degree ** (1 + DELTA * log10(degree)))


def _preferred(among: Sequence[int], degrees: Sequence[int], rng: Random) -> int:
    return rng.choices(among, [_preference(degree) for degree in degrees])[0]


def _preferred_system(graph: rx.PyGraph[int, None], among: Sequence[int], rng: Random) -> int:
    return _preferred(among, [graph.degree(node) for node in among], rng)


def _strangers(graph: rx.PyGraph[int, None], system: int) -> list[int]:
    known = {system, *graph.neighbors(system)}
    return [node for node in graph.node_indices() if node not in known]


def _layout(nodes: int, systems: int) -> list[_System]:
    """Devices are numbered system by system, from the core outwards."""
    layout, first = [], 0
    for number in range(systems):
        size = nodes // systems + (number < nodes % systems)
        counts = (  # of routers, by level; the rest are leaves
            min(6, max(2, ceil(0.1 * size))),
            max(2, ceil(0.18 * size)),
            max(2, ceil(0.2 * size)),
        )
        ends = [first + sum(counts[:level]) for level in range(4)] + [first + size]
        layout.append(_System(*(range(a, b) for a, b in pairwise(ends))))
        first += size
    return layout


def _uplinks(system: _System, rng: Random) -> Iterator[Wire]:
    """One for each device below the core. Gateways take the core routers in turn."""
    yield from ((a, b, "gateway") for a, b in zip(cycle(system.core), system.gateway, strict=False))
    for uppers, lowers, level in system.steps[1:]:
        degree = dict.fromkeys(uppers, 1)
        for lower in lowers:
            upper = _preferred(uppers, list(degree.values()), rng)
            degree[upper] += 1
            yield upper, lower, level


def _more_uplinks(layout: Sequence[_System], uplink: dict[int, int], rng: Random) -> Iterator[Wire]:
    """Further ones, from the core outwards, each level spread over all systems at random."""
    cores = max(len(system.core) for system in layout)
    for step, most in enumerate((cores, 2, 2)):
        for turn in range(1, most):
            wires = [
                (uppers[(uppers.index(uplink[lower]) + turn) % len(uppers)], lower, level)
                for uppers, lowers, level in (system.steps[step] for system in layout)
                if turn < len(uppers)
                for lower in lowers
            ]
            rng.shuffle(wires)
            yield from wires
