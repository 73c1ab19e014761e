"""How packets get lost on their way to a subscriber, seen from the holes in transmissions.

Every packet of a transmission says how many there are and which it is (`messages.Sent`), so what
did not come within a while was lost. The share of lost packets and the mean length of a burst are
those of a Gilbert-Elliott channel (`models/channel.py`). Bursts are not counted by length, since
most transmissions are short and cut them off: what is counted is how often the packet after a lost
one came, which ends a burst. Events count less by one per cent with every later one.

A transmission of which nothing came counts once the event is learnt of from others, except soon
after the topic was subscribed: it may be older than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from unisono.qos.coding.packets import Layout
from unisono.qos.peers import BURST_MAX, Measured
from unisono.qos.reliable.messages import Sent

_KEPT = 0.99  # of an event's weight, with each later one
_EVENTS_LEAST = 10  # measured before anything is told
_COUNTED_MAX = 4096  # packets of a transmission: of a longer one, its beginning
_WATCHED_MAX = 4096  # transmissions at a time: the oldest is judged early
# Taken to have been seen before anything else; about what the default redundancy suits.
_PACKETS_BEFORE, _LOST_BEFORE, _AFTER_LOST_BEFORE, _ENDS_BEFORE = 10.0, 0.2, 2.0, 1.0


class _Watched(msgspec.Struct):
    topic: str
    since_us: int
    count: int = 0  # packets of the transmission; 0 while none has come
    came: int = 0  # a bit for each


class Meter:
    """What has come of other nodes' transmissions, and the loss that follows from it.

    `settle_us`: what has not come by then is lost; `stale_us`: no event is learnt of later.
    """

    def __init__(self, settle_us: int, stale_us: int) -> None:
        self._settle_us = settle_us
        self._stale_us = stale_us
        self._watched: dict[bytes, _Watched] = {}  # oldest first
        self._listening_us: dict[str, int] = {}  # topic -> since when
        self._redundancy = 0  # of the last transmission that was seen
        self._judged = 0
        # Sums over events, by weight.
        self._events = 0.0
        self._packets = 0.0
        self._lost = 0.0
        self._after_lost = 0.0  # packets that were sent after a lost one
        self._ends = 0.0  # of these, those that came

    def listening(self, topics: Iterable[str], now: int) -> None:
        for topic in topics:
            self._listening_us.setdefault(topic, now)

    def ignoring(self, topics: Iterable[str]) -> None:
        ignored = set(topics)
        for topic in ignored:
            self._listening_us.pop(topic, None)
        for key in [key for key, seen in self._watched.items() if seen.topic in ignored]:
            del self._watched[key]

    def learnt(self, key: bytes, topic: str, now: int) -> None:
        """There is such an event: from now on, see what comes of its transmission."""
        self._watched.setdefault(key, _Watched(topic, now))
        if len(self._watched) > _WATCHED_MAX:
            self._judge(next(iter(self._watched)), None)

    def came(self, sent: Sent) -> None:
        """A packet of a transmission. What is not watched, or no longer, does not count."""
        seen = self._watched.get(sent.packet.key)
        count = sent.count
        if seen is None or seen.count not in (0, count) or sent.index >= min(count, _COUNTED_MAX):
            return
        seen.count = count
        seen.came |= 1 << sent.index
        self._redundancy = sent.redundancy

    def forget(self, key: bytes) -> None:
        """Its transmission cannot be judged."""
        self._watched.pop(key, None)

    def judge(self, now: int, shape_of: Callable[[bytes], Layout | None]) -> None:
        """Count what is settled. `shape_of` tells how an event is cut, if that is known by now."""
        while self._watched:
            key, seen = next(iter(self._watched.items()))
            if now - seen.since_us < self._settle_us:
                return
            self._judge(key, shape_of(key))

    def _judge(self, key: bytes, shape: Layout | None) -> None:
        seen = self._watched.pop(key)
        count = seen.count
        if not count:
            listening_us = self._listening_us.get(seen.topic, seen.since_us)
            if not self._events or seen.since_us - listening_us < self._stale_us:
                return
            count = round(self._packets / self._events)  # one as any other, if nothing is known
            if shape is not None:
                count = shape.packets + self._redundancy * shape.generations
        count = min(count, _COUNTED_MAX)
        lost = ~seen.came & ((1 << count) - 1)
        after_lost = (lost & ((1 << (count - 1)) - 1)).bit_count()
        lost_too = (lost & (lost >> 1)).bit_count()
        self._judged += 1
        self._events = self._events * _KEPT + 1
        self._packets = self._packets * _KEPT + count
        self._lost = self._lost * _KEPT + lost.bit_count()
        self._after_lost = self._after_lost * _KEPT + after_lost
        self._ends = self._ends * _KEPT + after_lost - lost_too

    @property
    def measured(self) -> Measured | None:
        """What to tell others; None before enough has been seen."""
        if self._judged < _EVENTS_LEAST:
            return None
        loss = (self._lost + _LOST_BEFORE) / (self._packets + _PACKETS_BEFORE)
        burst = (self._after_lost + _AFTER_LOST_BEFORE) / (self._ends + _ENDS_BEFORE)
        return Measured(round(loss * 1e6), round(100 * min(max(burst, 1.0), BURST_MAX)))


class Habit:
    """How often something happens, of the last hundred times or so."""

    def __init__(self) -> None:
        self._times = 0
        self._share = 0.0

    def add(self, happened: bool) -> None:
        self._times = min(self._times + 1, round(1 / (1 - _KEPT)))
        self._share += (happened - self._share) / self._times

    @property
    def percent(self) -> int | None:
        """None if nothing is known yet."""
        return round(100 * self._share) if self._times else None
