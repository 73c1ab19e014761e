"""Link delays. The papers' wide-area network, truncated at a stated minimum."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.entropy import digest, stream

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

    def arrival_us(self, source: str, target: str, now: int, size: int = 0) -> int:
        """When a message of `size` bytes sent now arrives. These links have no end of bandwidth."""
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


# Data centres: every site a fast local network, the thesis' wide-area links between the sites.
LAN = Wan(slow_share=0, fast_mean_ms=0.5, fast_sd_ms=0.1, minimum_ms=0.1)
BETWEEN_SITES = Wan(slow_share=0, fast_mean_ms=21, fast_sd_ms=10.85)


class SiteLinks(Links):
    """Nodes of one site talk over `lan`, nodes of different sites over `wan`.

    With `uplink_kbit_s`, whatever a node sends waits for its uplink, one message after the other,
    each for its own size and `header_bytes`. `sent` counts the messages between different nodes,
    `busy_us` the time that each uplink was in use.
    """

    def __init__(
        self,
        site_of: Mapping[str, str],
        seed: int,
        *,
        lan: Wan = LAN,
        wan: Wan = BETWEEN_SITES,
        uplink_kbit_s: float | None = None,
        header_bytes: int = 40,  # IP and TCP
    ) -> None:
        super().__init__(wan, seed, stream(seed, "between-sites"))
        self._site_of = site_of
        self._local = Links(lan, seed, stream(seed, "within-sites"))
        self._uplink_kbit_s = uplink_kbit_s
        self._header_bytes = header_bytes
        self._free_us: dict[str, int] = {}  # when a node's uplink has sent what it was given
        self.sent = 0
        self.busy_us: Counter[str] = Counter()

    def arrival_us(self, source: str, target: str, now: int, size: int = 0) -> int:
        if source == target:
            return now
        self.sent += 1
        if self._uplink_kbit_s is not None:
            bits = 8 * (size + self._header_bytes)
            busy_us = round(1000 * bits / self._uplink_kbit_s)
            now = max(now, self._free_us.get(source, 0)) + busy_us
            self._free_us[source] = now
            self.busy_us[source] += busy_us
        if self._site_of[source] == self._site_of[target]:
            return self._local.arrival_us(source, target, now)
        return super().arrival_us(source, target, now)
