"""Packets lost on links, in bursts.

Every link is a Gilbert-Elliott channel per direction, apart for the trees of the event service and
for messages between two nodes. Packets that a node sends on a link at one time are a *train*; each
train begins in the channel's steady state, and the state is kept from packet to packet within it.

What is lost is a pure function of seed, link, time and place in the train. The columnar engine
computes the same function (`sim/columnar/losses.py`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.entropy import digest
from unisono.errors import BadInput
from unisono.models.channel import Channel
from unisono.sim.channels import mix, node_key

DRAW_BITS = 53
_WORD = 2**64 - 1

Rate = Annotated[float, Meta(ge=0, lt=1)]
Burst = Annotated[float, Meta(ge=1, le=1e6)]


class Later(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conditions from a time on."""

    at_s: Annotated[float, Meta(gt=0, le=1e6)]
    rate: Rate
    burst: Burst = 1.0


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`rate`: the share of packets lost (PLR); `burst`: mean length of a burst (ABL)."""

    rate: Rate = 0.0
    burst: Burst = 1.0
    shared: Annotated[float, Meta(ge=0, le=1)] = (
        0.0  # this share of trains is lost alike on all links that carry one at the same time
    )
    later: tuple[Later, ...] = ()

    def __post_init__(self) -> None:
        Channel(self.rate, self.burst)
        for later in self.later:
            Channel(later.rate, later.burst)
        times = [later.at_s for later in self.later]
        if times != sorted(set(times)):
            raise BadInput("loss.later: the times must rise")

    @property
    def lossy(self) -> bool:
        return self.rate > 0 or any(later.rate > 0 for later in self.later)

    @property
    def conditions(self) -> list[tuple[int, int, int, int]]:
        """From when on (microseconds), and below which draws a packet is lost: the first one of a
        train, one after a packet that came, one after a lost packet."""
        found = []
        for at_s, rate, burst in (
            (0.0, self.rate, self.burst),
            *((later.at_s, later.rate, later.burst) for later in self.later),
        ):
            channel = Channel(rate, burst)
            draws = (rate, channel.to_bad, 1 - channel.to_good)
            found.append((round(at_s * 1e6), *(round(p * 2**DRAW_BITS) for p in draws)))
        return found


class Losses:
    """Which packets are lost."""

    def __init__(self, loss: Loss, seed: int) -> None:
        self.seed_key = digest(seed, "losses")
        self.shared_below = round(loss.shared * 2**DRAW_BITS)
        self._conditions = loss.conditions
        # By link: the time of its last train, what the draws depend on, packets, the last one lost.
        self._trains: dict[tuple[str, str, bool], tuple[int, int, int, bool]] = {}

    def lost(self, source: str, target: str, direct: bool, now: int) -> bool:
        """Whether the next packet on a link, sent now, is lost. `direct`: not part of a tree."""
        if source == target:
            return False
        at, base, count, bad = self._trains.get((source, target, direct), (-1, 0, 0, False))
        if at != now:
            base, count = self._base(node_key(source), node_key(target), direct, now), 0
        _, first, after_good, after_bad = next(c for c in reversed(self._conditions) if c[0] <= now)
        below = first if count == 0 else after_bad if bad else after_good
        bad = mix((base + count) & _WORD) >> (64 - DRAW_BITS) < below
        self._trains[source, target, direct] = (now, base, count + 1, bad)
        return bad

    def _base(self, source: int, target: int, direct: bool, now: int) -> int:
        link = mix(mix(self.seed_key ^ source) ^ target ^ direct)
        base = mix(link ^ now)
        if mix(base ^ _WORD) >> (64 - DRAW_BITS) < self.shared_below:
            base = mix(self.seed_key ^ now)
        return base
