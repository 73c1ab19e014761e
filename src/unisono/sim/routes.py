"""A network of devices and links: fixed shortest routes, their delays, and which of them are cut.

A route is the one with the fewest links of leaves, then of access routers, then of gateways, and of
these the shortest by delay. So it goes up, across and down: no device forwards between two that are
above it, and a leaf forwards nothing. Equally short ones: the same is taken in both directions.

A route does not change while one of its links is down: between autonomous systems routing takes
minutes to settle (an assumption; networks that settle faster lose less). So a crashed link cuts off
exactly the pairs of nodes whose route uses it, even where another way is left; to go around it is
the overlay's task.

Devices do not crash here: a node that crashes is a process on a device, and traffic still passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import rustworkx as rx

from unisono.errors import BadInput

Level = Literal["transit", "core", "gateway", "access", "leaf"]
DeviceLevel = Literal["core", "gateway", "access", "leaf"]

# What a link costs, in microseconds, on top of its delay. A route that goes down a level and up
# again has two more links there, and no saving above, nor of delay (below 1 s), outweighs them.
_STEP_US: dict[Level, int] = {
    "transit": 0,
    "core": 0,
    "gateway": 1 << 20,
    "access": 1 << 22,
    "leaf": 1 << 24,
}


class Link(NamedTuple):
    """`level`: that of its lower end, or "transit" between two systems."""

    a: int
    b: int
    delay_us: int
    level: Level


class Topology:
    """Devices 0, 1, ... and fixed routes. All that changes is which links are down."""

    def __init__(
        self, links: Iterable[Link], system_of: Sequence[int], level_of: Sequence[DeviceLevel]
    ) -> None:
        self.links = tuple(links)
        self.system_of = tuple(system_of)
        self.level_of = tuple(level_of)
        self.hosts = range(len(self.system_of))  # any device can carry an overlay node, as in 004
        self._link_of = {}
        for index, link in enumerate(self.links):
            self._link_of[link.a, link.b] = self._link_of[link.b, link.a] = index
        if len(self._link_of) != 2 * len(self.links) or any(a == b for a, b in self._link_of):
            raise BadInput("links: each connects two devices, and no two connect the same")
        if any(link.delay_us < 1 for link in self.links):
            raise BadInput("links: each takes a microsecond at least")
        graph = self.graph()
        if not rx.is_connected(graph):
            raise BadInput("links: some devices cannot reach each other")
        # Of equally short routes it takes the one whose greatest device has the least number, and
        # splits it there in the same way: the same route in both directions.
        costs = [float(link.delay_us + _STEP_US[link.level]) for link in self.links]
        self._cost, self._next = rx.graph_floyd_warshall_successor_and_distance(
            graph, weight_fn=costs.__getitem__
        )
        # By target: tables towards it, made when they are first asked for.
        self._masks: list[list[int] | None] = [None] * len(self.hosts)
        self._delays: list[list[int]] = [[] for _ in self.hosts]
        self._hops: list[list[int]] = [[] for _ in self.hosts]
        self._down = 0

    def graph(self) -> rx.PyGraph[int, int]:
        """All devices and links, up or down; an edge carries the number of its link."""
        graph: rx.PyGraph[int, int] = rx.PyGraph(multigraph=False)
        graph.add_nodes_from(list(self.hosts))
        graph.add_edges_from([(link.a, link.b, at) for at, link in enumerate(self.links)])
        return graph

    def route(self, a: int, b: int) -> tuple[int, ...]:
        """The devices on the way from a to b, without the two."""
        hops = self._towards(b)
        way = []
        while (a := hops[a]) != b:
            way.append(a)
        return tuple(way)

    def path_of(self, a: int, b: int) -> tuple[str, ...]:
        """A traceroute from a to b: the names of the devices on the way.

        This is what the overlay's path measurement gets in the simulator. It shows the route
        whether or not its links are up: whoever cannot be reached is not there to be asked.
        """
        return tuple(map(self.name_of, self.route(a, b)))

    def name_of(self, node: int) -> str:
        return f"as{self.system_of[node]}-{self.level_of[node]}{node}"

    def links_of(self, a: int, b: int) -> tuple[int, ...]:
        """The links of the route from a to b, by number."""
        way = (a, *self.route(a, b), b) if a != b else ()
        return tuple(self._link_of[pair] for pair in pairwise(way))

    def delay_us(self, a: int, b: int) -> int:
        if self._masks[b] is None:
            self._towards(b)
        return self._delays[b][a]

    def alive(self, a: int, b: int) -> bool:
        """All links of the route are up."""
        if not self._down:
            return True
        masks = self._masks[b]
        if masks is None:
            self._towards(b)
            return self.alive(a, b)
        return not masks[a] & self._down

    def crash(self, link: int) -> None:
        self._down |= 1 << link

    def repair(self, link: int) -> None:
        self._down &= ~(1 << link)

    def _towards(self, target: int) -> list[int]:
        """The next hop of each device towards `target`; fills the tables."""
        if self._masks[target] is None:
            nearest_first = np.argsort(self._cost[:, target], kind="stable").tolist()
            hops = self._next[:, target].tolist()
            masks, delays = [0] * len(hops), [0] * len(hops)
            for node in nearest_first[1:]:
                after = hops[node]
                link = self._link_of[node, after]
                masks[node] = masks[after] | 1 << link
                delays[node] = delays[after] + self.links[link].delay_us
            self._delays[target] = delays
            self._hops[target] = hops
            self._masks[target] = masks
        return self._hops[target]
