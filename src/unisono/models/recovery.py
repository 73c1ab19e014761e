"""How soon subscribers have an event: dissemination, then gossip, as shares over time.

Built on the channel's exact probabilities (`channel.py`), and a mean field for the gossip of
`qos/reliable`: shares of a large group instead of single nodes. An event goes from its publisher to
the bus and from there to each subscriber. If the first link loses too much, nobody but the
publisher has the event at first; otherwise the share of subscribers that the second link serves.
From then on

    push     who completes an event sends it to `fan_out` others at once
    pull     who completes an event offers it in its next `fan_in` rounds to `fan_out` others each
    asking   who still lacks packets asks once a period, a quarter of the time the publisher
    reminding   who has an event tells one other of it per round, `remind` times

and every message and packet may be lost. Time goes in steps; coding takes none. What is left out:
that partners repeat in small groups, and packets that come to who holds only a part.
"""

from __future__ import annotations

from math import comb, exp

import msgspec

from unisono.errors import BadInput, Unsupported
from unisono.models.channel import Channel, lost
from unisono.qos.reliable.options import Reliability

_ASKS_SOURCE = 0.25
_STEPS_PER_LINK = 4
_ROUND_MESSAGES = 2  # that a node sends in a round to exchange peers


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to be reached, over which links. `packets`: of a generation."""

    nodes: int
    packets: int
    channel: Channel
    generations: int = 1
    link_s: float = 0.05
    rate_per_s: float = 1.0  # of events

    def __post_init__(self) -> None:
        if self.nodes < 3:
            raise BadInput(f"nodes = {self.nodes}: a group has at least 3")
        if self.packets < 1 or self.generations < 1:
            raise BadInput("an event has at least one packet")
        if not 0 < self.link_s <= 60:
            raise BadInput(f"links of {self.link_s} s: give more than 0 and at most 60")
        if not self.rate_per_s > 0:
            raise BadInput(f"{self.rate_per_s} events per second: give more than 0")


class Course(msgspec.Struct, frozen=True):
    """The share of subscribers that have the event, step by step, and what it takes."""

    step_s: float
    shares: list[float]
    overhead: float  # packets sent for an event, per packet that it has
    idle: float  # messages of rounds, whatever is published, likewise

    def within(self, seconds: float) -> float:
        return self.shares[min(int(seconds / self.step_s + 1e-9), len(self.shares) - 1)]

    def when(self, share: float) -> float | None:
        """The first time with this share, or never."""
        found = (at for at, had in enumerate(self.shares) if had >= share)
        return next((at * self.step_s for at in found), None)

    @property
    def latency_s(self) -> float:
        """Mean over those that get it."""
        last = self.shares[-1]
        return sum(last - share for share in self.shares) * self.step_s / last if last else 0.0


def course(group: Group, setting: Reliability, until_s: float) -> Course:
    """What becomes of an event until a time."""
    step = group.link_s / _STEPS_PER_LINK
    steps = int(until_s / step) + 1
    n, a, channel = group.packets, _redundancy(setting), group.channel
    # By the packets that the bus gets: the share of subscribers with enough of them.
    first = lost(channel, n + a)
    served, whole_bus = 0.0, 0.0
    for gone in range(a + 1):
        left = n + a - gone
        served += first[gone] * sum(lost(channel, left)[: left - n + 1])
        whole_bus += first[gone]
    whole_bus **= group.generations
    served = (served**group.generations / whole_bus) if whole_bus else 0.0
    lacking = _lacking(channel, n, a)
    branches = (
        (whole_bus, _spread(group, setting, served, lacking, step, steps)),
        (1 - whole_bus, _spread(group, setting, 0.0, lacking, step, steps)),
    )
    shares = [sum(w * s[0][at] for w, s in branches) for at in range(steps)]
    gossip = sum(weight * sent for weight, (_, sent) in branches)
    tree = (n + a) * group.generations * group.nodes
    whole = n * group.generations
    idle = _ROUND_MESSAGES * group.nodes / (setting.period_s * group.rate_per_s * whole)
    return Course(step, shares, (tree + gossip) / whole, idle)


def _redundancy(setting: Reliability) -> int:
    plain = setting.coding and setting.pushed is None and setting.gossip != "push-pull"
    if isinstance(setting.redundancy, str) or not plain:
        raise Unsupported("predicted are push, pull or no gossip, with coding, a fixed redundancy")
    return setting.redundancy


def _lacking(channel: Channel, n: int, a: int) -> int:
    """How many packets who lacks some lacks on average, rounded up."""
    chances = lost(channel, n + a)[a + 1 :]
    total = sum(chances)
    if not total:
        return 1
    mean = sum(count * chance for count, chance in enumerate(chances, 1)) / total
    return max(1, min(n, round(mean + 0.5)))


def _spread(
    group: Group, setting: Reliability, served: float, lacking: int, step: float, steps: int
) -> tuple[list[float], float]:
    """Shares over time when the bus serves this share at first; and packets sent by gossip."""
    plr, hop = group.channel.loss, _STEPS_PER_LINK
    answered = sum(lost(group.channel, lacking + setting.spare)[: setting.spare + 1])
    answered **= group.generations
    want = (1 - plr) * answered
    offer = (1 - plr) * want
    pushed = _pushed(group.channel, group.packets, lacking, setting.spare) ** group.generations
    period = max(1, round(setting.period_s / step))
    came = [0.0] * (steps + 4 * hop + 1)  # shares that complete at a time
    publisher = 1 / group.nodes
    came[2 * hop] = publisher + served * (1 - publisher)
    has, coming, shares, sent = 0.0, came[2 * hop], [], 0.0
    last = [0.0] * (period * setting.fan_in)  # who completed lately, and still offers
    offering = 0.0
    reminding = 0.0
    told = [0.0] * (period * setting.remind)
    for now in range(steps):
        new = came[now]
        has, coming = has + new, coming - new
        shares.append(has)
        offering += new - last[now % len(last)]
        last[now % len(last)] = new
        if told:
            reminding += new - told[now % len(told)]
            told[now % len(told)] = new
        if now < 2 * hop:
            continue  # nobody knows yet
        lacks = max(0.0, 1 - has - coming)  # and nothing that will do is on its way
        if setting.gossip == "push":
            hit = _hit(new * setting.fan_out) * lacks * pushed
            came[now + hop] += hit
            coming += hit
            lacks -= hit
            sent += new * setting.fan_out * group.nodes * (group.packets + setting.spare)
        pulls = offering * setting.fan_out if setting.gossip == "pull" else 0.0
        offers = (pulls + reminding) / period
        offers /= 1 + offers * period / 2  # who has just asked does not ask again
        offered = _hit(offers) * lacks
        came[now + 3 * hop] += offered * offer
        coming += offered * offer
        lacks -= offered * offer
        sent += group.nodes * (pulls / period + offered * (1 + lacking))
        if setting.ask and now >= 2 * hop + period:
            asking = lacks / period
            holds = _ASKS_SOURCE + (1 - _ASKS_SOURCE) * has
            came[now + 2 * hop] += asking * want * holds
            coming += asking * want * holds
            sent += group.nodes * asking * (1 + lacking * holds)
    if told:  # one message tells of all events of the last rounds
        sent += group.nodes * min(setting.remind, 1 / (group.rate_per_s * setting.period_s))
    return shares, sent * group.generations


def _hit(contacts: float) -> float:
    """The share of nodes that get at least one of so many contacts per node, by chance."""
    return 1 - exp(-contacts)


def _pushed(channel: Channel, n: int, lacking: int, spare: int) -> float:
    """A whole event is sent once more: what `lacking` packets lacked is then there."""
    total = 0.0
    for gone, chance in enumerate(lost(channel, n + spare)):
        if gone <= spare:
            total += chance
        elif gone <= n - lacking:
            # Only plain ones that are there already: none of the lacking ones is among the lost.
            total += chance * comb(n - lacking, gone) / comb(n, gone)
    return min(total, 1.0)
