"""Peer sampling: random partners without anybody knowing all nodes.

Each node keeps a small *partial view*: descriptors of other nodes with an age, the topics that
they subscribe and what they measured. Once a period it exchanges some descriptors with its oldest
peer. Who does not answer within the period is forgotten, who does comes back with age 0. So views
stay random, connected and up to date while nodes come and go (the exchange is that of CYCLON). Most
of a view are peers that share a topic, if there are so many.

Where messages get lost and nodes go, a view may fill with nodes that are gone, or a few nodes know
only each other. So after an exchange that failed there are two in the next period; what nobody has
heard of for long is forgotten; and a node that has lately heard from few others now and then asks
the bus who is there (`layer.py`): always if it heard from nobody, and about once a period among all
in its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.events import Control, Number

TOPICS_TOLD = 64  # of a node: a random choice if it has more
VIEW_MAX = 64
BURST_MAX = 100  # packets; longer ones are told as that
_LATELY, _FEW = 10, 5  # periods in which a node should have heard from so many others
_AGES = 3  # times the size of the view: older descriptors go
_SHARING = 0.75  # of a view are kept for peers that share a topic
_LEAST_PERCENT = 20  # who needs more help than that is asked as if it did not


class Measured(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How packets get lost on their way to a node: the share, and the mean length of a burst."""

    loss_ppm: Annotated[int, Meta(ge=0, le=1_000_000)]
    burst_hundredths: Annotated[int, Meta(ge=100, le=100 * BURST_MAX)]


class Descriptor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a peer. `age`: periods since it was last heard of."""

    node: Annotated[str, Meta(min_length=1, max_length=200)]
    age: Number
    topics: Annotated[tuple[str, ...], Meta(max_length=TOPICS_TOLD)]
    # What it says of itself, if it is asked to measure.
    measured: Measured | None = None
    alone_percent: Annotated[int, Meta(ge=0, le=100)] | None = None  # events it needs no help for


class Shuffle(Control, frozen=True, array_like=True, tag="shuffle"):
    """Node -> node: some of the peers that I know, and I. Asks for the same unless an answer."""

    peers: Annotated[tuple[Descriptor, ...], Meta(max_length=VIEW_MAX)]
    answer: bool


class Peers:
    """The partial view of one node."""

    def __init__(self, node_id: str, rng: Random, size: int = 20, exchanged: int = 8) -> None:
        assert 1 <= exchanged <= size <= VIEW_MAX
        self.topics: set[str] = set()  # this node's own
        self.measured: Measured | None = None  # here; told to others
        self.alone_percent: int | None = None
        self.view: dict[str, Descriptor] = {}
        self._node_id = node_id
        self._rng = rng
        self._size = size
        self._exchanged = exchanged
        self._heard: dict[str, int] = {}  # node -> in which period it last said something
        self._period = 0
        self._asked: dict[str, list[str]] = {}  # partners until they answer; what they were offered

    def me(self) -> Descriptor:
        topics = sorted(self.topics)
        if len(topics) > TOPICS_TOLD:
            topics = self._rng.sample(topics, TOPICS_TOLD)
        return Descriptor(self._node_id, 0, tuple(topics), self.measured, self.alone_percent)

    def shuffles(self) -> list[tuple[str, Shuffle]]:
        """A period has passed: whom to ask, and what; nobody if nobody is known."""
        self._period += 1
        while self._heard and self._period - next(iter(self._heard.values())) > _LATELY:
            del self._heard[next(iter(self._heard))]
        failed = self._asked
        self._asked = {}
        for partner in failed:
            self.view.pop(partner, None)
        self.view = {
            node: Descriptor(node, known.age + 1, known.topics, known.measured, known.alone_percent)
            for node, known in self.view.items()
            if known.age < _AGES * self._size
        }
        if not self.view:
            return []
        oldest = max(self.view.values(), key=lambda known: (known.age, known.node)).node
        partners = [oldest]
        if failed and len(self.view) > 1:
            partners += [known.node for known in self._some(1, but=oldest)]
        return [(partner, self._exchange(partner)) for partner in partners]

    def _exchange(self, partner: str) -> Shuffle:
        some = self._some(self._exchanged - 1, but=partner)
        self._asked[partner] = [known.node for known in some]
        return Shuffle((*some, self.me()), answer=False)

    def lonely(self) -> bool:
        """Whether to ask the bus, this period."""
        heard = len(self._heard)
        return heard < _FEW and self._rng.random() * (heard + 1) < 1

    def _hear(self, node: str) -> None:
        self._heard.pop(node, None)
        self._heard[node] = self._period
        if len(self._heard) > VIEW_MAX:
            del self._heard[next(iter(self._heard))]

    def receive(self, message: Shuffle, sender: str) -> Shuffle | None:
        """Take in what a peer knows; returns the answer that it waits for."""
        self._hear(sender)
        if message.answer:
            self._merge(message.peers, self._asked.pop(sender, ()))
            return None
        some = self._some(self._exchanged - 1, but=sender)
        answer = Shuffle((*some, self.me()), answer=True)
        self._merge(message.peers, [known.node for known in some])
        return answer

    def hear(self, peer: Descriptor) -> None:
        """A node said itself that it is there."""
        self._hear(peer.node)
        self._merge((peer,), ())

    def partners(self, topic: str, count: int) -> list[str]:
        """So many random peers that subscribe the topic, or as many as are known."""
        fitting = [node for node, known in self.view.items() if topic in known.topics]
        return self._rng.sample(fitting, min(count, len(fitting)))

    def likely(self, topic: str, offered: Sequence[str], source: str) -> list[str]:
        """One peer that probably has an event: half of the time one of those that offered it; of
        the rest, a quarter of the time its source and else one that subscribes the topic, by the
        square of how often it needs no help. Nobody if nobody is known."""
        fitting = [known for known in self.view.values() if topic in known.topics]
        told = [known.alone_percent for known in fitting if known.alone_percent is not None]
        usual = sum(told) / len(told) if told else 100  # of who does not tell
        weights: dict[str, float] = {}
        for known in fitting:
            percent = usual if known.alone_percent is None else known.alone_percent
            weights[known.node] = max(percent, _LEAST_PERCENT) ** 2
        if source:
            weights[source] = weights.get(source, 0) + (sum(weights.values()) / 3 or 1)
        total = sum(weights.values()) or 1
        for node in offered:
            weights[node] = weights.get(node, 0) + total / len(offered)
        return self._rng.choices(list(weights), list(weights.values())) if weights else []

    def _some(self, count: int, but: str = "") -> list[Descriptor]:
        others = [known for node, known in self.view.items() if node != but]
        return self._rng.sample(others, min(count, len(others)))

    def _merge(self, heard: Iterable[Descriptor], offered: Iterable[str]) -> None:
        """Younger descriptors win; those that were offered in exchange make room first."""
        room_makers = list(offered)
        for peer in heard:
            if peer.node == self._node_id:
                continue
            known = self.view.get(peer.node)
            if known is not None:
                if peer.age <= known.age:
                    self.view[peer.node] = peer
                continue
            if len(self.view) >= self._size and not self._make_room(peer, room_makers):
                continue
            self.view[peer.node] = peer

    def _make_room(self, peer: Descriptor, room_makers: list[str]) -> bool:
        """Whom to forget for this peer: one that was offered, else the oldest; if anyone."""
        sharing = sum(map(self._shares, self.view.values()))
        spared = not self._shares(peer) and sharing <= self._size * _SHARING
        candidates = [self.view[node] for node in room_makers if node in self.view]
        candidates = candidates or [known for known in self.view.values() if known.age > peer.age]
        candidates = [known for known in candidates if not (spared and self._shares(known))]
        if not candidates:
            return False
        victim = max(candidates, key=lambda known: (not self._shares(known), known.age))
        del self.view[victim.node]
        return True

    def _shares(self, peer: Descriptor) -> bool:
        return not self.topics.isdisjoint(peer.topics)
