"""The subscriber's part: events are notified by rising number, whatever the order of arrival.

The map says which topic each number has. The number after the position is passed if its topic is
not subscribed or its subscription began later; it is notified if its event is here; else it is
waited for, and after a while asked for: the leader first, then each voter. What no voter has any
more is skipped: the next event says so, and what comes of it later is out of order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from random import Random

import msgspec

from unisono.core.effects import Notify
from unisono.core.events import NUMBER, Event, Status
from unisono.core.limits import Limits
from unisono.core.machine import Machine, Outbox, Timer, on
from unisono.errors import UNDECODABLE
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.messages import Fetch, Forgotten, Page
from unisono.qos.total_order.by_log.observations import Malformed, Skipped

_WAIT_US = 20_000  # at least, before something is asked for
_REPEAT_US = 200_000
_REPEAT_MOST_US = 5_000_000
_HELD_BYTES = 64 << 20
_SKIPPED_RANGES = 1024

_EVENT = msgspec.msgpack.Decoder(Event)


class CatchUp(Timer, frozen=True):
    """Something has been missing for long enough."""


class Subscriber(Machine, inputs=Page | Forgotten | CatchUp):
    """One position in the order of a domain, and what lies above it."""

    def __init__(
        self, out: Outbox, known: Known, rng: Random, limits: Limits, *, hold_us: int | None
    ) -> None:
        super().__init__(out)
        self._known = known
        self._rng = rng
        self._limits = limits
        self._hold_us = hold_us
        self.ignored: Counter[str] = Counter()
        self.position: int | None = None  # nothing was subscribed so far
        self.highest = 0  # number received
        self.starts: dict[str, int] = {}  # topic -> what is above is notified
        self._map: deque[str] = deque()  # topics of the numbers after the position, as known
        self._pages: list[tuple[int, tuple[str, ...], bytes]] = []  # maps further above, by number
        self._held: dict[int, msgspec.Raw] = {}
        self._held_bytes = 0
        self._skipped: deque[tuple[int, int]] = deque()  # from, to
        self._gap = False  # the next one comes after a skip
        # What is waited for: since when, and who was asked for it.
        self._waiting = 0  # the number, or 0
        self._since_us = 0
        self._asked = 0
        self._asked_first = 0  # from which number on
        self._usual_us = 0
        self._floors: dict[str, int] = {}  # voters that do not have it any more

    # Subscriptions.

    def begin(self, topics: Iterable[str], start: int, now: int) -> None:
        """Notify what is above the start."""
        start = max(start, self.highest, self.position or 0)
        if self.position is None:
            self.position = start
        for topic in topics:
            self.starts.setdefault(topic, start)
        self._advance(now)

    def end(self, topics: Iterable[str], now: int) -> None:
        for topic in topics:
            self.starts.pop(topic, None)
        if not self.starts and self.position is not None:
            # Begin anew later: what is published meanwhile need not be followed.
            self.highest = max(self.highest, self.position)
            self.position = None
            self._map.clear()
            self._pages.clear()
            self._held.clear()
            self._held_bytes = 0
            self._gap = False
            self._rest()
        elif self.starts:
            self._advance(now)

    # Pages.

    @on(Page)
    def _page(self, page: Page, sender: str, now: int) -> None:
        if not _fits(page):
            self.out.observe(Malformed(sender))
            return
        if page.numbers:
            self.highest = max(self.highest, page.numbers[-1])
        if self.position is None:
            return
        if page.which:
            self._learn(page.first, page.topics, page.which)
        for number, event in zip(page.numbers, page.events, strict=True):
            if number <= self.position:
                self._late(number, event, now)
            elif number not in self._held:
                self._held[number] = event
                self._held_bytes += len(event)
        answered = page.first == self._asked_first
        self._advance(now)
        if answered and self.behind:
            self._ask(now)  # there is more

    def _learn(self, first: int, topics: tuple[str, ...], which: bytes) -> None:
        """A piece of the map, which may be known in part."""
        assert self.position is not None
        next_number = self.position + len(self._map) + 1
        if first > next_number:
            self._set_aside(first, topics, which)
            return
        self._map.extend([topics[place] for place in which[next_number - first :]])
        self._join_pages()

    def _join_pages(self) -> None:
        """What was set aside and follows what is known now, or is known by other means."""
        assert self.position is not None
        while self._pages:
            next_number = self.position + len(self._map) + 1
            first, topics, which = self._pages[0]
            if first > next_number:
                return
            del self._pages[0]
            self._map.extend([topics[place] for place in which[next_number - first :]])

    def _set_aside(self, first: int, topics: tuple[str, ...], which: bytes) -> None:
        """Until what is before it is known. Frames repeat a map as it grows: the longest stays."""
        at = bisect_left(self._pages, first, key=lambda page: page[0])
        if at < len(self._pages) and self._pages[at][0] == first:
            if len(which) > len(self._pages[at][2]):
                self._pages[at] = (first, topics, which)
            return
        self._pages.insert(at, (first, topics, which))
        self._bound()

    def _bound(self) -> None:
        """Drop the furthest; they are asked for later."""
        assert self.position is not None
        most = self._limits.reorder_events
        while self._pages and self._pages[-1][0] + len(self._pages[-1][2]) - self.position > most:
            self._pages.pop()
        while len(self._held) > most or self._held_bytes > _HELD_BYTES:
            self._held_bytes -= len(self._held.pop(max(self._held)))

    # The rule.

    def _advance(self, now: int) -> None:
        """Notify and pass what can be."""
        held, known, starts = self._held, self._map, self.starts
        position = self.position
        assert position is not None
        while True:
            number = position + 1
            event = held.pop(number, None)
            if event is not None:
                self._held_bytes -= len(event)
                position = self.position = number
                if known:
                    known.popleft()
                elif self._pages:
                    self._join_pages()
                self._notify(number, event)
            elif known:
                start = starts.get(known[0])
                if start is not None and number > start:
                    break
                known.popleft()
                position = self.position = number
            else:
                break
            if not self.starts or self.position is None:
                return
        self._bound()
        self._wait(now)

    def _notify(self, number: int, raw: msgspec.Raw) -> None:
        event = self._event(number, raw)
        if event is None:
            return
        if number <= self.starts.get(event.topic, number):
            self.ignored["not subscribed, or before"] += 1
            return
        gap, self._gap = self._gap, False
        self.out.do(Notify(event, Status.GAP_SKIPPED if gap else Status.IN_ORDER))

    def _event(self, number: int, raw: msgspec.Raw) -> Event | None:
        try:
            event = _EVENT.decode(raw)
        except UNDECODABLE:
            self.out.observe(Malformed(f"number {number}"))
            return None
        msgspec.structs.force_setattr(event, "stamp", {NUMBER: number})
        return event

    def _late(self, number: int, raw: msgspec.Raw, now: int) -> None:
        """At or below the position: a duplicate, unless it was skipped."""
        skipped = next((pair for pair in self._skipped if pair[0] <= number <= pair[1]), None)
        if skipped is None:
            self.ignored["duplicate or before the subscription"] += 1
            return
        event = self._event(number, raw)
        if event is None or number <= self.starts.get(event.topic, number):
            return
        self._skipped.remove(skipped)
        for rest in ((skipped[0], number - 1), (number + 1, skipped[1])):
            if rest[0] <= rest[1]:
                self._skipped.append(rest)
        self.out.do(Notify(event, Status.OUT_OF_ORDER))

    # What is missing.

    @property
    def behind(self) -> bool:
        """Whether something is known to be above the position."""
        if self.position is None:
            return False
        above = max(self.highest, self._known.number)
        return bool(self._held or self._pages or above > self.position)

    def look(self, now: int) -> None:
        """The log may have gone on without us."""
        if self.position is not None:
            self._wait(now)

    def _wait(self, now: int) -> None:
        assert self.position is not None
        if not self.behind:
            self._rest()
            return
        number = self.position + 1
        if number == self._waiting:
            return
        if self._waiting and not self._asked:  # it came by itself
            self._usual_us += (max(0, now - self._since_us) - self._usual_us) // 8
        self._waiting, self._since_us, self._asked = number, now, 0
        self._floors.clear()
        self.out.set_timer(CatchUp(), now + max(_WAIT_US, 4 * self._usual_us))

    def _rest(self) -> None:
        if self._waiting:
            self._waiting = 0
            self.out.cancel_timer(CatchUp())

    @on(CatchUp)
    def _catch_up(self, timer: CatchUp, now: int) -> None:
        if self.position is None or not self.behind:
            self._waiting = 0
            return
        if self._waiting != self.position + 1:
            self._waiting = 0
            self._wait(now)
            return
        if self._hold_us is not None and now - self._since_us >= self._hold_us:
            self._skip(now)
            return
        self._ask(now)

    def _ask(self, now: int) -> None:
        """Ask for what lies between the position and the first that is here."""
        assert self.position is not None
        voters = [v for v in self._known.voters if v != self._known.leader]
        order = [*([self._known.leader] if self._known.leader else []), *voters]
        if order:
            last = min(self._held, default=1 << 53) - 1
            fetch = Fetch(self._known.log, self.position + 1, last, tuple(sorted(self.starts)))
            self.out.send(order[self._asked % len(order)], fetch)
            self._asked_first = self.position + 1
        self._asked += 1
        wait = max(_REPEAT_US, 4 * self._usual_us) << min(5, self._asked // max(1, len(order)))
        wait = round(min(wait, _REPEAT_MOST_US) * self._rng.uniform(0.5, 1.5))
        if self._hold_us is not None:
            wait = max(1, min(wait, self._since_us + self._hold_us - now))
        self.out.set_timer(CatchUp(), now + wait)

    @on(Forgotten)
    def _forgotten(self, message: Forgotten, sender: str, now: int) -> None:
        """Once every voter has said so, go on above the lowest floor."""
        if self.position is None or message.floor <= self.position:
            return
        if sender not in self._known.voters:
            return
        self._floors[sender] = message.floor
        if all(voter in self._floors for voter in self._known.voters):
            self._pass(min(self._floors.values()), now)
        else:
            self._ask(now)

    def _skip(self, now: int) -> None:
        """Nobody gave it in time: go on with what is here."""
        assert self.position is not None
        here = [number for number in (min(self._held, default=0),) if number]
        if self._pages:
            here.append(self._pages[0][0])
        upto = min(here) - 1 if here else max(self.highest, self._known.number)
        if self._map:  # just this one: the map goes on
            upto = min(upto, self.position + 1)
        self._pass(max(upto, self.position + 1), now)

    def _pass(self, upto: int, now: int) -> None:
        """Skip the numbers up to this one, but notify what is here of them."""
        assert self.position is not None
        missed = 0
        while self.position < upto:
            number = self.position + 1
            event = self._held.pop(number, None)
            topic = self._map.popleft() if self._map else None
            self.position = number
            if event is not None:
                self._held_bytes -= len(event)
                self._notify(number, event)
            elif topic is None or number > self.starts.get(topic, number):
                missed += 1
                self._gap = True
                self._remember_skip(number)
        self._relearn()
        if missed:
            self.out.observe(Skipped(missed, upto))
        self._waiting = 0
        self._advance(now)

    def _remember_skip(self, number: int) -> None:
        if self._skipped and self._skipped[-1][1] == number - 1:
            self._skipped[-1] = (self._skipped[-1][0], number)
            return
        self._skipped.append((number, number))
        if len(self._skipped) > _SKIPPED_RANGES:
            self._skipped.popleft()

    def _relearn(self) -> None:
        """The pages of the map that are not far above any more."""
        pages, self._pages = self._pages, []
        for first, topics, which in pages:
            self._learn(first, topics, which)


def _fits(page: Page) -> bool:
    """Whether its parts belong together."""
    if len(page.numbers) != len(page.events):
        return False
    return not page.which or (page.first > 0 and max(page.which) < len(page.topics))
