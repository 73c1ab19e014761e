"""What the processes of a mesh tell each other. Every message is declared here, once.

Processes have addresses; clusters have sites: a place per slot in the ring of that slot, taken by
the coordinator that is active there. Messages between sites name the slot; whoever gets one and is
not active there passes it on to who is.
"""

from __future__ import annotations

from typing import Annotated, Any, Union

import msgspec
from msgspec import Meta

from unisono.core.wire import Rejected
from unisono.ens.scribe.options import MOST_TREES, Backups, Beats, Silence, Trees
from unisono.errors import UNDECODABLE

VERSION = 1

# What decoding refuses: a message that is let in can be acted on.
Slot = Annotated[int, Meta(ge=0, lt=MOST_TREES)]
_MOST = (1 << 63) - 1
Number = Annotated[int, Meta(ge=0, le=_MOST)]
Names = Annotated[tuple[str, ...], Meta(min_length=1)]


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
    """Who is in a cluster, in the order in which they lead: the longest there first, unless one has
    given its place away. Its number has the time of the founding in its upper part, and below how
    often the view has changed since."""

    site: str
    number: Number
    members: Annotated[tuple[Member, ...], Meta(min_length=1)]
    active: tuple[Number, ...] = ()  # the coordinators, by slot: which of the members


def born(number: int) -> int:
    """When the cluster with a view of this number was founded."""
    return number >> 20


class Contact(Part, frozen=True):
    """How to reach the coordinator of a site: itself, its backups, then its partners."""

    site: str
    slot: Slot
    version: Number  # the number of the cluster's view
    addresses: Names


class Item(Part, frozen=True):
    """An event on its way. Every process numbers what it publishes, by topic."""

    topic: str
    source: str
    number: Annotated[int, Meta(ge=1, le=_MOST)]
    frame: bytes


# Of one topic and source, the last number.
Head = tuple[str, str, Number]
# Of one topic and source, some numbers.
Numbers = tuple[str, str, tuple[Number, ...]]

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
    trees: Trees
    backups: Backups
    beat_us: Beats
    silence: Silence


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
    number: Number  # of the view that I know
    leader: str  # and who leads in it
    interest: Number  # how often what I subscribe to has changed
    heard: tuple[str, ...] = ()  # whom I hear; to the leader
    heads: tuple[Head, ...] = ()  # the last numbers I know; to members


class Election(Message, frozen=True):
    """The leader is silent; does anyone before me live?"""

    site: str
    number: Number
    name: str


class Wait(Message, frozen=True):
    """I live; it is for me to lead."""

    site: str
    number: Number


class Leave(Message, frozen=True):
    """I go."""

    name: str


class Scout(Message, frozen=True):
    """From a coordinator to a member: whom of these do you reach? Without any, to them: do I reach
    you?"""

    slot: Slot
    by: str  # the coordinator's address
    contacts: tuple[Contact, ...] = ()


class Reach(Message, frozen=True):
    """You do, says a site; its name, says the member to its coordinator."""

    slot: Slot
    by: str
    site: str
    name: str = ""  # of the member


class Yield(Message, frozen=True):
    """From a coordinator to the leader, and to that member, who passes it on: give my place to this
    member, and me its."""

    slot: Slot
    name: str
    to: str


class Interest(Message, frozen=True):
    """What a member subscribes to, all of it; or what has changed since a version."""

    name: str
    version: Number
    topics: tuple[str, ...]
    gone: tuple[str, ...] = ()
    since: Number | None = None


class AskInterest(Message, frozen=True):
    """Tell me what you subscribe to, all of it."""


class Ready(Message, frozen=True):
    """To a member: of what it subscribes to by that version, events arrive over this slot."""

    slot: Slot
    version: Number
    heads: tuple[Head, ...] = ()  # of the time before


# Between sites: the ring.


class Ping(Message, frozen=True):
    """Do you live, and are you still this site? `below`: what you are my parent for, hashed."""

    slot: Slot
    site: str
    me: Contact
    sent_us: Number
    below: int = 0


class Pong(Message, frozen=True):
    """I do. `above`: what you are my child for and how, `below`: my parent for; hashed."""

    slot: Slot
    me: Contact
    sent_us: Number
    above: int = 0
    below: int = 0
    heads: tuple[Head, ...] = ()


class Find(Message, frozen=True):
    """Who is nearest to this key? Routed; those on the way tell the asker whom they know."""

    slot: Slot
    key: Annotated[int, Meta(ge=0)]
    asker: Contact | None  # it joins the ring
    reply_to: str  # or somebody only wants to know, for this domain
    domain: str = ""
    hops: Number = 0


class AskKnown(Message, frozen=True):
    """Whom do you know? Your leaves, and the row of your table that we share."""

    slot: Slot
    me: Contact


class Known(Message, frozen=True):
    """I know these; ask them whether they live."""

    slot: Slot
    contacts: tuple[Contact, ...]


# Between sites: trees.


class Graft(Message, frozen=True):
    """Take me as a child. Routed to the root, unless someone on the way is in the tree."""

    slot: Slot
    topic: str
    child: Contact
    hops: Number = 0
    at_root: bool = False  # nobody but the root
    direct: bool = False  # nobody but you
    root: str = ""  # mine: take me only if you know of one that is nearer to the key


class Adopt(Message, frozen=True):
    """You are my child. My path from the root, and others of the tree."""

    slot: Slot
    topic: str
    parent: Contact
    path: Names
    ready: bool
    others: tuple[Contact, ...]
    heads: tuple[Head, ...] = ()
    age_us: Number = 0  # so long I have been in the tree


class Refuse(Message, frozen=True):
    """I hang below you, or know of no such tree."""

    slot: Slot
    topic: str
    site: str


class Prune(Message, frozen=True):
    """I am your child no longer."""

    slot: Slot
    topic: str
    site: str


class Path(Message, frozen=True):
    """Your parent's path from the root has changed; ready: the root is reached."""

    slot: Slot
    topic: str
    site: str
    path: Names
    ready: bool


class AskTopics(Message, frozen=True):
    """What am I your parent for?"""

    slot: Slot
    me: Contact


class Topics(Message, frozen=True):
    """For this, all of it."""

    slot: Slot
    child: Contact
    topics: tuple[str, ...]


class Bye(Message, frozen=True):
    """This site is no more."""

    slot: Slot
    site: str


class AskPaths(Message, frozen=True):
    """Tell me your paths again."""

    slot: Slot
    site: str


class Probe(Message, frozen=True):
    """Would you take me, and what is the way from you to me?"""

    slot: Slot
    topic: str
    child: Contact


class Offered(Message, frozen=True):
    """I would. The devices on the way, and what you would add to the overlap of mine."""

    slot: Slot
    topic: str
    parent: Contact
    way: tuple[str, ...]
    added: Number
    delay_us: Number = 0
    measured: bool = True  # False: I do not know the way yet


class Offers(Message, frozen=True):
    """To the leader of the cluster, who looks at all trees together."""

    slot: Slot
    topic: str
    offers: Annotated[tuple[Offered, ...], Meta(min_length=1)]


class Take(Message, frozen=True):
    """From the leader: take this parent."""

    slot: Slot
    topic: str
    parent: Contact


# Events.


class Publish(Message, frozen=True):
    """From a member to its coordinator; who is none any more passes it on."""

    slot: Slot
    item: Item
    hops: Number = 0


class Up(Message, frozen=True):
    """From a coordinator to the root; routed, if the root is not known."""

    slot: Slot
    item: Item
    origin: Contact
    hops: Number = 0


class Took(Message, frozen=True):
    """From the root: it is on its way down."""

    slot: Slot
    topic: str
    source: str
    number: Number
    root: Contact


class Down(Message, frozen=True):
    """From parent to child."""

    slot: Slot
    site: str  # the parent
    item: Item


class Cast(Message, frozen=True):
    """From a coordinator to a member."""

    slot: Slot
    item: Item


class Have(Message, frozen=True):
    """I have these, and not from you; you may have missed them."""

    slot: Slot
    me: Contact
    numbers: tuple[Numbers, ...]
    late: bool = True  # you should have sent them; False: you are my parent only now


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
