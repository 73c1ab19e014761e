"""The embedded bus: an event service in this process, with optional delay and jitter.

`memory://name?delay_ms=5&jitter_ms=2`. Clients that name the same bus in one event loop share it;
it is gone when the last one leaves. A frame enters the lanes of all its readers in one step, so all
hear what they share in one order, whatever the topics. A slow reader makes publishers of its topics
wait; point-to-point messages have a lane of their own, so that a reader who sleeps does not stop
managers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from weakref import WeakKeyDictionary

from unisono.core.entropy import stream
from unisono.core.limits import RESERVED
from unisono.ens.base import OnFrame
from unisono.errors import BusClosed

_QUEUE_FRAMES = 1024  # per client, of events not yet taken: publish waits
_brokers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Broker]] = WeakKeyDictionary()


class Broker:
    """Who listens to what."""

    def __init__(self) -> None:
        self.subscribers: dict[str, dict[MemoryService, None]] = {}
        self.clients = 0


class _Lane:
    """Frames on their way to one client, handed over one by one when their delay is over."""

    def __init__(self, on_frame: OnFrame, bound: int | None) -> None:
        self._on_frame = on_frame
        self._bound = bound
        self._frames: deque[tuple[float, str, bytes]] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def full(self) -> bool:
        return self._bound is not None and len(self._frames) >= self._bound

    async def room(self) -> None:
        """Wait until it is not full; it may be again by then."""
        if self.full:
            self._room.clear()
            await self._room.wait()

    def put(self, due: float, topic: str, frame: bytes) -> None:
        self._frames.append((due, topic, frame))
        self._filled.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._frames:
                due, topic, frame = self._frames.popleft()
                self._room.set()
                if due and (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                await self._on_frame(topic, frame)
            self._filled.clear()
            await self._filled.wait()

    async def stop(self) -> None:
        self._bound = None  # whoever waits for room need not any more
        self._room.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class MemoryService:
    """One client of an embedded bus."""

    replicas = 1
    native_order = True
    max_frame_bytes: int | None = None
    generation = 0
    address = ""
    clusters: Mapping[str, tuple[str, ...]] = {}

    def __init__(
        self, name: str, delay_ms: float = 0.0, jitter_ms: float = 0.0, seed: int = 0
    ) -> None:
        self._name = name
        self._delay_s = delay_ms / 1000
        self._jitter_s = jitter_ms / 1000
        self._rng: Random = stream(seed, "memory", name)
        self.discovery_s = 0.02 + 4 * (self._delay_s + self._jitter_s)
        self._broker: Broker | None = None
        self._topics: set[str] = set()
        self._last: dict[str, float] = {}

    async def open(
        self,
        on_frame: OnFrame,
        on_trouble: Callable[[str], None],
        on_reconnect: Callable[[], None],
    ) -> None:
        shared = _brokers.setdefault(asyncio.get_running_loop(), {})
        self._broker = shared.setdefault(self._name, Broker())
        self._broker.clients += 1
        self._messages = _Lane(on_frame, None)  # bounded by what publishers may have outstanding
        self._events = _Lane(on_frame, _QUEUE_FRAMES)

    async def publish(self, topic: str, frame: bytes) -> None:
        while True:
            if self._broker is None:
                raise BusClosed("the embedded bus is closed")
            clients = self._broker.subscribers.get(topic, ())
            direct = topic.startswith(RESERVED)
            lanes = [client._messages if direct else client._events for client in clients]
            full = next((lane for lane in lanes if lane.full), None)
            if full is None:
                break
            await full.room()
        due = self._due(topic)
        for lane in lanes:  # in one step: nobody else's frame comes between
            lane.put(due, topic, frame)

    def _due(self, topic: str) -> float:
        """When the frame arrives; a later one of the same topic does not overtake it."""
        if not self._delay_s and not self._jitter_s:
            return 0.0
        due = (
            asyncio.get_running_loop().time() + self._delay_s + self._rng.random() * self._jitter_s
        )
        due = max(due, self._last.get(topic, 0.0))
        self._last[topic] = due
        return due

    async def flush(self) -> None:
        pass

    async def subscribe(self, topic: str) -> None:
        if self._broker is None:
            raise BusClosed("the embedded bus is closed")
        self._topics.add(topic)
        self._broker.subscribers.setdefault(topic, {})[self] = None

    async def unsubscribe(self, topic: str) -> None:
        if self._broker is not None:
            self._topics.discard(topic)
            self._broker.subscribers.get(topic, {}).pop(self, None)

    async def close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is None:
            return
        for topic in self._topics:
            broker.subscribers.get(topic, {}).pop(self, None)
        await self._messages.stop()
        await self._events.stop()
        broker.clients -= 1
        if not broker.clients:
            _brokers.get(asyncio.get_running_loop(), {}).pop(self._name, None)
