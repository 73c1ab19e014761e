"""A failure detector by silence: who has not been heard of for some periods is suspected.

It may be wrong about who is slow or cut off; nothing but progress depends on it. Without a period
nobody is ever suspected.
"""

from __future__ import annotations

from collections.abc import Iterable


class Detector:
    """When each peer was last heard of."""

    def __init__(self, node_id: str, period_us: int | None) -> None:
        self._node_id = node_id
        self._period_us = period_us
        self._heard: dict[str, int] = {}

    def watch(self, peers: Iterable[str], now: int) -> None:
        """These and no others; newcomers count as heard of now."""
        self._heard = {peer: self._heard.get(peer, now) for peer in peers}

    def hear(self, peer: str, now: int) -> None:
        if peer in self._heard:
            self._heard[peer] = now

    def slept(self, now: int) -> None:
        """This process did nothing for a while, so it cannot judge others."""
        self._heard = dict.fromkeys(self._heard, now)

    def silent(self, peer: str, now: int, periods: int) -> bool:
        if peer == self._node_id or self._period_us is None:
            return False
        return now - self._heard.get(peer, now) > periods * self._period_us
