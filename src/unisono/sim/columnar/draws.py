"""Random streams in compiled loops: one word of state per node.

`Split` is the twin for objects: a `Random` that gives the same numbers. It follows what CPython
makes of words (`randrange`, `random`, `getrandbits`), so that a node object with a `Split` and a
row of an array with the same state draw alike.
"""

from __future__ import annotations

from random import Random

import numpy as np

from unisono.compiled import STEP, Words, in_place, mix
from unisono.sim import channels


class Split(Random):
    """SplitMix64."""

    def __init__(self, state: int) -> None:
        super().__init__(0)
        self._state = state

    def _word(self) -> int:
        word = channels.mix(self._state)
        self._state = (self._state + int(STEP)) % 2**64
        return word

    def getrandbits(self, k: int) -> int:
        bits = 0
        for at in range(0, k, 64):
            bits |= (self._word() >> max(0, at + 64 - k)) << at
        return bits

    def random(self) -> float:
        return (self._word() >> 11) * 2.0**-53


@in_place
def word(state: Words, node: int) -> np.uint64:
    """The next word of a node's stream."""
    now = state[node]
    state[node] = now + STEP
    return mix(now)


@in_place
def share_of(drawn: np.uint64) -> float:
    """What `random()` makes of a word."""
    return float(drawn >> np.uint64(11)) * 2.0**-53


@in_place
def share(state: Words, node: int) -> float:
    """At least 0 and below 1: `random()`."""
    return share_of(word(state, node))


@in_place
def below(state: Words, node: int, bound: int) -> int:
    """At least 0 and below the bound: `randrange(bound)`."""
    bits = 0
    while bound >> bits:
        bits += 1
    shift = np.uint64(64 - bits)
    drawn = np.int64(word(state, node) >> shift)
    while drawn >= bound:
        drawn = np.int64(word(state, node) >> shift)
    return int(drawn)


@in_place
def seed_bits(state: Words, node: int) -> np.uint64:
    """A seed of coefficients: `getrandbits(63)`."""
    return word(state, node) >> np.uint64(1)


@in_place
def skip(state: Words, node: int, words: int) -> np.uint64:
    """Leave out so many words; returns where they begin."""
    begin: np.uint64 = state[node]
    state[node] = begin + np.uint64(words) * STEP
    return begin
