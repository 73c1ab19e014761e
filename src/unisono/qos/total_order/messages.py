"""The messages of the total order layer, each declared once. Any may be lost, doubled or late.

A `ToTopic` message is meant for whoever manages the topic; it carries the number of the view by
which its sender found the manager, so that it can be passed on. Messages about the way of stamps
carry the epoch of the topic order in which they make sense (errata V8, V10).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from unisono.core.events import Control, Number, Stamp

Base_ = Annotated[int, Meta(ge=-1, le=2**53)]


class ToTopic(Control, frozen=True, array_like=True):
    """Base: addressed to the manager of `topic`."""

    topic: str
    view: Number


class RequestStamp(ToTopic, frozen=True, array_like=True, tag="request-stamp"):
    """Publisher -> manager. `turn` numbers a publisher's requests per topic."""

    event_id: str
    publisher: str
    turn: Number
    done: Number = 0  # the stamps of all turns up to here have come


class Confirm(ToTopic, frozen=True, array_like=True, tag="confirm"):
    """Publisher -> manager, when it asks for nothing more: `done` as above."""

    publisher: str
    done: Number


class FillStamp(ToTopic, frozen=True, array_like=True, tag="fill-stamp"):
    """Manager -> next higher manager of the sequencing group: add your number."""

    epoch: Number
    event_id: str
    event_topic: str
    publisher: str
    stamp: Stamp
    path: tuple[str, ...]  # the topics still to visit after this one, upwards
    free: tuple[Number, ...] = ()  # stamps of the event's topic that publishers have: forget them
    pulled: Number = 0  # asked for again by someone who waits for it, who waits for it, ...


class StampReady(Control, frozen=True, array_like=True, tag="stamp-ready"):
    """Highest manager of the group -> publisher."""

    event_id: str
    stamp: Stamp


class Refused(Control, frozen=True, array_like=True, tag="refused"):
    """Manager -> publisher: a bound is reached, the event is not numbered."""

    event_id: str
    reason: str


class Pull(ToTopic, frozen=True, array_like=True, tag="pull"):
    """Higher manager -> lower: this one of your stamps has not come; send it again."""

    epoch: Number
    number: Number
    pulled: Number


class Relate(ToTopic, frozen=True, array_like=True, tag="relate"):
    """Make `topic` and every topic of `group` (all above it) a clique, then answer Related."""

    epoch: Number
    group: tuple[str, ...]
    op: str
    asker: str  # node id of a subscriber, or the topic of a lower manager
    asker_is_topic: bool


class RelatedTopic(ToTopic, frozen=True, array_like=True, tag="related-topic"):
    """Answer to a manager's Relate; `topic` is the asker's, `about` the one that is now related."""

    epoch: Number
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

    epoch: Number
    lower: str
    base: Base_
    op: str


class BaseKnown(ToTopic, frozen=True, array_like=True, tag="base-known"):
    """Answer to Base."""

    epoch: Number
    about: str
    base: Base_
    op: str


class Drain(ToTopic, frozen=True, array_like=True, tag="drain"):
    """Lower manager -> higher: tell me when `lower` has passed by you up to `number`."""

    epoch: Number
    lower: str
    number: Number
    op: str


class Drained(ToTopic, frozen=True, array_like=True, tag="drained"):
    """Answer to Drain."""

    epoch: Number
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


# A new topic order (section "When the topic order changes" of docs/total-order.md).


class Close(ToTopic, frozen=True, array_like=True, tag="close"):
    """Host -> its manager: give no more numbers in this epoch."""

    epoch: Number


class Closing(Control, frozen=True, array_like=True, tag="closing"):
    """How a topic ended its epoch: its last number, the subscriptions that it was the lowest topic
    of, and by whom its events passed, from which number on."""

    topic: str
    epoch: Number
    final: Number
    sets: tuple[tuple[str, ...], ...]
    group: dict[str, Number]


class Open(ToTopic, frozen=True, array_like=True, tag="open"):
    """Host -> its manager: begin this epoch."""

    epoch: Number
    group: tuple[str, ...]  # upwards
    lower: dict[str, Number]  # related topics below -> their last numbers of the epoch before
    passing: dict[str, Number]  # lower topics of the epoch before -> from which number on
    sets: tuple[tuple[str, ...], ...]  # subscriptions of which the topic is the lowest now


class Opened(Control, frozen=True, array_like=True, tag="opened"):
    """Manager -> its host."""

    topic: str
    epoch: Number


class ClosedTopics(Control, frozen=True, array_like=True, tag="closed-topics"):
    """Member -> member: how all topics managed here ended the epoch."""

    view: Number
    part: Number
    parts: Annotated[int, Meta(ge=1, le=1 << 16)]
    topics: tuple[Closing, ...]


class Swap(Control, frozen=True, array_like=True, tag="swap"):
    """Manager's host -> leader: exchange the places of these two topics."""

    epoch: Number
    upper: str
    lower: str


# Copies of managers on other nodes.

Entry = (
    RequestStamp
    | Confirm
    | FillStamp
    | Pull
    | Relate
    | RelatedTopic
    | Base
    | BaseKnown
    | Drain
    | Drained
    | AskStart
    | Close
    | Open
)


class Copy(Control, frozen=True, array_like=True, tag="copy"):
    """Manager -> its copies: take these messages too. The first has number `index`."""

    view: Number
    topic: str
    index: Number
    entries: tuple[Entry, ...]


class Copied(Control, frozen=True, array_like=True, tag="copied"):
    """Copy -> manager: everything up to `index` is here (and on disk)."""

    view: Number
    topic: str
    index: Number


class Behind(Control, frozen=True, array_like=True, tag="behind"):
    """Copy -> manager: something is missing here; send me the whole state."""

    view: Number
    topic: str


class HandOver(Control, frozen=True, array_like=True, tag="hand-over"):
    """Holder of copies -> member: all that I have of the topics that you manage in this view."""

    view: Number
    part: Number
    parts: Annotated[int, Meta(ge=1, le=1 << 16)]
    data: bytes  # a part of a packed list of Held


class Adopt(Control, frozen=True, array_like=True, tag="adopt"):
    """Manager -> its copy: go on from this state, as of message `index` of the view."""

    view: Number
    topic: str
    index: Number
    part: Number
    parts: Annotated[int, Meta(ge=1, le=1 << 16)]
    data: bytes  # a part of a packed Held


class Look(Control, frozen=True, array_like=True, tag="look"):
    """Not sent: something changed here that lets the views or epochs go on."""


CONTROLS: tuple[type[Control], ...] = (
    RequestStamp,
    Confirm,
    FillStamp,
    StampReady,
    Refused,
    Pull,
    Relate,
    RelatedTopic,
    Related,
    Base,
    BaseKnown,
    Drain,
    Drained,
    AskStart,
    Start,
    ClosedTopics,
    Swap,
    Copy,
    Copied,
    Behind,
    HandOver,
    Adopt,
)
