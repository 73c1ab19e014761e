"""Probabilistic FIFO replayed over arrivals on arrays: the twin of `qos/fifo/source.py`.

Each pair of a publisher and a subscriber is a source of its own, so the same arrivals can be put
under many rules, one after the other. Nothing arrives twice here, and publishers live once.
"""

from __future__ import annotations

from math import exp, expm1, log, log1p, sqrt

import msgspec
import numpy as np

from unisono.compiled import Bools, Ints, Longs, in_place
from unisono.qos.fifo import spread
from unisono.qos.fifo.options import Fifo
from unisono.sim.columnar.brokers import Deliveries, Plan

IN_ORDER, GAP_SKIPPED, OUT_OF_ORDER = range(3)
_RULES = {"conditional": 0, "paper": 1, "chebyshev": 2, "static": 3}
# Places in the options of the loop.
_RULE, _WINDOW, _HOLD, _STATIC, _FIRST, _BUFFER, _RECORD, _OPTIONS = range(8)
_WATCHED, _FEWEST = spread._WATCHED, spread._FEWEST
_FAR, _TOO_MANY, _UNLIKELY = spread._FAR, spread._TOO_MANY, spread._UNLIKELY


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Deliveries by pair of publisher and subscriber, and in each by time."""

    pair_start: Longs
    publisher: Ints  # by pair
    client: Ints  # by pair
    number: Longs  # of the message, at its publisher, from 1
    arrived_us: Longs
    first: Longs  # by publisher: its messages in the next two
    departed_us: Longs
    topic: Ints
    wants: Bools


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """By arrival: when it was notified, and how."""

    released_us: Longs
    status: Ints
    latch_us: Longs  # that it was given; 0 where it showed no gap


def arrivals(plan: Plan, got: Deliveries) -> Arrivals:
    messages = plan.publisher.size
    by_publisher = np.argsort(plan.publisher, kind="stable")
    first = np.searchsorted(plan.publisher[by_publisher], np.arange(plan.home.size + 1))
    number = np.empty(messages, np.int64)
    number[by_publisher] = np.arange(messages) - first[plan.publisher[by_publisher]] + 1
    publisher = plan.publisher[got.message]
    order = np.lexsort((got.arrived_us, publisher, got.client))  # stable: as they came
    pair = got.client[order].astype(np.int64) * plan.home.size + publisher[order]
    fresh = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1])))
    return Arrivals(
        pair_start=np.append(fresh, pair.size).astype(np.int64),
        publisher=publisher[order][fresh].astype(np.int32),
        client=got.client[order][fresh],
        number=number[got.message[order]],
        arrived_us=got.arrived_us[order],
        first=first.astype(np.int64),
        departed_us=plan.published_us[by_publisher],
        topic=plan.topic[by_publisher],
        wants=plan.wants,
    )


def replay(came: Arrivals, options: Fifo) -> Released:
    """What the layer with these options makes of the arrivals."""
    chosen = np.zeros(_OPTIONS, np.int64)
    chosen[_RULE] = _RULES[options.rule]
    chosen[_WINDOW] = options.window
    chosen[_HOLD] = round(options.hold_ms * 1000)
    chosen[_STATIC] = round((options.latch_ms or 0) * 1000)
    chosen[_FIRST] = round(options.first_ms * 1000)
    chosen[_BUFFER] = options.buffer
    chosen[_RECORD] = options.record
    released = Released(
        released_us=np.zeros(came.number.size, np.int64),
        status=np.zeros(came.number.size, np.int32),
        latch_us=np.zeros(came.number.size, np.int64),
    )
    most = options.buffer + 2
    room = int(np.diff(came.pair_start).max(initial=0)) + 2
    _replay(
        came.pair_start,
        came.publisher,
        came.client,
        came.number,
        came.arrived_us,
        came.first,
        came.departed_us,
        came.topic,
        came.wants,
        chosen,
        options.violation,
        released.released_us,
        released.status,
        released.latch_us,
        np.zeros(options.window + 1, np.int64),
        np.zeros(_WATCHED + 1, np.int64),
        np.zeros((min(most, room), 4), np.int64),
    )
    return released


# Places in a row of `held`.
_AT, _SINCE, _UNTIL, _AWAITS = range(4)
# Places in the state of a pair.
_COUNT, _ABSOLUTE, _SQUARES, _BEGIN, _SEEN, _FARS, _WATCH_BEGIN, _NEXT, _HELD, _STATE = range(10)


@in_place
def _replay(
    pair_start: Longs,
    publisher: Ints,
    client: Ints,
    number: Longs,
    arrived_us: Longs,
    first: Longs,
    departed_us: Longs,
    topic: Ints,
    wants: Bools,
    options: Longs,
    violation: float,
    released_us: Longs,
    status: Ints,
    latch_us: Longs,
    samples: Longs,
    watched: Longs,
    held: Longs,
) -> None:
    for pair in range(publisher.size):
        begin = first[publisher[pair]] - 1  # so that message `number` is at begin + number
        mine = wants[client[pair]]
        count = absolute = squares = ring = 0
        seen = fars = watch_ring = 0
        expected = 0
        waiting = 0
        last_arrived = last_departed = 0
        for at in range(pair_start[pair], pair_start[pair + 1] + 1):
            ended = at == pair_start[pair + 1]
            now = int(arrived_us[at]) if not ended else 1 << 62
            # what is due before this arrival
            when = 0  # a latch that was over before has to wait for those of lower numbers
            while waiting:
                if _ready(number, held, expected):
                    expected = _go(number, held, released_us, status, IN_ORDER, when)
                else:
                    when = max(when, _due(held, waiting, options[_HOLD]))
                    if when > now:
                        break
                    expected = _go(number, held, released_us, status, GAP_SKIPPED, when)
                waiting = _drop(held, waiting)
            if ended:
                break
            this = number[at]
            departed = departed_us[begin + this]
            if at == pair_start[pair]:
                expected = 1
            else:
                sample = abs((now - last_arrived) - (departed - last_departed))
                sample = min(sample, options[_HOLD])
                if count >= _FEWEST:
                    far = 1 if 1.5 * sample * count > _FAR * absolute else 0
                    if seen == _WATCHED:
                        fars -= watched[watch_ring]
                    else:
                        seen += 1
                    watched[watch_ring] = far
                    fars += far
                    watch_ring = (watch_ring + 1) % _WATCHED
                if count == options[_WINDOW]:
                    absolute -= samples[ring]
                    squares -= samples[ring] * samples[ring]
                else:
                    count += 1
                samples[ring] = sample
                ring = (ring + 1) % options[_WINDOW]
                absolute += sample
                squares += sample * sample
            last_arrived, last_departed = now, departed
            if this < expected:
                released_us[at] = now
                status[at] = OUT_OF_ORDER
                continue
            awaits, since, told = _missing(
                number,
                held,
                waiting,
                topic,
                departed_us,
                mine,
                begin,
                this,
                expected,
                options[_RECORD],
            )
            until = int(now)
            if awaits >= expected:
                fits = seen < _WATCHED // 2 or fars <= _TOO_MANY * seen
                delta = max(departed - since, 0)
                latch_us[at] = _latch(
                    options, violation, delta, told, count, absolute, squares, fits
                )
                until = now + int(latch_us[at])
            waiting = _hold(number, held, waiting, at, now, until, awaits)
            while waiting:
                if _ready(number, held, expected):
                    expected = _go(number, held, released_us, status, IN_ORDER, now)
                elif waiting > options[_BUFFER] or _due(held, waiting, options[_HOLD]) <= now:
                    expected = _go(number, held, released_us, status, GAP_SKIPPED, now)
                else:
                    break
                waiting = _drop(held, waiting)


@in_place
def _missing(
    number: Longs,
    held: Longs,
    waiting: int,
    topic: Ints,
    departed_us: Longs,
    mine: Bools,
    begin: int,
    this: int,
    expected: int,
    record: int,
) -> tuple[int, int, bool]:
    """The latest missing number that may be for this subscriber; when it departed, or, beyond the
    record, the last one that is told of; whether it is told of."""
    place = waiting - 1  # held ones with higher numbers are not of interest
    while place >= 0 and number[held[place, _AT]] > this:
        place -= 1
    for step in range(1, this - expected + 1):
        candidate = this - step
        if place >= 0 and number[held[place, _AT]] == candidate:
            place -= 1
            continue
        if step <= record and not mine[topic[begin + candidate]]:
            continue
        told = max(candidate, this - max(1, record + 1))
        return candidate, departed_us[begin + told], step <= record
    return -1, 0, True


@in_place
def _ready(number: Longs, held: Longs, expected: int) -> bool:
    return bool(number[held[0, _AT]] == expected or held[0, _AWAITS] < expected)


@in_place
def _due(held: Longs, waiting: int, hold_us: int) -> int:
    longest = held[0, _SINCE]
    for place in range(1, waiting):
        longest = min(longest, held[place, _SINCE])
    return int(min(held[0, _UNTIL], longest + hold_us))


@in_place
def _hold(
    number: Longs, held: Longs, waiting: int, at: int, now: int, until: int, awaits: int
) -> int:
    place = waiting
    while place > 0 and number[held[place - 1, _AT]] > number[at]:
        for column in range(4):
            held[place, column] = held[place - 1, column]
        place -= 1
    held[place, _AT], held[place, _SINCE] = at, now
    held[place, _UNTIL], held[place, _AWAITS] = until, awaits
    return waiting + 1


@in_place
def _drop(held: Longs, waiting: int) -> int:
    """The first held one is gone."""
    for place in range(1, waiting):
        for column in range(4):
            held[place - 1, column] = held[place, column]
    return waiting - 1


@in_place
def _go(number: Longs, held: Longs, released_us: Longs, status: Ints, how: int, now: int) -> int:
    at = held[0, _AT]
    released_us[at] = now
    status[at] = how
    return int(number[at] + 1)


@in_place
def _latch(
    options: Longs,
    violation: float,
    delta: int,
    told: bool,
    count: int,
    absolute: int,
    squares: int,
    fits: bool,
) -> int:
    rule = options[_RULE]
    if rule == 3:
        wait = float(options[_STATIC])
    elif count == 0:
        wait = float(options[_FIRST]) if told or options[_RECORD] == 0 else 0.0
    elif rule == 2 or not fits:
        wait = sqrt(squares / count) * sqrt((1 - violation) / violation) - delta
    else:
        scale = absolute / (1.5 * count)
        if scale == 0:
            wait = 0.0
        elif rule == 1:
            wait = scale * (_lower(2 - log(4.0) - log(violation)) - 2) - delta
        elif told or (2 + delta / scale) / 4 * exp(-delta / scale) > _UNLIKELY * violation:
            wait = scale * count * expm1(_held(2 + delta / scale, violation) / count)
        else:
            wait = 0.0
    return int(min(max(np.int64(0), np.int64(np.rint(wait))), options[_HOLD]))


@in_place
def _held(s: float, violation: float) -> float:
    """The latch by the conditional rule, in scales; s: two, and the departures' distance."""
    if s < 700:
        return max(0.0, _lower(s - log(s) - log(violation)) - s)
    t = -log(violation)
    for _ in range(5):
        t = log1p(t / s) - log(violation)
    return t


@in_place
def _lower(c: float) -> float:
    """-W(-exp(-c)) on the lower branch: the solution u > 1 of u - log(u) = c."""
    u = c + log(c)
    for _ in range(30):
        step = (u - log(u) - c) / (1 - 1 / u)
        u -= step
        if abs(step) < 1e-15 * u:
            break
    return u
