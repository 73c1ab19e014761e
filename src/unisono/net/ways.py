"""What is known of the devices between this process and others, measured now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from ipaddress import ip_address

from unisono.errors import BadInput
from unisono.net.datagrams import parse
from unisono.net.traceroute import traceroute

AGAIN_S = 600.0
_AT_ONCE = 4
_MOST = 4096  # ways that are remembered: then all are forgotten


class Ways:
    """The ways to addresses. Who asks for one that is not known yet may ask again later."""

    def __init__(self) -> None:
        self._wanted: dict[str, None] = {}
        self._known: dict[str, tuple[float, frozenset[str]]] = {}  # address -> when, devices
        self._measuring: dict[str, asyncio.Task[None]] = {}

    def to(self, address: str) -> frozenset[str] | None:
        """The devices on the way there; None: not measured yet."""
        known = self._known.get(address)
        if known is not None:
            return known[1]
        if len(self._wanted) < _MOST:
            self._wanted[address] = None
        return None

    def look_at(self, addresses: Iterable[str]) -> None:
        """Measure what is not known, or not lately; a few at a time."""
        now = time.monotonic()
        for address in sorted({*addresses, *self._wanted}):
            known = self._known.get(address)
            fresh = known is not None and now - known[0] < AGAIN_S
            if fresh or address in self._measuring or len(self._measuring) >= _AT_ONCE:
                continue
            self._measuring[address] = asyncio.create_task(self._measure(address))

    async def _measure(self, address: str) -> None:
        try:
            devices = await _devices(address)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[address] = (time.monotonic(), frozenset(devices))
            self._wanted.pop(address, None)
        finally:
            del self._measuring[address]

    async def close(self) -> None:
        for task in self._measuring.values():
            task.cancel()
        await asyncio.gather(*self._measuring.values(), return_exceptions=True)


async def _devices(address: str) -> tuple[str, ...]:
    try:
        to = parse(address)
    except BadInput:  # somebody says that it is there
        return ()
    if ip_address(to[0]).is_loopback:  # on this machine there is nothing between
        return ()
    return await traceroute(to)
