"""Places on the ring: 64-bit ids, read as sixteen hexadecimal digits."""

from __future__ import annotations

from functools import lru_cache

from unisono.core.entropy import digest

BITS = 64
BASE_BITS = 4
DIGITS = BITS // BASE_BITS
RING = 1 << BITS


@lru_cache(1 << 16)
def site_id(site: str, slot: int) -> int:
    """Where the coordinator of a cluster sits in the ring of its slot."""
    return digest("site", site, slot)


@lru_cache(1 << 16)
def group_id(topic: str, slot: int) -> int:
    """The root of a topic's tree is the site nearest to this."""
    return digest("group", topic, slot)


def distance(a: int, b: int) -> int:
    """Around the ring, the shorter way."""
    gap = (a - b) % RING
    return min(gap, RING - gap)


def common_digits(a: int, b: int) -> int:
    """How many digits two ids share from the left."""
    return (BITS - (a ^ b).bit_length()) // BASE_BITS


def digit(identity: int, place: int) -> int:
    return identity >> (BITS - BASE_BITS * (place + 1)) & (1 << BASE_BITS) - 1
