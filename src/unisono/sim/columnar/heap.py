"""A heap in an array: what is due, by time and then by who asked first.

Slower than the calendar queue when times are spread, and indifferent to thousands of items at one
time, as trees with links of one length have. Items are small integers of the caller's.
"""

from __future__ import annotations

import numpy as np

from unisono.compiled import Ints, Longs, in_place
from unisono.sim.columnar.tables import Table

ENTRY = np.dtype([("time", np.int64), ("turn", np.int64), ("item", np.int64)], align=True)
COUNT, TURN = range(2)  # places in `state`
_WIDTH = 4  # children of an entry


@in_place
def push(entry: Table, state: Longs, time: int, item: int) -> None:
    """Something is due at `time`, after everything pushed before for the same time."""
    at = state[COUNT]
    state[COUNT] += 1
    turn = state[TURN]
    state[TURN] += 1
    while at > 0:
        above = (at - 1) // _WIDTH
        if entry[above].time <= time:
            break
        entry[at] = entry[above]
        at = above
    entry[at].time = time
    entry[at].turn = turn
    entry[at].item = item


@in_place
def next_time(entry: Table, state: Longs) -> int:
    """When the next item is due; -1 if there is none."""
    return int(entry[0].time) if state[COUNT] else -1


@in_place
def pop(entry: Table, state: Longs) -> int:
    """Take the next item."""
    item = entry[0].item
    state[COUNT] -= 1
    count = state[COUNT]
    time, turn = entry[count].time, entry[count].turn
    moved = entry[count].item
    at = 0
    while True:
        first = _WIDTH * at + 1
        if first >= count:
            break
        best = first
        for child in range(first + 1, min(first + _WIDTH, count)):
            earlier = entry[child].time < entry[best].time
            same = entry[child].time == entry[best].time
            if earlier or (same and entry[child].turn < entry[best].turn):
                best = child
        if time < entry[best].time or (time == entry[best].time and turn < entry[best].turn):
            break
        entry[at] = entry[best]
        at = best
    entry[at].time = time
    entry[at].turn = turn
    entry[at].item = moved
    return int(item)


def more_room(due: Table, rows: Table, free: Ints, left: int) -> tuple[Table, Table, Ints]:
    """A queue, the rows that its items are, and the list of free rows, of which `left` are left:
    twice as large. The new rows are free, too."""
    before = rows.size
    due, rows = (np.concatenate((old, np.zeros_like(old))) for old in (due, rows))
    free = np.concatenate((free, np.zeros_like(free)))
    free[left : left + before] = np.arange(before, 2 * before)
    return due, rows, free
