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
_REMEMBERED, _JUDGED, _OUTCOMES = spread.REMEMBERED, spread.JUDGED, spread.OUTCOMES
_UNLIKELY = spread.UNLIKELY


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
    fresh = np.flatnonzero(np.diff(pair, prepend=-1))
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
        np.zeros(2, np.int64),
        np.zeros((min(most, room), _COLUMNS), np.int64),
    )
    return released


# Places in a row of `held`; the one that is awaited departed at the last but one.
_AT, _SINCE, _LATCH, _UNTIL, _AWAITS, _AWAITED_US, _TOLD, _COLUMNS = range(8)


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
    outcomes: Longs,
    held: Longs,
) -> None:
    for pair in range(publisher.size):
        begin = first[publisher[pair]] - 1  # so that message `number` is at begin + number
        mine = wants[client[pair]]
        count = absolute = squares = ring = 0
        variance = furthest = 0.0
        seen_samples = 0
        outcomes[:] = 0
        expected = 0
        waiting = 0
        last_arrived = last_departed = 0
        for at in range(pair_start[pair], pair_start[pair + 1] + 1):
            ended = at == pair_start[pair + 1]
            now = int(arrived_us[at]) if not ended else 1 << 62
            # what is due before this arrival; a latch that was over has to wait for lower numbers.
            # What comes in the microsecond in which a hold ends is in time.
            waiting, expected = _release(
                number, held, waiting, expected, released_us, status, outcomes, options, 0, now - 1
            )
            if ended:
                break
            this = number[at]
            departed = departed_us[begin + this]
            if at == pair_start[pair]:
                expected = 1
            else:
                sample = abs((now - last_arrived) - (departed - last_departed))
                sample = min(sample, options[_HOLD])
                if count == options[_WINDOW]:
                    absolute -= samples[ring]
                    squares -= samples[ring] * samples[ring]
                else:
                    count += 1
                samples[ring] = sample
                ring = (ring + 1) % options[_WINDOW]
                absolute += sample
                squares += sample * sample
                seen_samples = min(seen_samples + 1, _REMEMBERED)
                variance += (sample * sample - variance) / seen_samples
                furthest = max(float(sample), furthest * (1 - 1 / _REMEMBERED))
            last_arrived, last_departed = now, departed
            if this < expected:
                released_us[at] = now
                status[at] = OUT_OF_ORDER
                _count(outcomes, True)
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
                seen = outcomes[0] + outcomes[1]
                allowed = violation * seen
                fits = seen < _JUDGED or outcomes[1] <= allowed + 3 * sqrt(allowed)
                delta = max(departed - since, 0)
                latch_us[at] = _latch(options, violation, delta, told, count, absolute, squares)
                until = now + int(latch_us[at])
                if not fits and options[_RULE] == 0:
                    bound = sqrt(variance) * sqrt((1 - violation) / violation)
                    safe = np.int64(np.rint(max(bound, furthest) - delta))
                    until = now + int(min(max(latch_us[at], safe), options[_HOLD]))
            latched = now + latch_us[at]
            waiting = _hold(number, held, waiting, at, now, latched, until, awaits, since, told)
            waiting, expected = _release(
                number, held, waiting, expected, released_us, status, outcomes, options, now, now
            )


@in_place
def _release(
    number: Longs,
    held: Longs,
    waiting: int,
    expected: int,
    released_us: Longs,
    status: Ints,
    outcomes: Longs,
    options: Longs,
    when: int,
    now: int,
) -> tuple[int, int]:
    """Let go, not before `when`, what need not wait longer than until now; how many are still held,
    and which number is expected then."""
    while waiting:
        if _ready(number, held, expected):
            if held[0, _UNTIL] > held[0, _SINCE]:
                _count(outcomes, when > held[0, _LATCH])
            expected = _go(number, held, released_us, status, IN_ORDER, when)
        else:
            if waiting <= options[_BUFFER]:
                when = max(when, _due(held, waiting, options[_HOLD]))
            if when > now:
                break
            expected = _go(number, held, released_us, status, GAP_SKIPPED, when)
        waiting = _drop(held, waiting)
    return waiting, expected


@in_place
def _count(outcomes: Longs, late: bool) -> None:
    """What was missing has come: in time, or late."""
    outcomes[1 if late else 0] += 1
    if outcomes[0] + outcomes[1] > _OUTCOMES:
        outcomes[0] //= 2
        outcomes[1] //= 2


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
    for step in range(1, this - expected + 1):
        candidate = this - step
        place = _place(number, held, waiting, candidate)
        if place >= 0:  # what a held one awaits, this one does too
            while place >= 0:
                last = place
                place = _place(number, held, waiting, held[last, _AWAITS])
            if held[last, _AWAITS] < expected:
                return -1, 0, True
            return held[last, _AWAITS], held[last, _AWAITED_US], held[last, _TOLD] == 1
        if step <= record and not mine[topic[begin + candidate]]:
            continue
        return candidate, departed_us[begin + candidate], step <= record
    return -1, 0, True


@in_place
def _place(number: Longs, held: Longs, waiting: int, wanted: int) -> int:
    """Where a number is held; -1 if it is not."""
    low, high = 0, waiting
    while low < high:
        middle = (low + high) // 2
        if number[held[middle, _AT]] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < waiting and number[held[low, _AT]] == wanted else -1


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
    number: Longs,
    held: Longs,
    waiting: int,
    at: int,
    now: int,
    latched: int,
    until: int,
    awaits: int,
    awaited_us: int,
    told: bool,
) -> int:
    place = waiting
    while place > 0 and number[held[place - 1, _AT]] > number[at]:
        for column in range(_COLUMNS):
            held[place, column] = held[place - 1, column]
        place -= 1
    held[place, _AT], held[place, _SINCE] = at, now
    held[place, _LATCH], held[place, _UNTIL], held[place, _AWAITS] = latched, until, awaits
    held[place, _AWAITED_US], held[place, _TOLD] = awaited_us, told
    return waiting + 1


@in_place
def _drop(held: Longs, waiting: int) -> int:
    """The first held one is gone."""
    for place in range(1, waiting):
        for column in range(_COLUMNS):
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
) -> int:
    rule = options[_RULE]
    if rule == 3:
        wait = float(options[_STATIC])
    elif count == 0:
        wait = float(options[_FIRST]) if told or options[_RECORD] == 0 else 0.0
    elif rule == 2:
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
