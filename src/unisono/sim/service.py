"""The simulated event service: a per-topic root and a random tree over all nodes.

An event goes from its publisher to the root of its topic, then down the tree, hop by hop, to the
nodes that subscribe. Topics have different roots and trees, so events of different topics take
different paths. Messages to one node (inbox topics) take the direct link between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from unisono.core.entropy import digest, stream
from unisono.core.limits import RESERVED
from unisono.sim.channels import Links
from unisono.sim.losses import Losses
from unisono.sim.weather import Weather

# Ask the world to call back at a time.
At = Callable[[int, Callable[[int], None]], None]
# A frame reaches a node.
Reach = Callable[[str, str, bytes, int], None]


class Service(Protocol):
    """An event service of the simulator."""

    def subscribe(self, node: str, topic: str) -> None: ...

    def unsubscribe(self, node: str, topic: str) -> None: ...

    def forget(self, node: str) -> None: ...

    def publish(self, source: str, topic: str, frame: bytes, now: int) -> None: ...


class TreeService:
    """Moves frames between nodes with the delays of the links."""

    def __init__(
        self,
        nodes: Sequence[str],
        links: Links,
        seed: int,
        at: At,
        reach: Reach,
        weather: Weather | None = None,
        only_messages: bool = False,
        losses: Losses | None = None,
    ) -> None:
        self._losses = losses
        self._weather = weather or Weather()
        self._only_messages = only_messages  # the weather spares events
        self._nodes = list(nodes)
        self._links = links
        self._seed = seed
        self._at = at
        self._reach = reach
        self._subscribers: dict[str, set[str]] = {}
        self._parents: dict[str, dict[str, str]] = {}
        self._routes: dict[str, dict[str, list[str]]] = {}  # topic -> node -> next hops
        self._roots: dict[str, str] = {}

    def subscribe(self, node: str, topic: str) -> None:
        """Effective at once: the tree knows its leaves."""
        self._subscribers.setdefault(topic, set()).add(node)
        self._routes.pop(topic, None)

    def unsubscribe(self, node: str, topic: str) -> None:
        self._subscribers.get(topic, set()).discard(node)
        self._routes.pop(topic, None)

    def forget(self, node: str) -> None:
        """The node has crashed: it receives nothing any more."""
        for topic, nodes in self._subscribers.items():
            if node in nodes:
                nodes.discard(node)
                self._routes.pop(topic, None)

    def publish(self, source: str, topic: str, frame: bytes, now: int) -> None:
        if topic.startswith(RESERVED):  # messages take the direct link
            for target in sorted(self._subscribers.get(topic, ())):
                self._hop(source, target, topic, frame, now, self._reach)
        else:
            self._hop(source, self.root(topic), topic, frame, now, self._down)

    def _hop(
        self, source: str, target: str, topic: str, frame: bytes, now: int, then: Reach
    ) -> None:
        at = self._links.arrival_us(source, target, now, len(frame))
        direct = topic.startswith(RESERVED)
        losses = None if self._weather.calm else self._losses
        if losses is not None and losses.lost(source, target, direct, now):
            return
        if direct or not self._only_messages:
            if self._weather.is_cut(source, target):
                return
            at += self._weather.extra_us(source, target)
        self._at(at, lambda when: then(target, topic, frame, when))

    def _down(self, node: str, topic: str, frame: bytes, now: int) -> None:
        """A frame is at a node of the topic's tree: hand it over, pass it on."""
        for child in self._next_hops(topic).get(node, ()):
            self._hop(node, child, topic, frame, now, self._down)
        if node in self._subscribers.get(topic, ()):
            self._reach(node, topic, frame, now)

    def root(self, topic: str) -> str:
        root = self._roots.get(topic)
        if root is None:
            root = self._nodes[digest(self._seed, "root", topic) % len(self._nodes)]
            self._roots[topic] = root
        return root

    def tree(self, topic: str) -> dict[str, str]:
        """A random recursive tree: each node, in random order, hangs below an earlier one."""
        parents = self._parents.get(topic)
        if parents is None:
            rng = stream(self._seed, "tree", topic)
            root = self.root(topic)
            others = [node for node in self._nodes if node != root]
            rng.shuffle(others)
            placed = [root]
            parents = self._parents[topic] = {}
            for node in others:
                parents[node] = placed[rng.randrange(len(placed))]
                placed.append(node)
        return parents

    def _next_hops(self, topic: str) -> dict[str, list[str]]:
        """Only the branches that lead to subscribers."""
        routes = self._routes.get(topic)
        if routes is None:
            parents = self.tree(topic)
            edges: dict[str, set[str]] = {}
            for node in self._subscribers.get(topic, ()):
                while node in parents:
                    edges.setdefault(parents[node], set()).add(node)
                    node = parents[node]
            routes = self._routes[topic] = {node: sorted(kids) for node, kids in edges.items()}
        return routes
