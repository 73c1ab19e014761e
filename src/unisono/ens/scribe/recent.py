"""What a process has heard lately: what is a duplicate, what is missing, what others may want.

Every process numbers what it publishes on a topic. Of each topic and source the numbers heard are
remembered, and the events themselves are kept, for `keep_us`; a gap below the highest number, or a
higher number that somebody else has, is something missed. What lies further back is given up.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import islice

from unisono.ens.scribe.messages import Head, Item, Numbers

ITEMS = 1 << 15  # kept for others: the oldest goes
BYTES = 64 << 20
STREAMS = 1 << 15  # topics and sources: the one that was silent longest is forgotten
GAP = 1024  # missing numbers of one stream that are asked for at a time, the latest
_BEFORE = 64  # of a stream heard for the first time, so many earlier ones were missed at most
_HEADS = 256  # streams named in a sign of life, the most recent

Key = tuple[str, str]


class _Stream:
    """The numbers heard of one topic and source."""

    __slots__ = ("ask_from", "asked", "heard", "high", "last_us", "low")

    def __init__(self, first: int, ask_from: int = 0) -> None:
        self.low = max(0, first - 1 - _BEFORE)  # nothing up to here is new
        self.high = first - 1
        self.heard: dict[int, int] = {}  # number -> when
        self.asked = 0  # what is missing up to here was noted a beat ago
        self.ask_from = ask_from  # what is missing before came before this process
        self.last_us = 0  # what came or was told was new; 0: nothing of it came by here

    def close_up(self) -> None:
        """Nothing is missing up to the first gap."""
        while self.low + 1 in self.heard:
            self.low += 1
            del self.heard[self.low]


class Recent:
    """The events that came by."""

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._young_us = -math.inf  # the process has just begun, until then
        self._streams: OrderedDict[Key, _Stream] = OrderedDict()
        self._sources: dict[str, dict[str, None]] = {}  # of these streams, by topic
        self._items: dict[tuple[str, str, int], tuple[int, Item]] = {}  # and when they came
        self._order: deque[tuple[int, Item]] = deque()
        self._bytes = 0

    def start(self, now: int) -> None:
        """The process begins."""
        self._young_us = now + self._keep_us

    def add(self, item: Item, now: int) -> bool:
        """Whether it is new; then it is kept."""
        key = (item.topic, item.source)
        number = item.number
        stream = self._streams.get(key) or self._open(key, number, number, now)
        if number <= stream.low or number in stream.heard:
            return False
        stream.heard[number] = now
        stream.last_us = now
        self._streams.move_to_end(key)
        stream.high = max(stream.high, number)
        if len(stream.heard) > ITEMS:  # nobody keeps what is missing before
            stream.low = min(stream.heard) - 1
        stream.close_up()
        self._items[(*key, number)] = (now, item)
        self._order.append((now, item))
        self._bytes += len(item.frame)
        while self._bytes > BYTES or len(self._order) > ITEMS:
            self._drop()
        return True

    def _open(self, key: Key, first: int, ask_from: int, now: int) -> _Stream:
        """A stream that was not heard of. The first events of a source may have been lost; but if
        there were many before, a process that has just begun was not there."""
        old = first > _BEFORE and now < self._young_us
        stream = self._streams[key] = _Stream(first, ask_from if old else 0)
        self._sources.setdefault(key[0], {})[key[1]] = None
        if len(self._streams) > STREAMS:
            (topic, source), _ = self._streams.popitem(last=False)
            del self._sources[topic][source]
            if not self._sources[topic]:
                del self._sources[topic]
        return stream

    def heard(self, topic: str, source: str, number: int) -> bool:
        """Whether this one has come, or is too old to matter."""
        stream = self._streams.get((topic, source))
        return stream is not None and (number <= stream.low or number in stream.heard)

    def get(self, numbers: Iterable[Numbers]) -> list[Item]:
        """Those of them that are kept."""
        found = (
            self._items.get((topic, source, number))
            for topic, source, several in numbers
            for number in several
        )
        return [kept[1] for kept in found if kept is not None]

    def heads(self, topics: AbstractSet[str], now: int) -> list[Head]:
        """The last numbers of the streams that were heard lately, of these topics."""
        found: list[Head] = []
        for (topic, source), stream in reversed(self._streams.items()):
            if stream.last_us < now - self._keep_us or len(found) >= _HEADS:
                break
            if topic in topics:
                found.append((topic, source, stream.high))
        return found

    def kept(self, topic: str, since_us: int) -> list[Numbers]:
        """The numbers of this topic that came since and can be had here, the latest of each
        source."""
        found: list[Numbers] = []
        for source in self._sources.get(topic, ()):
            high = self._streams[topic, source].high
            latest = range(max(1, high - GAP + 1), high + 1)
            numbers = tuple(n for n in latest if self._came(topic, source, n) >= since_us)
            if numbers:
                found.append((topic, source, numbers))
        return found

    def _came(self, topic: str, source: str, number: int) -> float:
        kept = self._items.get((topic, source, number))
        return kept[0] if kept is not None else -math.inf

    def told(self, topic: str, source: str, number: int, now: int) -> None:
        """Somebody has heard this one. Only news keeps a stream from growing old: else those who
        tell each other of it would never stop, nor cease to ask for what nobody has."""
        key = (topic, source)
        stream = self._streams.get(key) or self._open(key, number, number + 1, now)
        if number > stream.high:
            stream.high = number
            stream.last_us = now
            self._streams.move_to_end(key)

    def begin(self, heads: Iterable[Head]) -> None:
        """What was published up to here is of no interest: it came before the subscription, or
        others saw to it."""
        for topic, source, number in heads:
            stream = self._streams.get((topic, source))
            if stream is None:
                stream = self._open((topic, source), number, 0, 0)
                self._streams.move_to_end((topic, source), last=False)  # nothing of it came here
            if not stream.last_us:
                stream.low = stream.high = max(stream.high, number)

    def missing(self, older_than_us: int) -> list[Numbers]:
        """What has not come though later ones have, or though others have it.

        Called once a beat: what was not missing before is only noted, so that it has time to come.
        """
        found: list[Numbers] = []
        for (topic, source), stream in reversed(self._streams.items()):
            if stream.last_us < older_than_us:
                break
            noted = range(max(stream.low + 1, stream.ask_from), stream.asked + 1)
            latest = islice((n for n in reversed(noted) if n not in stream.heard), GAP)
            gaps = tuple(latest)[::-1]
            stream.asked = stream.high
            if gaps and stream.low < stream.high:
                found.append((topic, source, gaps))
        return found

    def tidy(self, now: int) -> None:
        """Let go what is too old."""
        old = now - self._keep_us
        while self._order and self._order[0][0] < old:
            self._drop()
        for stream in self._streams.values():
            if stream.heard and stream.low < stream.high:
                past = max((n for n, when in stream.heard.items() if when < old), default=None)
                if past is not None and past > stream.low:
                    stream.heard = {n: at for n, at in stream.heard.items() if n > past}
                    stream.low = past
                    stream.close_up()

    def _drop(self) -> None:
        _, item = self._order.popleft()
        self._items.pop((item.topic, item.source, item.number), None)
        self._bytes -= len(item.frame)
