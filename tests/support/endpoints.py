"""An endpoint on a real socket that keeps what came. However slow the machine is, it gives nobody
up, unless it is told when to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from unisono.core.limits import MeshLimits
from unisono.net.keys import Key
from unisono.net.udp import BULK, Endpoint

KEY = Key(bytes(range(32)))
PATIENCE_S = 60


class Node:
    """An endpoint, what came, and who is gone."""

    def __init__(
        self, key: Key | None = KEY, limits: MeshLimits | None = None, **options: Any
    ) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.gone: list[str] = []
        self._changed = asyncio.Event()
        listen = options.pop("listen", "127.0.0.1:0")
        limits = limits or MeshLimits(give_up_us=2 * PATIENCE_S * 1_000_000)
        self.endpoint = Endpoint(listen, key, self.take, self._lost, limits, **options)

    def take(self, address: str, message: bytes) -> None:
        self.messages.append((address, message))
        self._changed.set()

    def _lost(self, address: str) -> None:
        self.gone.append(address)
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Node:
        await self.endpoint.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.endpoint.close()

    async def send_all(self, to: str, messages: list[bytes], lane: int = BULK) -> None:
        for message in messages:
            while not self.endpoint.send(to, message, lane):
                await self.endpoint.room(to)

    @property
    def contents(self) -> list[bytes]:
        return [message for _, message in self.messages]


def run(scene: Callable[[], Awaitable[None]], fast: bool = False) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scene()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(bounded())


async def turn(reached: Callable[[], bool]) -> None:
    """Let the loop turn until then."""
    while not reached():  # noqa: ASYNC110
        await asyncio.sleep(0)
