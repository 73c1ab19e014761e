"""The compiled loops of the exact comparison (see `order.py`).

Rows are sorted by subscriber and position; `event` numbers events from 0; a subscriber has an
event at most once.
"""

from __future__ import annotations

import numpy as np

from unisono.pipeline.kernel import Bools, Ints, Longs, bucket_rows, compiled

# Beyond so many looks at rows, a pair of subscribers is left at its first disagreement instead of
# searched for its closest one; the verdict and the count of pairs are the same.
THOROUGH = 2_000_000_000


@compiled
def peel(subscriber: Ints, event: Ints, events: int) -> Bools:
    """Which events can leave, each once it heads every sequence that has it."""
    start, rows = bucket_rows(event, events)
    heads = np.zeros(events, np.int32)  # how many sequences the event heads
    ready = np.empty(events, np.int32)  # events that head all of theirs
    count = 0
    gone = np.zeros(events, np.bool_)
    for row in range(event.size):
        if row == 0 or subscriber[row] != subscriber[row - 1]:
            at = event[row]
            heads[at] += 1
            if heads[at] == start[at + 1] - start[at]:
                ready[count] = at
                count += 1
    while count:
        count -= 1
        done = ready[count]
        gone[done] = True
        for place in range(start[done], start[done + 1]):
            row = rows[place] + 1
            if row < event.size and subscriber[row] == subscriber[row - 1]:
                at = event[row]
                heads[at] += 1
                if heads[at] == start[at + 1] - start[at]:
                    ready[count] = at
                    count += 1
    return gone


@compiled
def _closer(a: Longs, b: Longs) -> bool:
    for at in range(a.size):
        if a[at] != b[at]:
            return bool(a[at] < b[at])
    return False


@compiled
def compare_pairs(
    subscriber: Ints, position: Longs, event: Ints, events: int, thorough: int
) -> tuple[Longs, Longs]:
    """Every pair of subscribers that disagrees, as rows (a, b), and the closest disagreement.

    The second result is (span, a, b, two positions at a, the same two events' positions at b):
    among events that are neighbours in the sequence of a's events that b has too.
    """
    first_row = [0]
    for row in range(1, event.size):
        if subscriber[row] != subscriber[row - 1]:
            first_row.append(row)
    first_row.append(event.size)
    n = len(first_row) - 1
    place = np.zeros(events, np.int64)  # by event: its position at b
    owner = np.full(events, -1, np.int32)  # for which b that is
    pairs = [(np.int64(0), np.int64(0)) for _ in range(0)]
    best = np.full(7, -1, np.int64)
    candidate = np.zeros(7, np.int64)
    looks = 0
    for b in range(n):
        for row in range(first_row[b], first_row[b + 1]):
            place[event[row]] = position[row]
            owner[event[row]] = b
        for a in range(b):
            last = -1
            agree = True
            for row in range(first_row[a], first_row[a + 1]):
                looks += 1
                if owner[event[row]] != b:
                    continue
                if last >= 0 and place[event[row]] < place[event[last]]:
                    if agree:
                        agree = False
                        pairs.append(
                            (np.int64(subscriber[row]), np.int64(subscriber[first_row[b]]))
                        )
                    candidate[1] = subscriber[row]
                    candidate[2] = subscriber[first_row[b]]
                    candidate[3] = position[last]
                    candidate[4] = position[row]
                    candidate[5] = place[event[last]]
                    candidate[6] = place[event[row]]
                    candidate[0] = candidate[4] - candidate[3] + candidate[5] - candidate[6]
                    if best[0] < 0 or _closer(candidate, best):
                        best[:] = candidate
                    if looks > thorough:
                        break
                last = row
    found = np.zeros((len(pairs), 2), np.int64)
    for at in range(len(pairs)):
        found[at, 0], found[at, 1] = pairs[at]
    return found, best
