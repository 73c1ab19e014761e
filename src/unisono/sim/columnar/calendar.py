"""A calendar queue in arrays: what is due, by time and then by who asked first.

Time is cut into days of 2^shift microseconds; day d is kept in bucket d mod buckets, a linked list
of slots that is sorted by time, equal times in the order of asking. The number of buckets follows
the number of slots in use, and the length of a day their density, so that a bucket holds about one
item that is due in the current round. The arrays do not grow in compiled code: whoever runs a loop
checks `room` and calls `grown` between two calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unisono.compiled import Ints, Longs, compiled
from unisono.sim.columnar.tables import Table, filled

# Places in `state`.
COUNT, FREE, DAY, SHIFT, BUCKETS, LABOUR = range(6)
NONE = -1
_FEWEST = 64  # buckets
_SLOT = np.dtype([("time", np.int64), ("item", np.int64), ("next", np.int64)], align=True)


class Calendar(NamedTuple):
    """A slot holds a time and an item, and its successor in a bucket or among the free ones."""

    slot: Table
    first: Ints  # by bucket
    last: Ints
    state: Longs


def calendar(slots: int) -> Calendar:
    """An empty calendar with room for so many items."""
    slots = 1 << max(slots - 1, _FEWEST).bit_length()
    slot = filled(_SLOT, slots)
    slot["next"] = np.arange(1, slots + 1)
    slot["next"][-1] = NONE
    state = np.zeros(6, np.int64)
    state[SHIFT] = 10
    state[BUCKETS] = _FEWEST
    return Calendar(slot, np.full(slots, NONE, np.int32), np.full(slots, NONE, np.int32), state)


def grown(old: Calendar) -> Calendar:
    """The same calendar with twice the room."""
    slots = old.slot.size
    new = calendar(2 * slots)
    for ours, theirs in zip(new[:3], old[:3], strict=True):
        ours[:slots] = theirs
    new.state[:] = old.state
    new.slot["next"][-1] = old.state[FREE]  # the new slots come first in the list of free ones
    new.state[FREE] = slots
    return new


@compiled
def room(slot: Table, state: Longs) -> int:
    """How many more items fit in."""
    return int(slot.size - state[COUNT])


@compiled
def push(slot: Table, first: Ints, last: Ints, state: Longs, time: int, item: int) -> None:
    """Something is due at `time`, after everything pushed before for the same time."""
    if state[COUNT] >= 2 * state[BUCKETS] and 2 * state[BUCKETS] <= first.size:
        _rebuild(slot, first, last, state, 2 * state[BUCKETS])
    elif state[LABOUR] > 1024 + 2 * state[COUNT]:
        _rebuild(slot, first, last, state, state[BUCKETS])
    at = state[FREE]
    state[FREE] = slot[at].next
    state[COUNT] += 1
    slot[at].time = time
    slot[at].item = item
    day = time >> state[SHIFT]
    if day < state[DAY] or state[COUNT] == 1:
        state[DAY] = day
    _insert(slot, first, last, state, at)


@compiled
def _insert(slot: Table, first: Ints, last: Ints, state: Longs, new: int) -> None:
    when = slot[new].time
    bucket = (when >> state[SHIFT]) & (state[BUCKETS] - 1)
    head, tail = first[bucket], last[bucket]
    if head == NONE:
        slot[new].next = NONE
        first[bucket] = last[bucket] = new
    elif slot[tail].time <= when:
        slot[new].next = NONE
        slot[tail].next = new
        last[bucket] = new
    elif when < slot[head].time:
        slot[new].next = head
        first[bucket] = new
    else:
        at = np.int64(head)
        steps = 0
        while slot[slot[at].next].time <= when:
            at = slot[at].next
            steps += 1
        slot[new].next = slot[at].next
        slot[at].next = new
        state[LABOUR] += max(0, steps - 4)


@compiled
def next_time(slot: Table, first: Ints, state: Longs) -> int:
    """When the next item is due; -1 if there is none. The next `pop` takes that item."""
    if state[COUNT] == 0:
        return -1
    mask = state[BUCKETS] - 1
    for steps in range(state[BUCKETS]):
        at = first[state[DAY] & mask]
        if at != NONE and slot[at].time >> state[SHIFT] <= state[DAY]:
            state[LABOUR] += max(0, steps - 4)
            return int(slot[at].time)
        state[DAY] += 1
    # Nothing in a whole round: look everywhere for the earliest.
    state[LABOUR] += state[BUCKETS]
    best = np.int64(-1)
    for bucket in range(state[BUCKETS]):
        at = first[bucket]
        if at != NONE and (best < 0 or slot[at].time < best):
            best = slot[at].time
    state[DAY] = best >> state[SHIFT]
    return int(best)


@compiled
def pop(slot: Table, first: Ints, last: Ints, state: Longs) -> int:
    """Take the next item; only after `next_time` has found one."""
    bucket = state[DAY] & (state[BUCKETS] - 1)
    at = first[bucket]
    first[bucket] = slot[at].next
    if first[bucket] == NONE:
        last[bucket] = NONE
    slot[at].next = state[FREE]
    state[FREE] = at
    state[COUNT] -= 1
    if state[BUCKETS] > _FEWEST and 8 * state[COUNT] < state[BUCKETS]:
        _rebuild(slot, first, last, state, state[BUCKETS] // 2)
    return int(slot[at].item)


@compiled
def _rebuild(slot: Table, first: Ints, last: Ints, state: Longs, buckets: int) -> None:
    """Other buckets, and days as long as items are apart on average."""
    count = state[COUNT]
    slots = np.empty(count, np.int64)
    gathered = 0
    for bucket in range(state[BUCKETS]):
        at = np.int64(first[bucket])
        while at != NONE:
            slots[gathered] = at
            gathered += 1
            at = slot[at].next
    for bucket in range(max(buckets, state[BUCKETS])):
        first[bucket] = last[bucket] = NONE
    state[BUCKETS] = buckets
    state[LABOUR] = 0
    if count == 0:
        return
    earliest = slot[slots[0]].time
    total = np.int64(0)
    for index in range(count):
        earliest = min(earliest, slot[slots[index]].time)
    for index in range(count):
        total += slot[slots[index]].time - earliest
    width = 2 * total // (count * count)  # half of the items lie before the mean
    shift = 0
    while (np.int64(1) << shift) < width:
        shift += 1
    state[SHIFT] = shift
    state[DAY] = earliest >> shift
    for index in range(count):
        _insert(slot, first, last, state, slots[index])
