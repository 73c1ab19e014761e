"""The tables of a run, as arrays of records. Loops change them in place.

Topics, nodes and events are numbered from 0; -1 stands for none. An *epoch* is a time in which the
topic order does not change; numbers start anew in each, and all events of one come before all of
the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from unisono.compiled import Bools, Ints, Longs, Words

NONE = -1
Table = npt.NDArray[np.void]
Matrix = npt.NDArray[np.int32]
Cube = npt.NDArray[np.int32]

# Where the message about an event is bound for.
REQUEST, WAITED, FILL, READY, PUBLISH = range(5)  # WAITED: a request that had to wait
# What an event was notified as.
IN_ORDER, OUT_OF_ORDER, GAP_SKIPPED = range(3)
# What the rule of the topic order looks at: nothing, events since the start, the last ones.
STATIC, SINCE_START, RECENT = range(3)


def _record(**fields: type) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


EVENT = _record(
    published=np.int64,
    stamped=np.int64,
    arrived=np.int64,  # at the last subscriber
    notified=np.int64,  # by the last subscriber
    topic=np.int32,
    publisher=np.int32,
    target=np.int32,  # the node its message is bound for
    manager=np.int32,  # the topic whose manager has or gets the stamp
    epoch=np.int32,
    number=np.int32,
    total=np.int32,  # which of its topic's events since the start
    candidate=np.int32,  # the highest topic that should change places with this one's
    after=np.int32,  # next event of its topic that the same manager holds back or lets wait
    arrivals=np.int32,
    tagged=np.int32,
    stage=np.int32,
)
MANAGER = _record(
    own=np.int64,  # messages handled for the own topic
    others=np.int64,  # messages handled for lower topics
    node=np.int32,
    epoch=np.int32,
    total=np.int32,  # events since the start
    first=np.int32,  # requests that wait for a new order
    last=np.int32,
)
# By topic and lower topic: held events, and a ring of the lower topics that have some.
HELD = _record(first=np.int32, last=np.int32, next=np.int32, prev=np.int32)
# By epoch: the topic at a position (the highest is 0); the rank of a topic, and whether it had
# recent events when the epoch began.
PLACE = _record(topic=np.int32, rank=np.int32, active=np.int32)
# By topic, at the coordinator: events among the last ones, and whether it stands too low.
TALLY = _record(recent=np.int32, low=np.int32)
NODE = _record(
    notified=np.int64,
    tagged=np.int64,
    start=np.int32,  # its pairs
    end=np.int32,
    epoch=np.int32,
    closed=np.int32,  # epochs whose numbers of events are known to be final
    waiting=np.int32,  # events in the buffer
    waited=np.int32,  # most events in the buffer
    first_key=np.int32,  # the pairs with waiting events, in the order of getting some
    last_key=np.int32,
    oldest=np.int32,  # its waiting events, by arrival
    newest=np.int32,
)
# A node and a topic that it subscribes to: its waiting events, by number.
PAIR = _record(next_key=np.int32, prev_key=np.int32, first_slot=np.int32)
# An event that waits at a subscriber; `next` also links the free slots.
SLOT = _record(event=np.int32, next=np.int32, newer=np.int32, older=np.int32)
NOTIFICATION = _record(at=np.int64, node=np.int32, event=np.int32, status=np.int32)
# What there is one of.
RUN = _record(
    bound=np.int64,  # events a reorder buffer holds
    steps=np.int64,
    change_messages=np.int64,
    logged=np.int64,
    free_slot=np.int64,
    free_slots=np.int64,
    next_event=np.int64,
    higher=np.int64,  # the topics that are to change places
    lower=np.int64,
    epoch=np.int64,  # the newest
    awaited=np.int64,  # managers that have not answered yet
    changed=np.int64,  # when the last change was decided
    alpha=np.float64,
    beta=np.float64,
    metric=np.int64,
    every=np.int64,  # at least so long between two changes
    waits=np.int64,  # whether requests wait for a better place of their topic
    news=np.int64,  # topics that stand too low
    ring_at=np.int64,
    coordinator=np.int64,
    exact=np.int64,
)


class Tables(NamedTuple):
    """All of them; compiled functions take those they need."""

    run: Table
    event: Table
    stamp: Matrix  # by event and topic; -1: no entry
    manager: Table
    number: Matrix  # by epoch and topic
    passed: Cube  # by epoch, topic and lower topic; exact stamps only
    counted: Cube  # likewise: up to where a stamp of the topic has said so
    held: Table  # by topic and lower topic; exact stamps only
    ring: Ints  # the topics of the last events, as the coordinator knows them; recent metric only
    tally: Table
    place: Table  # by epoch and topic or position
    related: Words  # by epoch and topic: bits; for printed stamps of epoch 0 only
    node: Table
    pair: Table
    topic_of: Ints  # by pair
    upto: Ints  # by pair: everything up to here was seen
    clock: Ints  # by pair: highest number counted by untagged notifications
    pair_of: Matrix  # by node and topic
    slot: Table
    log: Table  # empty unless asked for


def filled(kind: np.dtype[np.void], *shape: int, **values: int) -> Table:
    """A table of zeros, but for some fields."""
    table = np.zeros(shape, kind)
    for field, value in values.items():
        table[field] = value
    return table


def event_table(published: Longs, topic: Ints, publisher: Ints) -> Table:
    table = filled(
        EVENT, published.size, stamped=NONE, arrived=NONE, notified=NONE, candidate=NONE, after=NONE
    )
    table["published"], table["topic"], table["publisher"] = published, topic, publisher
    return table


def subscriber_tables(
    start: Longs, topic: Ints, topics: int
) -> tuple[Table, Table, Ints, Ints, Ints, Matrix]:
    """From `node` to `pair_of`."""
    nodes = start.size - 1
    node = filled(NODE, nodes, first_key=NONE, last_key=NONE, oldest=NONE, newest=NONE)
    node["start"], node["end"] = start[:-1], start[1:]
    pair = filled(PAIR, topic.size, next_key=NONE, prev_key=NONE, first_slot=NONE)
    pair_of = np.full((nodes, topics), NONE, np.int32)
    pair_of[np.repeat(np.arange(nodes), np.diff(start)), topic] = np.arange(topic.size)
    unseen = np.zeros(topic.size, np.int32)
    return node, pair, topic.astype(np.int32), unseen, unseen.copy(), pair_of


def add_slots(tables: Tables, count: int) -> Tables:
    """The same with more room for waiting events."""
    run, old = tables.run[0], tables.slot
    new = filled(SLOT, old.size + count)
    new[: old.size] = old
    new["next"][old.size :] = np.arange(old.size + 1, new.size + 1)
    new["next"][-1] = run["free_slot"]
    run["free_slot"] = old.size
    run["free_slots"] += count
    return tables._replace(slot=new)


def bits(matrix: Bools) -> Words:
    """Rows of booleans as words of 64 bits."""
    width = -(-matrix.shape[1] // 64) * 64
    wide = np.zeros((matrix.shape[0], width), np.bool_)
    wide[:, : matrix.shape[1]] = matrix
    return np.packbits(wide, axis=1, bitorder="little").view(np.uint64)
