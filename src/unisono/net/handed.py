"""Which events were handed to which coordinators, until one of them is known to have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Range = tuple[int, int]  # of the numbers of events, both included


class Handed:
    """Events are numbered from 1 in the order in which they were published."""

    def __init__(self) -> None:
        self.published = 0
        self.confirmed = 0  # up to here somebody has them, or it was said that perhaps nobody has
        self.ranges: dict[str, Range] = {}  # by address, what it was sent without interruption

    def publish(self, to: Iterable[str]) -> None:
        """One more was handed to these."""
        self.published += 1
        for address in to:
            first, last = self.ranges.get(address, (0, 0))
            if last != self.published - 1 or not first:
                first = self.published
            self.ranges[address] = (first, self.published)
        self._forget()

    def gone(self, address: str) -> None:
        """What it was sent may be lost."""
        self.ranges.pop(address, None)

    def has(self, address: str, asked: Range) -> bool:
        """Whether nothing has come in between since it was sent these."""
        first, last = self.ranges.get(address, (0, 0))
        return asked[1] <= self.confirmed or (0 < first <= asked[0] and last >= asked[1])

    def confirm(self, upto: int) -> None:
        self.confirmed = max(self.confirmed, upto)
        self._forget()

    def _forget(self) -> None:
        """Who has nothing but what is confirmed, and was left out of what came after."""
        for address, (_, last) in list(self.ranges.items()):
            if last <= self.confirmed and last < self.published:
                del self.ranges[address]

    def covered(self, by: Mapping[str, Range], upto: int) -> bool:
        """Whether these together have all from the last confirmed one on."""
        at = self.confirmed + 1
        for first, last in sorted(by.values()):
            if first > at:
                break
            at = max(at, last + 1)
        return at > upto
