"""What travels: events of applications, controls of layers, deliveries to applications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from unisono.core.predicate import Value
from unisono.errors import UNDECODABLE
from unisono.trace import schema

INBOX = "_unisono.inbox."
VOTER_INBOX = "_unisono.voter."
EVERYONE = "_unisono.all"  # the node id, and the topic, that reaches every node

# A count or number on the wire; anything else does not decode.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
# How many events of each topic come before (or are) this one, as far as the stamp counts them.
Stamp = dict[str, Number]
NUMBER = "*"  # in a stamp: a number that runs over all topics (no topic has this name)


LIFE_BITS = 32
SUMMARY_BYTES = 16  # of an event's content


def first_of(life: int) -> int:
    """Where a node's numbers begin in a life: no earlier life has come so far."""
    return life << LIFE_BITS


def inbox(node: str) -> str:
    """The topic on which a node takes its point-to-point messages."""
    return INBOX + node


def voter_inbox(node: str) -> str:
    """Where it takes those of voters: they never queue behind others."""
    return VOTER_INBOX + node


class Status(StrEnum):
    """What the application is told about each notification."""

    IN_ORDER = schema.IN_ORDER
    OUT_OF_ORDER = schema.OUT_OF_ORDER  # notified after an event that it precedes elsewhere
    LATE = schema.LATE
    GAP_SKIPPED = schema.GAP_SKIPPED  # in order, but an earlier event was waited for in vain
    DUPLICATE = schema.DUPLICATE


# `gc=False`: what is frozen and made of plain values is in no cycle; the collector need not look.


class Before(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An earlier event of a publisher, as later ones tell of it."""

    topic: str
    summary: Annotated[bytes, msgspec.Meta(max_length=SUMMARY_BYTES)]  # empty if it says nothing
    since_us: Number  # from the departure of the one before it to its own


RECORD_MAX = 128
_BEFORE = msgspec.msgpack.Decoder(Before)
_RECORD = msgspec.msgpack.Decoder(
    Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=RECORD_MAX)]
)
_ENCODER = msgspec.msgpack.Encoder()
_NOTHING = msgspec.Raw(_ENCODER.encode(()))


def encoded(before: Before) -> msgspec.Raw:
    """As it stands in records."""
    return msgspec.Raw(_ENCODER.encode(before))


class Past(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an event tells about those its publisher sent before it. Few receivers need the record,
    and then its beginning, so it stays encoded until one does."""

    number: Number  # over all topics in this order
    since_us: Number  # from the departure of the one before
    encoded: msgspec.Raw = _NOTHING

    @classmethod
    def of(cls, number: int, since_us: int, record: Iterable[msgspec.Raw]) -> Past:
        """`record`: encoded, the latest first."""
        return cls(number, since_us, msgspec.Raw(_ENCODER.encode(list(record))))

    def record(self) -> Iterator[Before]:
        """The latest first. Where it makes no sense, it ends."""
        try:
            for entry in _RECORD.decode(self.encoded):
                yield _BEFORE.decode(entry)
        except UNDECODABLE:
            return


class Event(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="event"):
    """One publication on its way."""

    id: str
    topic: str
    payload: bytes
    publisher: str
    seq: Number  # the publisher's publishing order, over all its topics
    published_us: int
    stamp: Stamp | None = None
    past: Past | None = None
    attributes: dict[str, Value] | None = None


class Control(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Base of the messages that layers of different nodes exchange. Subclasses set a tag."""

    echoes: ClassVar[bool] = False  # a node hears what it said to everyone
    urgent: ClassVar[bool] = False  # sent to the inbox for voters


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One notification as the application sees it."""

    topic: str
    payload: bytes
    status: Status
    id: str
    publisher: str
    position: int  # this subscriber's notification order, from 0
    published_us: int
    delivered_us: int
    stamp: Stamp | None = None  # its place in the order, for whoever has to put late events there
    attributes: dict[str, Value] | None = None

    @property
    def latency_us(self) -> int:
        """From publish() at the publisher to notification here."""
        return self.delivered_us - self.published_us

    @property
    def in_order(self) -> bool:
        """False for an event that may have been notified elsewhere in another order."""
        return self.status is not Status.OUT_OF_ORDER
