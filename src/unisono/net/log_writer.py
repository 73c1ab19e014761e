"""Writes what a node appends to its logs, in a thread beside the loop: one sync for all that waits.

The node is told what is synced. A disk that fails ends the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from unisono.core.effects import Append, Rebase
from unisono.segments.store import Store


class LogWriter:
    """The writer of one log. `synced` is called with how many effects are on the disk."""

    def __init__(self, store: Store, synced: Callable[[int], None]) -> None:
        self._store = store
        self._synced = synced
        self._waiting: list[Append | Rebase] = []
        self._wake = asyncio.Event()
        self._writing: asyncio.Future[None] | None = None

    def put(self, effect: Append | Rebase) -> None:
        self._waiting.append(effect)
        self._wake.set()

    async def run(self) -> None:
        while True:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, batch))
                await asyncio.shield(self._writing)
                self._synced(len(batch))
            self._wake.clear()
            await self._wake.wait()

    def _write(self, batch: list[Append | Rebase]) -> None:
        for effect in batch:
            if isinstance(effect, Append):
                self._store.append(effect.last, effect.record)
            else:
                self._store.rebase(effect.index, effect.base)
        self._store.sync()

    async def close(self) -> None:
        """Let go, when what is being written is."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self._store.close()
