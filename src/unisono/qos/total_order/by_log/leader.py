"""What the leader of a log does for publishers and subscribers: takes batches, acknowledges what is
committed, publishes it on its topics, and says which numbers belong to which topic.

It judges what to take by its whole log, and tells only what is committed. Committed numbers enter
the open map. While that is short every frame carries it, and most subscribers need nothing else;
when it has grown it is announced on the channel once, and a new one begins.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unisono.core.effects import Cast
from unisono.core.machine import Outbox
from unisono.qos.total_order.by_log import state as entries
from unisono.qos.total_order.by_log.messages import (
    BATCH_BYTES,
    BATCH_EVENTS,
    CHANNEL,
    TOPICS_MAX,
    Batch,
    Close,
    CloseSession,
    Events,
    Open,
    Opened,
    OpenSession,
    Page,
    Presence,
    Progress,
    Unknown,
    domain_of,
)
from unisono.qos.total_order.by_log.voter import Voter
from unisono.raft.messages import Entry

SESSIONS_MAX = 1 << 17  # open at a time: the longest silent is closed
SILENCE_US = 3600 * 1_000_000  # of a session that is closed then
MAP_BYTES = 512  # in a frame; a longer map is announced
UNCOMMITTED_BYTES = 8 << 20  # with more the leader takes nothing
_WAIT_MS = 50
_LOOK_EVERY = 256  # periods between two looks at silent sessions


class Leader:
    """This process, while it leads. A new term begins with a new one."""

    def __init__(self, out: Outbox, voter: Voter, now: int) -> None:
        self._out = out
        self._voter = voter
        self._log = voter.raft.log_id
        self._channel = CHANNEL + domain_of(self._log)
        self.term = voter.raft.term
        self._tail = voter.tail()
        self._taken: dict[int, tuple[Events, int]] = {}  # uncommitted, as they came; their sizes
        self._uncommitted = 0  # bytes of them
        self._heard = dict.fromkeys(self._tail.sessions, now)
        self._opening: dict[str, int] = {}  # who waits for a session, with its life
        self._looks = 0
        self._map_first = voter.state.number + 1
        self._map_topics: dict[str, int] = {}
        self._map_bytes = 0
        self._map = bytearray()

    # Publishers.

    def open(self, message: Open, sender: str, now: int) -> None:
        tail, state = self._tail, self._voter.state
        at = tail.open_of(sender)
        if at is None or tail.sessions[at].life < message.life:
            if len(tail.sessions) >= SESSIONS_MAX:
                self._end(min(tail.sessions, key=lambda s: self._heard.get(s, 0)), now)
            wanted = OpenSession(sender, message.life)
            at = self._voter.raft.propose(entries.encode(wanted), now)
            if not at:
                return
            tail.apply(at, wanted)
        self._heard[at] = now
        if at not in state.sessions:
            self._opening[sender] = message.life  # it hears when that is committed
        else:
            self._opened(sender, message.life)

    def _opened(self, node: str, life: int) -> None:
        at = self._voter.state.open_of(node)
        assert at is not None
        mine = self._voter.state.sessions[at].life == life
        self._out.send(node, Opened(self._log, self.term, life, at if mine else None))

    def close(self, message: Close, sender: str, now: int) -> None:
        session = self._tail.sessions.get(message.session)
        if session is not None and session.node == sender:
            self._end(message.session, now)

    def _end(self, session: int, now: int) -> None:
        closed = CloseSession(session)
        at = self._voter.raft.propose(entries.encode(closed), now)
        if at:
            self._tail.apply(at, closed)
            self._heard.pop(session, None)

    def take(self, batch: Batch, sender: str, now: int) -> None:
        """What is next of it enters the log."""
        raft, state = self._voter.raft, self._voter.state
        session = self._tail.sessions.get(batch.session)
        if session is None:
            if raft.serves and batch.session not in state.sessions:
                self._out.send(sender, Unknown(self._log, self.term, batch.session))
            return
        if session.node != sender or not _fits(batch):
            return
        self._heard[batch.session] = now
        skip = session.last + 1 - batch.first
        if not 0 <= skip < len(batch.events):
            self._progress(batch.session)
            return
        if self._uncommitted >= UNCOMMITTED_BYTES:
            self._progress(batch.session, _WAIT_MS)
            return
        events = Events(
            batch.session,
            session.last + 1,
            batch.topics,
            batch.which[skip:],
            batch.events[skip:],
        )
        data = entries.encode(events)
        at = raft.propose(data, now)
        if at:
            self._tail.apply(at, events)
            self._taken[at] = (events, len(data))
            self._uncommitted += len(data)

    def _progress(self, session: int, wait_ms: int = 0) -> None:
        known = self._voter.state.sessions.get(session)
        if known is None:
            return  # its opening is not committed: nobody hears of it
        last = self._tail.sessions[session].last if session in self._tail.sessions else known.last
        message = Progress(self._log, self.term, session, known.last, last + 1, wait_ms)
        self._out.send(known.node, message)

    # Voters.

    @property
    def gone(self) -> set[str]:
        """Voters that have left, as the log will say."""
        return self._tail.gone

    def mark(self, node: str, here: bool, now: int) -> None:
        """Write that a voter has left, or that it has come back or has no seat any more."""
        if (node in self._tail.gone) is here:
            said = Presence(node, here)
            at = self._voter.raft.propose(entries.encode(said), now)
            if at:
                self._tail.apply(at, said)

    # What is committed.

    def decoded(self, index: int, entry: Entry) -> Events | None:
        """What an entry says, if it was taken here."""
        events, size = self._taken.pop(index, (None, 0))
        self._uncommitted -= size
        return events

    def committed(self, fresh: Iterable[tuple[int, Events]]) -> None:
        """Publish and acknowledge."""
        sessions: dict[int, None] = {}
        topics: dict[str, tuple[list[int], list[msgspec.Raw]]] = {}
        for first, events in fresh:
            sessions[events.session] = None
            names = events.topics
            for topic in names:
                if topic not in topics:
                    topics[topic] = ([], [])
            number = first
            for place, event in zip(events.which, events.events, strict=True):
                numbers, raws = topics[names[place]]
                numbers.append(number)
                raws.append(event)
                number += 1
            self._enter(first, events)
        if topics:
            if self._map_bytes + len(self._map) > MAP_BYTES:
                self.announce()
            for topic, (numbers, raws) in topics.items():
                if numbers:  # what was cut off a batch may have been all of a topic
                    self._publish(topic, numbers, raws)
        for session in sessions:
            self._progress(session)
        for node, life in list(self._opening.items()):
            at = self._voter.state.open_of(node)
            if at is not None and self._voter.state.sessions[at].life >= life:
                del self._opening[node]
                self._opened(node, life)

    def _enter(self, first: int, events: Events) -> None:
        """Into the open map."""
        if self._map_first + len(self._map) != first:
            self._map_first = first
            assert not self._map
        places: list[int] = []
        for topic in events.topics:
            place = self._map_topics.get(topic)
            if place is None:
                if len(self._map_topics) + len(events.topics) > TOPICS_MAX and self._map:
                    self.announce()
                    self._enter(first, events)
                    return
                place = self._map_topics[topic] = len(self._map_topics)
                self._map_bytes += len(topic)
            places.append(place)
        self._map += events.which.translate(bytes(places) + bytes(256 - len(places)))

    def announce(self) -> None:
        """Tell everyone the open map, and begin another."""
        if self._map:
            page = Page(self._log, self._map_first, tuple(self._map_topics), bytes(self._map))
            self._out.do(Cast(self._channel, page))
            self._map_first += len(self._map)
            self._map = bytearray()
        self._map_topics = {}
        self._map_bytes = 0

    def _publish(self, topic: str, numbers: list[int], events: list[msgspec.Raw]) -> None:
        """Frames on a topic, none too large."""
        names, which = tuple(self._map_topics), bytes(self._map)
        begin = 0
        size = 0
        for at, event in enumerate(events):
            size += len(event)
            if at > begin and (size > BATCH_BYTES or at - begin >= BATCH_EVENTS):
                self._frame(topic, names, which, numbers[begin:at], events[begin:at])
                begin, size = at, len(event)
        self._frame(topic, names, which, numbers[begin:], events[begin:])

    def _frame(
        self,
        topic: str,
        names: tuple[str, ...],
        which: bytes,
        numbers: list[int],
        events: list[msgspec.Raw],
    ) -> None:
        page = Page(self._log, self._map_first, names, which, tuple(numbers), tuple(events))
        self._out.do(Cast(topic, page))

    def tick(self, now: int) -> None:
        """Once a period."""
        self.announce()
        self._looks += 1
        if self._looks % _LOOK_EVERY == 0:
            open_ones = self._tail.sessions
            self._heard = {session: self._heard.get(session, now) for session in open_ones}
            silent = [s for s in self._tail.sessions if now - self._heard.get(s, now) > SILENCE_US]
            for session in silent:
                self._end(session, now)


def _fits(batch: Batch) -> bool:
    """Whether its parts belong together."""
    if len(batch.which) != len(batch.events):
        return False
    return not batch.which or max(batch.which) < len(batch.topics)
