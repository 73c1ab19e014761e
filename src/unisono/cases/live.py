"""What the live cases share: a real bus, links that lose and delay, and journals that Spark reads.

Everything that uses the bus runs in one event loop in a thread of its own; Spark has the others.
Links are impaired where frames arrive, each by itself, so that listeners of one bus see different
things, as they do over a wide area.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from unisono.bench.server import NatsServer
from unisono.core.effects import Arrive, SetTimer
from unisono.core.entropy import stream
from unisono.core.layer import Effects, FrameLayer
from unisono.core.limits import check_fields
from unisono.journal.journal import Journal
from unisono.net.bus import Bus
from unisono.net.collect import collect
from unisono.net.connect import Connection

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How frames come to a listener: each is lost with a probability, and delayed by a time that is
    distributed exponentially around its mean."""

    loss: Annotated[float, Meta(ge=0, le=0.9)] = 0.0
    delay_ms: Annotated[float, Meta(ge=0, le=60_000)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)


class Impaired(FrameLayer):
    """Such a link, at the bottom of a node."""

    name: ClassVar[str] = "impaired"

    def __init__(self, link: Link, rng: Random) -> None:
        self._link = link
        self._rng = rng
        self._coming: dict[str, tuple[str, bytes]] = {}
        self._count = 0

    def notify(self, topic: str, frame: bytes, now: int) -> Effects:
        if self._rng.random() < self._link.loss:
            return ()
        if not self._link.delay_ms:
            return (Arrive(topic, frame),)
        self._count += 1
        key = str(self._count)
        self._coming[key] = (topic, frame)
        late_us = self._rng.expovariate(1 / (self._link.delay_ms * 1000))
        return (SetTimer(key, now + round(late_us)),)

    def timer(self, key: str, now: int) -> Effects:
        return (Arrive(*self._coming.pop(key)),)


@contextmanager
def bus_at(url: str | None) -> Iterator[str]:
    """The given bus, or a NATS server of our own."""
    if url is not None:
        yield url
        return
    server = NatsServer()
    server.start()
    try:
        yield server.url
    finally:
        server.kill()


class Stage:
    """An event loop in a thread, and who has been put into it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._buses: list[Bus] = []
        self._beside: list[asyncio.Future[None]] = []
        self._collecting: list[tuple[asyncio.Event, asyncio.Task[None], Journal]] = []

    def __enter__(self) -> Stage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the loop; from outside it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def open(self, connection: Connection, name: str, link: Link | None = None) -> Bus:
        """A bus that is closed with the stage."""
        if link is not None:
            connection.beneath(Impaired(link, stream(self._seed, "link", name)))
        bus = await connection.open()
        self._buses.append(bus)
        return bus

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs beside, until the stage closes; from inside the loop."""
        self._beside.append(asyncio.ensure_future(work))

    async def keep(self, bus: Bus, folder: Path, topics: Sequence[str]) -> Callable[[], int]:
        """Fill a journal from now on; what is returned tells its next position."""
        journal = Journal(folder)
        stop, subscribed = asyncio.Event(), asyncio.Event()
        task = asyncio.ensure_future(collect(bus, journal, topics, stop, subscribed=subscribed.set))
        self._collecting.append((stop, task, journal))
        await subscribed.wait()
        return lambda: journal.next

    async def _close(self) -> None:
        for stop, task, journal in self._collecting:
            stop.set()
            await task
            journal.close()
        for bus in self._buses:
            await bus.close()
        await asyncio.gather(*self._beside)


async def quiet(position: Callable[[], int], expected: int, patience_s: float) -> int:
    """Wait until as many are there as can be, or no more come: how many there are."""
    loop = asyncio.get_running_loop()
    known, since = position(), loop.time()
    while known < expected and loop.time() - since < patience_s:
        await asyncio.sleep(0.05)
        if position() > known:
            known, since = position(), loop.time()
    return known


def warm_up(query: StreamingQuery) -> None:
    """Wait until the query has taken something: its processes have started."""
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        query.awaitTermination(1)
        if not query.isActive:
            return
