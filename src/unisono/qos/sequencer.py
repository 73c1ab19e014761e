"""One central sequencer for all topics: what the SEQUENCER protocol of JGroups does. A comparator.

Guarantee: all nodes are notified of the events they subscribe in the order of one row of numbers,
as long as everything the sequencer sends arrives. The publisher sends its event to the sequencer;
the sequencer numbers it and sends it to the whole group - on one group topic of the event service,
or, with `members`, one copy to each over point-to-point channels (JGroups over TCP). Every node
receives every event and discards the topics it does not hold: that is the price.

Not guaranteed: anything when a message is lost (who misses a number waits for it for ever), when
the sequencer stops, or for nodes that come after the first event; the order of one publisher's
events where links do not keep it. Thesis: figure 3.24 and section 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from unisono.core.effects import Done, Effect, Notify, Publish, Send, Subscribe
from unisono.core.events import NUMBER, Control, Event, Status
from unisono.core.layer import Effects, Layer
from unisono.core.limits import Limits
from unisono.errors import UNDECODABLE

GROUP = "_unisono.group"


class ToSequencer(Control, frozen=True, array_like=True, tag="to-sequencer"):
    """Publisher -> sequencer."""

    event: Event


class Numbered(Control, frozen=True, array_like=True, tag="numbered"):
    """Sequencer -> each member: a copy of the event, with its number in the stamp."""

    event: Event


class Sequencer(Layer):
    """The layer of every node; the node named `sequencer` gives the numbers."""

    name: ClassVar[str] = "sequencer"
    controls: ClassVar[tuple[type[Control], ...]] = (ToSequencer, Numbered)

    def __init__(
        self,
        node_id: str,
        sequencer: str,
        *,
        members: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._node_id = node_id
        self._sequencer = sequencer
        self._members = None if members is None else tuple(members)
        self._limits = limits or Limits()
        self._held: set[str] = set()
        self._last = 0  # the last number given, at the sequencer
        self._upto = 0  # every number up to here was taken
        self._waiting: dict[int, Event] = {}
        self._ignored: Counter[str] = Counter()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Event)

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._ignored

    def start(self, now: int) -> Effects:
        return (Subscribe((GROUP,)),) if self._members is None else ()

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        """The node hears the whole group anyway; it only keeps more of it from now on."""
        self._held.update(topics)
        return (Done(ticket),) if ticket is not None else ()

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        self._held.difference_update(topics)
        return (Done(ticket),) if ticket is not None else ()

    def publish(self, event: Event, now: int) -> Effects:
        if self._node_id == self._sequencer:
            return self._number(event, now)
        return (Send(self._sequencer, ToSequencer(event)),)

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        if isinstance(message, Numbered):
            return self._arrive(message.event)
        assert isinstance(message, ToSequencer)
        if self._node_id != self._sequencer:
            self._ignored["sent to the wrong sequencer"] += 1
            return ()
        return self._number(message.event, now)

    def _number(self, event: Event, now: int) -> list[Effect]:
        self._last += 1
        event = msgspec.structs.replace(event, stamp={NUMBER: self._last})
        if self._members is not None:
            copies = [Send(m, Numbered(event)) for m in self._members if m != self._node_id]
            return [*copies, *self._arrive(event)]
        wrapped = Event(
            id=f"{GROUP}-{self._last}",
            topic=GROUP,
            payload=self._encoder.encode(event),
            publisher=self._node_id,
            seq=self._last,
            published_us=now,
        )
        return [Publish(wrapped)]

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if event.topic != GROUP:
            self._ignored["without a number"] += 1
            return ()
        try:
            return self._arrive(self._decoder.decode(event.payload))
        except UNDECODABLE:
            self._ignored["malformed"] += 1
            return ()

    def _arrive(self, event: Event) -> list[Effect]:
        number = (event.stamp or {}).get(NUMBER, 0)
        if number < 1:
            self._ignored["without a number"] += 1
        elif number <= self._upto or number in self._waiting:
            self._ignored["duplicate"] += 1
        elif number > self._upto + self._limits.reorder_events:
            self._ignored["too far ahead"] += 1
        else:
            self._waiting[number] = event
        return self._release()

    def _release(self) -> list[Effect]:
        out: list[Effect] = []
        while (event := self._waiting.pop(self._upto + 1, None)) is not None:
            self._upto += 1
            if event.topic in self._held:
                out.append(Notify(event, Status.IN_ORDER))
            else:
                self._ignored["not subscribed"] += 1
            if event.publisher == self._node_id:
                out.append(Done(event.id))
        return out
