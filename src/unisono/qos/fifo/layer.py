"""The layer of probabilistic FIFO: numbers on the way down, sources on the way up."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from unisono.core.effects import (
    CancelTimer,
    Effect,
    Notify,
    Publish,
    Record,
    SetTimer,
    Subscribe,
    Trouble,
    Unsubscribe,
)
from unisono.core.events import Before, Event, Past, Status, encoded, first_of
from unisono.core.layer import Effects, Layer
from unisono.core.limits import Limits
from unisono.core.predicate import Filters, Predicate
from unisono.qos.fifo.options import Fifo
from unisono.qos.fifo.source import Source
from unisono.qos.fifo.summary import may_match, summary


class ProbabilisticFifo(Layer):
    """See the package header for the guarantee."""

    name: ClassVar[str] = "fifo"

    def __init__(
        self,
        node_id: str,
        options: Fifo,
        *,
        covers: Callable[[str], bool] = lambda topic: True,
        limits: Limits | None = None,
        life: int = 0,
    ) -> None:
        self._node_id = node_id
        self._limits = limits or Limits()
        self._options = options
        self._covers = covers
        self._number = first_of(life)
        self._published_us: int | None = None
        self._record: deque[msgspec.Raw] = deque(maxlen=options.record)  # the latest first
        self._topics: set[str] = set()  # subscribed, or about to be
        self._where = Filters()
        self.sources: dict[str, Source] = {}
        self._timers: dict[str, int] = {}  # publisher -> when it is set for
        self._ignored: Counter[str] = Counter()
        self._strangers: set[str] = set()  # publishers that do not number what they publish

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    # Down.

    def publish(self, event: Event, now: int) -> Effects:
        if not self._covers(event.topic):
            return (Publish(event),)
        since = 0
        if self._published_us is not None:
            since = max(0, event.published_us - self._published_us)
        self._number += 1
        self._published_us = event.published_us
        past = Past.of(self._number, since, self._record)
        if self._options.record:
            told = Before(event.topic, summary(event.attributes), since)
            self._record.appendleft(encoded(told))
        return (Publish(msgspec.structs.replace(event, past=past)),)

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        self._topics.update(topics)
        return (Subscribe(tuple(topics), ticket),)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        self._topics.difference_update(topics)
        return (Unsubscribe(tuple(topics), ticket),)

    def narrow(self, topics: Sequence[str], where: Predicate | None) -> None:
        self._where.narrow(topics, where)

    # Up.

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if not self._covers(event.topic):
            return (Notify(event, status),)
        past = event.past
        if past is None:
            return self._unnumbered(event, now)
        out: list[Effect] = []
        source = self.sources.get(event.publisher) or self._source(event.publisher, now, out)
        came = source.arrive(event, past, self._may_want, now)
        if came is None:
            self._ignored["duplicate"] += 1
            return out
        out += self._notified(came)
        if not source.held and source.told and event.publisher not in self._timers:
            return out  # the usual case
        self._set_timer(event.publisher, source, out)
        if source.held and source.spread.fits is not source.told:
            self._tell_fit(event.publisher, source, now, out)
        return out

    def _source(self, publisher: str, now: int, out: list[Effect]) -> Source:
        """A new one; at the bound, the one that was first heard of is forgotten."""
        if len(self.sources) >= self._limits.fifo_publishers:
            oldest = next(iter(self.sources))
            gone = self.sources.pop(oldest)
            out += self._notified(gone.let_all_go(now))
            self._set_timer(oldest, gone, out)
        source = self.sources[publisher] = Source(self._options)
        return source

    def timer(self, key: str, now: int) -> Effects:
        del self._timers[key]
        source = self.sources[key]
        out = self._notified(source.release(now))
        self._set_timer(key, source, out)
        return out

    def _notified(self, came: Iterable[tuple[Event, Status]]) -> list[Effect]:
        out: list[Effect] = []
        for event, status in came:
            if event.topic in self._topics:
                out.append(Notify(event, status))
            else:
                self._ignored["not subscribed"] += 1
        return out

    def _set_timer(self, publisher: str, source: Source, out: list[Effect]) -> None:
        due = source.due_us() if source.held else None
        if due == self._timers.get(publisher):
            return
        if due is None:
            del self._timers[publisher]
            out.append(CancelTimer(publisher))
        else:
            self._timers[publisher] = due
            out.append(SetTimer(publisher, due))

    def _may_want(self, topic: str, told: bytes) -> bool:
        where = self._where.get(topic)
        return topic in self._topics and (where is None or may_match(where, told))

    def _unnumbered(self, event: Event, now: int) -> Effects:
        """Its publisher did not choose this order for the topic: tagged, and said once."""
        out: list[Effect] = [Notify(event, Status.OUT_OF_ORDER)]
        if (
            event.publisher not in self._strangers
            and len(self._strangers) < self._limits.fifo_publishers
        ):
            self._strangers.add(event.publisher)
            text = f'{event.publisher} publishes {event.topic!r} without order="fifo"'
            out.append(Trouble(f"{text}: its events are tagged out_of_order"))
        return out

    def _tell_fit(self, publisher: str, source: Source, now: int, out: list[Effect]) -> None:
        source.told = source.spread.fits
        detail = f"{publisher}: {'fits' if source.told else 'does not fit, held for longer'}"
        row = {"at_us": now, "node": self._node_id, "kind": "delay model", "detail": detail}
        out.append(Record("control", row))
        if not source.told:
            out.append(Trouble(f"delays of {publisher} do not follow the model; held for longer"))
