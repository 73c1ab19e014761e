"""The messages of total order by a log, each declared once, and what stands in the log.

Every message names the log that it is about, as `domain#drawn`: what is about another log changes
nothing. Whoever does not know the log of its domain yet says `domain#`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from unisono.core.events import EVERYONE, Control, Number
from unisono.core.limits import TOPIC_CHARS
from unisono.raft.messages import LogId, NodeId, Voters

CHANNEL = EVERYONE + "."  # what follows is the domain: all its processes listen there
BATCH_EVENTS = 1024
BATCH_BYTES = 1 << 16
TOPICS_MAX = 255  # of one message: their places are single bytes

Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_CHARS)]
Topics = Annotated[tuple[Topic, ...], msgspec.Meta(max_length=TOPICS_MAX)]
Many = Annotated[tuple[msgspec.Raw, ...], msgspec.Meta(max_length=1 << 16)]


def domain_of(log: str) -> str:
    return log.partition("#")[0]


def unknown_log(domain: str) -> str:
    """How a log is named by who does not know it yet."""
    return f"{domain}#"


class LogMessage(Control, frozen=True):
    """Base of the messages."""

    echoes: ClassVar[bool] = True
    log: LogId


# Who is there, who leads.


class Hello(LogMessage, frozen=True, tag="log-hello"):
    """A process is there, or asks how far the log is. To the leader, or to everyone."""

    name: str  # by which it is known over restarts; empty: by none
    host: str
    manages: bool  # it may vote
    disk: bool
    found: bool = False  # it would begin a log
    asks: Number = 0  # comes back in the answer


class Heartbeat(LogMessage, frozen=True, tag="log-heartbeat"):
    """From the leader to everyone, once a period and when it begins; from any voter to who greets
    it. `number`: the last that is committed."""

    term: Number
    leader: NodeId
    voters: Voters
    number: Number
    spares: Voters = ()
    answers: Number = 0  # what the Hello said; 0: it is none


class Leave(LogMessage, frozen=True, tag="log-leave"):
    """A process that may vote wants to go."""


class Left(LogMessage, frozen=True, tag="log-left"):
    """It is not needed any more."""


# Publishers.


class Open(LogMessage, frozen=True, tag="log-open"):
    """A process wants to publish. `life` rises with every start and with every session."""

    life: Number


class Opened(LogMessage, frozen=True, tag="log-opened"):
    """Its session, committed; none if it had one of a higher life."""

    term: Number
    life: Number
    session: Number | None


class Batch(LogMessage, frozen=True, tag="log-batch"):
    """Events of a session: that at place i is its event `first + i`, on `topics[which[i]]`. Without
    any: the publisher lives."""

    session: Number
    first: Number
    topics: Topics = ()
    which: bytes = b""
    events: Many = ()


class Progress(LogMessage, frozen=True, tag="log-progress"):
    """The session's events up to `committed` are; `next` is the one that the leader would take.
    `wait_ms`: it takes none for so long."""

    term: Number
    session: Number
    committed: Number
    next: Number
    wait_ms: Number = 0


class Unknown(LogMessage, frozen=True, tag="log-unknown"):
    """There is no such open session."""

    term: Number
    session: Number


class Close(LogMessage, frozen=True, tag="log-close"):
    """The publisher is done."""

    session: Number


# Subscribers.


class Page(LogMessage, frozen=True, tag="log-page"):
    """A piece of the order. The map: the number `first + i` is on `topics[which[i]]`. And events,
    with their numbers. On a topic: what was committed on it; on the channel: the map alone; to one
    process: what it asked for."""

    first: Number
    topics: Topics
    which: bytes
    numbers: tuple[Number, ...] = ()
    events: Many = ()


class Fetch(LogMessage, frozen=True, tag="log-fetch"):
    """A subscriber lacks something between these numbers. It wants the map, and events on these
    topics."""

    first: Number
    last: Number
    topics: tuple[Topic, ...]


class Forgotten(LogMessage, frozen=True, tag="log-forgotten"):
    """The voter keeps nothing below this number."""

    floor: Number


MESSAGES: tuple[type[LogMessage], ...] = (
    Hello,
    Heartbeat,
    Leave,
    Left,
    Open,
    Opened,
    Batch,
    Progress,
    Unknown,
    Close,
    Page,
    Fetch,
    Forgotten,
)


# What stands in the log.


class Written(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Base of what an entry may say."""


class Events(Written, frozen=True, tag=0):
    """A batch, or what was new of it."""

    session: Number
    first: Number
    topics: Topics
    which: bytes
    events: Many

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


class OpenSession(Written, frozen=True, tag=1):
    """The index of this entry is the session's id."""

    node: NodeId
    life: Number


class CloseSession(Written, frozen=True, tag=2):
    session: Number


class Presence(Written, frozen=True, tag=3):
    """A voter has left, and its seat stays; or that is over."""

    node: NodeId
    here: bool


Said = Events | OpenSession | CloseSession | Presence
