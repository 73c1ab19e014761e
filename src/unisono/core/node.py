"""A node: an identity, a stack, the wire format, and frame layers below it. Still without I/O.

Drivers call the methods and carry out the returned effects (`Transmit`, `Subscribe`, `Unsubscribe`,
`Deliver`, `Record`, `SetTimer`, `CancelTimer`, `Done`, `Fail`) in the order given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from unisono.core.effects import (
    Arrive,
    CancelTimer,
    Cast,
    Deliver,
    Done,
    Effect,
    Notify,
    Publish,
    Record,
    Send,
    SetTimer,
    Subscribe,
    Transmit,
    Unsubscribe,
)
from unisono.core.events import EVERYONE, Control, Delivery, Event, first_of, inbox, voter_inbox
from unisono.core.layer import Effects, FrameLayer, Layer
from unisono.core.limits import Limits, check_attributes, check_payload, check_topic
from unisono.core.once import Recent, check_own, is_own
from unisono.core.predicate import Attributes, Predicate, parse
from unisono.core.stack import SEPARATOR, Stack, TimerKey
from unisono.core.wire import Codec, Rejected
from unisono.errors import BadInput
from unisono.trace import schema

JOIN = "join"  # the tickets under which a node has joined, and may leave
CLOSE = "close"
FRAME_TIMER = "frame"
_ENVELOPE_BYTES = (
    1 << 20
)  # what a stamp and a header may add to a payload; states are chunked below


class Node:
    """One participant. `rejected` counts the frames that were refused, by reason.

    `life` counts the restarts of a node that keeps its name: what it numbers goes on far above.
    """

    def __init__(
        self,
        node_id: str,
        layers: Sequence[Layer],
        frame_layers: Sequence[FrameLayer] = (),
        limits: Limits | None = None,
        records: bool = True,
        life: int = 0,
    ) -> None:
        self.id = node_id
        self._records = records  # somebody keeps the trace
        self.limits = limits or Limits()
        self.stack = Stack(layers)
        self.frame_layers = tuple(frame_layers)
        self.codec = Codec(self.stack.controls, self.limits.payload_bytes + _ENVELOPE_BYTES)
        self.rejected: Counter[str] = Counter()
        joining = sum(layer.joins for layer in layers)
        self._undone = {JOIN: joining, CLOSE: joining}  # how many layers have not said so
        self._seq = self._position = first_of(life)
        self._subscribed_from: dict[str, int] = {}  # topic -> from_us
        self._wanted: set[str] = set()  # as last asked for; operations may be under way
        # Topics of which only some events are wanted; also after the end, for what still comes.
        self._narrowed: set[str] = set()
        self._beginning: dict[str, tuple[str, ...]] = {}  # subscribe operations under way
        self._ending: dict[str, tuple[str, ...]] = {}  # unsubscribe operations under way
        self._own_ids = Recent(self.limits.own_ids)
        self._repeated = 0
        self._left = False  # the layers have let go; what is under way must still get out

    @property
    def ignored(self) -> Counter[str]:
        """Events that arrived and were not notified, by reason: duplicates and the like."""
        total: Counter[str] = Counter()
        for layer in self.stack.layers:
            total.update(layer.ignored)
        if self._repeated:
            total["published again"] += self._repeated
        return total

    # What the application asks for.

    def start(self, now: int) -> list[Effect]:
        effects = self.stack.start(now)
        talking = self.stack.controls or any(layer.talks for layer in self.frame_layers)
        if talking:  # else nobody here would understand the messages of others
            effects.insert(0, Subscribe((inbox(self.id), EVERYONE)))
        if not self._undone[JOIN]:
            effects.append(Done(JOIN))
        out = self._out(effects, now)
        for index, layer in enumerate(self.frame_layers):
            self._frames(index, layer.start(now), now, out)
        return out

    def publish(
        self,
        topic: str,
        payload: bytes,
        now: int,
        attributes: Attributes | None = None,
        own_id: str | None = None,
    ) -> tuple[str, list[Effect]]:
        """The new event's id, which is also the ticket of its acknowledgement, and the effects."""
        topic = check_topic(topic)
        payload = check_payload(payload, self.limits)
        checked = None if attributes is None else check_attributes(attributes, self.limits)
        if own_id is not None:
            check_own(own_id)
        self._seq += 1
        event = Event(
            id=own_id or f"{self.id}-{self._seq}",
            topic=topic,
            payload=payload,
            publisher=self.id,
            seq=self._seq,
            published_us=now,
            attributes=checked,
        )
        effects = self.stack.publish(event, now)
        if self._records:
            row = {
                "event_id": event.id,
                "topic": topic,
                "publisher": self.id,
                "publisher_seq": event.seq,
                "published_us": now,
                "size": len(payload),
            }
            effects.insert(0, Record(schema.PUBLICATIONS, row))
        return event.id, self._out(effects, now)

    def subscribe(
        self, topics: Sequence[str], ticket: str, now: int, where: str | None = None
    ) -> list[Effect]:
        """`where`: a predicate over attributes (`core/predicate.py`); it replaces an earlier one,
        at once."""
        if not topics:
            raise BadInput("subscribe needs at least one topic")
        fresh = tuple(dict.fromkeys(check_topic(topic) for topic in topics))
        rows = self._narrow(fresh, None if where is None else parse(where), now)
        self._wanted.update(fresh)
        self._beginning[ticket] = fresh
        return self._out([*rows, *self.stack.subscribe(fresh, ticket, now)], now)

    def unsubscribe(self, topics: Sequence[str], ticket: str, now: int) -> list[Effect]:
        ending = tuple(dict.fromkeys(check_topic(topic) for topic in topics))
        unknown = [topic for topic in ending if topic not in self._wanted]
        if unknown or not ending:
            raise BadInput(f"not subscribed: {', '.join(map(repr, unknown)) or 'no topic given'}")
        self._wanted.difference_update(ending)
        self._ending[ticket] = ending
        return self._out(self.stack.unsubscribe(ending, ticket, now), now)

    def _narrow(self, topics: tuple[str, ...], where: Predicate | None, now: int) -> list[Effect]:
        """Rows of the trace that this takes: a subscription by content is none to the table of
        subscriptions, which is for those that must get everything."""
        if where is None and self._narrowed.isdisjoint(topics):
            return []
        self.stack.narrow(topics, where)
        if where is None:
            self._narrowed.difference_update(topics)
            return []
        self._narrowed.update(topics)
        rows: list[Effect] = [self._end(t, now) for t in topics if t in self._subscribed_from]
        for topic in topics:
            detail = f"{topic}: {where.text}"
            row = {"at_us": now, "node": self.id, "kind": "filter", "detail": detail}
            rows.append(Record("control", row))
        return rows

    def close(self, now: int) -> list[Effect]:
        """Leave: ends with Done("close") once the layers have handed over what others need."""
        rows = [self._end(topic, now) for topic in tuple(self._subscribed_from)]
        effects = self.stack.close(now)
        if not self._undone[CLOSE]:
            effects.append(Done(CLOSE))
        return self._out([*rows, *effects], now)

    # What the driver brings.

    def frame(self, topic: str, frame: bytes, now: int) -> list[Effect]:
        """A frame has come from the event service."""
        if self.frame_layers:
            return self._arrive(len(self.frame_layers), topic, frame, now)
        return self._take(topic, frame, now)

    def timer(self, key: TimerKey, now: int) -> list[Effect]:
        name, local = key
        if name != FRAME_TIMER:
            return self._out(self.stack.timer(key, now), now)
        index, local = local
        out: list[Effect] = []
        self._frames(index, self.frame_layers[index].timer(local, now), now, out)
        return out

    def frame_layer_of(self, key: TimerKey) -> FrameLayer | None:
        """Whose timer it is, if it is a frame layer's."""
        return self.frame_layers[key[1][0]] if key[0] == FRAME_TIMER else None

    def synced(self, log: str, count: int, now: int) -> list[Effect]:
        """So many more records of this log are on the disk."""
        return self._out(self.stack.synced(log, count, now), now)

    def reconnected(self, now: int) -> list[Effect]:
        """The event service is back after an interruption."""
        return self._out(self.stack.reconnected(now), now)

    def effective(self, ticket: str, now: int) -> list[Effect]:
        """The event service has carried out the Subscribe or Unsubscribe of this ticket."""
        if SEPARATOR in ticket:  # a layer's own
            return self._out(self.stack.effective(ticket, now), now)
        return self._out([Done(ticket)], now)

    def _subscriptions(self, ticket: str, now: int) -> list[Effect]:
        """Rows of the subscriptions that begin or end with this ticket, if it is one of theirs."""
        rows: list[Effect] = []
        for topic in self._beginning.pop(ticket, ()):
            if topic not in self._subscribed_from and topic not in self._narrowed:
                self._subscribed_from[topic] = now
                rows.append(self._row(topic, now, None))
        for topic in self._ending.pop(ticket, ()):
            if topic in self._subscribed_from:
                rows.append(self._end(topic, now))
        return rows

    # Encoding, frame layers, trace rows.

    def _out(self, effects: Sequence[Effect], now: int) -> list[Effect]:
        out: list[Effect] = []
        if len(effects) > 1:
            effects = sorted(effects, key=attrgetter("rank"))
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                place = voter_inbox(effect.to) if message.urgent else inbox(effect.to)
                topic = EVERYONE if effect.to == EVERYONE else place
                self._transmit(topic, message, None, now, out)
            elif isinstance(effect, Cast):
                self._transmit(effect.topic, effect.message, None, now, out)
            elif isinstance(effect, Publish):
                event = effect.event
                if self._records and event.stamp is not None:
                    out.append(self._stamp_row(event, now))
                mine = event.id if event.publisher == self.id else None
                self._transmit(event.topic, event, mine, now, out)
            elif isinstance(effect, Notify):
                self._deliver(effect, now, out)
            elif isinstance(effect, Record):
                if self._records:
                    out.append(effect)
            elif isinstance(effect, Done) and self._waits_for_others(effect):
                pass
            elif isinstance(effect, Done):
                out.extend(self._subscriptions(effect.ticket, now))
                if effect.ticket == CLOSE and effect.error is None:
                    self._left = True
                else:
                    out.append(effect)
            else:
                out.append(effect)
                if self.frame_layers and isinstance(effect, Subscribe | Unsubscribe):
                    self._tell_frame_layers(effect, now, out)
        if self._left:
            self._left = False
            out.extend(self._out(self.stack.farewell(now), now))
            out.append(Done(CLOSE))
        return out

    def _waits_for_others(self, done: Done) -> bool:
        """Whether other layers have not joined, or not let go, yet."""
        if done.error is not None or done.ticket not in self._undone:
            return False
        self._undone[done.ticket] -= 1
        return self._undone[done.ticket] > 0

    def _tell_frame_layers(
        self, effect: Subscribe | Unsubscribe, now: int, out: list[Effect]
    ) -> None:
        for index, layer in enumerate(self.frame_layers):
            told = layer.listening if isinstance(effect, Subscribe) else layer.ignoring
            self._frames(index, told(effect.topics, now), now, out)

    def _transmit(
        self, topic: str, message: Event | Control, ack: str | None, now: int, out: list[Effect]
    ) -> None:
        frame = self.codec.encode(self.id, message)
        if not self.frame_layers:
            again = isinstance(message, Event) and message.stamp is not None
            out.append(Transmit(topic, frame, ack, again))
            return
        before = len(out)
        self._frames(0, self.frame_layers[0].publish(topic, frame, now), now, out)
        if ack is not None:
            self._acknowledge(ack, before, out)

    def _acknowledge(self, ack: str, before: int, out: list[Effect]) -> None:
        """The last frame that frame layers made of a publication acknowledges it."""
        for at in range(len(out) - 1, before - 1, -1):
            effect = out[at]
            if isinstance(effect, Transmit):
                out[at] = msgspec.structs.replace(effect, acknowledges=ack)
                return
        out.append(Done(ack))  # a fault layer swallowed it, or holds it back

    def _frames(self, index: int, effects: Effects, now: int, out: list[Effect]) -> None:
        """Carry the effects of frame layer `index` up or down."""
        for effect in effects:
            if isinstance(effect, Arrive):
                out.extend(self._arrive(index, effect.topic, effect.frame, now))
            elif isinstance(effect, Transmit) and index + 1 < len(self.frame_layers):
                lower = self.frame_layers[index + 1]
                self._frames(index + 1, lower.publish(effect.topic, effect.frame, now), now, out)
            elif isinstance(effect, SetTimer):
                out.append(SetTimer((FRAME_TIMER, (index, effect.key)), effect.at_us))
            elif isinstance(effect, CancelTimer):
                out.append(CancelTimer((FRAME_TIMER, (index, effect.key))))
            else:
                out.append(effect)

    def _arrive(self, index: int, topic: str, frame: bytes, now: int) -> list[Effect]:
        """A frame goes up from below frame layer `index - 1`."""
        if index > 0:
            out: list[Effect] = []
            self._frames(
                index - 1, self.frame_layers[index - 1].notify(topic, frame, now), now, out
            )
            return out
        return self._take(topic, frame, now)

    def _take(self, topic: str, frame: bytes, now: int) -> list[Effect]:
        """A frame has come up to the wire format."""
        try:
            sender, message = self.codec.decode(frame)
        except Rejected as rejected:
            return self._reject(rejected.reason, topic, now)
        if isinstance(message, Event):
            if message.topic != topic:
                return self._reject("wrong topic", topic, now)
            return self._out(self.stack.notify(message, now), now)
        if sender == self.id and not message.echoes:
            return []  # our own broadcast, come back
        return self._out(self.stack.receive(message, sender, now), now)

    def _reject(self, reason: str, topic: str, now: int) -> list[Effect]:
        self.rejected[reason] += 1
        row = {"at_us": now, "node": self.id, "kind": f"frame rejected: {reason}", "detail": topic}
        return [Record("faults", row)]

    def _deliver(self, effect: Notify, now: int, out: list[Effect]) -> None:
        event = effect.event
        if is_own(event.id) and self._own_ids.again(event.id):
            self._repeated += 1
            return
        if self._records:
            row = {
                "subscriber": self.id,
                "position": self._position,
                "event_id": event.id,
                "delivered_us": now,
                "status": effect.status._value_,
            }
            out.append(Record(schema.DELIVERIES, row))
        delivery = Delivery(
            topic=event.topic,
            payload=event.payload,
            status=effect.status,
            id=event.id,
            publisher=event.publisher,
            position=self._position,
            published_us=event.published_us,
            delivered_us=now,
            stamp=event.stamp,
            attributes=event.attributes,
        )
        self._position += 1
        out.append(Deliver(delivery))

    def _stamp_row(self, event: Event, now: int) -> Record:
        assert event.stamp is not None
        row = {
            "event_id": event.id,
            "topic": event.topic,
            "number": event.stamp.get(event.topic, 0),
            "entries": len(event.stamp),
            "requested_us": event.published_us,
            "stamped_us": now,
        }
        return Record("stamps", row)

    def _end(self, topic: str, until_us: int) -> Record:
        return self._row(topic, self._subscribed_from.pop(topic), until_us)

    def _row(self, topic: str, from_us: int, until_us: int | None) -> Record:
        row = {"subscriber": self.id, "topic": topic, "from_us": from_us, "until_us": until_us}
        return Record(schema.SUBSCRIPTIONS, row)
