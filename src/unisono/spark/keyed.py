"""One key's rows, as one publisher's events: places of rows go in; places, statuses and waits come
out, in order. What it knows between batches is bytes.

The rules are those of the FIFO layer because it is its machine (`qos/fifo/source.py`); the one
difference is that duplicates come out as well, marked. Rows tell of nothing but themselves: every
missing number may be on its way, and may have departed just before the one that shows the gap.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unisono.core.events import LIFE_BITS, Event, Past, Status, first_of
from unisono.qos.fifo.options import Fifo
from unisono.qos.fifo.source import Snapshot, Source

HIGHEST = 2**53  # of the numbers of events


class Kept(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is known of a key between batches, but for the rows that it holds."""

    source: Snapshot
    clock_us: int
    heard_us: int
    timer_ms: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Kept)


def _any(topic: str, told: bytes) -> bool:
    return True


class Keyed:
    """Rows that were held come first: their places count from 0, in the order of `held()`."""

    __slots__ = (
        "_clock_us",
        "_first",
        "_forget_us",
        "_heard_us",
        "_options",
        "_source",
        "_waiting",
        "forgotten",
        "places",
        "statuses",
        "timer_ms",
        "waits_us",
    )

    def __init__(
        self,
        options: Fifo,
        first: int | None = None,
        forget_us: int | None = None,
        kept: bytes | None = None,
    ) -> None:
        """`first`: the number that a key begins with; if None, that of its first row."""
        self._options = options
        self._first = first
        self._forget_us = forget_us
        self._source: Source | None = None
        self._clock_us = self._heard_us = 0
        self._waiting: dict[int, tuple[int, int]] = {}  # number -> place, since
        self.timer_ms = 0  # the earliest that is set; 0 if none is
        self.forgotten = False  # silent for so long that nothing need be kept
        self.places: list[int] = []  # of the rows that go, in order
        self.statuses: list[Status] = []
        self.waits_us: list[int] = []
        if kept is not None:
            known = _DECODER.decode(kept)
            self._source = Source.restore(options, known.source)
            self._clock_us, self._heard_us = known.clock_us, known.heard_us
            self.timer_ms = known.timer_ms
            self._waiting = {
                number: (place, held.since_us)
                for place, (number, held) in enumerate(self._source.held.items())
            }

    def arrive(self, place: int, number: int, sent_us: int | None, arrived_us: int) -> None:
        """A row has come; without a number, it is below 0. The clock of a key never goes back."""
        if arrived_us > self._clock_us:
            self._let_go(arrived_us)
            self._clock_us = arrived_us
        now = self._heard_us = self._clock_us
        if not 0 <= number <= HIGHEST:
            self._go_at_once(place, Status.OUT_OF_ORDER)
            return
        source = self._source
        if source is None:
            source = self._source = Source(self._options)
            if self._first is None:
                source.begin(number)
            else:
                source.begin(first_of(number >> LIFE_BITS) + self._first)
        event = Event("", "", b"", "", number, now if sent_us is None else sent_us)
        came = source.arrive(event, Past(number, 0), _any, now)
        if came is None:
            self._go_at_once(place, Status.DUPLICATE)
            return
        self._waiting[number] = (place, now)
        self._gone(came, now)

    def until(self, now_us: int) -> None:
        """So late it is: what has waited long enough goes; who was silent for long is forgotten."""
        self._let_go(now_us)
        wake = self.wake_us()
        self.forgotten = wake is not None and wake <= now_us

    def wake_us(self) -> int | None:
        """When something is to be done, should nothing come; of a key that is known."""
        source = self._source
        if source is not None and source.held:
            return source.due_us()
        if source is not None and self._forget_us is not None:
            return self._heard_us + self._forget_us
        return None

    def held(self) -> list[int]:
        """The places of the rows that stay, in the order of arrival."""
        return [] if self._source is None else [self._waiting[n][0] for n in self._source.held]

    def kept(self) -> bytes | None:
        """What to make the next one of; None if nothing is known."""
        if self._source is None or self.forgotten:
            return None
        snapshot = self._source.snapshot()
        return _ENCODER.encode(Kept(snapshot, self._clock_us, self._heard_us, self.timer_ms))

    def _let_go(self, now_us: int) -> None:
        """At the time that each is due, as if a timer had been there."""
        source = self._source
        while source is not None and source.held and (due := source.due_us()) <= now_us:
            self._gone(source.release(due), due)
            self._clock_us = max(self._clock_us, due)

    def _gone(self, came: Iterable[tuple[Event, Status]], now: int) -> None:
        for event, status in came:
            place, since = self._waiting.pop(event.seq)
            self.places.append(place)
            self.statuses.append(status)
            self.waits_us.append(now - since)

    def _go_at_once(self, place: int, status: Status) -> None:
        self.places.append(place)
        self.statuses.append(status)
        self.waits_us.append(0)
