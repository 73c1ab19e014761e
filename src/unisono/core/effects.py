"""What a layer asks for. Layers return effects; the stack routes them; the driver carries them out.

The order rule, stated once: the effects of one call are carried out by rising `rank`, and in the
order returned within a rank. A row of the trace is recorded before anything that others could act
on is sent, so a trace never holds a delivery whose publication is missing; what must survive a
crash is on the disk before anyone is told; and a node listens before it asks, so it cannot miss
what the answer starts.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from unisono.core.events import Control, Delivery, Event, Status

RANK_RECORD = 0
RANK_STORE = 1
RANK_LISTEN = 2
RANK_ACT = 3


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of all effects."""

    rank: ClassVar[int] = RANK_ACT


class Record(Effect, frozen=True):
    """Add a row to a table of the trace."""

    rank: ClassVar[int] = RANK_RECORD
    table: str
    row: dict[str, Any]


class Store(Effect, frozen=True):
    """Keep this value over a restart, or forget it (None). Synced before any higher rank."""

    rank: ClassVar[int] = RANK_STORE
    key: str
    value: bytes | None


class Append(Effect, frozen=True):
    """Add a record to a log on the disk. It is synced beside the loop; then `synced` says so.
    Records are kept in the order in which they come, and after the Stores before them.

    `last`: the highest index of what stands in the log so far.
    """

    rank: ClassVar[int] = RANK_STORE
    log: str
    record: bytes
    last: int


class Rebase(Effect, frozen=True):
    """In line with the records of a log: keep this base; what is up to `index` is in it."""

    rank: ClassVar[int] = RANK_STORE
    log: str
    base: bytes
    index: int


class Subscribe(Effect, frozen=True):
    """Down: receive these topics. With a ticket, `effective` is called once it is."""

    rank: ClassVar[int] = RANK_LISTEN
    topics: tuple[str, ...]
    ticket: str | None = None


class Unsubscribe(Effect, frozen=True):
    """Down: receive these topics no longer. Keeps its place among the Subscribes."""

    rank: ClassVar[int] = RANK_LISTEN
    topics: tuple[str, ...]
    ticket: str | None = None


class Publish(Effect, frozen=True):
    """Down: publish this event."""

    event: Event


class Send(Effect, frozen=True):
    """Down: a control for the same layer of one other node, or of EVERYONE."""

    to: str
    message: Control


class Notify(Effect, frozen=True):
    """Up: this event has arrived."""

    event: Event
    status: Status = Status.IN_ORDER


class Receive(Effect, frozen=True):
    """Up: a control, unwrapped, for the layer that owns it."""

    message: Control
    sender: str


class Cast(Effect, frozen=True):
    """Down: a control for the same layer of everyone who listens to this topic."""

    topic: str
    message: Control


class SetTimer(Effect, frozen=True):
    """Call timer(key) at this time; a second timer of one key replaces the first."""

    key: Any
    at_us: int


class CancelTimer(Effect, frozen=True):
    """Forget the timer of this key, if it is set."""

    key: Any


class Done(Effect, frozen=True):
    """Tell the application that the operation of this ticket is complete, or why it is not."""

    ticket: str
    error: str | None = None


class Trouble(Effect, frozen=True):
    """Tell the application of something it should know and that is not the fault of one call."""

    text: str


class Fail(Effect, frozen=True):
    """Tell the application that this node can go on no longer, and why."""

    error: str


# What only drivers see: the effects of a whole node, encoded.


class Transmit(Effect, frozen=True):
    """Hand a frame to the event service. `acknowledges` is the publication this completes.

    `again`: after a lost connection it may be sent again, since receivers suppress duplicates.
    """

    topic: str
    frame: bytes
    acknowledges: str | None = None
    again: bool = False


class Arrive(Effect, frozen=True):
    """Up from a frame layer: a frame came in from the event service."""

    topic: str
    frame: bytes


class Deliver(Effect, frozen=True):
    """Hand a notification to the application."""

    delivery: Delivery
