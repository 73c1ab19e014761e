"""What the runtime needs of a bus: four operations, and a word when it is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

OnFrame = Callable[[str, bytes], Awaitable[None]]


class EventService(Protocol):
    """One connection to a bus. `tests/contracts` holds the suite that every one must pass."""

    replicas: int  # copies of a topic manager that make sense; 1: all nodes live and die together
    native_order: bool  # all readers hear what they share in one order, across topics
    discovery_s: float  # within this time a question to everyone is answered
    max_frame_bytes: int | None
    generation: int  # rises when the connection is lost: what was sent before may be lost too

    @property
    def address(self) -> str:
        """Of a bus without a broker: where others reach this process; else empty."""

    @property
    def clusters(self) -> Mapping[str, tuple[str, ...]]:
        """Of a bus without a broker: its clusters and where their coordinators are, as far as they
        are known here."""

    async def open(
        self,
        on_frame: OnFrame,
        on_trouble: Callable[[str], None],
        on_reconnect: Callable[[], None],
    ) -> None:
        """Connect, or raise EnvironmentLacks. Frames are handed over one by one, per topic in
        order;
        while `on_frame` waits, no further frame of that topic is taken."""

    async def publish(self, topic: str, frame: bytes) -> None:
        """Hand over a frame; waits while the bus is full or away."""

    async def flush(self) -> None:
        """Returns when the bus has taken what was published in this generation, else raises
        ConnectionError."""

    async def subscribe(self, topic: str) -> None:
        """Effective on return: what is published from now on arrives."""

    async def unsubscribe(self, topic: str) -> None: ...

    async def close(self) -> None: ...


def public(url: str) -> str:
    """An address without the credentials in it, to be shown."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
