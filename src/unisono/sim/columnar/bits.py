"""Sets of up to 64 small numbers as bits of a word."""

from __future__ import annotations

import numpy as np

from unisono.compiled import in_place

ONE = np.uint64(1)
NOTHING = np.uint64(0)


@in_place
def long(number: int) -> int:
    """One integer type for all, so that functions are compiled once."""
    return int(np.int64(number))


@in_place
def ones(count: int) -> np.uint64:
    if count >= 64:
        return ~NOTHING
    return (ONE << np.uint64(count)) - ONE


@in_place
def size(bits: np.uint64) -> int:
    """How many bits are set."""
    bits -= (bits >> ONE) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    bits = (bits & pairs) + ((bits >> np.uint64(2)) & pairs)
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@in_place
def spread(bits: np.uint64, onto: np.uint64) -> np.uint64:
    """Those of the set bits of `onto` whose turn is set in `bits`."""
    turns = ones(size(onto))
    if bits & turns == turns:
        return onto
    found = NOTHING
    while onto:
        lowest = onto & (~onto + ONE)
        if bits & ONE:
            found |= lowest
        bits >>= ONE
        onto ^= lowest
    return found
