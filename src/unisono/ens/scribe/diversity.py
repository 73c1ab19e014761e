"""Which parents to take: those to whom the ways share the fewest devices (paper 004, 3.4).

A way is the devices that a traceroute names, without the ends. The measure of two ways is how many
devices they share: none is best. A node that joins several trees looks at all offers together and
takes, of each tree, the one that makes the sum smallest of

- the measures of all pairs of ways to its parents (first rule), and
- what every parent says that this child would add to the measures among its own neighbours (second
  rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import NamedTuple

Way = frozenset[str]
MOST = 4096  # combinations that are looked at; of longer lists the worst offers are left out


class Offer(NamedTuple):
    """A possible parent in one tree."""

    site: str
    way: Way
    added: int  # to the measure among the neighbours of that parent
    delay_us: int = 0  # decides between equals


def overlap(ways: Iterable[Way]) -> int:
    """The measure of all ordered pairs of ways."""
    return 2 * sum(len(a & b) for a, b in combinations(ways, 2))


def added(neighbours: Sequence[Way], child: Way) -> int:
    """What one more way adds to the measure of these."""
    return 2 * sum(len(child & way) for way in neighbours)


def choose(offers: Sequence[Sequence[Offer]]) -> tuple[Offer, ...]:
    """One offer of each tree. Of equals, those that are near, then by name."""
    assert all(offers), "a tree without an offer"
    few = _few(offers)
    return min(product(*few), key=cost)


def cost(parents: Sequence[Offer]) -> tuple[int, int, tuple[str, ...]]:
    return (
        overlap(parent.way for parent in parents) + sum(parent.added for parent in parents),
        sum(parent.delay_us for parent in parents),
        tuple(parent.site for parent in parents),
    )


def _few(offers: Sequence[Sequence[Offer]]) -> list[list[Offer]]:
    """At most so many that all combinations can be looked at."""
    most = int(MOST ** (1 / len(offers)))
    return [
        sorted(each, key=lambda offer: (offer.added, offer.delay_us, offer.site))[:most]
        for each in offers
    ]
