"""A network of brokers, as paper 002 has it: clients at brokers, brokers in a tree.

A broker matches messages in parallel, one per thread, in the order in which they come; matching
takes an exponential time. So messages of one publisher overtake each other. Links between brokers
take a constant time; a client and its broker are at one place. A message goes along the tree to the
brokers behind which somebody subscribes to its topic.

The times of matching are a pure function of seed, message and broker: `columnar/brokers.py` has the
same, on arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.entropy import digest
from unisono.errors import BadInput
from unisono.sim.channels import mix
from unisono.sim.service import At, Reach

NO_BROKER = -1


class Brokers(msgspec.Struct, frozen=True, kw_only=True):
    """The network. `parents`: of each broker in the tree, -1 of the first."""

    parents: tuple[int, ...]
    threads: Annotated[int, Meta(ge=1, le=10_000)] = 16
    match_ms: Annotated[float, Meta(gt=0, le=1e6)] = 20.0  # mean
    link_ms: Annotated[float, Meta(ge=0, le=1e6)] = 50.0

    @property
    def neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.parents]
        for broker, parent in enumerate(self.parents):
            if parent >= 0:
                found[broker].append(parent)
                found[parent].append(broker)
        return [sorted(near) for near in found]

    @property
    def link_us(self) -> int:
        return round(self.link_ms * 1000)


def path(brokers: int) -> tuple[int, ...]:
    """One broker after the other."""
    return tuple(range(-1, brokers - 1))


def low_degree(brokers: int, diameter: int, seed: int, degree: int = 4) -> tuple[int, ...]:
    """A random tree of this diameter: the longest path, and the others somewhere beside it."""
    if not 1 <= diameter < brokers:
        raise BadInput(f"{brokers} brokers have a diameter of 1 to {brokers - 1}, not {diameter}")
    rng = Random(digest(seed, "brokers"))
    parents = list(path(diameter + 1))
    room = [min(place, diameter - place) for place in range(diameter + 1)]  # levels below
    children = [1] * diameter + [0]
    while len(parents) < brokers:
        free = [b for b in range(len(parents)) if room[b] and children[b] < degree - 1]
        if not free:
            raise BadInput(f"{brokers} brokers do not fit into a diameter of {diameter}")
        above = rng.choice(free)
        children[above] += 1
        children.append(0)
        room.append(room[above] - 1)
        parents.append(above)
    return tuple(parents)


def match_us(seed_key: int, message: int, broker: int, mean_us: float) -> int:
    """How long a broker matches a message."""
    word = mix(mix(seed_key ^ message) ^ broker)
    return round(-mean_us * log(((word >> 11) + 1) * 2.0**-53))


def seed_key(seed: int) -> int:
    return digest(seed, "matching")


class BrokerService:
    """The event service of such a network. Subscriptions are known everywhere at once."""

    def __init__(
        self, network: Brokers, home: Mapping[str, int], seed: int, at: At, reach: Reach
    ) -> None:
        self._network = network
        self._near = network.neighbours
        self._home = home  # client -> its broker
        self._key = seed_key(seed)
        self._at = at
        self._reach = reach
        self._free_us = [[0] * network.threads for _ in network.parents]
        self._subscribers: dict[str, list[str]] = {}
        self._messages = 0

    def subscribe(self, node: str, topic: str) -> None:
        nodes = self._subscribers.setdefault(topic, [])
        if node in self._home and node not in nodes:
            nodes.append(node)
            nodes.sort()

    def unsubscribe(self, node: str, topic: str) -> None:
        if node in self._subscribers.get(topic, ()):
            self._subscribers[topic].remove(node)

    def forget(self, node: str) -> None:
        for nodes in self._subscribers.values():
            if node in nodes:
                nodes.remove(node)

    def publish(self, source: str, topic: str, frame: bytes, now: int) -> None:
        message = self._messages
        self._messages += 1
        self._arrive(self._home[source], NO_BROKER, message, topic, frame, now)

    def _arrive(
        self, broker: int, origin: int, message: int, topic: str, frame: bytes, now: int
    ) -> None:
        network, free = self._network, self._free_us[broker]
        thread = free.index(min(free))
        spent = match_us(self._key, message, broker, network.match_ms * 1000)
        done = free[thread] = max(now, free[thread]) + spent
        for near in self._near[broker]:
            if near != origin and self._leads(broker, near, topic):
                self._at(
                    done + network.link_us,
                    lambda when, near=near: self._arrive(  # type: ignore[misc]
                        near, broker, message, topic, frame, when
                    ),
                )
        for client in self._subscribers.get(topic, ()):
            if self._home[client] == broker:
                self._at(
                    done,
                    lambda when, client=client: self._reach(  # type: ignore[misc]
                        client, topic, frame, when
                    ),
                )

    def _leads(self, broker: int, near: int, topic: str) -> bool:
        """Whether somebody behind this link subscribes to the topic."""
        homes = {self._home[client] for client in self._subscribers.get(topic, ())}
        behind, rest = {broker, near}, [near]
        while rest:
            here = rest.pop()
            if here in homes:
                return True
            fresh = [other for other in self._near[here] if other not in behind]
            behind.update(fresh)
            rest.extend(fresh)
        return False
