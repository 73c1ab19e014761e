"""A Gilbert-Elliott channel: packets are lost in bursts.

A chain of two states moves once per packet; in the bad one the packet is lost. It is described by
the share of packets lost (PLR) and the mean length of a burst of losses (ABL). Each transmission
starts in the steady state.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from unisono.errors import BadInput

PACKETS_MAX = 2000


class Channel(msgspec.Struct, frozen=True):
    """`loss`: PLR, `burst`: ABL."""

    loss: float
    burst: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise BadInput(f"loss = {self.loss} is not a share: give 0 to 1, for example 0.02")
        if not self.burst >= 1:
            raise BadInput(f"burst = {self.burst} is below 1, the length of the shortest burst")
        if self.loss < 1 and self.loss / (1 - self.loss) > self.burst:
            least = self.loss / (1 - self.loss)
            raise BadInput(
                f"with loss = {self.loss} the mean burst is at least {least:.3g}: the channel "
                f"cannot be good for less than one packet between bursts of {self.burst}"
            )

    @property
    def to_good(self) -> float:
        """From the bad state, per packet."""
        return 0.0 if self.loss == 1 else 1 / self.burst

    @property
    def to_bad(self) -> float:
        """From the good state, per packet."""
        return self.loss * self.to_good / (1 - self.loss) if self.loss < 1 else 1.0


@lru_cache(maxsize=1 << 12)
def lost(channel: Channel, packets: int) -> tuple[float, ...]:
    """The probabilities that 0, 1, ... and all packets of a transmission are lost."""
    if not 0 <= packets <= PACKETS_MAX:
        raise BadInput(f"{packets} packets: give 0 to {PACKETS_MAX}")
    to_bad, to_good = channel.to_bad, channel.to_good
    # By the number lost so far: the state in which the next packet finds the channel.
    good = [1 - channel.loss] + [0.0] * packets
    bad = [channel.loss] + [0.0] * packets
    for sent in range(packets):
        next_good = [0.0] * (packets + 1)
        next_bad = [0.0] * (packets + 1)
        for count in range(sent + 1):
            next_good[count] += good[count] * (1 - to_bad)
            next_bad[count] += good[count] * to_bad
            next_good[count + 1] += bad[count] * to_good
            next_bad[count + 1] += bad[count] * (1 - to_good)
        good, bad = next_good, next_bad
    return tuple(x + y for x, y in zip(good, bad, strict=True))


@lru_cache(maxsize=1 << 12)
def gains(channel: Channel, useful: int, redundancy: int) -> tuple[float, ...]:
    """The probabilities that 0, 1, ... and all of `useful` combinations are gained when redundant
    ones are sent along; nothing is sent if none is useful."""
    if useful == 0:
        return (1.0,)
    sent = useful + redundancy
    losses = lost(channel, sent)
    short = tuple(losses[sent - got] for got in range(useful))
    return (*short, sum(losses[: redundancy + 1]))


@lru_cache(maxsize=1 << 14)
def needed(channel: Channel, useful: int, share: float, most: int) -> int:
    """The smallest redundancy with which, with this probability, not more packets are lost than are
    redundant; `most` if none is enough. The same as trying `lost`, in `useful` steps for each."""
    if useful < 1 or not 0 < share <= 1 or most < 0:
        raise BadInput(f"{useful} packets, {share:g} of the time, at most {most} more")
    to_bad, to_good = channel.to_bad, channel.to_good
    # By the number that came so far, when `redundancy` were lost: the state for the next packet.
    good = [1 - channel.loss] + [0.0] * (useful - 1)
    bad = [channel.loss] + [0.0] * (useful - 1)
    enough = 0.0
    for redundancy in range(most):
        for came in range(1, useful):
            good[came] += good[came - 1] * (1 - to_bad)
            bad[came] += good[came - 1] * to_bad
        enough += good[-1]  # the next one is the last that is needed
        if enough >= share:
            return redundancy
        good = [lose * to_good for lose in bad]
        bad = [lose * (1 - to_good) for lose in bad]
    return most
