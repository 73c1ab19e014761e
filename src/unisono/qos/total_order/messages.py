"""The messages of the total order layer, each declared once.

A `ToTopic` message is meant for whoever manages the topic; it carries the number of the view by
which its sender found the manager, so that it can be passed on after a hand-over.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from unisono.core.events import Control, Number, Stamp


class ToTopic(Control, frozen=True, array_like=True):
    """Base: addressed to the manager of `topic`."""

    topic: str
    view: Number


class RequestStamp(ToTopic, frozen=True, array_like=True, tag="request-stamp"):
    """Publisher -> manager. `turn` numbers a publisher's requests per topic."""

    event_id: str
    publisher: str
    turn: Number


class FillStamp(ToTopic, frozen=True, array_like=True, tag="fill-stamp"):
    """Manager -> next higher manager of the sequencing group: add your number."""

    event_id: str
    event_topic: str
    publisher: str
    stamp: Stamp
    path: tuple[str, ...]  # the topics still to visit after this one, upwards


class StampReady(Control, frozen=True, array_like=True, tag="stamp-ready"):
    """Highest manager of the group -> publisher."""

    event_id: str
    stamp: Stamp


class Refused(Control, frozen=True, array_like=True, tag="refused"):
    """Manager -> publisher: a bound is reached, the event is not numbered."""

    event_id: str
    reason: str


class Relate(ToTopic, frozen=True, array_like=True, tag="relate"):
    """Make `topic` and every topic of `group` (all above it) a clique, then answer Related."""

    group: tuple[str, ...]
    op: str
    asker: str  # node id of a subscriber, or the topic of a lower manager
    asker_is_topic: bool


class RelatedTopic(ToTopic, frozen=True, array_like=True, tag="related-topic"):
    """Answer to a manager's Relate; `topic` is the asker's, `about` the one that is now related."""

    about: str
    op: str


class Related(Control, frozen=True, array_like=True, tag="related"):
    """Answer to a subscriber's Relate."""

    op: str


class Base(ToTopic, frozen=True, array_like=True, tag="base"):
    """Lower manager -> higher: from number `base` + 1 on, the events of `lower` pass by you.

    Sent twice: first with base -1 ("they soon will, wait with what counts them"), then with the
    number.
    """

    lower: str
    base: Annotated[int, Meta(ge=-1, le=2**53)]
    op: str


class BaseKnown(ToTopic, frozen=True, array_like=True, tag="base-known"):
    """Answer to Base."""

    about: str
    base: Annotated[int, Meta(ge=-1, le=2**53)]
    op: str


class Drain(ToTopic, frozen=True, array_like=True, tag="drain"):
    """Lower manager -> higher: tell me when `lower` has passed by you up to `number`."""

    lower: str
    number: Number
    op: str


class Drained(ToTopic, frozen=True, array_like=True, tag="drained"):
    """Answer to Drain."""

    about: str
    op: str


class AskStart(ToTopic, frozen=True, array_like=True, tag="ask-start"):
    """Subscriber -> manager: from which number on do I listen?"""

    subscriber: str
    op: str


class Start(Control, frozen=True, array_like=True, tag="start"):
    """Manager -> subscriber: events above `number` are yours."""

    topic: str
    number: Number
    op: str


class HandOver(Control, frozen=True, array_like=True, tag="hand-over"):
    """Member -> member: all managers that move to you with this view (possibly none)."""

    view: Number
    part: Number
    parts: Annotated[int, Meta(ge=1, le=1 << 16)]
    data: bytes  # a part of the packed list of ManagerState


class Installed(Control, frozen=True, array_like=True, tag="installed"):
    """Node -> leaving member: I follow this view and send you nothing any more."""

    view: Number


CONTROLS: tuple[type[Control], ...] = (
    RequestStamp,
    FillStamp,
    StampReady,
    Refused,
    Relate,
    RelatedTopic,
    Related,
    Base,
    BaseKnown,
    Drain,
    Drained,
    AskStart,
    Start,
    HandOver,
    Installed,
)
