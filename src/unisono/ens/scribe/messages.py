"""What the processes of a mesh tell each other. Every message is declared here, once.

Processes have addresses; clusters have sites: a place per slot in the ring of that slot, taken by
the coordinator that is active there. Messages between sites name the slot; whoever gets one and is
not active there passes it on to who is.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from unisono.core.wire import Rejected
from unisono.errors import UNDECODABLE

VERSION = 1


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what messages are made of."""


class Message(Part, frozen=True, tag=True):
    """Base of all messages."""


class Member(Part, frozen=True):
    """A process of a cluster, for as long as it runs."""

    name: str
    address: str
    candidate: bool  # it may become coordinator


class View(Part, frozen=True):
    """Who is in a cluster, the longest there first. Its number has the time of the founding in
    its upper part, and below how often the view has changed since."""

    site: str
    number: int
    members: tuple[Member, ...]


def born(number: int) -> int:
    """When the cluster with a view of this number was founded."""
    return number >> 20


class Contact(Part, frozen=True):
    """How to reach the coordinator of a site: itself, its backups, then its partners."""

    site: str
    slot: int
    version: int  # the number of the cluster's view
    addresses: tuple[str, ...]


class Item(Part, frozen=True):
    """An event on its way. Every process numbers what it publishes, by topic."""

    topic: str
    source: str
    number: int
    frame: bytes


# Of one topic and source, the last number.
Head = tuple[str, str, int]
# Of one topic and source, some numbers.
Numbers = tuple[str, str, tuple[int, ...]]

# Within a cluster.


class Who(Message, frozen=True):
    """Which cluster is that of this domain? To any process of the mesh. No domain: yours."""

    domain: str
    asker: str
    me: Contact | None = None  # if it has a site already


class Found(Message, frozen=True):
    """A site of the domain, if there is one, and others by whom the ring can be joined."""

    domain: str
    home: Contact | None
    others: tuple[Contact, ...]
    trees: int
    backups: int
    beat_us: int
    silence: int


class Enter(Message, frozen=True):
    """Let me in. To the leader, through anyone of the cluster."""

    domain: str
    member: Member


class Views(Message, frozen=True):
    """The cluster is now this."""

    view: View


class Beat(Message, frozen=True):
    """I live. Between the coordinators of a cluster and its members, and among coordinators."""

    name: str
    site: str
    number: int  # of the view that I know
    interest: int  # how often what I subscribe to has changed
    heard: tuple[str, ...] = ()  # whom I hear; to the leader
    heads: tuple[Head, ...] = ()  # the last numbers I know; to members


class Election(Message, frozen=True):
    """The leader is silent; does anyone before me live?"""

    site: str
    number: int
    name: str


class Wait(Message, frozen=True):
    """I live; it is for me to lead."""

    site: str
    number: int


class Leave(Message, frozen=True):
    """I go."""

    name: str


class Interest(Message, frozen=True):
    """What a member subscribes to, all of it."""

    name: str
    version: int
    topics: tuple[str, ...]


class AskInterest(Message, frozen=True):
    """Tell me what you subscribe to."""


class Ready(Message, frozen=True):
    """To a member: of what it subscribes to by that version, events arrive over this slot."""

    slot: int
    version: int
    heads: tuple[Head, ...] = ()  # of the time before


# Between sites: the ring.


class Ping(Message, frozen=True):
    """Do you live, and are you still this site? `below`: what you are my parent for, hashed."""

    slot: int
    site: str
    me: Contact
    sent_us: int
    below: int = 0


class Pong(Message, frozen=True):
    """I do. `above`: what you are my child for and how, hashed."""

    slot: int
    me: Contact
    sent_us: int
    above: int = 0
    heads: tuple[Head, ...] = ()


class Find(Message, frozen=True):
    """Who is nearest to this key? Routed; those on the way tell the asker whom they know."""

    slot: int
    key: int
    asker: Contact | None  # it joins the ring
    reply_to: str  # or somebody only wants to know, for this domain
    domain: str = ""
    hops: int = 0


class AskKnown(Message, frozen=True):
    """Whom do you know? Your leaves, and the row of your table that we share."""

    slot: int
    me: Contact


class Known(Message, frozen=True):
    """I know these; ask them whether they live."""

    slot: int
    contacts: tuple[Contact, ...]


# Between sites: trees.


class Graft(Message, frozen=True):
    """Take me as a child. Routed to the root, unless someone on the way is in the tree."""

    slot: int
    topic: str
    child: Contact
    hops: int = 0
    at_root: bool = False  # nobody but the root
    direct: bool = False  # nobody but you
    root: str = ""  # mine: take me only if you know of one that is nearer to the key


class Adopt(Message, frozen=True):
    """You are my child. My path from the root, and others of the tree."""

    slot: int
    topic: str
    parent: Contact
    path: tuple[str, ...]
    ready: bool
    others: tuple[Contact, ...]
    heads: tuple[Head, ...] = ()


class Refuse(Message, frozen=True):
    """I hang below you, or know of no such tree."""

    slot: int
    topic: str
    site: str


class Prune(Message, frozen=True):
    """I am your child no longer."""

    slot: int
    topic: str
    site: str


class Path(Message, frozen=True):
    """Your parent's path from the root has changed; ready: the root is reached."""

    slot: int
    topic: str
    site: str
    path: tuple[str, ...]
    ready: bool


class AskTopics(Message, frozen=True):
    """What am I your parent for?"""

    slot: int
    site: str


class Topics(Message, frozen=True):
    """For this, all of it."""

    slot: int
    child: Contact
    topics: tuple[str, ...]


class AskPaths(Message, frozen=True):
    """Tell me your paths again."""

    slot: int
    site: str


class Probe(Message, frozen=True):
    """Would you take me, and what is the way from you to me?"""

    slot: int
    topic: str
    child: Contact


class Offered(Message, frozen=True):
    """I would. The devices on the way, and what you would add to the overlap of mine."""

    slot: int
    topic: str
    parent: Contact
    way: tuple[str, ...]
    added: int
    delay_us: int = 0


class Offers(Message, frozen=True):
    """To the leader of the cluster, who looks at all trees together."""

    slot: int
    topic: str
    offers: tuple[Offered, ...]


class Take(Message, frozen=True):
    """From the leader: take this parent."""

    slot: int
    topic: str
    parent: Contact


# Events.


class Publish(Message, frozen=True):
    """From a member to its coordinator."""

    slot: int
    item: Item


class Up(Message, frozen=True):
    """From a coordinator to the root; routed, if the root is not known."""

    slot: int
    item: Item
    origin: Contact
    hops: int = 0


class Took(Message, frozen=True):
    """From the root: it is on its way down."""

    slot: int
    topic: str
    source: str
    number: int
    root: Contact


class Down(Message, frozen=True):
    """From parent to child."""

    slot: int
    site: str  # the parent
    item: Item


class Cast(Message, frozen=True):
    """From a coordinator to a member."""

    slot: int
    item: Item


class Have(Message, frozen=True):
    """I have these, and not from you; you may have missed them."""

    slot: int
    me: Contact
    numbers: tuple[Numbers, ...]


class Fetch(Message, frozen=True):
    """Send me these, if you have them."""

    numbers: tuple[Numbers, ...]


class Fetched(Message, frozen=True):
    """Here they are."""

    items: tuple[Item, ...]


MESSAGES: tuple[type[Message], ...] = tuple(Message.__subclasses__())
BULK = (Publish, Up, Down, Cast, Fetched)  # what may wait behind everything else

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Union.__getitem__(MESSAGES))


def encode(message: Message) -> bytes:
    return bytes((VERSION,)) + _encoder.encode(message)


def decode(data: bytes | memoryview) -> Message:
    """The message, or Rejected."""
    if not data or data[0] != VERSION:
        raise Rejected("unknown version")
    try:
        message: Message = _decoder.decode(memoryview(data)[1:])
    except UNDECODABLE as error:
        raise Rejected("malformed", str(error)) from None
    return message
