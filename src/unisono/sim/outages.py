"""When links and nodes crash and come back: schedules, a pure function of a seed (paper 004, 4.1).

Each link or node fails on its own: it is up for an exponential time, then down for a uniform one.
The paper's "mean 5000 s between failures" is read as the mean time that one link is up, from its
repair to its next crash. Everything is up at the start.

A crash that would cut the network in two, given what is down at that moment, does not take place:
the link stays up and draws its next time to crash. So links that are the only way never crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from random import Random
from typing import Annotated, Generic, NamedTuple, TypeVar

import msgspec
import rustworkx as rx
from msgspec import Meta

from unisono.core.entropy import stream
from unisono.core.limits import check_fields
from unisono.errors import BadInput
from unisono.sim.routes import Topology

Seconds = Annotated[float, Meta(gt=0, le=1e9)]
SECOND = 1_000_000
T = TypeVar("T", int, str)


class Rhythm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long things are up and down. The defaults are the paper's, for links."""

    mean_up_s: Seconds = 5000.0
    least_down_s: Seconds = 10.0
    most_down_s: Seconds = 1200.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.least_down_s > self.most_down_s:
            raise BadInput("least_down_s is more than most_down_s")


PAPER = Rhythm()


class Outage(NamedTuple, Generic[T]):
    """Down from `at_us` on; up again at `until_us`, which may be after the end of the run."""

    at_us: int
    what: T
    until_us: int


def link_crashes(
    topology: Topology,
    seed: int,
    duration_s: float,
    rhythm: Rhythm = PAPER,
    *,
    partition: bool = False,
    steady: Collection[int] = (),
) -> Iterator[Outage[int]]:
    """Crashes of links, by number, in the order of time. Those in `steady` do not crash.

    With `partition`, also those take place that cut the network in two.
    """
    graph = topology.graph()

    def crash(link: int) -> bool:
        a, b, *_ = topology.links[link]
        graph.remove_edge(a, b)
        if partition or rx.has_path(graph, a, b):
            return True
        graph.add_edge(a, b, link)
        return False

    def repair(link: int) -> None:
        a, b, *_ = topology.links[link]
        graph.add_edge(a, b, link)

    rngs = _rngs(range(len(topology.links)), steady, seed, "link crash")
    return _outages(rngs, _microseconds(duration_s), rhythm, crash, repair)


def node_crashes(
    nodes: Iterable[T],
    seed: int,
    duration_s: float,
    rhythm: Rhythm = PAPER,
    *,
    steady: Collection[T] = (),
) -> Iterator[Outage[T]]:
    """Crashes of nodes, in the order of time. Those in `steady` do not crash; the others crash at
    the same times whoever is steady."""
    rngs = _rngs(nodes, steady, seed, "node crash")
    end_us = _microseconds(duration_s)
    return _outages(rngs, end_us, rhythm, lambda node: True, lambda node: None)


def _rngs(things: Iterable[T], steady: Collection[T], seed: int, kind: str) -> dict[T, Random]:
    return {thing: stream(seed, kind, thing) for thing in things if thing not in steady}


def _microseconds(duration_s: float) -> int:
    if not 0 < duration_s <= 1e9:
        raise BadInput(f"duration_s = {duration_s}: more than 0, at most 1e9")
    return round(duration_s * SECOND)


def _outages(
    rngs: Mapping[T, Random],
    end_us: int,
    rhythm: Rhythm,
    crash: Callable[[T], bool],
    repair: Callable[[T], None],
) -> Iterator[Outage[T]]:
    """`crash` says whether it took place."""

    def up_us(thing: T) -> int:
        return round(rngs[thing].expovariate(1 / rhythm.mean_up_s) * SECOND)

    crashes = [(up_us(thing), thing) for thing in rngs]
    heapify(crashes)
    repairs: list[tuple[int, T]] = []
    while crashes and crashes[0][0] < end_us:
        at_us, thing = heappop(crashes)
        while repairs and repairs[0][0] < at_us:  # one that ends at this very moment is still down
            repair(heappop(repairs)[1])
        if crash(thing):
            down_s = rngs[thing].uniform(rhythm.least_down_s, rhythm.most_down_s)
            until_us = at_us + round(down_s * SECOND)
            heappush(repairs, (until_us, thing))
            heappush(crashes, (until_us + 1 + up_us(thing), thing))
            yield Outage(at_us, thing, until_us)
        else:
            heappush(crashes, (at_us + 1 + up_us(thing), thing))
