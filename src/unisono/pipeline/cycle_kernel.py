"""The compiled loops of the search for cycles (see `cycles.py`).

Rows are sorted by subscriber and position; a subscriber has an event at most once. `subscriber`
and `event` number from 0; an event is followed by the event of the next row of its subscriber.
"""

from __future__ import annotations

import numpy as np

from unisono.pipeline.kernel import Ints, Longs, compiled

# Beyond so many looks at rows, the shortest cycle found so far is told, not the shortest there is.
THOROUGH = 200_000_000


@compiled
def advance(start: Ints, event: Ints, missing: Ints, waiting: Ints) -> Ints:
    """Let every event leave once it heads all sequences that have it.

    Sequence s is event[start[s]:start[s + 1]]. `missing` says for every event how many of its
    deliveries are yet to leave; `waiting` must be -1 for every event, and is so again afterwards.
    Returns for every sequence the row that heads it now.
    """
    sequences = start.size - 1
    head = start[:-1].copy()
    behind = np.full(sequences, -1, np.int32)  # the next sequence that waits for the same event
    moving = np.arange(sequences).astype(np.int32)
    count = sequences
    while count:
        count -= 1
        sequence = moving[count]
        if head[sequence] == start[sequence + 1]:
            continue
        at = event[head[sequence]]
        missing[at] -= 1
        behind[sequence] = waiting[at]
        waiting[at] = sequence
        if missing[at] == 0:
            free = waiting[at]
            waiting[at] = -1
            while free >= 0:
                head[free] += 1
                moving[count] = free
                count += 1
                free = behind[free]
    for sequence in range(sequences):
        if head[sequence] < start[sequence + 1]:
            at = event[head[sequence]]
            missing[at] += 1
            waiting[at] = -1
    return head


@compiled
def renumber(event: Ints, number: Ints) -> Ints:
    """Number the events from 0, in place, in the order of rows; what they were called before.

    `number` must be -1 for every event.
    """
    count = 0
    for row in range(event.size):
        if number[event[row]] < 0:
            number[event[row]] = count
            count += 1
    names = np.empty(count, np.int32)
    for row in range(event.size):
        at = number[event[row]]
        names[at] = event[row]
        event[row] = at
    return names


@compiled
def knots(subscriber: Ints, event: Ints, start: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Strongly connected events (Tarjan's algorithm, without recursion).

    The rows of event e are rows[start[e]:start[e + 1]]. Returns the component of every event and
    the size of every component.
    """
    events = start.size - 1
    component = np.full(events, -1, np.int32)
    sizes = np.zeros(events, np.int32)
    index = np.full(events, -1, np.int32)
    low = np.zeros(events, np.int32)
    held = np.empty(events, np.int32)  # visited, and in no component yet
    path = np.empty(events, np.int32)
    look = start[:-1].copy()  # by event: the next of its rows to follow
    visited = components = n_held = 0
    for root in range(events):
        if index[root] >= 0:
            continue
        fresh, depth = root, 0
        while True:
            if fresh >= 0:
                index[fresh] = low[fresh] = visited
                visited += 1
                held[n_held] = path[depth] = fresh
                n_held += 1
                depth += 1
                fresh = -1
            at = path[depth - 1]
            if look[at] < start[at + 1]:
                row = rows[look[at]] + 1
                look[at] += 1
                if row < event.size and subscriber[row] == subscriber[row - 1]:
                    if index[event[row]] < 0:
                        fresh = event[row]
                    elif component[event[row]] < 0:
                        low[at] = min(low[at], index[event[row]])
                continue
            depth -= 1
            if low[at] == index[at]:
                while component[at] < 0:
                    n_held -= 1
                    component[held[n_held]] = components
                    sizes[components] += 1
                components += 1
            if depth == 0:
                break
            low[path[depth - 1]] = min(low[path[depth - 1]], low[at])
    return component, sizes[:components]


@compiled
def shortest_cycle(
    subscriber: Ints,
    event: Ints,
    knot: Ints,
    start: Ints,
    rows: Ints,
    subscribers: int,
    least: int,
    thorough: int,
) -> Longs:
    """Pairs of rows (a, b): a subscriber's row a comes before its row b, whose event is that of
    the next pair's row a, and so on round.

    Rows are sorted by knot, then by subscriber and position, and every row is in a knot. From
    each event in turn, breadth first, one step being from a row to any later one of its
    subscriber: so the fewest pairs are found. Ends when a cycle has only `least` pairs.
    """
    events = start.size - 1
    best = np.zeros((0, 2), np.int64)
    reached = np.full(events, -1, np.int32)  # the origin it was last reached from
    steps = np.zeros(events, np.int32)
    before = np.zeros(events, np.int32)  # the rows of the last step to it
    after = np.zeros(events, np.int32)
    queue = np.empty(events, np.int32)
    limit = np.zeros(subscribers, np.int32)  # rows from here on are reached already
    limit_of = np.full(subscribers, -1, np.int32)  # for which origin that is
    begun = np.zeros(events, np.bool_)
    looks = 0
    for first in range(event.size):
        origin = event[first]
        if begun[origin]:
            continue
        begun[origin] = True
        if best.shape[0] and (looks > thorough or best.shape[0] <= least):
            break
        steps[origin] = 0
        queue[0] = origin
        taken, count = 0, 1
        closed = False
        while taken < count and not closed:
            at = queue[taken]
            taken += 1
            if best.shape[0] and steps[at] + 1 >= best.shape[0]:
                break
            for place in range(start[at], start[at + 1]):
                row = rows[place]
                who = subscriber[row]
                end = event.size
                if limit_of[who] == origin:
                    end = limit[who]
                then = row + 1
                while then < end and subscriber[then] == who and knot[event[then]] == knot[origin]:
                    looks += 1
                    to = event[then]
                    if to == origin:
                        closed = True
                        before[origin] = row
                        after[origin] = then
                        break
                    if reached[to] != origin:
                        reached[to] = origin
                        steps[to] = steps[at] + 1
                        before[to] = row
                        after[to] = then
                        queue[count] = to
                        count += 1
                    then += 1
                if closed:
                    best = np.zeros((steps[at] + 1, 2), np.int64)
                    to = origin
                    for step in range(steps[at], -1, -1):
                        best[step, 0] = before[to]
                        best[step, 1] = after[to]
                        to = event[before[to]]
                    break
                if limit_of[who] != origin or row + 1 < limit[who]:
                    limit_of[who] = origin
                    limit[who] = row + 1
    return best
