"""Subscribers in compiled loops: the notify rule and the reorder buffer.

The twin of `qos/total_order/subscriber.py` for subscriptions that do not change and buffers without
a time to live. An event of a later epoch is ready once everything of the epochs before has been
seen. `me` is the node; `own` the pair of the node and the event's topic.
"""

from __future__ import annotations

from unisono.compiled import Ints, compiled
from unisono.sim.columnar.tables import (
    GAP_SKIPPED,
    IN_ORDER,
    NONE,
    OUT_OF_ORDER,
    Matrix,
    Table,
)


@compiled
def arrive(
    run: Table,
    event: Table,
    stamp: Matrix,
    place: Table,
    number: Matrix,
    node: Table,
    pair: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    slot: Table,
    log: Table,
    me: int,
    own: int,
    new: int,
    now: int,
) -> None:
    """An event has come from the event service."""
    event[new].arrivals += 1
    event[new].arrived = now
    epoch = event[new].epoch
    if epoch > node[me].epoch:
        _next_epochs(number, node, topic_of, upto, clock, me)
    given_up = epoch == node[me].epoch and event[new].number <= upto[own]
    if given_up or epoch < node[me].epoch:
        _notify(
            run, event, stamp, place, node, topic_of, upto, clock, log, me, own, new, False, now,
        )  # fmt: skip
        return
    if _ready(event, stamp, node, topic_of, upto, me, own, new):
        _notify(
            run, event, stamp, place, node, topic_of, upto, clock, log, me, own, new, False, now,
        )  # fmt: skip
        _cascade(
            run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log, me, now,
        )  # fmt: skip
        return
    _wait(run, event, node, pair, slot, me, own, new)
    while node[me].waiting > run[0].bound:
        oldest = slot[node[me].oldest].event
        _force(
            run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log, me,
            oldest, now,
        )  # fmt: skip


@compiled
def closed(
    run: Table,
    event: Table,
    stamp: Matrix,
    place: Table,
    number: Matrix,
    node: Table,
    pair: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    slot: Table,
    log: Table,
    me: int,
    epoch: int,
    now: int,
) -> None:
    """The numbers of events of an epoch are final and known here."""
    node[me].closed = max(node[me].closed, epoch + 1)
    _cascade(
        run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log, me, now,
    )  # fmt: skip


@compiled
def _ready(
    event: Table,
    stamp: Matrix,
    node: Table,
    topic_of: Ints,
    upto: Ints,
    me: int,
    own: int,
    new: int,
) -> bool:
    """Was everything seen that the stamp counts?"""
    if event[new].epoch != node[me].epoch or upto[own] < event[new].number - 1:
        return False
    late = 0
    for other in range(node[me].start, node[me].end):  # without a branch, this is fast
        late += stamp[new, topic_of[other]] > upto[other]
    return bool(late == (event[new].number > upto[own]))


@compiled
def _in_order(
    event: Table,
    stamp: Matrix,
    place: Table,
    node: Table,
    topic_of: Ints,
    clock: Ints,
    me: int,
    own: int,
    new: int,
) -> bool:
    """Own number above the clock; entries of topics above not below it."""
    epoch = event[new].epoch
    if epoch != node[me].epoch or event[new].number <= clock[own]:
        return False
    rank = place[epoch, event[new].topic].rank
    late = 0
    for other in range(node[me].start, node[me].end):
        count = stamp[new, topic_of[other]]
        late += NONE < count < clock[other] and place[epoch, topic_of[other]].rank < rank
    return late == 0


@compiled
def _notify(
    run: Table,
    event: Table,
    stamp: Matrix,
    place: Table,
    node: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    log: Table,
    me: int,
    own: int,
    new: int,
    gap: bool,
    now: int,
) -> None:
    status = OUT_OF_ORDER
    if _in_order(event, stamp, place, node, topic_of, clock, me, own, new):
        status = GAP_SKIPPED if gap else IN_ORDER
        for other in range(node[me].start, node[me].end):
            clock[other] = max(clock[other], stamp[new, topic_of[other]])
    if event[new].epoch == node[me].epoch:
        upto[own] = max(upto[own], event[new].number)
    event[new].notified = now
    node[me].notified += 1
    if status == OUT_OF_ORDER:
        event[new].tagged += 1
        node[me].tagged += 1
    if log.size:
        at = run[0].logged
        run[0].logged = at + 1
        log[at].at = now
        log[at].node = me
        log[at].event = new
        log[at].status = status


@compiled
def _next_epochs(
    number: Matrix, node: Table, topic_of: Ints, upto: Ints, clock: Ints, me: int
) -> bool:
    """Go on to the next epoch if all of this one was seen; true if so."""
    moved = False
    while node[me].closed > node[me].epoch:
        for other in range(node[me].start, node[me].end):
            if upto[other] < number[node[me].epoch, topic_of[other]]:
                return moved
        _begin_epoch(node, upto, clock, me, node[me].epoch + 1)
        moved = True
    return moved


@compiled
def _begin_epoch(node: Table, upto: Ints, clock: Ints, me: int, epoch: int) -> None:
    node[me].epoch = epoch
    for other in range(node[me].start, node[me].end):
        upto[other] = 0
        clock[other] = 0


@compiled
def _cascade(
    run: Table,
    event: Table,
    stamp: Matrix,
    place: Table,
    number: Matrix,
    node: Table,
    pair: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    slot: Table,
    log: Table,
    me: int,
    now: int,
) -> None:
    """Notify what has become ready, in as many rounds as it takes."""
    progress = True
    while progress:
        progress = False
        key = node[me].first_key
        while key != NONE:
            following = pair[key].next_key
            while pair[key].first_slot != NONE:
                first = slot[pair[key].first_slot].event
                if not _ready(event, stamp, node, topic_of, upto, me, key, first):
                    break
                _take(run, node, pair, slot, me, key, pair[key].first_slot)
                _notify(
                    run, event, stamp, place, node, topic_of, upto, clock, log, me, key, first,
                    False, now,
                )  # fmt: skip
                progress = True
            key = following
        if _next_epochs(number, node, topic_of, upto, clock, me):
            progress = True


@compiled
def _force(
    run: Table,
    event: Table,
    stamp: Matrix,
    place: Table,
    number: Matrix,
    node: Table,
    pair: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    slot: Table,
    log: Table,
    me: int,
    oldest: int,
    now: int,
) -> None:
    """Let the event go, or a waiting one that precedes it; give up what it awaits."""
    key, leaving = _first_waiting(event, stamp, node, pair, topic_of, slot, me, oldest)
    if event[leaving].epoch > node[me].epoch:
        _begin_epoch(node, upto, clock, me, event[leaving].epoch)
    for other in range(node[me].start, node[me].end):
        count = stamp[leaving, topic_of[other]] - (1 if other == key else 0)
        if count > upto[other]:
            upto[other] = count
    _take(run, node, pair, slot, me, key, pair[key].first_slot)
    _notify(run, event, stamp, place, node, topic_of, upto, clock, log, me, key, leaving, True, now)
    _cascade(
        run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log, me, now,
    )  # fmt: skip


@compiled
def _first_waiting(
    event: Table,
    stamp: Matrix,
    node: Table,
    pair: Table,
    topic_of: Ints,
    slot: Table,
    me: int,
    oldest: int,
) -> tuple[int, int]:
    """Go down from an event to a waiting one that no other precedes; that one, after its pair."""
    at = oldest
    home = NONE
    found = True
    while found:
        found = False
        key = node[me].first_key
        while key != NONE and not found:
            head = slot[pair[key].first_slot].event
            if head == at:
                home = key
            elif event[head].epoch < event[at].epoch or (
                event[head].epoch == event[at].epoch
                and event[head].number <= stamp[at, topic_of[key]]
            ):
                at = head
                found = True
            key = pair[key].next_key
    return home, at


# The buffer's lists.


@compiled
def _wait(
    run: Table, event: Table, node: Table, pair: Table, slot: Table, me: int, own: int, new: int
) -> None:
    at = run[0].free_slot
    run[0].free_slot = slot[at].next
    run[0].free_slots -= 1
    slot[at].event = new
    if pair[own].first_slot == NONE:
        _add_key(node, pair, me, own)
    before = NONE
    after = pair[own].first_slot
    while after != NONE and _precedes(event, slot[after].event, new):
        before = after
        after = slot[after].next
    slot[at].next = after
    if before == NONE:
        pair[own].first_slot = at
    else:
        slot[before].next = at
    newest = node[me].newest
    slot[at].older = newest
    slot[at].newer = NONE
    if newest == NONE:
        node[me].oldest = at
    else:
        slot[newest].newer = at
    node[me].newest = at
    node[me].waiting += 1
    node[me].waited = max(node[me].waited, node[me].waiting)


@compiled
def _precedes(event: Table, one: int, other: int) -> bool:
    """Of one topic: is the first numbered before the second?"""
    if event[one].epoch != event[other].epoch:
        return bool(event[one].epoch < event[other].epoch)
    return bool(event[one].number < event[other].number)


@compiled
def _take(run: Table, node: Table, pair: Table, slot: Table, me: int, key: int, at: int) -> None:
    """Remove the first waiting event of a pair."""
    pair[key].first_slot = slot[at].next
    if pair[key].first_slot == NONE:
        _drop_key(node, pair, me, key)
    older, newer = slot[at].older, slot[at].newer
    if older == NONE:
        node[me].oldest = newer
    else:
        slot[older].newer = newer
    if newer == NONE:
        node[me].newest = older
    else:
        slot[newer].older = older
    slot[at].next = run[0].free_slot
    run[0].free_slot = at
    run[0].free_slots += 1
    node[me].waiting -= 1


@compiled
def _add_key(node: Table, pair: Table, me: int, key: int) -> None:
    last = node[me].last_key
    pair[key].prev_key = last
    pair[key].next_key = NONE
    if last == NONE:
        node[me].first_key = key
    else:
        pair[last].next_key = key
    node[me].last_key = key


@compiled
def _drop_key(node: Table, pair: Table, me: int, key: int) -> None:
    before, following = pair[key].prev_key, pair[key].next_key
    if before == NONE:
        node[me].first_key = following
    else:
        pair[before].next_key = following
    if following == NONE:
        node[me].last_key = before
    else:
        pair[following].prev_key = before
