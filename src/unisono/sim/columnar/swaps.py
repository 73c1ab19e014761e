"""The adaptive topic order in compiled loops (thesis section 3.4, corrected).

A manager that handles the stamp of a lower topic compares f of both topics; the highest one on the
stamp's way for which f(lower) > f(own) + beta is noted on the stamp, and the last manager asks the
coordinator that the two topics change places. The coordinator makes one change at a time: it tells
every manager the new order and its epoch, and each answers with its final number of the old one. A
manager starts new stamps in the newest epoch it has heard of, be it from the coordinator or from a
stamp, and still completes older ones by their order. When all have answered, the numbers go to all
subscribers on the system topic: with them a subscriber knows when it has seen all of an epoch.

f(x) = exp(-1 / (alpha (x + 1))). x is the number of the topic's events since the start, as printed,
or among the last events that the manager has seen, own and lower ones.
"""

from __future__ import annotations

import math

import numpy as np

from unisono.compiled import Words, compiled
from unisono.sim.columnar.managers import close_relation
from unisono.sim.columnar.tables import NONE, RECENT, STATIC, Matrix, Table, Tables


@compiled
def popularity(alpha: float, count: int) -> float:
    return math.exp(-1.0 / (alpha * (count + 1)))


@compiled
def watch(run: Table, manager: Table, ring: Matrix, recent: Matrix, topic: int, seen: int) -> None:
    """The manager of `topic` handles an event of topic `seen`."""
    if run[0].metric != RECENT:
        return
    at = manager[topic].ring_at
    gone = ring[topic, at]
    if gone != NONE:
        recent[topic, gone] -= 1
    ring[topic, at] = seen
    recent[topic, seen] += 1
    manager[topic].ring_at = (at + 1) % run[0].window


@compiled
def consider(run: Table, event: Table, manager: Table, recent: Matrix, passing: int) -> None:
    """Note on the stamp if this manager's topic should change places with the event's."""
    topic = event[passing].manager
    if run[0].metric == STATIC or event[passing].epoch != manager[topic].epoch:
        return
    lower = event[passing].topic
    if run[0].metric == RECENT:
        theirs, ours = recent[topic, lower], recent[topic, topic]
    else:
        theirs, ours = event[passing].total, manager[topic].total
    if popularity(run[0].alpha, theirs) > popularity(run[0].alpha, ours) + run[0].beta:
        event[passing].candidate = topic


def exchange(tables: Tables, base: Words) -> Tables:
    """A new epoch in which the two topics of the request have changed places."""
    run = tables.run[0]
    old = int(run["epoch"])
    if old + 2 > tables.place.shape[0]:
        tables = _more_epochs(tables)
    new = old + 1
    run["epoch"] = new
    place = tables.place
    place[new] = place[old]
    ranks = [int(place[old, run[which]]["rank"]) for which in ("higher", "lower")]
    for which, rank in zip(("lower", "higher"), ranks, strict=True):
        place[new, run[which]]["rank"] = rank
        place[new, rank]["topic"] = run[which]
    if run["exact"]:
        tables.related[new] = base
        close_relation(place[new], tables.related[new])
    return tables


def _more_epochs(tables: Tables) -> Tables:
    """Room for twice as many."""
    wanted = ["place", "number"]
    if tables.run[0]["exact"]:
        wanted += ["related", "passed"]
    return tables._replace(
        **{
            name: np.concatenate((getattr(tables, name), np.zeros_like(getattr(tables, name))))
            for name in wanted
        }
    )
