"""Topic managers in compiled loops: numbers, sequencing groups, causal hold.

The twin of `qos/total_order/manager.py` for subscriptions that do not change. For printed stamps
(`exact` is 0): no predecessor entries, no hold, no fill.
"""

from __future__ import annotations

import numpy as np

from unisono.compiled import Longs, Words, compiled
from unisono.sim.columnar.tables import FILL, NONE, READY, Cube, Matrix, Table


@compiled
def are_related(related: Words, epoch: int, topic: int, other: int) -> bool:
    row = min(epoch, related.shape[0] - 1)
    return bool((related[row, topic, other >> 6] >> np.uint64(other & 63)) & np.uint64(1))


@compiled
def close_relation(place: Table, rows: Words) -> None:
    """The fill: from the lowest topic up, any two related topics above a topic become related."""
    above = np.zeros(rows.shape[1], np.uint64)
    group = np.empty(rows.shape[1], np.uint64)
    for topic in range(place.size):
        above[topic >> 6] |= np.uint64(1) << np.uint64(topic & 63)
    for position in range(place.size - 1, -1, -1):
        topic = place[position].topic
        above[topic >> 6] &= ~(np.uint64(1) << np.uint64(topic & 63))
        for word in range(group.size):
            group[word] = rows[topic, word] & above[word]
        for higher in range(place.size):
            if (group[higher >> 6] >> np.uint64(higher & 63)) & np.uint64(1):
                for word in range(group.size):
                    rows[higher, word] |= group[word]
                rows[higher, higher >> 6] &= ~(np.uint64(1) << np.uint64(higher & 63))


@compiled
def create(
    run: Table,
    event: Table,
    stamp: Matrix,
    manager: Table,
    number: Matrix,
    passed: Cube,
    counted: Cube,
    new: int,
) -> None:
    """Number the event and write down what has passed by since the topic's last one."""
    topic = event[new].topic
    epoch = manager[topic].epoch
    manager[topic].own += 1
    manager[topic].total += 1
    number[epoch, topic] += 1
    event[new].epoch = epoch
    event[new].number = number[epoch, topic]
    event[new].total = manager[topic].total
    event[new].manager = topic
    stamp[new, topic] = number[epoch, topic]
    if run[0].exact:
        for lower in range(stamp.shape[1]):
            if passed[epoch, topic, lower] > counted[epoch, topic, lower]:
                stamp[new, lower] = counted[epoch, topic, lower] = passed[epoch, topic, lower]


@compiled
def forward(event: Table, manager: Table, place: Table, related: Words, moving: int) -> None:
    """Find out where the stamp goes next: up its sequencing group, then back to the publisher."""
    epoch = event[moving].epoch
    topic = event[moving].topic
    for position in range(place[epoch, event[moving].manager].rank - 1, -1, -1):
        higher = place[epoch, position].topic
        if are_related(related, epoch, topic, higher):
            event[moving].manager = higher
            event[moving].stage = FILL
            event[moving].target = manager[higher].node
            return
    event[moving].stage = READY
    event[moving].target = event[moving].publisher


@compiled
def fill(
    run: Table,
    event: Table,
    stamp: Matrix,
    manager: Table,
    number: Matrix,
    passed: Cube,
    held: Table,
    related: Words,
    coming: int,
    freed: Longs,
) -> int:
    """A stamp from below; lists the events whose stamps may go on, and says how many."""
    topic = event[coming].manager
    manager[topic].others += 1
    if not run[0].exact:
        stamp[coming, topic] = number[event[coming].epoch, topic]
        freed[0] = coming
        return 1
    _hold(event, held, topic, coming)
    return _release(event, stamp, number, passed, held, related, topic, freed)


@compiled
def _hold(event: Table, held: Table, topic: int, coming: int) -> None:
    lower = event[coming].topic
    event[coming].after = NONE
    if held[topic, lower].first != NONE:
        event[held[topic, lower].last].after = coming
        held[topic, lower].last = coming
        return
    held[topic, lower].first = coming
    held[topic, lower].last = coming
    ring = held.shape[1] - 1  # the place that begins and ends the ring
    last = held[topic, ring].prev
    held[topic, last].next = lower
    held[topic, lower].prev = last
    held[topic, lower].next = ring
    held[topic, ring].prev = lower


@compiled
def _release(
    event: Table,
    stamp: Matrix,
    number: Matrix,
    passed: Cube,
    held: Table,
    related: Words,
    topic: int,
    freed: Longs,
) -> int:
    """Stamp what is held, as long as one becomes free."""
    ring = held.shape[1] - 1
    count = 0
    progress = True
    while progress:
        progress = False
        lower = held[topic, ring].next
        while lower != ring:
            following = held[topic, lower].next
            first = held[topic, lower].first
            while first != NONE and _free(event, stamp, passed, related, topic, first):
                epoch = event[first].epoch
                passed[epoch, topic, lower] = event[first].number
                stamp[first, topic] = number[epoch, topic]
                freed[count] = first
                count += 1
                first = event[first].after
                progress = True
            held[topic, lower].first = first
            if first == NONE:
                before = held[topic, lower].prev
                held[topic, before].next = following
                held[topic, following].prev = before
            lower = following
    return count


@compiled
def _free(
    event: Table,
    stamp: Matrix,
    passed: Cube,
    related: Words,
    topic: int,
    waiting: int,
) -> bool:
    """Has everything that the stamp counts, of topics related to this one, passed by?"""
    epoch = event[waiting].epoch
    own = event[waiting].topic
    for other in range(stamp.shape[1]):
        late = stamp[waiting, other] > passed[epoch, topic, other] and other != own
        if late and are_related(related, epoch, topic, other):
            return False
    return True
