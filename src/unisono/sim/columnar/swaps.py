"""The adaptive topic order in compiled loops (thesis section 3.4, corrected).

f(x) = exp(-1 / (alpha (x + 1))) of a topic's count x; a topic should stand above another one if its
f is greater by more than beta. Two rules:

`paper`, x counts events since the start. A manager that handles the stamp of a lower topic compares
f of both topics; the highest one on the stamp's way for which f(lower) > f(own) + beta is noted on
the stamp, and the last manager asks the coordinator that the two topics change places. What asks
while a change is going on is dropped.

`window`, x counts events among the last ones of all topics. A manager reports each request to the
coordinator. When f(lower) > f(higher) + beta for any two topics, or a topic without recent events
stands directly above another one that now has some (it is *low*), the coordinator sorts all topics
by count, the present order deciding between equals - at most once in a given time. A manager whose
topic is low lets requests wait for the order in which it is not.

A change: the coordinator tells every manager the new order and its epoch, and each answers with its
final number of the old one. A manager starts new stamps in the newest epoch it has heard of, be it
from the coordinator or from a stamp, and still completes older ones by their order. When all have
answered, the numbers go to all subscribers on the system topic: with them a subscriber knows when
it has seen all of an epoch.
"""

from __future__ import annotations

import math

import numpy as np

from unisono.compiled import Ints, Longs, Words, compiled
from unisono.sim.columnar.managers import close_relation
from unisono.sim.columnar.tables import NONE, RECENT, SINCE_START, WAITED, Table, Tables


@compiled
def popularity(alpha: float, count: int) -> float:
    return math.exp(-1.0 / (alpha * (count + 1)))


# The printed rule.


@compiled
def consider(run: Table, event: Table, manager: Table, passing: int) -> None:
    """Note on the stamp if this manager's topic should change places with the event's."""
    topic = event[passing].manager
    if run[0].metric != SINCE_START or event[passing].epoch != manager[topic].epoch:
        return
    theirs, ours = event[passing].total, manager[topic].total
    if popularity(run[0].alpha, theirs) > popularity(run[0].alpha, ours) + run[0].beta:
        event[passing].candidate = topic


@compiled
def may_exchange(run: Table, place: Table, higher: int, lower: int, now: int) -> bool:
    """One change at a time, and only if the topics still stand as they did."""
    epoch = run[0].epoch
    if run[0].awaited or place[epoch, higher].rank > place[epoch, lower].rank:
        return False
    run[0].higher = higher
    run[0].lower = lower
    run[0].changed = now
    return True


# Recent events: managers.


@compiled
def is_low(place: Table, epoch: int, topic: int) -> bool:
    """Neither this topic nor the one directly above had recent events when the epoch began."""
    rank = place[epoch, topic].rank
    if rank == 0 or place[epoch, topic].active:
        return False
    return not place[epoch, place[epoch, rank - 1].topic].active


@compiled
def has_to_wait(run: Table, event: Table, manager: Table, place: Table, new: int) -> bool:
    """Let a request wait if its topic is low, or others of the topic wait already."""
    topic = event[new].topic
    if not run[0].waits:
        return False
    if manager[topic].first == NONE and not is_low(place, manager[topic].epoch, topic):
        return False
    event[new].stage = WAITED
    event[new].after = NONE
    if manager[topic].first == NONE:
        manager[topic].first = new
    else:
        event[manager[topic].last].after = new
    manager[topic].last = new
    return True


@compiled
def announced(
    run: Table, event: Table, manager: Table, place: Table, topic: int, here: Longs
) -> int:
    """A manager hears of the new order; lists the requests that need not wait any longer."""
    manager[topic].epoch = run[0].epoch
    if is_low(place, manager[topic].epoch, topic):
        return 0
    count = 0
    waiting = manager[topic].first
    while waiting != NONE:
        here[count] = waiting
        count += 1
        waiting = event[waiting].after
    manager[topic].first = NONE
    return count


# Recent events: the coordinator.


@compiled
def report(run: Table, ring: Ints, tally: Table, place: Table, topic: int) -> None:
    """There is one more event of the topic."""
    at = run[0].ring_at
    if ring[at] != NONE:
        tally[ring[at]].recent -= 1
    ring[at] = topic
    tally[topic].recent += 1
    run[0].ring_at = (at + 1) % ring.size
    if not tally[topic].low and is_low(place, run[0].epoch, topic):
        tally[topic].low = 1
        run[0].news += 1


@compiled
def may_sort(run: Table, tally: Table, place: Table, now: int) -> bool:
    """One change at a time, not too often, and only if there is a reason."""
    epoch = run[0].epoch
    if run[0].awaited or (epoch > 0 and now < run[0].changed + run[0].every):
        return False
    if not run[0].news and not _out_of_place(run, tally, place[epoch]):
        return False
    run[0].changed = now
    return True


@compiled
def _out_of_place(run: Table, tally: Table, place: Table) -> bool:
    """Is there a topic whose f is greater, by more than beta, than that of one above?"""
    least = tally[place[0].topic].recent
    for position in range(1, place.size):
        count = tally[place[position].topic].recent
        if count > least:
            bar = popularity(run[0].alpha, least) + run[0].beta
            if popularity(run[0].alpha, count) > bar:
                return True
        least = min(least, count)
    return False


# Both.


def new_epoch(tables: Tables, base: Words) -> Tables:
    """The order that was asked for, in a new epoch."""
    run = tables.run[0]
    old = int(run["epoch"])
    if old + 2 > tables.place.shape[0]:
        tables = _more_epochs(tables)
    new = old + 1
    run["epoch"] = new
    place = tables.place
    place[new] = place[old]
    if run["metric"] == RECENT:
        _sort(tables, new)
    else:
        ranks = [int(place[old, run[which]]["rank"]) for which in ("higher", "lower")]
        for which, rank in zip(("lower", "higher"), ranks, strict=True):
            place[new, run[which]]["rank"] = rank
            place[new, rank]["topic"] = run[which]
    if run["exact"]:
        tables.related[new] = base
        close_relation(place[new], tables.related[new])
    return tables


def _sort(tables: Tables, new: int) -> None:
    """By recent events, the present order deciding between equals."""
    tally, place = tables.tally, tables.place[new]
    count = np.maximum(tally["recent"], tally["low"])
    order = np.lexsort((place["rank"], -count))
    place["topic"] = order
    place["rank"][order] = np.arange(order.size)
    place["active"] = count > 0
    tally["low"] = 0
    tables.run[0]["news"] = 0


def _more_epochs(tables: Tables) -> Tables:
    """Room for twice as many."""
    wanted = ["place", "number"]
    if tables.run[0]["exact"]:
        wanted += ["related", "passed", "counted"]
    return tables._replace(
        **{
            name: np.concatenate((getattr(tables, name), np.zeros_like(getattr(tables, name))))
            for name in wanted
        }
    )
