"""The arrays of a run of reliable delivery, and what stands where in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unisono.compiled import Ints, Longs, Words, in_place
from unisono.qos.coding.galois import Bytes
from unisono.sim.columnar.bits import long
from unisono.sim.columnar.packets import Rows
from unisono.sim.columnar.tables import Matrix, Table

# What is due at a node.
DOWN, REPAIR, OFFER, WANT, ROUND, READY, LEAVE = range(7)
# How who has an event lets others know.
NONE, PUSH, PULL, PUSH_PULL = range(4)
# Places in `options`.
(
    PACKETS,
    REDUNDANCY,
    CODING,
    GOSSIP,
    FAN_OUT,
    FAN_IN,
    PERIOD,
    PUSHED,
    SPARE,
    ASKS,
    REMIND,
    KEEP,
    ENCODE_US,
    DECODE_US,
    RECODE,
    ROOT,
    DIRECT_US,
    UNTIL,
    NEED,
    OPTIONS,
) = range(20)
# Places in `counts`.
TREE_PACKETS, GOSSIP_PACKETS, OFFERS, WANTS, GIVEN_UP, NEXT, FREE, COUNTS = range(8)
FINISHED, MORE_ROOM = range(2)
TRAINS = 8  # that a node can have under way to others at one time

# On its way, or due; `Load` says what the other fields are.
MAIL = np.dtype(
    [
        ("bits", np.uint64),
        ("places", np.uint64),
        ("begin", np.uint64),
        ("kind", np.int32),
        ("node", np.int32),
        ("source", np.int32),
        ("slot", np.int32),
        ("count", np.int32),
        ("rank", np.int32),
    ],
    align=True,
)


class Load(NamedTuple):
    """Packets of one event, from one node. Made by `load`."""

    bits: np.uint64  # which packets are there: first the plain ones; slots of an offer
    places: np.uint64  # of the plain packets
    begin: np.uint64  # where the draws of the redundant ones begin
    amount: int  # of redundant packets, or how many are wanted
    rank: int  # they are made of so many packets that the node held; 0: of all


@in_place
def load(bits: np.uint64, places: np.uint64, begin: np.uint64, count: int, rank: int) -> Load:
    """One type of tuple, whatever the integers are: so callers are compiled once."""
    return Load(
        np.uint64(bits),
        np.uint64(places),
        np.uint64(begin),
        long(count),
        long(rank),
    )


class Group(NamedTuple):
    """The arrays of a run."""

    # what is due
    due: Table
    queue: Longs
    mail: Table
    free: Ints
    # the network
    words: Words
    key: Words
    delay_us: Matrix
    conditions: Longs
    down: Table  # trains, by the node below
    up: Table  # by publisher
    direct: Table
    direct_at: Longs  # by node: the time of its trains, and how many there are
    child_start: Ints
    child: Ints
    # the nodes
    stream: Words
    live: Words  # by node: the slots of the events that it holds
    busy: Words  # of these: incomplete, or to be offered
    tell: Words  # by node and rounds since then: events that others are reminded of
    settled: Words  # by node: events of which it needs no more packets
    expires_us: Longs  # by node: before that, nothing of these goes
    known: Longs  # by node: how many events it got to know
    subscriber: Ints
    subscribes: Ints  # by node: 1 if so
    # events
    published_us: Longs
    publisher: Ints
    slot_event: Longs
    held: Table
    echelon: Rows
    factors: Rows
    came: Rows
    products: Bytes
    inverses: Bytes
    latency_us: Matrix  # by event and node; -1 if it never came
    # all else
    options: Longs
    counts: Longs
    row: Bytes
    scratch: Bytes
    found: Longs  # partners
    slots: Longs  # of events, in order
