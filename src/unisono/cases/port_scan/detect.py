"""Incomplete connections of one address, counted over all sites: a machine that takes packets.

SYN, SYN-ACK and then RST, in this order, or nothing within a time after the SYN-ACK. A packet that
is missing or comes too early hides the pattern; one that would have completed a connection and is
missing makes one up. That is what the guarantees below are for.
"""

from __future__ import annotations

import msgspec

from unisono.cases.port_scan.traffic import ACK, RST, SYN, SYN_ACK

TIMEOUT_MS = 1000
OPEN_MAX = 1024  # connections of one address that are watched; the oldest is let go


class Watch(msgspec.Struct):
    """What is known of an address."""

    begun: dict[str, int] = {}  # connections with a SYN
    answered: dict[str, int] = {}  # and a SYN-ACK, since when
    incomplete: int = 0


def take(watch: Watch, connection: str, flag: str, at_ms: int) -> bool:
    """Whether this makes one more incomplete connection."""
    if flag == SYN:
        watch.begun[connection] = at_ms
        if len(watch.begun) > OPEN_MAX:
            del watch.begun[next(iter(watch.begun))]
    elif flag == SYN_ACK:
        if watch.begun.pop(connection, None) is not None:
            watch.answered[connection] = at_ms
            if len(watch.answered) > OPEN_MAX:
                del watch.answered[next(iter(watch.answered))]
    elif flag in (RST, ACK):
        watch.begun.pop(connection, None)
        if watch.answered.pop(connection, None) is not None and flag == RST:
            watch.incomplete += 1
            return True
    return False


def expire(watch: Watch, now_ms: int) -> int:
    """How many more are incomplete because nothing came any more."""
    over = [name for name, at in watch.answered.items() if at + TIMEOUT_MS <= now_ms]
    for name in over:
        del watch.answered[name]
    watch.incomplete += len(over)
    return len(over)
