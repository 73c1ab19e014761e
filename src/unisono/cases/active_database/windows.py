"""For how long replicas contradicted each other.

Two replicas of a set are *inconsistent* at a time when there is a transaction that both have
applied, but before which one of them has a transaction that the other has not applied yet. A
replica that is merely behind is not: all it has, it has on the same ground. A window is a longest
stretch of time during which a pair is inconsistent.

For a pair, let x be a transaction, applied at times a <= b by the one and the other, and let s be
the earliest time at which both had applied some transaction after x. Because of x the pair is
inconsistent from max(a, s) to b, if that is not empty; the windows are the union over all x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec

Times = Mapping[str, int]  # event id -> when a replica applied it


class Windows(msgspec.Struct, frozen=True):
    """Over all pairs of a set."""

    share: float  # of the time, mean over pairs
    count: float  # windows per pair
    mean_ms: float  # length of a window; 0 if there is none
    longest_ms: float


def pair_windows(
    order: Sequence[str], one: Times, other: Times, end_us: int
) -> list[tuple[int, int]]:
    """The windows of one pair. What a replica never applied, it misses until the end."""
    both_later = end_us  # when both had a transaction that comes after the current one
    found = []
    for event in reversed(order):
        a, b = one.get(event, end_us), other.get(event, end_us)
        if a > b:
            a, b = b, a
        begin = max(a, both_later)
        if begin < b:
            found.append((begin, b))
        both_later = min(both_later, b)
    merged: list[tuple[int, int]] = []
    for begin, until in sorted(found):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(until, merged[-1][1]))
        else:
            merged.append((begin, until))
    return merged


def windows(
    order: Sequence[str], applied: Mapping[str, Times], start_us: int, end_us: int
) -> Windows:
    """`order` is that of all transactions of the set; `applied` has the times of each replica."""
    pairs = list(combinations(applied.values(), 2))
    lengths = [
        [until - begin for begin, until in pair_windows(order, one, other, end_us)]
        for one, other in pairs
    ]
    every = [length for pair in lengths for length in pair]
    return Windows(
        share=sum(every) / max(1, len(pairs)) / (end_us - start_us),
        count=len(every) / max(1, len(pairs)),
        mean_ms=sum(every) / len(every) / 1000 if every else 0.0,
        longest_ms=max(every, default=0) / 1000,
    )
