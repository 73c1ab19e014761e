"""Stalls: was a subscriber silent although there was something to tell?

A stall is a notification after a silence of more than the given time, of an event that had been
published more than that time before. Silence is measured from the latest notification before; the
first one of a subscriber is none. Deliveries marked as duplicates neither are stalls nor end one.
The pass by subscriber calls this only if a time was given; only then do times travel to it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unisono.pipeline import plan as p
from unisono.pipeline.kernel import Ints, Longs, compiled

NO_LATENCY = -(2**62)  # of an event that nobody published
MARKED = -(2**63)  # stands for the latency of a delivery that is marked as duplicate


class Stall(msgspec.Struct, frozen=True, order=True):
    """Of several, the one with the longest silence is the smallest."""

    minus_silence_us: int
    subscriber: int
    position: int
    earlier_position: int
    latency_us: int


# Places in the state: the last notification, how many stalls, and the longest of them.
SUBSCRIBER, POSITION, LATEST_US, COUNT, LONGEST, N_STATE = 0, 1, 2, 3, 4, 9


@compiled
def _find(
    subscriber: Ints,
    position: Longs,
    delivered_us: Longs,
    latency_us: Longs,
    stall_us: int,
    state: Longs,
) -> None:
    """Rows come sorted by subscriber and position, batch after batch."""
    for row in range(subscriber.size):
        if latency_us[row] == MARKED:
            continue
        if subscriber[row] != state[SUBSCRIBER]:
            state[SUBSCRIBER] = subscriber[row]
            state[LATEST_US] = delivered_us[row]
        silence_us = delivered_us[row] - state[LATEST_US]
        if silence_us > stall_us and latency_us[row] > stall_us:
            state[COUNT] += 1
            if state[COUNT] == 1 or silence_us > -state[LONGEST]:
                state[LONGEST] = -silence_us
                state[LONGEST + 1] = subscriber[row]
                state[LONGEST + 2] = position[row]
                state[LONGEST + 3] = state[POSITION]
                state[LONGEST + 4] = latency_us[row]
        state[POSITION] = position[row]
        state[LATEST_US] = max(state[LATEST_US], delivered_us[row])


class Stalls:
    """Looks for stalls in records that come by subscriber and position, piece by piece."""

    def __init__(self, stall_us: int) -> None:
        self._stall_us = stall_us
        self._state = np.zeros(N_STATE, np.int64)
        self._state[SUBSCRIBER] = -1

    def take(self, records: p.Records) -> None:
        _find(
            p.column(records, "subscriber"),
            p.column(records, "position"),
            p.column(records, "delivered_us"),
            p.column(records, "latency_us"),
            self._stall_us,
            self._state,
        )

    @property
    def count(self) -> int:
        return int(self._state[COUNT])

    @property
    def longest(self) -> Stall | None:
        return Stall(*self._state[LONGEST:].tolist()) if self.count else None
