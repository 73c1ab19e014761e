"""The online check that one order fits all subscribers: nobody's "delivered before", taken together
with everybody else's, runs in a circle.

Collects sequences while the run goes on and merges them at its end: an event leaves when it heads
every sequence that has it. What cannot leave holds a cycle. `violations` counts the knots: sets of
events, each of which comes before each other one. The Spark audit counts the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from unisono.core.events import Delivery, Status
from unisono.sim.verdict import Check, Witness

Sequences = dict[str, list[str]]  # subscriber -> events
Edge = tuple[str, str, str]  # a subscriber, and two events that it was notified of in this order


class GlobalOrderCheck(Check):
    """The untagged notifications of all subscribers fit into one order of all events."""

    _positions: dict[str, dict[str, int]] = {}  # subscriber -> event -> position, in its order

    def delivered(self, node: str, delivery: Delivery) -> None:
        if delivery.status in (Status.OUT_OF_ORDER, Status.DUPLICATE):
            return
        # Of an event that comes again, the first counts: duplicates are another checker's matter.
        self._positions.setdefault(node, {}).setdefault(delivery.id, delivery.position)

    def finish(self) -> None:
        """At the end of a run."""
        left = unmerged({node: list(mine) for node, mine in self._positions.items()})
        if not left:
            return
        tied = [knot for knot in components(left) if len(knot) > 1]
        self.violations = len(tied)
        cycle = min((shortest_cycle(left, knot) for knot in tied), key=len)
        self.witness = self._witness(cycle)

    def _witness(self, cycle: list[Edge]) -> Witness:
        return {
            "events": [first for _, first, _ in cycle],
            "cycle": [
                {
                    "subscriber": node,
                    "events": [first, then],
                    "positions": [self._positions[node][first], self._positions[node][then]],
                }
                for node, first, then in cycle
            ],
        }


def unmerged(sequences: Sequences) -> Sequences:
    """What is left of the sequences when events leave that head all sequences that have them."""
    missing = Counter(event for events in sequences.values() for event in events)
    rest = {node: iter(events) for node, events in sequences.items()}
    waiting: dict[str, list[str]] = {}  # event -> those whose sequences it heads
    moving = list(sequences)
    while moving:
        node = moving.pop()
        event = next(rest[node], None)
        if event is None:
            continue
        missing[event] -= 1
        if not missing[event]:
            moving.append(node)
            moving += waiting.pop(event, ())
        else:
            waiting.setdefault(event, []).append(node)
    heads = {node: event for event, nodes in waiting.items() for node in nodes}
    return {node: [heads[node], *rest[node]] for node in sequences if node in heads}


def components(sequences: Sequences) -> list[set[str]]:
    """Sets of events that all come before each other (Tarjan's algorithm, without recursion)."""
    after: dict[str, list[str]] = {}
    for events in sequences.values():
        for event, following in zip(events, [*events[1:], None], strict=True):
            after.setdefault(event, []).extend([] if following is None else [following])
    found: list[set[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    held: dict[str, None] = {}  # visited and in no component yet, in the order of visits
    for root in after:
        path: list[tuple[str, Iterator[str]]] = []
        fresh: str | None = None if root in index else root
        while fresh is not None or path:
            if fresh is not None:
                index[fresh] = low[fresh] = len(index)
                held[fresh] = None
                path.append((fresh, iter(after[fresh])))
                fresh = None
            event, ahead = path[-1]
            for other in ahead:
                if other not in index:
                    fresh = other
                    break
                if other in held:
                    low[event] = min(low[event], index[other])
            if fresh is not None:
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[event])
            if low[event] == index[event]:
                found.append(set())
                while event not in found[-1]:
                    found[-1].add(held.popitem()[0])
    return found


def shortest_cycle(sequences: Sequences, knot: set[str]) -> list[Edge]:
    """A cycle with as few steps as there can be; a step goes to any later event of a subscriber."""
    within = {node: [e for e in events if e in knot] for node, events in sequences.items()}
    place = {node: {event: at for at, event in enumerate(mine)} for node, mine in within.items()}
    best: list[Edge] = []
    for origin in dict.fromkeys(event for mine in within.values() for event in mine):
        cycle = _cycle_through(origin, within, place)
        if not best or len(cycle) < len(best):
            best = cycle
        if len(best) == 2:
            break
    return best


def _cycle_through(
    origin: str, sequences: Sequences, place: dict[str, dict[str, int]]
) -> list[Edge]:
    """Breadth first from an event back to itself."""
    came: dict[str, Edge] = {}
    queue = [origin]
    for event in queue:  # grows while it is walked
        for node, places in place.items():
            for then in sequences[node][places[event] + 1 :] if event in places else ():
                if then not in came:
                    came[then] = (node, event, then)
                    queue.append(then)
        if origin in came:
            break
    cycle = [came[origin]]
    while cycle[0][1] != origin:
        cycle.insert(0, came[cycle[0][1]])
    return cycle
