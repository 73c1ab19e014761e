"""The compiled loops of causal order (see `causes.py`).

What has been said is numbered by publisher and then by publisher_seq; `first` has the first number
of every publisher. A clock has one column per publisher: twice the largest publisher_seq of it that
is known to have been before, plus one if that very event is known, not only those before it. Only
the columns from `low` on are looked at here, as many as the clocks are wide.
"""

from __future__ import annotations

import numpy as np

from unisono.pipeline.kernel import Bools, Ints, Longs, compiled

NOTHING = -(2**63)

# Places in the state of `overtaken`: the subscriber, how many, and the first of them.
SUBSCRIBER, COUNT, AT, POSITION, EARLIER, EVENT, LATER, N_STATE = range(8)


@compiled
def look_up(publisher: Ints, seq: Longs, first: Longs, said_seq: Longs, last: Longs) -> Ints:
    """The number of each row's event, or -1 without a publisher; `last` is found last, by
    publisher: what follows is likely next."""
    found = np.full(publisher.size, -1, np.int32)
    for row in range(publisher.size):
        who = publisher[row]
        if who < 0:
            continue
        low, high = first[who], first[who + 1]
        at = last[who] + 1
        if not (low <= at < high and said_seq[at] == seq[row]):
            while low < high:
                at = (low + high) // 2
                if said_seq[at] < seq[row]:
                    low = at + 1
                else:
                    high = at
            at = low
        last[who] = at
        found[row] = at
    return found


@compiled
def learn(
    start: Longs,
    heard: Ints,
    first_view: Longs,
    after: Ints,
    publisher: Ints,
    seq: Longs,
    alone: Bools,
    view: Ints,
    low: int,
    width: int,
) -> tuple[Longs, Ints]:
    """What every relay knew whenever it published: one clock per view.

    Relay r heard heard[start[r]:start[r + 1]]. Its views are first_view[r]:first_view[r + 1], each
    `after` so many of them; `view` tells with which one an event was published, -1 for none. A
    relay waits where the view of what it heard is not known. Returns the clocks, and for every
    relay the event that it waits for in vain, or -1.
    """
    relays = start.size - 1
    views = after.size
    clock = np.full((views, width), NOTHING, np.int64)
    known = np.full((relays, width), NOTHING, np.int64)
    done = np.zeros(views, np.bool_)
    waiting = np.full(views, -1, np.int32)
    behind = np.full(relays, -1, np.int32)  # the next relay that waits for the same view
    at = start[:-1].copy()
    turn = first_view[:-1].copy()
    moving = np.arange(relays).astype(np.int32)
    count = relays
    while count:
        count -= 1
        relay = moving[count]
        while turn[relay] < first_view[relay + 1]:
            mine = turn[relay]
            if at[relay] - start[relay] == after[mine]:
                clock[mine] = known[relay]
                done[mine] = True
                turn[relay] += 1
                free = waiting[mine]
                while free >= 0:
                    moving[count] = free
                    count += 1
                    free = behind[free]
                continue
            event = heard[at[relay]]
            if event >= 0:
                other = view[event]
                if other >= 0:
                    if not done[other]:
                        behind[relay] = waiting[other]
                        waiting[other] = relay
                        break
                    for column in range(width):
                        known[relay, column] = max(known[relay, column], clock[other, column])
                column = publisher[event] - low
                if 0 <= column < width:
                    value = 2 * seq[event] + alone[event]
                    known[relay, column] = max(known[relay, column], value)
            at[relay] += 1
    waits = np.full(relays, -1, np.int32)
    for relay in range(relays):
        if turn[relay] < first_view[relay + 1]:
            waits[relay] = heard[at[relay]]
    return clock, waits


@compiled
def overtaken(
    subscriber: Ints,
    position: Longs,
    event: Ints,
    publisher: Ints,
    seq: Longs,
    view: Ints,
    clock: Longs,
    low: int,
    state: Longs,
    known: Longs,
    told_at: Longs,
    told_by: Ints,
) -> None:
    """Count judged deliveries that came after an event that they are a cause of.

    Rows come sorted by subscriber and position, batch after batch. Per column, `known` is what the
    subscriber has been told to have been before, with the delivery that told it.
    """
    width = known.size
    for row in range(subscriber.size):
        who, place, this = subscriber[row], position[row], event[row]
        if who != state[SUBSCRIBER]:
            state[SUBSCRIBER] = who
            known[:] = NOTHING
        column = publisher[this] - low
        if 0 <= column < width:
            value = 2 * seq[this]
            if known[column] > value:
                state[COUNT] += 1
                if state[COUNT] == 1:
                    state[AT] = who
                    state[POSITION] = place
                    state[EARLIER] = told_at[column]
                    state[EVENT] = this
                    state[LATER] = told_by[column]
            elif value > known[column]:
                known[column] = value
                told_at[column] = place
                told_by[column] = this
        mine = view[this]
        if mine >= 0:
            for column in range(width):
                if clock[mine, column] > known[column]:
                    known[column] = clock[mine, column]
                    told_at[column] = place
                    told_by[column] = this
