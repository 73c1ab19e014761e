"""The compiled loops of the pass by event (see `resolve.py`).

Rows come as columns: `code` numbers the event ids of this partition, `tag` tells publications
(negative: -1 - source) from deliveries (subscriber * 8 + status), `number` is publisher_seq or
position, `at_us` is published_us or delivered_us.
"""

from __future__ import annotations

import numpy as np

from unisono.pipeline.kernel import Bools, Ints, Longs, compiled
from unisono.trace.schema import DUPLICATE, JUDGED, STATUSES

_JUDGED = tuple(STATUSES.index(status) for status in JUDGED)
_DUPLICATE = STATUSES.index(DUPLICATE)

# Latencies are counted in buckets: 1024 for each power of two, so exact below 2048 us and
# within 0.1 % above; negative ones (clocks that disagree) count at minus their size.
FINE = 1024
HISTOGRAM = 54 * FINE  # buckets of each sign


@compiled
def bucket(value: int, fine: int = FINE) -> int:
    """The bucket of a value that is not negative, with `fine` buckets for each power of two."""
    shift = 0
    while (value >> shift) >= 2 * fine:
        shift += 1
    return shift * fine + (value >> shift)


def bucket_floor(index: int, fine: int = FINE) -> int:
    """The smallest value of a bucket."""
    shift = max(index // fine - 1, 0)
    return (index - shift * fine) << shift


@compiled
def group_by_event(code: Ints, tag: Ints, events: int) -> tuple[Ints, Ints, Ints, int]:
    """The publication of each event (or -1), and the delivery rows grouped by event.

    The deliveries of event e are rows[start[e]:start[e + 1]]. The last result is a row that
    publishes an event id for the second time, or -1.
    """
    publication = np.full(events, -1, np.int32)
    start = np.zeros(events + 1, np.int32)
    again = -1
    for row in range(code.size):
        event = code[row]
        if tag[row] >= 0:
            start[event + 1] += 1
        elif publication[event] < 0:
            publication[event] = row
        else:
            again = row
    for event in range(events):
        start[event + 1] += start[event]
    rows = np.empty(start[events], np.int32)
    free = start[:-1].copy()
    for row in range(code.size):
        if tag[row] >= 0:
            event = code[row]
            rows[free[event]] = row
            free[event] += 1
    return publication, start, rows, again


# Places in the result `counts`, and the rows in the result `witnesses`.
DUPLICATES, PHANTOMS, DEADLINES, LATENCIES, LONGEST_US, N_COUNTS = 0, 1, 2, 3, 4, 5
DUPLICATE_ROW, DUPLICATE_FIRST, PHANTOM_ROW, DEADLINE_ROW, N_WITNESSES = 0, 1, 2, 3, 4


@compiled
def _comes_first(row: int, other: int, tag: Ints, number: Longs) -> bool:
    """Smaller subscriber, then smaller position; anything comes before no row at all (-1)."""
    if other < 0:
        return True
    a, b = tag[row] >> 3, tag[other] >> 3
    return bool(a < b or (a == b and number[row] < number[other]))


@compiled
def judge_events(
    tag: Ints,
    number: Longs,
    at_us: Longs,
    publication: Ints,
    start: Ints,
    rows: Ints,
    subscribers: int,
    deadline_us: int,
    low: Longs,
    high: Longs,
) -> tuple[Bools, Longs, Longs, Longs, Longs, float]:
    """Duplicates, phantoms, latencies and deadlines; which rows order is judged over.

    Returns (judged per row, reference time per event, counts, witness rows, histogram of
    latencies, sum of latencies). A judged row is the first judged delivery of its event to its
    subscriber. A negative `deadline_us` is no deadline. Counted is what is at positions from `low`
    of its subscriber up to `high` (see `window.py`).
    """
    judged = np.zeros(tag.size, np.bool_)
    reference_us = np.zeros(publication.size, np.int64)
    counts = np.zeros(N_COUNTS, np.int64)
    witnesses = np.full(N_WITNESSES, -1, np.int64)
    histogram = np.zeros(2 * HISTOGRAM, np.int64)
    total_us = 0.0
    worst_us = 0
    seen = np.full(subscribers, -1, np.int32)  # by subscriber: the last event seen there
    first = np.zeros(subscribers, np.int32)  # and its row
    seen_judged = np.full(subscribers, -1, np.int32)
    first_judged = np.zeros(subscribers, np.int32)
    for event in range(publication.size):
        published = publication[event]
        for place in range(start[event], start[event + 1]):
            row = rows[place]
            subscriber, status = tag[row] >> 3, tag[row] & 7
            counted = low[subscriber] <= number[row] < high[subscriber]
            if published < 0 and counted:
                counts[PHANTOMS] += 1
                if _comes_first(row, witnesses[PHANTOM_ROW], tag, number):
                    witnesses[PHANTOM_ROW] = row
            if status == _DUPLICATE:
                continue
            if seen[subscriber] != event:
                seen[subscriber] = event
                first[subscriber] = row
            else:
                repeat, original = row, first[subscriber]
                if number[repeat] < number[original]:
                    repeat, original = original, repeat
                    first[subscriber] = original
                if low[subscriber] <= number[repeat] < high[subscriber]:
                    counts[DUPLICATES] += 1
                    if _comes_first(repeat, witnesses[DUPLICATE_ROW], tag, number):
                        witnesses[DUPLICATE_ROW] = repeat
                        witnesses[DUPLICATE_FIRST] = original
            if published >= 0 and counted:
                latency_us = at_us[row] - at_us[published]
                total_us += latency_us
                if counts[LATENCIES] == 0 or latency_us > counts[LONGEST_US]:
                    counts[LONGEST_US] = latency_us
                counts[LATENCIES] += 1
                if latency_us >= 0:
                    histogram[bucket(latency_us)] += 1
                else:
                    histogram[HISTOGRAM + bucket(-latency_us)] += 1
                if deadline_us >= 0 and latency_us > deadline_us:
                    counts[DEADLINES] += 1
                    other = witnesses[DEADLINE_ROW]
                    if (
                        other < 0
                        or latency_us > worst_us
                        or (latency_us == worst_us and _comes_first(row, other, tag, number))
                    ):
                        witnesses[DEADLINE_ROW] = row
                        worst_us = latency_us
            if status in _JUDGED:
                if seen_judged[subscriber] != event:
                    seen_judged[subscriber] = event
                    first_judged[subscriber] = row
                elif number[row] < number[first_judged[subscriber]]:
                    first_judged[subscriber] = row
        none = True
        for place in range(start[event], start[event + 1]):
            row = rows[place]
            subscriber = tag[row] >> 3
            if seen_judged[subscriber] == event and first_judged[subscriber] == row:
                judged[row] = True
                if none or at_us[row] < reference_us[event]:
                    reference_us[event] = at_us[row]
                    none = False
    return judged, reference_us, counts, witnesses, histogram, total_us


# Places in the result of `find_losses`.
EXPECTED, LOST, UNSETTLED, LOST_PUBLICATION, LOST_SUBSCRIBER, N_LOSSES = 0, 1, 2, 3, 4, 5


@compiled
def find_losses(
    tag: Ints,
    number: Longs,
    at_us: Longs,
    publication: Ints,
    start: Ints,
    rows: Ints,
    topic_of_source: Ints,
    interval_start: Ints,
    interval_subscriber: Ints,
    from_us: Longs,
    until_us: Longs,
    subscribers: int,
    settle_us: int,
    window_from_us: int,
    window_until_us: int,
    lost_by_topic: Longs,
) -> Longs:
    """Expected deliveries, those that are missing, and the missing one that was published first.

    Missing is lost if some interval went on for `settle_us` after the publication, else unsettled.
    Only events published within the window are looked for.
    """
    found = np.zeros(N_LOSSES, np.int64)
    found[LOST_PUBLICATION] = -1
    delivered = np.full(subscribers, -1, np.int32)  # by subscriber: the last event delivered
    expected = np.full(subscribers, -1, np.int32)
    settled = np.full(subscribers, -1, np.int32)
    for event in range(publication.size):
        row = publication[event]
        if row < 0 or not window_from_us <= at_us[row] < window_until_us:
            continue
        for place in range(start[event], start[event + 1]):
            delivered[tag[rows[place]] >> 3] = event
        topic = topic_of_source[-1 - tag[row]]
        published_us = at_us[row]
        low, high = interval_start[topic], interval_start[topic + 1]
        for place in range(low, high):
            left_us = until_us[place] - published_us
            if from_us[place] <= published_us and left_us > 0 and left_us >= settle_us:
                settled[interval_subscriber[place]] = event
        for place in range(low, high):
            subscriber = interval_subscriber[place]
            if not from_us[place] <= published_us < until_us[place]:
                continue
            if expected[subscriber] == event:
                continue
            expected[subscriber] = event
            found[EXPECTED] += 1
            if delivered[subscriber] == event:
                continue
            if settled[subscriber] != event:
                found[UNSETTLED] += 1
                continue
            found[LOST] += 1
            lost_by_topic[topic] += 1
            other = found[LOST_PUBLICATION]
            if other < 0 or _lost_before(
                row, subscriber, other, found[LOST_SUBSCRIBER], tag, number, at_us
            ):
                found[LOST_PUBLICATION] = row
                found[LOST_SUBSCRIBER] = subscriber
    return found


@compiled
def _lost_before(
    row: int,
    subscriber: int,
    other: int,
    other_subscriber: int,
    tag: Ints,
    number: Longs,
    at_us: Longs,
) -> bool:
    """Published earlier; then the smaller source, publisher_seq and subscriber."""
    if at_us[row] != at_us[other]:
        return bool(at_us[row] < at_us[other])
    if tag[row] != tag[other]:
        return bool(tag[row] > tag[other])
    if number[row] != number[other]:
        return bool(number[row] < number[other])
    return subscriber < other_subscriber
