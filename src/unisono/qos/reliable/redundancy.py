"""How many redundant packets a publisher sends along, from what subscribers measured.

The subscribers in its view are a random sample. Planned for is the loss of one of them: nine of ten
need no more redundant packets than it does. A generation gets the smallest number with which, on a
Gilbert-Elliott channel of that loss, 99 % of the transmissions lose no more packets than are
redundant - at most as many as it has packets, or 8 if it has fewer: a bus that loses packets since
it is overloaded is sent twice as much at most. The rest is for gossip.

Without gossip nobody hears of an event of which nothing came, and single packets would seem never
to be lost. So there `least` packets are sent whatever was measured: of two, one shows the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, log2

from unisono.models.channel import Channel, needed
from unisono.qos.coding import PACKETS_MAX
from unisono.qos.peers import Descriptor, Measured

UNMEASURED = 2  # redundant packets while nobody has told anything
SHARE = 0.99
_SUBSCRIBERS = 0.9
_FEW = 8
_STEPS = 8  # to twice the loss: what is about the same is planned once
_LOSS_MAX = 0.9


class Planner:
    """`packets`: of a full generation. `least`: of any, with what is redundant."""

    def __init__(self, packets: int, least: int = 1) -> None:
        self._packets = packets
        self._least = least
        self.channel: Channel | None = None  # planned for
        self.redundancy = UNMEASURED  # of a full generation
        self._said = UNMEASURED

    def of(self, packets: int) -> int:
        """For a generation of so many packets."""
        if self.channel is None:
            return UNMEASURED
        return max(_needs(self.channel, packets), self._least - packets)

    @property
    def changed(self) -> bool:
        """A full generation gets another number than was last said."""
        return self.redundancy != self._said

    def said(self) -> str:
        """What is planned now, in words for the trace."""
        self._said = self.redundancy
        if self.channel is None:
            return f"{self.redundancy}: nothing is measured"
        return f"{self.redundancy}: loss {self.channel.loss:.4f}, burst {self.channel.burst:.2f}"

    def plan(self, view: Iterable[Descriptor]) -> None:
        """Take in what subscribers say; if they say nothing, all stays as it was."""
        told = [peer.measured for peer in view if peer.measured is not None]
        if not told:
            return
        channels = sorted(map(channel_of, told), key=self._order)
        self.channel = channels[ceil(_SUBSCRIBERS * len(channels)) - 1]
        self.redundancy = self.of(self._packets)

    def _order(self, channel: Channel) -> tuple[int, float, float]:
        return _needs(channel, self._packets), channel.loss, channel.burst


def _needs(channel: Channel, packets: int) -> int:
    return needed(channel, packets, SHARE, min(max(packets, _FEW), PACKETS_MAX))


def channel_of(measured: Measured) -> Channel:
    """Rounded up, and possible: bursts are no shorter than such a loss allows."""
    loss = 2 ** (ceil(_STEPS * log2(max(measured.loss_ppm, 1))) / _STEPS) / 1e6
    loss = min(loss, _LOSS_MAX)
    burst = ceil(measured.burst_hundredths / 25) / 4
    return Channel(loss, max(burst, loss / (1 - loss)))
