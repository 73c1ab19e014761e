"""The bus as applications see it: publish, subscribe, unsubscribe, notifications."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import suppress

import msgspec

from unisono.core.effects import Effect
from unisono.core.events import Delivery
from unisono.core.predicate import Attributes
from unisono.errors import BusClosed
from unisono.net.runtime import Runtime
from unisono.qos.deadline import Deadline, Timeliness
from unisono.qos.total_order.by_log.domain import Domain
from unisono.qos.total_order.by_log.layer import LogOrder
from unisono.qos.total_order.layer import TotalOrder


class Receipt:
    """A publication that was accepted. Await it to know that it is acknowledged.

    Acknowledged: the event has its place in the order (if its topic is ordered) and the bus has
    taken it. Awaiting raises NotAcknowledged if that did not happen in time, or BusClosed.
    """

    def __init__(self, event_id: str, acknowledged: asyncio.Future[None]) -> None:
        self.id = event_id
        self._acknowledged = acknowledged

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.shield(self._acknowledged).__await__()

    @property
    def acknowledged(self) -> bool:
        """Whether the publication is acknowledged by now."""
        future = self._acknowledged
        return future.done() and not future.cancelled() and future.exception() is None


class Topic(msgspec.Struct, frozen=True):
    """A topic as its manager told of it last."""

    manager: str
    events: int
    rank: int  # place in the topic order, 1 is the highest


class LogOverview(msgspec.Struct, frozen=True):
    """The log of a domain as one process sees it."""

    log: str
    leader: str  # empty: none is known
    term: int
    voters: tuple[str, ...]
    spares: tuple[str, ...]  # would vote if a voter fell silent
    events: int  # put in order so far, as far as is known here


class Overview(msgspec.Struct, frozen=True):
    """The bus as one process sees it."""

    view: int = 0
    members: tuple[str, ...] = ()
    complete: bool = False  # every member has all managers that the view gives to it
    epoch: int = 0  # how often the topic order has changed
    topics: dict[str, Topic] = {}  # the busiest of each member
    clusters: dict[str, tuple[str, ...]] = {}  # of a mesh: where their coordinators are
    logs: dict[str, LogOverview] = {}  # by domain


def _overview(layer: TotalOrder, clusters: Mapping[str, tuple[str, ...]]) -> Overview:
    members = layer.members
    view = members.view
    if view is None:
        return Overview(clusters=dict(clusters))
    epoch, order = layer.topic_order
    found = {t: (m, n) for m, topics in members.heard_topics.items() for t, n in topics.items()}
    ranked = enumerate(sorted(found, key=order.key), 1)
    topics = {topic: Topic(*found[topic], rank) for rank, topic in ranked}
    return Overview(view.number, view.members, members.complete, epoch, topics, dict(clusters))


def _log_overview(domain: Domain) -> LogOverview:
    known = domain.known
    return LogOverview(
        known.log, known.leader or "", known.term, known.voters, known.spares, domain.number
    )


class Bus:
    """One process's connection. Iterate over it to be notified; read while you publish."""

    def __init__(self, runtime: Runtime, shut: Callable[[], None], leave_s: float) -> None:
        self._runtime = runtime
        self._shut = shut
        self._leave_s = leave_s
        self._operations = 0
        self._closed = False

    @property
    def id(self) -> str:
        """This node's name in the trace."""
        return self._runtime.node.id

    @property
    def address(self) -> str:
        """Where other processes of a mesh reach this one; empty on other buses."""
        return self._runtime.address

    @property
    def overview(self) -> Overview:
        """What this process knows of the bus: members, topic order, who manages what."""
        clusters = self._runtime.clusters
        found = Overview(clusters=dict(clusters))
        logs: dict[str, LogOverview] = {}
        for layer in self._runtime.node.stack.layers:
            if isinstance(layer, TotalOrder):
                found = _overview(layer, clusters)
            elif isinstance(layer, LogOrder):
                logs = {name: _log_overview(domain) for name, domain in layer.domains.items()}
        return msgspec.structs.replace(found, logs=logs)

    @property
    def timeliness(self) -> dict[str, Timeliness]:
        """By topic with a deadline, how many notifications came in time so far."""
        for layer in self._runtime.node.stack.layers:
            if isinstance(layer, Deadline):
                return {topic: known for topic, known in layer.topics.items() if known.goals}
        return {}

    @property
    def troubles(self) -> list[str]:
        """What went wrong so far without ending the bus: interruptions, losses, slow readers."""
        return list(self._runtime.troubles)

    @property
    def unacknowledged(self) -> int:
        """Publications so far that were not acknowledged in time; their receipts tell which."""
        return self._runtime.unacknowledged

    @property
    def rejected(self) -> Counter[str]:
        """Frames that were not ours or damaged, by reason."""
        return Counter(self._runtime.node.rejected)

    @property
    def ignored(self) -> Counter[str]:
        """Events that arrived and were not notified, by reason: duplicates and the like."""
        return self._runtime.node.ignored

    async def publish(
        self,
        topic: str,
        payload: bytes,
        attributes: Attributes | None = None,
        id: str | None = None,
    ) -> Receipt:
        """Publish an event. Waits while too many are not yet acknowledged; drops nothing.

        `attributes`: strings, numbers and bools by name, for subscriptions by content.
        `id`: of your own, with a slash, such as "alerts/17/3": whoever hears it twice is notified
        once. For what must be published again after a crash.

        Returns when the event is accepted; await the receipt to know that it is acknowledged.
        """
        self._check()
        return Receipt(*await self._runtime.publish(topic, payload, attributes, id))

    async def subscribe(self, *topics: str, where: str | None = None) -> None:
        """Be notified of these topics. Returns when it is effective: later events arrive.

        `where`: only of events whose attributes match, such as "symbol == 'IBM' and change > 0.5";
        it replaces what was asked for these topics before (docs/content.md).
        """
        await self._operation(
            lambda ticket, now: self._runtime.node.subscribe(topics, ticket, now, where)
        )

    async def unsubscribe(self, *topics: str) -> None:
        """Be notified of these topics no longer."""
        await self._operation(
            lambda ticket, now: self._runtime.node.unsubscribe(topics, ticket, now)
        )

    async def _operation(self, ask: Callable[[str, int], list[Effect]]) -> None:
        self._check()
        self._operations += 1
        ticket = f"operation-{self._operations}"
        effects = ask(ticket, self._runtime.now())
        done = self._runtime.ticket(ticket)
        self._runtime.carry(effects)
        await done

    async def flush(self) -> None:
        """Wait until every publication so far is acknowledged, or counted as `unacknowledged`."""
        await self._runtime.settle()

    @property
    def waiting(self) -> int:
        """Notifications that can be taken at once."""
        return len(self._runtime.notifications)

    async def notify(self) -> Delivery:
        """The next notification; BusClosed when there will be none."""
        return await self._runtime.next_delivery()

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Notifications in order; ends when the bus is closed, raises if it failed."""
        while True:
            try:
                yield await self._runtime.next_delivery()
            except BusClosed:
                if self._closed:
                    return
                raise

    async def close(self) -> None:
        """Finish what is under way, hand over the managers hosted here, and leave."""
        if self._closed:
            return
        self._closed = True
        runtime = self._runtime
        leaving = asyncio.ensure_future(self._leave())
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            await asyncio.wait((leaving,))  # others need the hand-over; it ends in time
            raise
        finally:
            await runtime.stop()
            self._shut()

    async def _leave(self) -> None:
        runtime = self._runtime
        if runtime.failure is not None or not runtime.joining:
            return
        try:
            with suppress(BusClosed):
                await asyncio.wait_for(runtime.leave(), self._leave_s)
        except TimeoutError:
            runtime.on_trouble(
                f"left after {self._leave_s:g} s without a word of everyone; "
                "topics managed here may need a new start"
            )

    def _check(self) -> None:
        if self._closed:
            raise BusClosed("the bus is closed")
        if self._runtime.failure is not None:
            raise self._runtime.failure
