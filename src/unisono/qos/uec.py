"""Unconscious eventual consistency: a coalition of sequencers and gossip. A comparator.

Guarantee: there is one order of all events - that of their numbers - and every node can put what it
was notified of into it. A publisher draws one of the k sequencers of the coalition at random; the
n-th event (from 0) that the sequencer with process identifier pid numbers gets n * k + pid, so no
two events have one number. Events spread by push gossip: whoever hears of an event for the first
time passes it to `fanout` others drawn at random, and notifies at once. An event that comes after
one with a greater number is tagged out_of_order: the application has to roll back.

Not guaranteed: that everybody is notified of every event (gossip may miss a node, and a node whose
inbox is full discards messages), when an order is final, or that an event so old that it was
forgotten is not notified twice. Nothing is sent again. Nodes take messages one by one, `service_us`
each. Thesis: section 4.2 with its reference [16]; a single coalition, as in section 4.3.1.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

import msgspec

from unisono.core.effects import Done, Effect, Notify, Send, SetTimer
from unisono.core.events import NUMBER, Control, Event, Status
from unisono.core.layer import Effects, Layer

SERVE = "serve"


class Request(Control, frozen=True, array_like=True, tag="uec-request"):
    """Publisher -> a sequencer of the coalition."""

    event: Event


class Rumour(Control, frozen=True, array_like=True, tag="uec-rumour"):
    """Node -> node: a numbered event on its way through the gossip."""

    event: Event


class UnconsciousConsistency(Layer):
    """The layer of every node; `coalition` lists the sequencers, the first with identifier 1."""

    name: ClassVar[str] = "uec"
    controls: ClassVar[tuple[type[Control], ...]] = (Request, Rumour)

    def __init__(
        self,
        node_id: str,
        nodes: Sequence[str],
        coalition: Sequence[str],
        rng: Random,
        *,
        fanout: int = 5,
        inbox: int = 100,  # messages that wait to be served; further ones are discarded
        service_us: int = 0,  # the time to serve one message
        remembered: int = 1 << 16,  # events known to have come; the oldest is forgotten
    ) -> None:
        self._others = [node for node in nodes if node != node_id]
        self._coalition = tuple(coalition)
        self._node_id = node_id
        self._pid = self._coalition.index(node_id) + 1 if node_id in coalition else 0
        self._rng = rng
        self._fanout = min(fanout, len(self._others))
        self._inbox_bound = inbox
        self._service_us = service_us
        self._remembered = remembered
        self._numbered = 0  # n, at a sequencer
        self._inbox: deque[Control] = deque()
        self._heard: dict[str, None] = {}  # oldest first
        self._held: set[str] = set()
        self._greatest = 0  # the greatest number notified
        self._ignored: Counter[str] = Counter()

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        self._held.update(topics)
        return (Done(ticket),) if ticket is not None else ()

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        self._held.difference_update(topics)
        return (Done(ticket),) if ticket is not None else ()

    def publish(self, event: Event, now: int) -> Effects:
        """Done at once: the protocol acknowledges nothing."""
        chosen = self._rng.choice(self._coalition)
        if chosen == self._node_id:
            return (Done(event.id), *self._number(event))
        return (Done(event.id), Send(chosen, Request(event)))

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        if self._service_us == 0:
            return self._serve(message)
        if len(self._inbox) >= self._inbox_bound:
            self._ignored["inbox full"] += 1
            return ()
        self._inbox.append(message)
        return (SetTimer(SERVE, now + self._service_us),) if len(self._inbox) == 1 else ()

    def timer(self, key: str, now: int) -> Effects:
        """The first message in the inbox has been worked on long enough."""
        out = self._serve(self._inbox.popleft())
        if self._inbox:
            out.append(SetTimer(SERVE, now + self._service_us))
        return out

    def _serve(self, message: Control) -> list[Effect]:
        if isinstance(message, Request):
            if not self._pid:
                self._ignored["sent to no sequencer"] += 1
                return []
            return self._number(message.event)
        assert isinstance(message, Rumour)
        if (message.event.stamp or {}).get(NUMBER, 0) < 1:
            self._ignored["without a number"] += 1
            return []
        return self._hear(message.event)

    def _number(self, event: Event) -> list[Effect]:
        number = self._numbered * len(self._coalition) + self._pid
        self._numbered += 1
        return self._hear(msgspec.structs.replace(event, stamp={NUMBER: number}))

    def _hear(self, event: Event) -> list[Effect]:
        """Heard for the first time: pass it on and notify."""
        if event.id in self._heard:
            self._ignored["duplicate"] += 1
            return []
        self._heard[event.id] = None
        if len(self._heard) > self._remembered:
            del self._heard[next(iter(self._heard))]
        rumour = Rumour(event)
        out: list[Effect] = [
            Send(peer, rumour) for peer in self._rng.sample(self._others, self._fanout)
        ]
        if event.topic not in self._held:
            self._ignored["not subscribed"] += 1
            return out
        assert event.stamp is not None
        number = event.stamp[NUMBER]
        status = Status.OUT_OF_ORDER if number < self._greatest else Status.IN_ORDER
        self._greatest = max(self._greatest, number)
        return [*out, Notify(event, status)]
