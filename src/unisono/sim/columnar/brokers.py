"""A network of brokers on arrays: the twin of `sim/brokers.py`, for thousands of clients."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import msgspec
import numpy as np

from unisono.compiled import Bools, Ints, Longs, Words, in_place, mix
from unisono.sim.brokers import NO_BROKER, Brokers, seed_key
from unisono.sim.columnar import heap
from unisono.sim.columnar.tables import Table

ARRIVAL = np.dtype([("message", np.int64), ("broker", np.int32), ("origin", np.int32)], align=True)
# Places in `counts`.
_NEXT, _FREE, _DELIVERED, _COUNTS = range(4)
_FINISHED, _MORE_ROOM = range(2)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is published, and who wants what."""

    network: Brokers
    home: Ints  # by client: its broker
    wants: Bools  # by client and topic
    published_us: Longs  # rising
    publisher: Ints  # by message: a client
    topic: Ints  # by message


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """Who got what when, by client and then by time."""

    client: Ints
    message: Longs
    arrived_us: Longs


class _Net(NamedTuple):
    due: Table
    queue: Longs
    arrival: Table
    free: Ints
    near_start: Ints
    near: Ints
    leads: Bools  # by place in `near` and topic: somebody behind wants it
    free_us: Longs  # by broker and thread
    key: Words
    mean_us: float
    link_us: int
    home: Ints
    client_start: Ints  # by broker: its clients in `client`
    client: Ints
    wants: Bools
    published_us: Longs
    publisher: Ints
    topic: Ints
    got_client: Ints
    got_message: Longs
    got_us: Longs
    counts: Longs


def run(plan: Plan, seed: int) -> Deliveries:
    """A pure function of plan and seed."""
    net = _net(plan, seed)
    while _go(net) == _MORE_ROOM:
        net = _grown(net)
    order = np.lexsort((net.got_us, net.got_client))
    return Deliveries(
        client=net.got_client[order], message=net.got_message[order], arrived_us=net.got_us[order]
    )


def _net(plan: Plan, seed: int) -> _Net:
    network = plan.network
    near = network.neighbours
    brokers, room = len(near), 1024
    start = np.concatenate(([0], np.cumsum([len(n) for n in near]))).astype(np.int32)
    by_home = np.argsort(plan.home, kind="stable").astype(np.int32)
    wanted = np.zeros((brokers, plan.wants.shape[1]), np.bool_)
    np.logical_or.at(wanted, plan.home, plan.wants)
    expected = int(plan.wants.sum(axis=0)[plan.topic].sum())
    counts = np.zeros(_COUNTS, np.int64)
    counts[_FREE] = room
    return _Net(
        due=np.zeros(room, heap.ENTRY),
        queue=np.zeros(2, np.int64),
        arrival=np.zeros(room, ARRIVAL),
        free=np.arange(room, dtype=np.int32),
        near_start=start,
        near=np.array([n for some in near for n in some], np.int32),
        leads=np.array(
            [wanted[_behind(near, b, n)].any(axis=0) for b in range(brokers) for n in near[b]],
            np.bool_,
        ).reshape(-1, plan.wants.shape[1]),
        free_us=np.zeros((brokers, network.threads), np.int64),
        key=np.array([seed_key(seed)], np.uint64),
        mean_us=network.match_ms * 1000,
        link_us=network.link_us,
        home=plan.home,
        client_start=np.searchsorted(plan.home[by_home], np.arange(brokers + 1)).astype(np.int32),
        client=by_home,
        wants=plan.wants,
        published_us=plan.published_us,
        publisher=plan.publisher,
        topic=plan.topic,
        got_client=np.zeros(expected, np.int32),
        got_message=np.zeros(expected, np.int64),
        got_us=np.zeros(expected, np.int64),
        counts=counts,
    )


def _behind(near: list[list[int]], broker: int, first: int) -> list[int]:
    """The brokers that are reached over this link."""
    found, rest = [first], [(first, broker)]
    while rest:
        here, origin = rest.pop()
        fresh = [other for other in near[here] if other != origin]
        found += fresh
        rest += [(other, here) for other in fresh]
    return found


def _grown(old: _Net) -> _Net:
    """The same run with twice the room for what is under way."""
    due, arrival, free = heap.more_room(old.due, old.arrival, old.free, int(old.counts[_FREE]))
    old.counts[_FREE] += old.arrival.size
    return old._replace(due=due, arrival=arrival, free=free)


@in_place
def _go(n: _Net) -> int:
    counts = n.counts
    while True:
        if counts[_FREE] < n.near.size + 2:
            return _MORE_ROOM
        now = heap.next_time(n.due, n.queue)
        message = counts[_NEXT]
        if message < n.published_us.size and (now < 0 or n.published_us[message] <= now):
            counts[_NEXT] += 1
            _arrive(n, n.home[n.publisher[message]], NO_BROKER, message, n.published_us[message])
            continue
        if now < 0:
            return _FINISHED
        item = heap.pop(n.due, n.queue)
        arrival = n.arrival[item]
        broker, origin, message = arrival.broker, arrival.origin, arrival.message
        n.free[counts[_FREE]] = item
        counts[_FREE] += 1
        _arrive(n, broker, origin, message, now)


@in_place
def _arrive(n: _Net, broker: int, origin: int, message: int, now: int) -> None:
    """A thread matches the message; then it goes on, and to the clients here."""
    counts = n.counts
    threads = n.free_us[broker]
    thread = 0
    for other in range(1, threads.size):
        if threads[other] < threads[thread]:
            thread = other
    word = mix(mix(n.key[0] ^ np.uint64(message)) ^ np.uint64(broker))
    share = (float(word >> np.uint64(11)) + 1.0) * 2.0**-53
    done = max(now, threads[thread]) + np.int64(np.rint(-n.mean_us * log(share)))
    threads[thread] = done
    topic = n.topic[message]
    for at in range(n.near_start[broker], n.near_start[broker + 1]):
        if n.near[at] == origin or not n.leads[at, topic]:
            continue
        counts[_FREE] -= 1
        item = n.free[counts[_FREE]]
        arrival = n.arrival[item]
        arrival.message, arrival.broker, arrival.origin = message, n.near[at], broker
        heap.push(n.due, n.queue, done + n.link_us, item)
    for at in range(n.client_start[broker], n.client_start[broker + 1]):
        client = n.client[at]
        if n.wants[client, topic]:
            got = counts[_DELIVERED]
            counts[_DELIVERED] += 1
            n.got_client[got] = client
            n.got_message[got] = message
            n.got_us[got] = done
