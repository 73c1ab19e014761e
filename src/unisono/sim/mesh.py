"""The mesh in virtual time: processes, and a network that delays, loses and cuts.

The same machines as over UDP (`ens/scribe`). A `Net` says how long a message takes between two
addresses, and whether it arrives at all.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from unisono.core.effects import Arrive, Done, Effect
from unisono.core.entropy import stream
from unisono.ens.scribe.messages import Message, decode, encode
from unisono.ens.scribe.node import Mesh, Tell
from unisono.ens.scribe.options import Shape

OnArrive = Callable[[str, str, bytes, int], None]  # address, topic, frame, now


class Net(Protocol):
    """The network between addresses."""

    def delay_us(self, source: str, target: str) -> int | None:
        """Of a message that is sent now; None: it is lost."""

    def way(self, source: str, target: str) -> frozenset[str] | None:
        """The devices between the two; None: not measured yet."""


class Flat:
    """Every way takes between half and one and a half times as long; some messages are lost."""

    def __init__(self, seed: int, mean_us: int = 20_000, loss: float = 0.0) -> None:
        self._rng = stream(seed, "flat")
        self._mean_us = mean_us
        self.loss = loss
        self.cut: set[frozenset[str]] = set()

    def delay_us(self, source: str, target: str) -> int | None:
        if self.loss and self._rng.random() < self.loss:
            return None
        if self.cut and frozenset((source, target)) in self.cut:
            return None
        return round(self._mean_us * (0.5 + self._rng.random()))

    def way(self, source: str, target: str) -> frozenset[str] | None:
        return frozenset()


class MeshWorld:
    """Processes by address. A pure function of what is asked for, the net and the seed."""

    def __init__(
        self, net: Net, shape: Shape, seed: int, on_arrive: OnArrive, coded: bool = False
    ) -> None:
        self.now = 0
        self.nodes: dict[str, Mesh] = {}
        self.done: set[str] = set()  # tickets
        self.sent: Counter[str] = Counter()  # messages, by kind
        self._net = net
        self._shape = shape
        self._seed = seed
        self._on_arrive = on_arrive
        self._coded = coded
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._tie = 0
        self._boots: Counter[str] = Counter()

    def at(self, when: int, action: Callable[[], None]) -> None:
        self._tie += 1
        heapq.heappush(self._queue, (max(when, self.now), self._tie, action))

    def run(self, until_us: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            self.now, _, action = heapq.heappop(queue)
            action()
        self.now = until_us

    def run_until(self, condition: Callable[[], bool], at_most_us: int) -> bool:
        """Beat by beat; whether it came true."""
        end = self.now + at_most_us
        while not condition():
            if self.now >= end:
                return False
            self.run(self.now + self._shape.beat_us)
        return True

    # Processes.

    def start(
        self, address: str, domain: str, seeds: Iterable[str] = (), candidate: bool = True
    ) -> Mesh:
        self._boots[address] += 1
        boot = self._boots[address]
        rng = stream(self._seed, "mesh", address, boot)
        node = Mesh(
            f"{address}#{boot}",
            address,
            domain,
            self._shape,
            rng,
            seeds,
            candidate,
            way=lambda other: self._net.way(address, other),
        )
        self.nodes[address] = node
        self._carry(address, node.start(self.now))
        self._beat(address, node, rng.randrange(self._shape.beat_us))
        return node

    def _beat(self, address: str, node: Mesh, wait_us: int) -> None:
        def tick() -> None:
            if self.nodes.get(address) is node:
                self._carry(address, node.tick(self.now))
                self._beat(address, node, self._shape.beat_us)

        self.at(self.now + wait_us, tick)

    def crash(self, address: str) -> None:
        del self.nodes[address]

    def leave(self, address: str) -> None:
        self._carry(address, self.nodes[address].leave(self.now))
        del self.nodes[address]

    def publish(self, address: str, topic: str, frame: bytes) -> None:
        self._carry(address, self.nodes[address].publish(topic, frame, self.now))

    def subscribe(self, address: str, topic: str) -> str:
        ticket = f"{self.nodes[address].name}:{topic}"
        self._carry(address, self.nodes[address].subscribe(topic, ticket, self.now))
        return ticket

    def unsubscribe(self, address: str, topic: str) -> None:
        self._carry(address, self.nodes[address].unsubscribe(topic, self.now))

    def _carry(self, address: str, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                self._send(address, effect.to, effect.message)
            elif isinstance(effect, Arrive):
                self._on_arrive(address, effect.topic, effect.frame, self.now)
            else:
                assert isinstance(effect, Done), effect
                self.done.add(effect.ticket)

    def _send(self, source: str, target: str, message: Message) -> None:
        self.sent[type(message).__name__] += 1
        delay = self._net.delay_us(source, target)
        if delay is None:
            return
        if self._coded:
            message = decode(encode(message))

        def reach() -> None:
            node = self.nodes.get(target)
            if node is not None:
                self._carry(target, node.receive(source, message, self.now))

        self.at(self.now + delay, reach)
