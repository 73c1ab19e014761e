"""Which strategy meets deadlines on given links, at the least cost.

All settings of a grid are predicted (`recovery.py`); of those that meet every target, the one that
sends the fewest packets is advised. Of the notifications that miss a deadline at least
a third is predicted (tests/models compare it with simulation), so targets are first aimed at with
less than half the allowed misses: then the planner is fairly sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unisono.errors import BadInput
from unisono.models.recovery import Course, Group, course
from unisono.qos.reliable.options import Reliability

REDUNDANCIES = (0, 1, 2, 3, 4, 6, 8, 12, 16)
FAN_OUTS = (1, 2, 3, 4, 6, 8)
FAN_INS = (1, 2)
PERIODS_S = (1.5, 1.0, 0.5, 0.3, 0.2, 0.1)
SURE, LIKELY, INFEASIBLE = "fairly sure", "likely", "infeasible"
_SURE = 0.4  # of the allowed misses
_LOOKED_S = 30.0  # how long the nearest feasible target may take
_LOOKED_AT = 30  # settings


class Target(msgspec.Struct, frozen=True):
    """A share of subscribers within a time."""

    within_ms: float
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.within_ms <= 3_600_000:
            raise BadInput(f"within {self.within_ms} ms: give more than 0 and at most an hour")
        if not 0 < self.share < 1:
            raise BadInput(f"a share of {self.share}: give more than 0 and less than 1")


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and what to expect of it."""

    setting: Reliability
    confidence: str
    predicted: Course
    nearest: tuple[Target, ...] = ()  # what can be met, if the targets cannot


def parse_target(text: str) -> Target:
    """`1000:0.95`: 95 % within 1000 ms."""
    within, _, share = text.partition(":")
    try:
        return Target(float(within), float(share))
    except ValueError:
        raise BadInput(f"{text!r} is not MILLISECONDS:SHARE, for example 1000:0.95") from None


def settings(group: Group) -> list[Reliability]:
    """The grid, cheap settings first."""
    found = []
    for redundancy in (r for r in REDUNDANCIES if r <= group.packets):
        for period in PERIODS_S:
            found.append(Reliability(gossip="none", redundancy=redundancy, period_s=period))
            for fan_out in (f for f in FAN_OUTS if f < group.nodes - 1):
                common = {"redundancy": redundancy, "fan_out": fan_out, "period_s": period}
                for fan_in in FAN_INS:
                    found.append(Reliability(gossip="pull", fan_in=fan_in, **common))  # type: ignore[arg-type]
                found.append(Reliability(gossip="push", **common))  # type: ignore[arg-type]
    return found


def plan(group: Group, targets: Sequence[Target]) -> Advice:
    """The cheapest setting that meets all targets; if none does, the one that comes nearest."""
    if not targets:
        raise BadInput("give at least one target")
    until_s = max(target.within_ms for target in targets) / 1000 + group.link_s
    best: dict[str, tuple[float, Reliability]] = {}
    tried: list[tuple[float, Reliability]] = []
    for setting in settings(group):
        predicted = course(group, setting, until_s)
        # How many times the allowed misses there are, for the target that fares worst.
        misses = max((1 - predicted.within(t.within_ms / 1000)) / (1 - t.share) for t in targets)
        tried.append((misses, setting))
        cost = predicted.overhead + predicted.idle
        for confidence, allowed in ((SURE, _SURE), (LIKELY, 1.0)):
            known = best.get(confidence)
            if misses <= allowed and (known is None or cost < known[0]):
                best[confidence] = (cost, setting)
    for confidence in (SURE, LIKELY):
        if confidence in best:
            setting = best[confidence][1]
            predicted = course(group, setting, max(_LOOKED_S, until_s))
            return Advice(setting=setting, confidence=confidence, predicted=predicted)
    tried.sort(key=lambda one: one[0])
    return min((_nearest(group, setting, targets) for _, setting in tried[:_LOOKED_AT]), key=_far)


def _nearest(group: Group, setting: Reliability, targets: Sequence[Target]) -> Advice:
    """What this setting can do of the targets: the same shares later, or fewer."""
    predicted = course(group, setting, _LOOKED_S)
    nearest = []
    for target in targets:
        when = predicted.when(target.share)
        if when is None:
            nearest.append(Target(_LOOKED_S * 1000, min(predicted.shares[-1], 1 - 1e-9)))
        else:
            nearest.append(Target(max(target.within_ms, when * 1000), target.share))
    return Advice(
        setting=setting, confidence=INFEASIBLE, predicted=predicted, nearest=tuple(nearest)
    )


def _far(advice: Advice) -> tuple[float, float]:
    return max(target.within_ms for target in advice.nearest), advice.predicted.overhead
