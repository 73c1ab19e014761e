"""One source sends to all directly, then nodes pull from each other (thesis, section 5.4).

The state of a node is how many useful packets it has. With coding any packet is useful until there
are n; without, packets repeat. A contacted node sends just what is useful to the other, without
redundancy, and is seen as it was after the round before. With a fan-out of F a round has F
contacts, one after the other.

Differences from the print (errata): what is lost of a contact's packets is P_L(j + d - i, d), the
coding case saturates at n, and the losses of n + a packets are spread evenly over both kinds.
"""

from __future__ import annotations

from math import comb

import msgspec

from unisono.errors import BadInput
from unisono.models.channel import Channel, gains, lost
from unisono.models.tree import Row, check_packets, check_rounds


class Markov(msgspec.Struct, frozen=True, kw_only=True):
    """`redundancy` packets are sent beside the event's own, by the source only."""

    packets: int
    channel: Channel
    redundancy: int = 0
    fanout: int = 1
    coding: bool = True

    def __post_init__(self) -> None:
        check_packets(self.packets, self.redundancy)
        if not 1 <= self.fanout <= 10_000:
            raise BadInput(f"fanout = {self.fanout}: give 1 to 10000 contacts per round")
        if not self.coding and self.redundancy > self.packets:
            raise BadInput(
                f"redundancy = {self.redundancy}: without coding the model repeats each of the "
                f"{self.packets} packets at most once"
            )

    def success(self, rounds: int) -> list[float]:
        """The probability of having the event after 0, 1, ... rounds."""
        check_rounds(rounds)
        row = self.disseminated()
        success = [row[-1]]
        for _ in range(rounds):
            contacted = row  # as after the round before
            for _ in range(self.fanout):
                row = self._contact(row, contacted)
            success.append(row[-1])
        return success

    def disseminated(self) -> Row:
        """Useful packets after the source has sent."""
        n, a = self.packets, self.redundancy
        if self.coding:
            return list(gains(self.channel, n, a))
        row = [0.0] * (n + 1)
        losses = lost(self.channel, n + a)
        for plain in range(n + 1):  # lost of the event's own packets
            for repeated in range(a + 1):  # and of the repeated ones
                total = plain + repeated
                chance = losses[total] * comb(n, plain) * comb(a, repeated) / comb(n + a, total)
                for useful, share in enumerate(self._useful(n - plain, a - repeated)):
                    row[n - plain + useful] += chance * share
        return row

    def _useful(self, have: int, other: int) -> Row:
        """Of a random group of `other` packets, how many are new to who has `have`."""
        n = self.packets
        new = n - have
        if self.coding:
            return [0.0] * min(other, new) + [1.0]
        ways = comb(n, other)
        return [comb(new, u) * comb(have, other - u) / ways for u in range(min(other, new) + 1)]

    def _contact(self, row: Row, contacted: Row) -> Row:
        after = [0.0] * (self.packets + 1)
        for have, share in enumerate(row):
            sent = [0.0] * (self.packets - have + 1)  # by how many packets are useful
            for other, held in enumerate(contacted):
                for useful, chance in enumerate(self._useful(have, other)):
                    sent[useful] += held * chance
            for useful, chance in enumerate(sent):
                for missed, loss in enumerate(lost(self.channel, useful)):
                    after[have + useful - missed] += share * chance * loss
        return after
