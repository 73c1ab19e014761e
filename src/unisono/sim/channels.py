"""Link delays. The papers' wide-area network, truncated at a stated minimum."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.entropy import digest

Milliseconds = Annotated[float, Meta(ge=0, le=1e7)]


class Wan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """80 % fast links and 20 % slow ones, Gaussian (thesis section 3.5.1), never below the minimum.

    Whether a link is slow is fixed per pair of nodes; the delay is drawn per message. With `fifo`,
    messages on one link do not overtake each other (the thesis assumes FIFO links).
    """

    slow_share: Annotated[float, Meta(ge=0, le=1)] = 0.2
    fast_mean_ms: Milliseconds = 21.0
    fast_sd_ms: Milliseconds = 10.85
    slow_mean_ms: Milliseconds = 240.0
    slow_sd_ms: Milliseconds = 129.27
    minimum_ms: Milliseconds = 1.0
    fifo: bool = True

    def __post_init__(self) -> None:
        if min(self.fast_mean_ms, self.slow_mean_ms) < self.minimum_ms:
            raise ValueError("a mean delay is below minimum_ms")


class Links:
    """The delay of each message on each link."""

    def __init__(self, wan: Wan, seed: int, rng: random.Random) -> None:
        self._wan = wan
        self._seed = seed
        self._rng = rng
        self._slow: dict[tuple[str, str], bool] = {}
        self._last: dict[tuple[str, str], int] = {}

    def is_slow(self, a: str, b: str) -> bool:
        pair = (a, b) if a < b else (b, a)
        slow = self._slow.get(pair)
        if slow is None:
            draw = digest(self._seed, "link", *pair) / 2**64
            slow = self._slow[pair] = draw < self._wan.slow_share
        return slow

    def arrival_us(self, source: str, target: str, now: int) -> int:
        """When a message sent now arrives."""
        if source == target:
            return now
        wan = self._wan
        slow = self.is_slow(source, target)
        mean = wan.slow_mean_ms if slow else wan.fast_mean_ms
        sd = wan.slow_sd_ms if slow else wan.fast_sd_ms
        delay = self._rng.gauss(mean, sd)
        while delay < wan.minimum_ms:  # truncated: drawn again, not piled up at the minimum
            delay = self._rng.gauss(mean, sd)
        at = now + round(delay * 1000)
        if wan.fifo:
            at = max(at, self._last.get((source, target), 0) + 1)
            self._last[source, target] = at
        return at
