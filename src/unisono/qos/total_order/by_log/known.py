"""What a process knows of its domain's log: which it is, and who leads it."""

from __future__ import annotations

from unisono.qos.total_order.by_log.messages import unknown_log


class Known:
    """Shared by the parts of a domain. `term` never falls."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.log = unknown_log(domain)
        self.term = 0
        self.leader: str | None = None
        self.voters: tuple[str, ...] = ()
        self.spares: tuple[str, ...] = ()
        self.number = 0  # the last that is known to be committed
        self.heard_us = 0  # from the leader
