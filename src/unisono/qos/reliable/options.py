"""How events are protected."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.layer import FrameLayer
from unisono.core.limits import Limits, check_fields
from unisono.errors import EnvironmentLacks, Unsupported
from unisono.qos.coding import PACKETS_MAX


class Reliability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults suit 2 % of packets lost in bursts of 2, and deadlines from a second on."""

    # Packets beside each generation; "adaptive": what the loss that subscribers measure takes.
    redundancy: Annotated[int, Meta(ge=0, le=PACKETS_MAX)] | Literal["adaptive"] = 2
    coding: bool = True  # redundant packets are combinations; else random duplicates
    gossip: Literal["pull", "push", "push-pull", "none"] = "pull"
    fan_out: Annotated[int, Meta(ge=1, le=64)] = 2  # partners of a round
    fan_in: Annotated[int, Meta(ge=1, le=64)] = 1  # rounds in which an event is offered
    period_s: Annotated[float, Meta(gt=0, le=3600)] = 0.5  # between rounds
    pushed: Annotated[int, Meta(ge=1, le=PACKETS_MAX)] | None = None  # per push; None: all
    spare: Annotated[int, Meta(ge=0, le=PACKETS_MAX)] = 0  # redundant packets in gossip
    ask: bool = True  # who lacks packets asks, once a period
    remind: Annotated[int, Meta(ge=0, le=64)] = 8  # rounds in which one is told of what is here
    partners: Literal["random", "likely"] = "random"  # whom: any, or rather who may have them
    packet_bytes: Annotated[int, Meta(ge=1, le=1 << 20)] = 1472
    packets: Annotated[int, Meta(ge=1, le=PACKETS_MAX)] = 16  # of a generation, at most
    keep_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0  # for others, or until given up
    keep_bytes: Annotated[int, Meta(ge=1)] = 64 << 20  # of all events together

    def __post_init__(self) -> None:
        check_fields(self)
        if self.redundancy == "adaptive" and not self.coding:
            raise Unsupported(
                'redundancy="adaptive" counts on coding: without it a lost packet needs its own '
                "duplicate, not any; give a number, or leave coding=False out"
            )
        if self.partners != "random" and not self.ask:
            raise Unsupported("partners says who is asked: leave it out with ask=False")
        if self.pushed is not None and self.gossip != "push":
            raise Unsupported(f'pushed means nothing with gossip="{self.gossip}"; leave it out')
        if self.spare and self.pushed is not None:
            raise Unsupported("pushed says how many packets are pushed: leave spare out")
        if self.fan_in != 1 and self.gossip != "pull":
            raise Unsupported(f'fan_in means nothing with gossip="{self.gossip}"; leave it out')

    def prepare(self) -> None:
        """What takes seconds the first time in a process, and no event shall wait for."""
        try:
            from unisono.qos.coding.generation import prepare
        except ImportError:
            return  # `layer` says what is missing
        prepare(self.coding)

    def layer(
        self,
        node_id: str,
        rng: Random,
        limits: Limits,
        covers: Callable[[str], bool] = lambda topic: True,
    ) -> FrameLayer:
        """The layer that does it, for one node."""
        try:
            from unisono.qos.reliable.layer import Reliable
        except ImportError as error:
            raise EnvironmentLacks(
                f"reliable delivery needs numpy and numba ({error}): "
                "pip install 'unisono[reliable]'"
            ) from error
        return Reliable(node_id, rng, self, limits, covers=covers)
