"""What an event contained, in 16 bytes: a Bloom filter of its attributes.

Each attribute is in it twice: its name, and its name with its value. With 4 bits each of 128, the
chance that something is found which is not there grows with the number of attributes:

    attributes        1      2      4      8     16
    false positives  0.001%  0.02%  0.24%  2.4%  16%

A false positive costs a hold that was not needed, never an event.
"""

from __future__ import annotations

from functools import lru_cache

from xxhash import xxh3_64_intdigest

from unisono.core.events import SUMMARY_BYTES
from unisono.core.predicate import Attributes, Predicate, Value

_HASHES = 4


def summary(attributes: Attributes | None) -> bytes:
    """Nothing of an event without attributes."""
    if not attributes:
        return b""
    bits = 0
    for name, value in attributes.items():
        bits |= _bits(name, None, False) | _bits(name, value, isinstance(value, bool))
    return bits.to_bytes(SUMMARY_BYTES, "little")


def may_match(where: Predicate, told: bytes) -> bool:
    """False only if the event of this summary does not match."""
    bits = int.from_bytes(told, "little")

    def has(name: str, value: Value | None) -> bool:
        wanted = _bits(name, value, isinstance(value, bool))
        return bits & wanted == wanted

    return where.possible(has)


@lru_cache(1 << 12)
def _bits(name: str, value: Value | None, is_bool: bool) -> int:
    """Numbers that are equal have equal bits, whatever their type; True is no number here, but is
    the same as 1 to the cache, hence `is_bool`."""
    if is_bool:
        text = f"{name}?{value}"
    elif isinstance(value, str):
        text = f"{name}={value}"
    elif value is None:
        text = name
    else:
        text = f"{name}#{int(value) if value == int(value) else value!r}"
    hashed = xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
    found = 0
    for _ in range(_HASHES):
        found |= 1 << (hashed & 127)
        hashed >>= 7
    return found
