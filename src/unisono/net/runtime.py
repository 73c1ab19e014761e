"""The asyncio driver of one node: carries its effects out over an event service.

Two lanes lead out, each a queue and a task: one for messages between nodes and for subscriptions
(in that order, so that a node listens before it asks), one for events. A reader that does not keep
up stops the second, never the first. What is in a lane is bounded: events by `Limits.outstanding`,
messages by `_LANE_FRAMES`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from unisono.core.effects import (
    Append,
    CancelTimer,
    Deliver,
    Done,
    Effect,
    Fail,
    Rebase,
    Record,
    SetTimer,
    Store,
    Subscribe,
    Transmit,
    Trouble,
    Unsubscribe,
)
from unisono.core.events import VOTER_INBOX, Delivery
from unisono.core.limits import RESERVED
from unisono.core.node import CLOSE, JOIN, Node
from unisono.core.predicate import Attributes
from unisono.ens.base import EventService
from unisono.errors import BadInput, BusClosed, EnvironmentLacks, NotAcknowledged, UnisonoError
from unisono.net.bundle import bundles, frames_of
from unisono.net.clock import Clock
from unisono.net.disk import Disk
from unisono.net.log_writer import LogWriter
from unisono.segments.store import Store as LogStore
from unisono.trace.memory import Recorder

log = logging.getLogger("unisono")

_LANE_FRAMES = 1 << 16  # messages waiting to go out: further ones are dropped, and asked for again
_BUNDLED = 256  # messages handed to the bus at a time
_CONFIRM_FRAMES = 256  # events handed to the bus before asking whether it has taken them
_TROUBLES = 1000  # remembered for the application; older ones are forgotten


class Runtime:
    """Drives a node until it is closed or fails."""

    node: Node  # from open() on

    def __init__(
        self,
        name: str,
        service: EventService,
        recorder: Recorder,
        disk: Disk | None = None,
        logs: Mapping[str, LogStore] | None = None,
    ) -> None:
        self.now = Clock()
        self._disk = disk
        self._logs = {
            log: LogWriter(store, partial(self._synced, log)) for log, store in (logs or {}).items()
        }
        self._name = name
        self.troubles: deque[str] = deque(maxlen=_TROUBLES)
        self.failure: UnisonoError | None = None
        self.joining = False  # others may know of the node
        self.notifications: deque[Delivery] = deque()
        self._service = service
        self._recorder = recorder
        self._tickets: dict[str, asyncio.Future[None]] = {}
        # Most timers are moved or cancelled before they are due: when each is, by the loop's time;
        # and what wakes us, perhaps too early, and when.
        self._due: dict[Any, float] = {}
        self._alarms: dict[Any, tuple[float, asyncio.TimerHandle]] = {}
        self._messages: deque[Transmit | Subscribe | Unsubscribe] = deque()
        self._urgent: deque[Transmit] = deque()  # between voters
        self._events: deque[Transmit] = deque()
        self._wake_messages = asyncio.Event()
        self._wake_events = asyncio.Event()
        self._readable = asyncio.Event()
        self._lane_empty = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._tasks: list[asyncio.Task[None]] = []
        self.unacknowledged = 0  # publications that failed
        self.outstanding = 0
        self._less_outstanding = asyncio.Event()

    @property
    def address(self) -> str:
        return self._service.address

    @property
    def clusters(self) -> Mapping[str, tuple[str, ...]]:
        return self._service.clusters

    # Life.

    async def open(self, make_node: Callable[[EventService], Node]) -> None:
        """Connect, then join; the node is made when the bus has said what it can carry."""
        await self._service.open(self.on_frame, self.on_trouble, self.on_reconnect)
        self.node = make_node(self._service)
        self._tasks = [
            asyncio.create_task(self._guard(self._run_messages())),
            asyncio.create_task(self._guard(self._run_events())),
            *(asyncio.create_task(self._guard(log.run())) for log in self._logs.values()),
        ]
        self.joining = True
        joined = self.ticket(JOIN)
        self.carry(self.node.start(self.now()))
        await joined

    async def leave(self) -> None:
        """Hand over and go; returns when others no longer need this node."""
        done = self.ticket(CLOSE)
        self.carry(self.node.close(self.now()))
        await done
        while self.failure is None and (self._messages or self._urgent or self._events):
            self._lane_empty.clear()
            await self._lane_empty.wait()
        if self.failure is None:
            with suppress(ConnectionError):
                await self._service.flush()

    async def settle(self) -> None:
        """Wait until nothing asked for so far is under way."""
        waiting = [future for future in self._tickets.values() if not future.done()]
        if waiting:
            await asyncio.wait(waiting)

    async def stop(self) -> None:
        for _, alarm in self._alarms.values():
            alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._logs.values():
            await writer.close()
        self.fail(BusClosed("the bus is closed"))
        await self._service.close()

    def fail(self, error: UnisonoError) -> None:
        """Nothing goes on from here: whoever waits is told why."""
        if self.failure is None:
            self.failure = error
        for future in self._tickets.values():
            if not future.done():
                future.set_exception(self.failure)
                future.exception()  # told; not everyone asks
        self._tickets.clear()
        self._readable.set()
        self._room.set()
        self._less_outstanding.set()
        self._lane_empty.set()

    async def _guard(self, work: Awaitable[None]) -> None:
        """A lane that ends is a failure of the bus, not a silence."""
        with self._told():
            await work

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong in here ends the bus, and everyone who waits is told why."""
        try:
            yield
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if isinstance(error, UnisonoError):
            self.fail(error)
            return
        log.error("%s failed", self._name, exc_info=error)
        self.fail(BusClosed(f"the bus failed: {type(error).__name__}: {error}"))

    # What the bus brings.

    async def on_frame(self, topic: str, frame: bytes) -> None:
        if not topic.startswith(RESERVED):
            await self._room.wait()
        if self.failure is not None:
            return
        try:  # as _told(), without the cost of a context manager a frame
            now = self.now()
            for part in frames_of(frame):
                self.carry(self.node.frame(topic, part, now))
        except Exception as error:
            self._tell(error)

    def on_trouble(self, text: str) -> None:
        log.warning("%s: %s", self._name, text)
        self.troubles.append(text)
        row = {"at_us": self.now(), "node": self._name, "kind": "trouble", "detail": text}
        self._recorder.record("faults", row)

    def on_reconnect(self) -> None:
        if self.failure is None:
            with self._told():
                self.carry(self.node.reconnected(self.now()))

    # What the application asks for.

    def ticket(self, name: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
        else:
            self._tickets[name] = future
        return future

    async def publish(
        self,
        topic: str,
        payload: bytes,
        attributes: Attributes | None = None,
        own_id: str | None = None,
    ) -> tuple[str, asyncio.Future[None]]:
        """Waits for room, then asks; the future is done when the publication is acknowledged."""
        while self.outstanding >= self.node.limits.outstanding:
            self._less_outstanding.clear()
            await self._less_outstanding.wait()
        if self.failure is not None:
            raise self.failure
        if own_id in self._tickets:
            raise BadInput(f"{own_id!r} is being published; wait for its receipt")
        event_id, effects = self.node.publish(topic, payload, self.now(), attributes, own_id)
        acknowledged = self.ticket(event_id)
        self.outstanding += 1
        acknowledged.add_done_callback(self._one_less)
        self.carry(effects)
        if self.failure is not None:
            raise self.failure
        return event_id, acknowledged

    def _one_less(self, future: asyncio.Future[None]) -> None:
        self.outstanding -= 1
        self._less_outstanding.set()
        if not future.cancelled() and future.exception() is not None:  # the receipt tells, too
            self.unacknowledged += 1
            if self.failure is None and self.unacknowledged & (self.unacknowledged - 1) == 0:
                self.on_trouble(f"publications not acknowledged in time: {self.unacknowledged}")

    async def next_delivery(self) -> Delivery:
        """The next notification; raises what ended the bus once all are read."""
        while not self.notifications:
            if self.failure is not None:
                raise self.failure
            self._readable.clear()
            await self._readable.wait()
        delivery = self.notifications.popleft()
        if len(self.notifications) < self.node.limits.notifications:
            self._room.set()
        return delivery

    # Effects.

    def carry(self, effects: Sequence[Effect]) -> None:
        if self._disk is not None:
            stores = [effect for effect in effects if isinstance(effect, Store)]
            if stores:
                try:
                    self._disk.write(stores)
                except UnisonoError as error:
                    self.fail(error)  # nobody hears of what is not kept
                    return
        for effect in effects:
            if isinstance(effect, Transmit):
                self._transmit(effect)
            elif isinstance(effect, Record):
                self._recorder.record(effect.table, effect.row)
            elif isinstance(effect, Deliver):
                self.notifications.append(effect.delivery)
                self._readable.set()
                if len(self.notifications) >= self.node.limits.notifications:
                    self._room.clear()
            elif isinstance(effect, Subscribe | Unsubscribe):
                self._messages.append(effect)
                self._wake_messages.set()
            elif isinstance(effect, SetTimer):
                self._set_timer(effect)
            elif isinstance(effect, CancelTimer):
                self._due.pop(effect.key, None)
            elif isinstance(effect, Done):
                self._done(effect.ticket, effect.error)
            elif isinstance(effect, Trouble):
                self.on_trouble(effect.text)
            elif isinstance(effect, Append | Rebase):
                self._logs[effect.log].put(effect)
            elif isinstance(effect, Store):
                pass  # written above, before everything that others see
            else:
                assert isinstance(effect, Fail), effect
                self.fail(BusClosed(effect.error))

    def _transmit(self, effect: Transmit) -> None:
        if effect.topic.startswith(VOTER_INBOX):
            self._urgent.append(effect)  # what voters have under way is bounded
            self._wake_messages.set()
        elif not effect.topic.startswith(RESERVED):
            self._events.append(effect)
            self._wake_events.set()
        elif len(self._messages) < _LANE_FRAMES:
            self._messages.append(effect)
            self._wake_messages.set()
        else:
            self.on_trouble(f"the bus takes no messages; one to {effect.topic} was dropped")

    def _synced(self, log: str, count: int) -> None:
        if self.failure is None:
            with self._told():
                self.carry(self.node.synced(log, count, self.now()))

    def _done(self, ticket: str, error: str | None) -> None:
        future = self._tickets.pop(ticket, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        elif ticket == JOIN:
            future.set_exception(EnvironmentLacks(error))
        else:
            future.set_exception(NotAcknowledged(f"{ticket}: {error}"))

    def _set_timer(self, effect: SetTimer) -> None:
        wait_s = max(0, effect.at_us - self.now()) / 1e6
        loop = asyncio.get_running_loop()
        due = self._due[effect.key] = loop.time() + wait_s
        alarm = self._alarms.get(effect.key)
        if alarm is not None and alarm[0] <= due:
            return  # it looks again then
        if alarm is not None:
            alarm[1].cancel()
        self._alarms[effect.key] = (due, loop.call_at(due, self._fire, effect.key))

    def _fire(self, key: Any) -> None:
        at, _ = self._alarms.pop(key)
        due = self._due.get(key)
        if due is None:
            return
        if due > at:
            loop = asyncio.get_running_loop()
            self._alarms[key] = (due, loop.call_at(due, self._fire, key))
            return
        del self._due[key]
        if self.failure is None:
            with self._told():
                self.carry(self.node.timer(key, self.now()))

    # Lanes.

    async def _run_messages(self) -> None:
        while True:
            while self._messages or self._urgent:
                if self._urgent:
                    await self._send_messages(self._urgent)
                    continue
                item = self._messages[0]
                if isinstance(item, Transmit):
                    await self._send_messages(self._messages)
                    continue
                for topic in item.topics:
                    if isinstance(item, Subscribe):
                        await self._service.subscribe(topic)
                    else:
                        await self._service.unsubscribe(topic)
                if item.ticket is not None:
                    self.carry(self.node.effective(item.ticket, self.now()))
                self._messages.popleft()
            self._lane_empty.set()
            self._wake_messages.clear()
            await self._wake_messages.wait()

    async def _send_messages(self, line: deque[Any]) -> None:
        """Those in line up to the next change of a subscription; together if to the same place."""
        waiting: dict[str, list[bytes]] = {}
        count = 0
        for item in islice(line, _BUNDLED):
            if not isinstance(item, Transmit):
                break
            waiting.setdefault(item.topic, []).append(item.frame)
            count += 1
        for topic, frames in waiting.items():
            for frame in bundles(frames, self._service.max_frame_bytes):
                await self._service.publish(topic, frame)
        for _ in range(count):
            line.popleft()

    async def _run_events(self) -> None:
        while True:
            batch = [self._events[i] for i in range(min(len(self._events), _CONFIRM_FRAMES))]
            if batch:
                await self._send_events(batch)
                for _ in batch:
                    self._events.popleft()
                continue
            self._lane_empty.set()
            self._wake_events.clear()
            await self._wake_events.wait()

    def _by_topic(self, batch: list[Transmit]) -> Iterator[tuple[str, list[bytes]]]:
        """Frames that travel together: all of a topic, or where the bus keeps the order across
        topics those that follow one another."""
        if self._service.native_order:
            for topic, items in groupby(batch, key=attrgetter("topic")):
                yield topic, [item.frame for item in items]
            return
        topics: dict[str, list[bytes]] = {}
        for item in batch:
            topics.setdefault(item.topic, []).append(item.frame)
        yield from topics.items()

    async def _send_events(self, batch: list[Transmit]) -> None:
        """Hand over events, acknowledge them once the bus has them; again if that is unknown."""
        while batch:
            generation = self._service.generation
            for topic, frames in self._by_topic(batch):
                for frame in bundles(frames, self._service.max_frame_bytes):
                    await self._service.publish(topic, frame)
            if not any(item.acknowledges for item in batch):
                return
            try:
                await self._service.flush()
                if generation != self._service.generation:
                    raise ConnectionError("the connection was lost on the way")
            except ConnectionError:
                unsure = [item for item in batch if not item.again]
                for item in unsure:
                    if item.acknowledges is not None:
                        text = "the connection was lost before the bus confirmed it"
                        self._done(item.acknowledges, f"{text}; whether it went out is unknown")
                batch = [item for item in batch if item.again]
                continue
            for item in batch:
                if item.acknowledges is not None:
                    self._done(item.acknowledges, None)
            return
