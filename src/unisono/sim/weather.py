"""What happens to whole nodes and links: crashes, partitions, pauses, delay spikes, wrong clocks.

`Chaos` says how much of each; what happens when and to whom is drawn per seed. `Weather` is what
the world asks: is this link cut, how much later is this hop, what time is it at this node? All
faults end with the safety phase; what crashed comes back, and then everything must finish.
"""

from __future__ import annotations

import random
from typing import Annotated

import msgspec
from msgspec import Meta

Few = Annotated[int, Meta(ge=0, le=1000)]
SECOND = 1_000_000


class Chaos(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """At most this many of each; with `Faults.draw`, between none and this many."""

    crashes: Few = 0  # of nodes that only host managers; they restart
    publisher_crashes: Few = 0  # they do not come back
    restarts: Few = 0  # of any node: it closes, and comes back with its disk
    rolling: Few = 0  # of all nodes, each when the one before is back
    outages: Few = 0  # of all nodes: everyone closes, and comes back
    disks: bool = False  # nodes have disks: crashed ones return with it, or with it wiped
    partitions: Few = 0  # some nodes hear the others no more, nor they them
    one_way: Few = 0  # some nodes are heard no more, but hear
    pauses: Few = 0  # a node does nothing for a while, then goes on as if nothing had been
    spikes: Few = 0  # all hops of a node take longer for a while
    clock_step_s: Annotated[float, Meta(ge=0, le=1e4)] = 0.0  # clocks are off, and jump, by up to
    clock_drift: Annotated[float, Meta(ge=0, le=0.1)] = 0.0

    def drawn(self, rng: random.Random) -> Chaos:
        counts = ["crashes", "publisher_crashes", "partitions", "one_way", "pauses", "spikes"]
        counts += [name for name in ("restarts", "rolling", "outages") if getattr(self, name)]
        return msgspec.structs.replace(
            self, **{name: rng.randint(0, getattr(self, name)) for name in counts}
        )


class Weather:
    """The state of links and clocks at this moment."""

    def __init__(self) -> None:
        self.calm = False  # after the safety phase: no more faults
        self._cuts: list[tuple[frozenset[str], bool, bool]] = []  # who, silent, deaf
        self._slow: dict[str, int] = {}  # node -> more microseconds a hop
        self._offset: dict[str, int] = {}
        self._drift: dict[str, float] = {}

    def cut(self, nodes: frozenset[str], silent: bool, deaf: bool) -> None:
        self._cuts.append((nodes, silent, deaf))

    def heal(self, nodes: frozenset[str]) -> None:
        self._cuts = [entry for entry in self._cuts if entry[0] != nodes]

    def is_cut(self, source: str, target: str) -> bool:
        return any(
            (silent and source in nodes and target not in nodes)
            or (deaf and target in nodes and source not in nodes)
            for nodes, silent, deaf in self._cuts
        )

    def slow_down(self, node: str, extra_us: int) -> None:
        self._slow[node] = extra_us

    def extra_us(self, source: str, target: str) -> int:
        return self._slow.get(source, 0) + self._slow.get(target, 0) if self._slow else 0

    def step_clock(self, node: str, offset_us: int, drift: float) -> None:
        self._offset[node] = offset_us
        self._drift[node] = drift

    def local(self, node: str, now: int) -> int:
        """The time that a node believes it is."""
        if node not in self._offset:
            return now
        return max(0, now + self._offset[node] + round(now * self._drift[node]))

    def clear(self) -> None:
        """The safety phase is over. Clocks stay as wrong as they are."""
        self.calm = True
        self._cuts.clear()
        self._slow.clear()
