"""NATS as the event service: core subjects of any nats-server, through nats-py.

`nats://host:port` or `nats://host:port/space`: topics become subjects `<space>.<topic>` (space:
unisono), so that several buses can share a server. When the server goes away, publish waits, the
client reconnects for as long as it takes, subscriptions are renewed, and the layers are told that
something may be lost. A slow reader is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from unisono.ens.base import OnFrame, public
from unisono.errors import BusClosed, EnvironmentLacks

nats: Any
NatsError: type[Exception]
try:
    import nats
    from nats.errors import Error as NatsError
except ImportError:  # the default install is small
    nats = None
    NatsError = OSError

_PENDING_FRAMES = 1 << 16  # per subscription, not yet taken: NATS drops further ones, and says so
_PENDING_BYTES = 1 << 28
_FLUSH_S = 10
_LOOK_AGAIN_S = 0.25
_LOOK_SOON_S = 0.0002


class NatsService:
    """One connection to a nats-server."""

    replicas = 3
    native_order = False  # each subject has a queue of its own
    discovery_s = 0.4
    address = ""
    clusters: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, server: str, space: str = "unisono", connect_s: float = 5.0) -> None:
        if nats is None:
            raise EnvironmentLacks("NATS needs its client: pip install 'unisono[nats]'")
        self._server = server
        self._shown = public(server)
        self._space = space
        self._connect_s = connect_s
        self._client: Any = None
        self._subscriptions: dict[str, Any] = {}
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self.generation = 0
        self._closing = False
        self.max_frame_bytes: int | None = None

    async def open(
        self,
        on_frame: OnFrame,
        on_trouble: Callable[[str], None],
        on_reconnect: Callable[[], None],
    ) -> None:
        self._on_frame = on_frame

        async def disconnected() -> None:
            self.generation += 1
            self._up.clear()
            self._down.set()
            if not self._closing:
                on_trouble(f"the connection to {self._shown} is lost; waiting for it")

        async def reconnected() -> None:
            self._down.clear()
            self._up.set()
            on_trouble(f"connected to {self._shown} again; events sent meanwhile may be lost")
            on_reconnect()

        async def error(problem: Exception) -> None:
            if self._up.is_set() and not self._closing:
                on_trouble(f"NATS: {type(problem).__name__}: {problem}")

        self._client = nats.NATS()
        try:
            await asyncio.wait_for(
                self._client.connect(
                    self._server,
                    connect_timeout=self._connect_s,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                    disconnected_cb=disconnected,
                    reconnected_cb=reconnected,
                    error_cb=error,
                ),
                self._connect_s,
            )
        except (TimeoutError, OSError, NatsError) as problem:
            self._closing = True
            await self._client.close()
            raise EnvironmentLacks(
                f"no NATS server answers at {self._shown} ({type(problem).__name__}); "
                "start one with `nats-server -p PORT` or check the address"
            ) from None
        self.max_frame_bytes = self._client.max_payload
        self._up.set()

    def _subject(self, topic: str) -> str:
        return f"{self._space}.{topic}"

    async def publish(self, topic: str, frame: bytes) -> None:
        while True:
            await self._connected()
            try:
                await self._client.publish(self._subject(topic), frame)
                return
            except NatsError:
                if self._client.is_connected:
                    raise

    async def _connected(self) -> None:
        """Wait for the server, as long as it takes."""
        while True:
            if self._closing:
                raise BusClosed(f"the connection to {self._shown} is closed")
            if self._client.is_connected:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._up.wait(), _LOOK_AGAIN_S)
            if not self._client.is_connected:
                self._up.clear()

    async def flush(self) -> None:
        # The client writes the PING of a flush ahead of what it still has queued, so the PONG
        # proves nothing about that; wait until the queue is on the wire first.
        while self._client.pending_data_size and self._client.is_connected:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SOON_S)
        generation = self.generation
        flushing = asyncio.ensure_future(self._client.flush(_FLUSH_S))
        lost = asyncio.ensure_future(self._down.wait())
        try:
            await asyncio.wait((flushing, lost), return_when=asyncio.FIRST_COMPLETED)
            if generation != self.generation or not flushing.done():
                raise ConnectionError(f"the connection to {self._shown} was lost")
            try:
                await flushing
            except (NatsError, OSError, TimeoutError) as problem:
                raise ConnectionError(str(problem)) from None
        finally:
            for task in (flushing, lost):
                task.cancel()
            await asyncio.gather(flushing, lost, return_exceptions=True)

    async def subscribe(self, topic: str) -> None:
        if topic in self._subscriptions:
            return

        async def taken(message: Any) -> None:
            await self._on_frame(topic, message.data)

        while True:
            await self._connected()
            try:
                if topic not in self._subscriptions:
                    self._subscriptions[topic] = await self._client.subscribe(
                        self._subject(topic),
                        cb=taken,
                        pending_msgs_limit=_PENDING_FRAMES,
                        pending_bytes_limit=_PENDING_BYTES,
                    )
                await self.flush()
                return
            except ConnectionError:
                continue  # the server is slow or away: ask again until it has taken it
            except NatsError:
                if self._client.is_connected:
                    raise

    async def unsubscribe(self, topic: str) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is not None:
            await self._connected()  # else a reconnection would bring it back
            await subscription.unsubscribe()

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._up.set()  # whoever waits is told
        if self._client is not None:
            await self._client.close()
