"""Nodes that close and come back with their disks: some, one after the other, all at once.

A process that is restarted hands over what others need, leaves, and begins a new life under its
name: with what is on its disk, and the subscriptions that it had.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from unisono.sim.world import World

_LOOK_US = 100_000
SECOND = 1_000_000


class Restarts:
    """Of one run. `make` adds a node again; `resume` has it ask for what it had."""

    def __init__(
        self,
        world: World,
        make: Callable[[str], None],
        resume: Callable[[str], None],
        told: Callable[[str, str, str], None],
    ) -> None:
        self._world = world
        self._make = make
        self._resume = resume
        self._told = told
        self.away: set[str] = set()  # about to leave, or gone for a while

    def one(self, at: int, name: str, down_us: int, then: Callable[[], None] | None = None) -> None:
        """Close this node at that time; it is back so long after it has left."""
        self._world.at(at, lambda now: self._close(name, down_us, then))

    def rolling(self, at: int, names: Sequence[str], rng: random.Random) -> None:
        """Each in turn, when the one before is back."""
        if names:
            rest = list(names[1:])
            pause = rng.randrange(SECOND)

            def go_on() -> None:
                self.rolling(self._world.now + pause, rest, rng)

            self.one(at, names[0], rng.randrange(2 * SECOND), go_on)

    def _close(self, name: str, down_us: int, then: Callable[[], None] | None) -> None:
        world = self._world
        if world.weather.calm or name not in world.nodes or name in self.away:
            if then is not None and not world.weather.calm:
                then()
            return
        waiting = {ticket.partition(":")[0] for ticket in world.pending if ":op" in ticket}
        if name in waiting:  # a subscription is under way: afterwards
            world.at(world.now + _LOOK_US, lambda now: self._close(name, down_us, then))
            return
        self.away.add(name)
        self._told("restart", name, "closes")
        world.close(name)
        self._wait(name, down_us, then)

    def _wait(self, name: str, down_us: int, then: Callable[[], None] | None) -> None:
        """Until it has left; or has crashed on the way."""
        world = self._world
        if name in world.nodes:
            world.at(world.now + _LOOK_US, lambda now: self._wait(name, down_us, then))
            return
        down_us = 0 if world.weather.calm else down_us
        world.at(world.now + down_us, lambda now: self._back(name, then))

    def _back(self, name: str, then: Callable[[], None] | None) -> None:
        if name not in self._world.nodes:
            self._told("restart", name, "is back")
            self._make(name)
            self._resume(name)
        self.away.discard(name)
        if then is not None:
            then()
