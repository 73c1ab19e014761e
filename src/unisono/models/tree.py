"""An event goes down a complete tree, then nodes pull from each other (paper 003, section VI).

The publisher is the root; each node sends what it has to its children, recoded, with redundancy.
Then, in rounds, every node contacts one other, which sends what that one can add. `alpha` is the
share of contacts that are of use (nodes of one subtree lost the same packets); (D - 1) / D is a
lower bound.

Differences from the print (errata): surplus packets count where the rank saturates, in equation 2
packets are lost, and round k looks at the ranks after round k - 1.
"""

from __future__ import annotations

import msgspec

from unisono.errors import BadInput
from unisono.models.channel import Channel, gains

PACKETS_MAX = 256  # the work grows with the third power

Row = list[float]  # probabilities of ranks 0 to n


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of nodes with `degree` children each, `depth` levels below the root."""

    degree: int
    depth: int
    packets: int
    channel: Channel
    redundancy: int = 0
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= 10_000:
            raise BadInput(f"degree = {self.degree}: give 1 to 10000 children per node")
        if not 1 <= self.depth <= 64:
            raise BadInput(f"depth = {self.depth}: give 1 to 64 levels below the root")
        check_packets(self.packets, self.redundancy)
        if not 0 <= self.alpha <= 1:
            raise BadInput(f"alpha = {self.alpha} is not a share of useful contacts: give 0 to 1")

    def success(self, rounds: int) -> list[float]:
        """The share of receivers that have the event after 0, 1, ... rounds."""
        check_rounds(rounds)
        levels = self.disseminated()
        success = [self._success(levels)]
        for _ in range(rounds):
            levels = self.gossiped(levels)
            success.append(self._success(levels))
        return success

    def disseminated(self) -> list[Row]:
        """The ranks at each level below the root when everything has been sent."""
        row = [0.0] * self.packets + [1.0]
        levels = []
        for _ in range(self.depth):
            below = [0.0] * (self.packets + 1)
            for rank, share in enumerate(row):
                for gained, chance in enumerate(gains(self.channel, rank, self.redundancy)):
                    below[gained] += share * chance
            row = below
            levels.append(row)
        return levels

    def gossiped(self, levels: list[Row]) -> list[Row]:
        """The ranks after one more round."""
        n, contacted = self.packets, self._contacted(levels)
        steps = []  # by rank: what is gained
        for rank in range(n + 1):
            gained = [0.0] * (n + 1 - rank)
            for other, share in enumerate(contacted):
                added = min(other, n - rank)
                for count, chance in enumerate(gains(self.channel, added, self.redundancy)):
                    gained[count] += share * chance
            gained = [self.alpha * chance for chance in gained]
            gained[0] += 1 - self.alpha
            steps.append(gained)
        after = []
        for row in levels:
            new = [0.0] * (n + 1)
            for rank, share in enumerate(row):
                for count, chance in enumerate(steps[rank]):
                    new[rank + count] += share * chance
            after.append(new)
        return after

    def _contacted(self, levels: list[Row]) -> Row:
        """The rank of the contacted node; the root is not contacted."""
        weights = self._weights()
        total = sum(weights)
        return [
            sum(w * row[rank] for w, row in zip(weights, levels, strict=True)) / total
            for rank in range(self.packets + 1)
        ]

    def _success(self, levels: list[Row]) -> float:
        weights = self._weights()
        complete = sum(w * row[-1] for w, row in zip(weights, levels, strict=True))
        return complete / sum(weights)

    def _weights(self) -> list[float]:
        """By level, in proportion to its nodes."""
        return [float(self.degree) ** (level - self.depth) for level in range(self.depth)]

    def closed_form(self) -> float:
        """Equation 3: the success before any round."""
        d, depth = float(self.degree), self.depth
        p = gains(self.channel, self.packets, self.redundancy)[-1]
        receivers: float = sum(d**level for level in range(1, depth + 1))
        if abs(d * p - 1) < 1e-12:
            return depth / receivers
        return ((d * p) ** (depth + 1) - d * p) / (d * p - 1) / receivers


def check_packets(packets: int, redundancy: int) -> None:
    if not 1 <= packets <= PACKETS_MAX:
        raise BadInput(f"packets = {packets}: an event has 1 to {PACKETS_MAX} in these models")
    if not 0 <= redundancy <= PACKETS_MAX:
        raise BadInput(f"redundancy = {redundancy}: give 0 to {PACKETS_MAX} packets")


def check_rounds(rounds: int) -> None:
    if not 0 <= rounds <= 10_000:
        raise BadInput(f"rounds = {rounds}: give 0 to 10000")
