"""What a leader takes, tells and publishes; its map; its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from unisono.core.effects import Cast, Effect, Send
from unisono.core.machine import Outbox
from unisono.qos.total_order.by_log import leader as leader_module
from unisono.qos.total_order.by_log.leader import Leader
from unisono.qos.total_order.by_log.messages import (
    CHANNEL,
    TOPICS_MAX,
    Batch,
    Close,
    Fetch,
    Forgotten,
    LogMessage,
    Open,
    Opened,
    Page,
    Progress,
    Unknown,
)
from unisono.qos.total_order.by_log.voter import Retention, Voter
from unisono.raft.followers import Flush
from unisono.raft.log import Base, Log
from unisono.raft.messages import Appended, Configuration

LOG = "d#1"
SECOND = 1_000_000


def raw(size: int = 10) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(bytes(size)))


class Led:
    """A leader; the only voter, or with one of two others that answer when told to."""

    def __init__(self, voters: str = "a", retention: Retention | None = None) -> None:
        self.out = Outbox()
        base = Base(configuration=Configuration(tuple(voters)))
        self.voter = Voter(
            self.out, "a", LOG, Log(base), Random(1),
            retention=retention or Retention(), period_us=SECOND, durable=False,
        )  # fmt: skip
        raft = self.voter.raft
        raft.term = 1
        raft._lead(0)
        self.leader = Leader(self.out, self.voter, 0)
        self.settle()

    def settle(self) -> list[Effect]:
        """What goes out by now, but for Raft's own."""
        self.leader.committed(self.voter.apply(self.leader.decoded))
        taken = self.out.take()
        return [e for e in taken if isinstance(e, Cast) or self._is_ours(e)]

    @staticmethod
    def _is_ours(effect: Effect) -> bool:
        return isinstance(effect, Send) and isinstance(effect.message, LogMessage)

    def commit(self) -> list[Effect]:
        """Voter b has all."""
        self.voter.raft.fire(Flush(), 0)
        last = self.voter.raft.log.last
        self.voter.raft.receive(Appended(LOG, 1, last), "b", 0)
        return self.settle()

    def session(self, node: str = "p", life: int = 0) -> int:
        self.leader.open(Open(LOG, life), node, 0)
        self.commit() if len(self.voter.raft.log.configuration.voters) > 1 else self.settle()
        at = self.voter.state.open_of(node)
        assert at is not None
        return at

    def take(self, session: int, first: int, topics: Sequence[str], size: int = 10) -> list[Effect]:
        names = tuple(dict.fromkeys(topics))
        which = bytes(names.index(topic) for topic in topics)
        events = tuple(raw(size) for _ in topics)
        self.leader.take(Batch(LOG, session, first, names, which, events), "p", 0)
        return self.settle()


def messages(effects: list[Effect]) -> list[LogMessage]:
    return [e.message for e in effects if isinstance(e, Send)]  # type: ignore[misc]


def pages(effects: list[Effect]) -> list[tuple[str, Page]]:
    return [(e.topic, e.message) for e in effects if isinstance(e, Cast)]  # type: ignore[misc]


def test_a_batch_is_published_a_frame_a_topic_with_the_map() -> None:
    led = Led()
    effects = led.take(led.session(), 1, ["x", "y", "x"])
    assert [(topic, page.numbers) for topic, page in pages(effects)] == [("x", (1, 3)), ("y", (2,))]
    for _, page in pages(effects):
        assert (page.first, page.topics, page.which) == (1, ("x", "y"), b"\0\1\0")
    assert messages(effects) == [Progress(LOG, 1, 2, 3, 4)]


def test_nobody_hears_of_anything_before_it_is_committed() -> None:
    led = Led("abc")
    led.commit()
    led.leader.open(Open(LOG, 0), "p", 0)
    assert led.settle() == []
    assert messages(led.commit()) == [Opened(LOG, 1, 0, 2)]
    assert led.take(2, 1, ["x"]) == []
    effects = led.commit()
    assert len(pages(effects)) == 1 and messages(effects) == [Progress(LOG, 1, 2, 1, 2)]


def test_only_the_next_is_taken_and_only_once() -> None:
    led = Led()
    session = led.session()
    assert messages(led.take(session, 2, ["x"])) == [Progress(LOG, 1, session, 0, 1)]
    led.take(session, 1, ["x", "y"])
    assert messages(led.take(session, 1, ["x", "y"])) == [Progress(LOG, 1, session, 2, 3)]
    effects = led.take(session, 2, ["y", "z", "z"])  # new in part
    assert [page.numbers for _, page in pages(effects)] == [(3, 4)]


def test_a_session_is_unknown_only_when_its_end_is_committed() -> None:
    led = Led("abc")
    led.commit()
    session = led.session()
    led.leader.close(Close(LOG, session), "x", 0)  # not its own
    led.take(session, 1, ["x"])
    led.leader.close(Close(LOG, session), "p", 0)
    assert messages(led.take(session, 2, ["x"])) == []  # the end may be lost with this leader
    assert led.commit()
    assert messages(led.take(session, 2, ["x"])) == [Unknown(LOG, 1, session)]


def test_a_request_that_comes_twice_gets_the_same_session_and_a_higher_life_another() -> None:
    led = Led()
    session = led.session(life=1)
    led.leader.open(Open(LOG, 1), "p", 0)
    assert messages(led.settle()) == [Opened(LOG, 1, 1, session)]
    other = led.session(life=2)
    assert other != session and led.voter.state.sessions.keys() == {other}
    led.leader.open(Open(LOG, 1), "p", 0)
    assert messages(led.settle()) == [Opened(LOG, 1, 1, None)]


def test_a_long_map_is_announced_and_not_carried() -> None:
    led = Led()
    session = led.session()
    effects = led.take(session, 1, ["x", "y"] * 300)
    (channel, whole), *frames = pages(effects)
    assert channel == f"{CHANNEL}d" and len(whole.which) == 600 and not whole.numbers
    assert all(page.which == b"" for _, page in frames)
    effects = led.take(session, 601, ["x"])
    assert [(page.first, page.which) for _, page in pages(effects)] == [(601, b"\0")]
    led.leader.tick(0)
    assert [(topic, page.first) for topic, page in pages(led.settle())] == [(channel, 601)]
    led.leader.tick(0)
    assert pages(led.settle()) == []


def test_a_map_has_no_more_topics_than_a_byte_can_name() -> None:
    led = Led()
    session = led.session()
    first = 1
    told: dict[int, str] = {}
    for turn in range(4):
        topics = [f"t{turn}.{n}" for n in range(100)]
        for _, page in pages(led.take(session, first, topics)):
            assert len(page.topics) <= TOPICS_MAX
            told.update((page.first + i, page.topics[at]) for i, at in enumerate(page.which))
        first += 100
    led.leader.tick(0)
    for _, page in pages(led.settle()):
        told.update((page.first + i, page.topics[at]) for i, at in enumerate(page.which))
    assert told == {1 + 100 * t + n: f"t{t}.{n}" for t in range(4) for n in range(100)}


def test_frames_are_not_too_large() -> None:
    led = Led()
    effects = led.take(led.session(), 1, ["x"] * 5, size=30_000)
    assert [page.numbers for _, page in pages(effects)] == [(1, 2), (3, 4), (5,)]


def test_with_too_much_uncommitted_it_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_module, "UNCOMMITTED_BYTES", 100)
    led = Led("abc")
    led.commit()
    session = led.session()
    led.take(session, 1, ["x"], size=200)
    (full,) = messages(led.take(session, 2, ["x"]))
    assert isinstance(full, Progress) and full.wait_ms > 0 and full.committed == 0
    led.commit()
    assert messages(led.take(session, 2, ["x"])) == []
    assert messages(led.commit()) == [Progress(LOG, 1, session, 2, 3)]


def test_the_longest_silent_session_is_closed_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_module, "SESSIONS_MAX", 2)
    led = Led()
    for at, node in enumerate("pqr"):
        led.leader.open(Open(LOG, 0), node, at)
        led.settle()
    assert [session.node for session in led.voter.state.sessions.values()] == ["q", "r"]


def test_a_session_that_is_silent_for_an_hour_is_closed() -> None:
    led = Led()
    session = led.session()
    for hour in (0.5, 1.5):
        for _ in range(256):  # it does not look at every tick
            led.leader.tick(round(hour * 3600 * SECOND))
        led.settle()
        assert (session in led.voter.state.sessions) is (hour < 1)


def test_what_makes_no_sense_changes_nothing() -> None:
    led = Led()
    session = led.session()
    for which, events in ((b"\1", (raw(),)), (b"\0\0", (raw(),)), (b"", (raw(),))):
        led.leader.take(Batch(LOG, session, 1, ("x",), which, events), "p", 0)
    led.leader.take(Batch(LOG, session, 1, ("x",), b"\0", (raw(),)), "another", 0)
    assert led.settle() == [] and led.voter.state.number == 0


def test_what_was_missed_is_served_until_it_is_forgotten() -> None:
    led = Led(retention=Retention(seconds=10.0, bytes=1000))
    session = led.session()
    for first in range(1, 5):
        led.take(session, first, ["xy"[first % 2]], size=50)
    led.voter.fetch(Fetch(LOG, 2, 3, ("x",)), "s")
    (page,) = messages(led.settle())
    assert isinstance(page, Page)
    assert (page.first, page.topics, page.which, page.numbers) == (2, ("x", "y"), b"\0\1", (2,))
    led.voter.fetch(Fetch(LOG, 9, 9, ("x",)), "s")
    assert led.settle() == []  # it is not known to be committed
    led.voter.forget(0)
    assert led.voter.floor == 0
    for first in range(5, 40):
        led.take(session, first, ["x"], size=50)
    led.voter.forget(1)
    assert 0 < led.voter.floor < 39 and led.voter.raft.log.bytes <= 1000
    led.voter.fetch(Fetch(LOG, 1, 39, ("x",)), "s")
    assert messages(led.settle()) == [Forgotten(LOG, led.voter.floor)]
    led.voter.forget(20 * SECOND)
    assert led.voter.floor == 39
    again = Voter(
        Outbox(), "b", LOG, Log(led.voter.raft.log.base), Random(1),
        retention=Retention(), period_us=SECOND, durable=False,
    )  # fmt: skip
    assert again.state.encode() == led.voter.state.encode()  # the base is all that it came to
