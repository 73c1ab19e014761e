"""One publisher's events at a receiver: what is next, what is held, what was passed over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from unisono.core.events import LIFE_BITS, Event, Past, Status, first_of
from unisono.qos.fifo.options import Fifo
from unisono.qos.fifo.spread import Spread, SpreadSnapshot

PASSED_RANGES = 1024  # of numbers that are still welcome; the oldest are forgotten

_NEW_LIFE = 1 << (LIFE_BITS - 1)  # numbers that nobody misses in one life

# Whether an event of this topic and summary may be for this receiver.
MayWant = Callable[[str, bytes], bool]


class Held(NamedTuple):
    """An event that came before its predecessor."""

    event: Event
    since_us: int
    latch_us: int  # when its latch is over
    until_us: int  # and when it goes, which may be later
    awaits: int  # the latest missing number that may be for this receiver
    delta_us: int  # how long before this event it departed, at least
    told: bool  # by a record; else it may just as well be for others


class Snapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All that a source knows, in plain values: to be kept where the source is not."""

    next: int
    arrived_us: int | None
    departed_us: int
    passed: list[tuple[int, int]]
    held: list[tuple[int, Held]]  # number and what is held, in the order of arrival
    spread: SpreadSnapshot
    told: bool


class Source:
    """All memory of one publisher: `window` samples, `buffer` held events, `PASSED_RANGES`."""

    __slots__ = (
        "_arrived_us",
        "_began",
        "_departed_us",
        "_hold_us",
        "_numbers",
        "_options",
        "_passed_from",
        "_passed_until",
        "held",
        "next",
        "spread",
        "told",
    )

    def __init__(self, options: Fifo) -> None:
        self._options = options
        self._hold_us = round(options.hold_ms * 1000)
        self._began = False  # whether `next` is known
        self._arrived_us: int | None = None  # of the last that came
        self._departed_us = 0
        self._passed_from: list[int] = []  # ranges, rising and apart: first number ...
        self._passed_until: list[int] = []  # ... and the one after the last
        self.next = 0  # every number before is notified or passed over
        self.held: dict[int, Held] = {}  # by number, in the order of arrival
        self._numbers: list[int] = []  # of these; a heap
        self.spread = Spread(options)
        self.told = True  # what was last said about the fit of the model

    def begin(self, number: int) -> None:
        """Nothing has come, and nothing before this number is waited for: should it still come, it
        is out of order. (Else the life of the first that comes says where numbers begin.)"""
        self._began = True
        self._pass_to(number)

    def snapshot(self) -> Snapshot:
        """To go on from, with `restore`; only of a source that something has come to."""
        return Snapshot(
            self.next,
            self._arrived_us,
            self._departed_us,
            list(zip(self._passed_from, self._passed_until, strict=True)),
            list(self.held.items()),
            self.spread.snapshot(),
            self.told,
        )

    @classmethod
    def restore(cls, options: Fifo, kept: Snapshot) -> Source:
        """A source that goes on as the one that the snapshot was taken of."""
        source = cls(options)
        source._began = True
        source.next = kept.next
        source._arrived_us, source._departed_us = kept.arrived_us, kept.departed_us
        source._passed_from = [first for first, _ in kept.passed]
        source._passed_until = [last for _, last in kept.passed]
        source.held = dict(kept.held)
        source._numbers = sorted(source.held)  # which is a heap
        source.spread = Spread.restore(options, kept.spread)
        source.told = kept.told
        return source

    def arrive(
        self, event: Event, past: Past, may_want: MayWant, now: int
    ) -> list[tuple[Event, Status]] | None:
        """An event has come: what to notify now. None: it is a duplicate."""
        number = past.number
        if not self._began:
            self._began = True
            self.next = first_of(number >> LIFE_BITS) + 1
        elif number < self.next:
            if not self._take_back(number):
                return None
            self._sample(event, now)
            self.spread.outcome(late=True)
            return [(event, Status.OUT_OF_ORDER)]
        elif number in self.held:
            return None
        self._sample(event, now)
        out: list[tuple[Event, Status]] = []
        if number == self.next:
            self.next = number + 1
            out.append((event, Status.IN_ORDER))
            if self.held:
                out += self.release(now)
            return out
        if number - self.next > _NEW_LIFE:  # the publisher has begun anew
            out = self.let_all_go(now)
            self._pass_to(first_of(number >> LIFE_BITS) + 1)
        awaits, delta_us, told = self._missing(event, past, may_want)
        latch = hold = 0
        if awaits >= self.next:
            latch = self.spread.latch_us(delta_us, told)
            hold = self.spread.hold_us(latch, delta_us)
        self.held[number] = Held(event, now, now + latch, now + hold, awaits, delta_us, told)
        heappush(self._numbers, number)
        out += self.release(now)
        while len(self.held) > self._options.buffer:
            out.append(self._go(Status.GAP_SKIPPED, now))
            out += self.release(now)
        return out

    def _sample(self, event: Event, now: int) -> None:
        """Events that arrive one after the other are compared, whatever their numbers."""
        if self._arrived_us is not None:
            took = now - self._arrived_us
            self.spread.add(took - (event.published_us - self._departed_us))
        self._arrived_us, self._departed_us = now, event.published_us

    def _missing(self, event: Event, past: Past, may_want: MayWant) -> tuple[int, int, bool]:
        """The latest number that is missing and may be for us, -1 if there is none; how long before
        this event it departed, at least; and whether the record tells of it."""
        number, age = past.number - 1, past.since_us
        for before in past.record():
            if number < self.next:
                return -1, 0, True
            if number in self.held:
                return self._missing_before(self.held[number], event)
            if may_want(before.topic, before.summary):
                return number, age, True
            number -= 1
            age += before.since_us
        if number in self.held:
            return self._missing_before(self.held[number], event)
        return (number, age, False) if number >= self.next else (-1, 0, True)

    def _missing_before(self, held: Held, event: Event) -> tuple[int, int, bool]:
        """What a held event awaits, this one does too."""
        while held.awaits in self.held:
            held = self.held[held.awaits]
        if held.awaits < self.next:
            return -1, 0, True
        since = max(0, event.published_us - held.event.published_us)
        return held.awaits, since + held.delta_us, held.told

    def release(self, now: int) -> list[tuple[Event, Status]]:
        """What need not wait any longer, in order."""
        out: list[tuple[Event, Status]] = []
        while self.held:
            number = self._numbers[0]
            if number == self.next or self.held[number].awaits < self.next:
                out.append(self._go(Status.IN_ORDER, now))
            elif self.due_us() <= now:
                out.append(self._go(Status.GAP_SKIPPED, now))
            else:
                break
        return out

    def due_us(self) -> int:
        """When the first held event goes: its latch is over, or another has waited for long."""
        first = self.held[self._numbers[0]]
        longest = next(iter(self.held.values()))
        return min(first.until_us, longest.since_us + self._hold_us)

    def _go(self, status: Status, now: int) -> tuple[Event, Status]:
        """Let the first held event go. What was told to be for others is not remembered."""
        number = heappop(self._numbers)
        held = self.held.pop(number)
        if status is Status.GAP_SKIPPED:
            self._pass_to(number)
        elif held.until_us > held.since_us:
            self.spread.outcome(late=now > held.latch_us)
        self.next = number + 1
        return held.event, status

    def let_all_go(self, now: int) -> list[tuple[Event, Status]]:
        """In order, though something is missing."""
        return [self._go(Status.GAP_SKIPPED, now) for _ in range(len(self.held))]

    def _pass_to(self, number: int) -> None:
        """Numbers before this one are passed over; if one still comes, it is out of order."""
        if number <= self.next:
            return
        self._passed_from.append(self.next)
        self._passed_until.append(number)
        self.next = number
        self._trim()

    def _trim(self) -> None:
        if len(self._passed_from) > PASSED_RANGES:
            del self._passed_from[0], self._passed_until[0]

    def _take_back(self, number: int) -> bool:
        """True if this number was passed over: it is no longer."""
        at = bisect_right(self._passed_from, number) - 1
        if at < 0 or number >= self._passed_until[at]:
            return False
        begin, end = self._passed_from[at], self._passed_until[at]
        ranges = [r for r in ((begin, number), (number + 1, end)) if r[0] < r[1]]
        self._passed_from[at : at + 1] = [first for first, _ in ranges]
        self._passed_until[at : at + 1] = [last for _, last in ranges]
        self._trim()
        return True
