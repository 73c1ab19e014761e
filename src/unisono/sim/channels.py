"""Link delays. The papers' wide-area network, truncated at a stated minimum.

Delays come from a random stream, or (`draws="hashed"`) are a pure function of seed, link and time
of sending. The columnar engine computes the same function in compiled loops, so that both give the
same delays whatever else they do.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.entropy import digest, stream

Milliseconds = Annotated[float, Meta(ge=0, le=1e7)]
QUANTILE_BITS = 16
_WORD = 2**64 - 1


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
    draws: Literal["stream", "hashed"] = "stream"

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
        self._hashed = HashedDelays(wan, seed) if wan.draws == "hashed" else None

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
        if self._hashed is not None:
            at = now + self._hashed.delay_us(node_key(source), node_key(target), now)
        else:
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


# Hashed delays. `sim/columnar/links.py` is the compiled twin; a test holds the two together.


def mix(word: int) -> int:
    """A 64-bit word, stirred (the finaliser of SplitMix64)."""
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


@lru_cache(maxsize=1 << 16)
def node_key(name: str) -> int:
    """What stands for a node in the hash."""
    return digest("node", name)


class HashedDelays:
    """Delays by hash. Each is one of 2^16 equally likely values of the truncated Gaussian."""

    def __init__(self, wan: Wan, seed: int) -> None:
        self.seed_key = digest(seed, "hashed delays")
        self.slow_below = round(wan.slow_share * 2**53)
        self.fast_us = quantiles_us(wan.fast_mean_ms, wan.fast_sd_ms, wan.minimum_ms)
        self.slow_us = quantiles_us(wan.slow_mean_ms, wan.slow_sd_ms, wan.minimum_ms)

    def is_slow(self, a: int, b: int) -> bool:
        draw = mix(mix(self.seed_key ^ _WORD ^ min(a, b)) ^ max(a, b))
        return draw >> 11 < self.slow_below

    def delay_us(self, source: int, target: int, now: int) -> int:
        """The delay of a message between two node keys."""
        table = self.slow_us if self.is_slow(source, target) else self.fast_us
        link = mix(mix(self.seed_key ^ source) ^ target)
        return table[mix(link ^ now) >> (64 - QUANTILE_BITS)]


@lru_cache(maxsize=16)
def quantiles_us(mean_ms: float, sd_ms: float, minimum_ms: float) -> tuple[int, ...]:
    """Evenly spread quantiles of a Gaussian truncated at the minimum, in microseconds."""
    count = 1 << QUANTILE_BITS
    if sd_ms == 0:
        return (round(mean_ms * 1000),) * count
    normal = NormalDist(mean_ms, sd_ms)
    least = normal.cdf(minimum_ms)
    shares = (least + (1 - least) * (index + 0.5) / count for index in range(count))
    return tuple(round(max(normal.inv_cdf(share), minimum_ms) * 1000) for share in shares)
