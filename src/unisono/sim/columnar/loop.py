"""The event loop: publications, messages between nodes, events on their way down the trees.

Things due at one time happen in the order in which they were asked for; publications, planned
before the start, come first - as in `sim/world.py`. A message to the own node is handled within the
same step, and what a step sends goes out at its end, as in `qos/total_order/layer.py`.

Compiled functions take plain arrays, not the tuples they belong to: taking an array out of a tuple
costs more than a step.
"""

from __future__ import annotations

from unisono.compiled import Ints, Longs, Words, compiled
from unisono.sim.columnar import calendar as cal
from unisono.sim.columnar import links as lnk
from unisono.sim.columnar.managers import create, fill, forward
from unisono.sim.columnar.overlay import next_hop
from unisono.sim.columnar.subscribers import arrive, closed
from unisono.sim.columnar.swaps import (
    announced,
    consider,
    has_to_wait,
    may_exchange,
    may_sort,
    report,
)
from unisono.sim.columnar.tables import (
    NONE,
    PUBLISH,
    READY,
    RECENT,
    REQUEST,
    WAITED,
    Cube,
    Matrix,
    Table,
)

# What is due at a node: a message or event on its way, or a step of a change of the topic order.
ROUTE, DOWN, ASK, ANNOUNCE, ANSWER, CLOSE, AGAIN = range(7)
_NODE_BITS, _KIND_SHIFT = 24, 60
# Why the loop returns: it is done, needs more room, or topics are to change places.
DONE, MORE_CALENDAR, MORE_LINKS, MORE_SLOTS, CHANGE = range(5)


# Rows of `work`: events whose message is here, leaves, is free to go on; or the coordinator hears.
HERE, LEAVING, FREED, ASKING = range(4)


@compiled
def go(
    # the calendar
    due: Table,
    first: Ints,
    last: Ints,
    queue: Longs,
    # the links
    link: Table,
    key: Words,
    delay_us: Matrix,
    net: Words,
    # the overlay
    ids: Words,
    root: Ints,
    tree: Ints,
    child_start: Longs,
    child: Ints,
    # the tables
    run: Table,
    event: Table,
    stamp: Matrix,
    manager: Table,
    number: Matrix,
    passed: Cube,
    counted: Cube,
    held: Table,
    ring: Ints,
    tally: Table,
    place: Table,
    related: Words,
    node: Table,
    pair: Table,
    topic_of: Ints,
    upto: Ints,
    clock: Ints,
    pair_of: Matrix,
    slot: Table,
    log: Table,
    work: Longs,
    fan_out: int,
) -> int:
    """Go on until nothing is left to do, or something is needed from outside."""
    while True:
        if cal.room(due, queue) < fan_out:
            return MORE_CALENDAR
        if lnk.room(link, net) < fan_out:
            return MORE_LINKS
        if run[0].free_slots == 0:
            return MORE_SLOTS
        now = cal.next_time(due, first, queue)
        kind, what = ROUTE, run[0].next_event
        if what < event.size and (now < 0 or event[what].published <= now):
            run[0].next_event += 1
            now = event[what].published
            event[what].stage = REQUEST
            event[what].target = manager[event[what].topic].node
            at = int(event[what].publisher)
        elif now < 0:
            return DONE
        else:
            item = cal.pop(due, first, last, queue)
            kind = item >> _KIND_SHIFT
            what = (item >> _NODE_BITS) & ((1 << (_KIND_SHIFT - _NODE_BITS)) - 1)
            at = item & ((1 << _NODE_BITS) - 1)
        run[0].steps += 1
        target = _target(run, event, manager, kind, what, at)
        if target != at:
            hop = next_hop(ids, at, target)
            send(due, first, last, queue, link, key, delay_us, net, kind, what, at, hop, now)
        elif kind == ANNOUNCE or (kind == ROUTE and event[what].stage != PUBLISH):
            here = 1
            work[HERE, 0] = what
            if kind == ANNOUNCE:
                here = announced(run, event, manager, place, what, work[HERE])
                hop = next_hop(ids, at, run[0].coordinator)
                send(due, first, last, queue, link, key, delay_us, net, ANSWER, what, at, hop, now)
            leaving, asking = _handle(
                run, event, stamp, manager, number, passed, counted, held, place, related, root,
                tree, work, here, at, now,
            )  # fmt: skip
            for index in range(asking):
                asks = work[ASKING, index]
                told = int(event[asks].topic)
                if run[0].metric != RECENT:
                    told += event[asks].candidate * manager.size
                hop = next_hop(ids, at, run[0].coordinator)
                send(due, first, last, queue, link, key, delay_us, net, ASK, told, at, hop, now)
                run[0].change_messages += 1
            for index in range(leaving):
                goes = work[LEAVING, index]
                hop = next_hop(ids, at, event[goes].target)
                send(due, first, last, queue, link, key, delay_us, net, ROUTE, goes, at, hop, now)
        elif kind == ASK and run[0].metric != RECENT:
            if may_exchange(run, place, what // manager.size, what % manager.size, now):
                return CHANGE
        elif kind in (ASK, AGAIN):
            if kind == ASK:
                report(run, ring, tally, place, what)
            if may_sort(run, tally, place, now):
                return CHANGE
        else:
            if kind == ANSWER:
                run[0].awaited -= 1
                if run[0].awaited:
                    continue
                if run[0].metric == RECENT:
                    again = max(now, run[0].changed + run[0].every)
                    cal.push(due, first, last, queue, again, (AGAIN << _KIND_SHIFT) | int(at))
                kind, what = CLOSE, run[0].epoch - 1
            kind = CLOSE if kind == CLOSE else DOWN
            branch = root.size - 1 if kind == CLOSE else tree[event[what].topic]
            for index in range(child_start[branch, at], child_start[branch, at + 1]):
                hop = int(child[index])
                send(due, first, last, queue, link, key, delay_us, net, kind, what, at, hop, now)
            if kind == CLOSE:
                run[0].change_messages += 1
                closed(
                    run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log,
                    at, what, now,
                )  # fmt: skip
            elif pair_of[at, event[what].topic] != NONE:
                own = pair_of[at, event[what].topic]
                arrive(
                    run, event, stamp, place, number, node, pair, topic_of, upto, clock, slot, log,
                    at, own, what, now,
                )  # fmt: skip


@compiled
def send(
    due: Table,
    first: Ints,
    last: Ints,
    queue: Longs,
    link: Table,
    key: Words,
    delay_us: Matrix,
    net: Words,
    kind: int,
    what: int,
    at: int,
    hop: int,
    now: int,
) -> None:
    """Over one link."""
    when = lnk.arrival_us(link, key, delay_us, net, at, hop, now)
    item = (int(kind) << _KIND_SHIFT) | (int(what) << _NODE_BITS) | int(hop)
    cal.push(due, first, last, queue, when, item)


@compiled
def _target(run: Table, event: Table, manager: Table, kind: int, what: int, at: int) -> int:
    """Where a message is bound for; what goes down a tree is where it should be."""
    if kind == ROUTE:
        return int(event[what].target)
    if kind == ANNOUNCE:
        return int(manager[what].node)
    if kind in (ASK, ANSWER):
        return int(run[0].coordinator)
    return at


@compiled
def _handle(
    run: Table,
    event: Table,
    stamp: Matrix,
    manager: Table,
    number: Matrix,
    passed: Cube,
    counted: Cube,
    held: Table,
    place: Table,
    related: Words,
    root: Ints,
    tree: Ints,
    work: Longs,
    here: int,
    at: int,
    now: int,
) -> tuple[int, int]:
    """Messages have reached their node; what they lead to at the same node is done here as well.

    Lists the events whose messages leave, and those the coordinator is told of; says how many.
    """
    taken, added, leaving, asking = 0, here, 0, 0
    while taken < added:
        one = work[HERE, taken]
        taken += 1
        if event[one].stage == READY:
            event[one].stamped = now
            event[one].stage = PUBLISH
            event[one].target = root[tree[event[one].topic]]
            work[LEAVING, leaving] = one
            leaving += 1
            continue
        if event[one].stage == REQUEST and run[0].metric == RECENT:
            work[ASKING, asking] = one
            asking += 1
            if has_to_wait(run, event, manager, place, one):
                continue
        if event[one].stage in (REQUEST, WAITED):
            create(run, event, stamp, manager, number, passed, counted, one)
            work[FREED, 0] = one
            count = 1
        else:
            topic = event[one].manager
            manager[topic].epoch = max(manager[topic].epoch, event[one].epoch)
            consider(run, event, manager, one)
            count = fill(
                run, event, stamp, manager, number, passed, held, related, one, work[FREED]
            )
        for index in range(count):
            free = work[FREED, index]
            forward(event, manager, place, related, free)
            if event[free].stage == READY and event[free].candidate != NONE:
                work[ASKING, asking] = free
                asking += 1
            if event[free].target == at:
                work[HERE, added] = free
                added += 1
            else:
                work[LEAVING, leaving] = free
                leaving += 1
    return leaving, asking


@compiled
def announce(
    due: Table,
    first: Ints,
    last: Ints,
    queue: Longs,
    link: Table,
    key: Words,
    delay_us: Matrix,
    net: Words,
    ids: Words,
    run: Table,
    manager: Table,
) -> None:
    """The coordinator tells all managers of the new order."""
    at, now = run[0].coordinator, run[0].changed
    run[0].awaited = manager.size
    run[0].change_messages += 2 * manager.size
    for topic in range(manager.size):
        hop = next_hop(ids, at, manager[topic].node)
        send(due, first, last, queue, link, key, delay_us, net, ANNOUNCE, topic, at, hop, now)
