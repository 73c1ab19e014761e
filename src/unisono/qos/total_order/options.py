"""How total order is made, as `connect` and scenarios are told."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.limits import check_fields
from unisono.errors import BadInput

DOMAIN = "main"


class Total(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Total order of a set of topics.

    by           "log": one replicated log numbers all events of a domain; "bus": the bus hands what
                 its readers share to all of them in one order (memory:// does); "stamps": a manager
                 per topic stamps its events (thesis chapter 3)
    domain       topics of one domain have one order and one log
    voters       processes that keep the log, once there are enough: 1, 3 or 5
    retention_s  how long voters keep events for subscribers that missed some
    retention_mb and how many of them
    """

    by: Literal["log", "bus", "stamps"] = "stamps"
    domain: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,50}$")] = DOMAIN
    voters: Literal[1, 3, 5] | None = None
    retention_s: Annotated[float, Meta(gt=0, le=1e6)] = 60.0
    retention_mb: Annotated[float, Meta(gt=0, le=1e6)] = 64.0

    def __post_init__(self) -> None:
        check_fields(self)
        plain = {"domain": DOMAIN, "voters": None, "retention_s": 60.0, "retention_mb": 64.0}
        given = [name for name, value in plain.items() if getattr(self, name) != value]
        if self.by != "log" and given:
            raise BadInput(f'{", ".join(given)}: that is for Total(by="log")')
