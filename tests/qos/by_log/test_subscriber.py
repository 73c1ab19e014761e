"""The rule of notification: pages in any order, what is missing, what is skipped."""

from __future__ import annotations

from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core.effects import Notify, Send, SetTimer
from unisono.core.events import Event, Status
from unisono.core.limits import Limits
from unisono.core.machine import Outbox
from unisono.core.observations import Observed
from unisono.qos.total_order.by_log.known import Known
from unisono.qos.total_order.by_log.messages import Fetch, Forgotten, Page
from unisono.qos.total_order.by_log.observations import Malformed, Skipped
from unisono.qos.total_order.by_log.subscriber import CatchUp, Subscriber

LOG = "d#1"
SECOND = 1_000_000


def raw(number: int, topic: str) -> msgspec.Raw:
    event = Event(f"e{number}", topic, b"x", "p", number, 0)
    return msgspec.Raw(msgspec.msgpack.encode(event))


def frame(topic: str, *numbers: int, first: int = 1, which: str = "") -> Page:
    """Events of a topic; `which`: the topics of the numbers from `first` on, a letter each."""
    names = tuple(dict.fromkeys(which))
    places = bytes(names.index(name) for name in which)
    return Page(LOG, first, names, places, numbers, tuple(raw(n, topic) for n in numbers))


class Reader:
    """A subscriber of topics that begin at number 0."""

    def __init__(self, *topics: str, hold_us: int | None = None, limits: Limits | None = None):
        self.known = Known("d")
        self.known.log = LOG
        self.known.leader, self.known.voters = "a", ("a", "b", "c")
        self.out = Outbox()
        self.machine = Subscriber(
            self.out, self.known, Random(1), limits or Limits(), hold_us=hold_us
        )
        self.now = 0
        self.due = -1
        self.heard: list[tuple[int, str]] = []
        self.asked: list[tuple[str, int, int]] = []
        self.seen: list[object] = []
        if topics:
            self.machine.begin(topics, 0, 0)
        self.settle()

    def settle(self) -> None:
        for effect in self.out.take():
            if isinstance(effect, Notify):
                assert effect.event.stamp is not None
                status = "" if effect.status is Status.IN_ORDER else f" {effect.status}"
                self.heard.append((effect.event.stamp["*"], effect.event.topic + status))
            elif isinstance(effect, Send):
                assert isinstance(effect.message, Fetch)
                self.asked.append((effect.to, effect.message.first, effect.message.last))
            elif isinstance(effect, SetTimer):
                self.due = effect.at_us
            elif isinstance(effect, Observed):
                self.seen.append(effect.observation)

    def take(self, *pages: Page | Forgotten, sender: str = "a") -> None:
        for page in pages:
            self.machine.receive(page, sender, self.now)
            self.settle()

    def wait(self) -> None:
        """Until the next look at what is missing."""
        self.now = max(self.now, self.due)
        self.machine.fire(CatchUp(), self.now)
        self.settle()


def test_pages_in_any_order_are_one_order() -> None:
    pages = [
        frame("a", 1, 4, first=1, which="abba"),
        frame("b", 2, 3, first=1, which="abba"),
        frame("c", 5, first=5, which="c"),
        frame("a", 6, first=5, which="ca"),
    ]
    for order in permutations(pages):
        reader = Reader("a", "c")
        reader.take(*order)
        assert reader.heard == [(1, "a"), (4, "a"), (5, "c"), (6, "a")]


def test_without_a_map_nothing_is_passed() -> None:
    reader = Reader("a")
    reader.take(frame("a", 2))
    assert reader.heard == []
    reader.take(frame("b", first=1, which="b"))  # the channel: number 1 is none of ours
    assert reader.heard == [(2, "a")]


def test_what_comes_twice_is_heard_once() -> None:
    reader = Reader("a")
    reader.take(frame("a", 1, first=1, which="a"), frame("a", 1, first=1, which="a"))
    assert reader.heard == [(1, "a")]
    assert reader.machine.ignored["duplicate or before the subscription"] == 1


def test_a_subscription_begins_above_all_that_was_received_and_passed() -> None:
    reader = Reader()
    reader.take(frame("a", 7))  # it listens; how far the log is it has not heard
    reader.machine.begin(["a"], 5, 0)
    assert reader.machine.position == 7
    reader.take(frame("a", 8, first=8, which="a"), frame("b", 9, first=8, which="ab"))
    reader.machine.begin(["b"], 3, 0)  # an answer that was long under way
    assert reader.machine.starts["b"] == 9
    reader.take(frame("b", 10, first=10, which="b"))
    assert reader.heard == [(8, "a"), (10, "b")]


def test_a_position_does_not_go_back_over_a_pause() -> None:
    reader = Reader("a")
    reader.take(frame("a", 1, first=1, which="abbb"))
    reader.machine.end(["a"], 0)
    reader.machine.begin(["a"], 2, 0)
    assert reader.machine.position == 4


def test_what_is_missing_is_asked_for_the_leader_first() -> None:
    reader = Reader("a")
    reader.take(frame("a", 3, first=1, which="aba"))
    assert reader.asked == []  # it may be on its way
    reader.wait()
    reader.wait()
    reader.wait()
    reader.wait()
    assert reader.asked == [("a", 1, 2), ("b", 1, 2), ("c", 1, 2), ("a", 1, 2)]
    reader.take(frame("a", 1, first=1, which="ab"))
    assert reader.heard == [(1, "a"), (3, "a")]


def test_a_heartbeat_above_what_is_known_is_a_hint() -> None:
    reader = Reader("a")
    reader.known.number = 4
    reader.machine.look(0)
    reader.settle()
    reader.wait()
    assert reader.asked == [("a", 1, (1 << 53) - 1)]
    reader.take(frame("a", 1, 3, first=1, which="aba"))  # a part; there is more
    assert reader.asked[-1] == ("a", 4, (1 << 53) - 1)
    reader.take(frame("b", first=4, which="b"))
    assert reader.heard == [(1, "a"), (3, "a")] and not reader.machine.behind


def test_what_no_voter_has_is_skipped_and_said() -> None:
    reader = Reader("a")
    reader.take(frame("a", 5, first=5, which="a"))
    reader.wait()
    reader.take(Forgotten(LOG, 3), sender="a")
    reader.take(Forgotten(LOG, 2), sender="b")
    reader.take(Forgotten(LOG, 9), sender="x")  # no voter
    assert reader.heard == []
    reader.take(Forgotten(LOG, 4), sender="c")
    assert reader.machine.position == 2  # the lowest floor: somebody has what is above
    assert reader.seen == [Skipped(2, 2)]
    reader.take(frame("a", 3, first=3, which="ab"))
    assert reader.heard == [(3, "a gap_skipped"), (5, "a")]
    reader.take(frame("a", 1), frame("a", 1))  # late, and late again
    assert reader.heard[2:] == [(1, "a out_of_order")]


def test_what_nobody_gives_in_time_is_skipped() -> None:
    reader = Reader("a", hold_us=SECOND)
    reader.take(frame("a", 3, first=1, which="aba"))
    while not reader.heard:
        assert reader.now <= SECOND
        reader.wait()
    assert reader.heard == [(3, "a gap_skipped")]
    reader.take(frame("a", 1))
    assert reader.heard[-1] == (1, "a out_of_order")
    reader.take(frame("a", 4, first=4, which="a"))
    assert reader.heard[-1] == (4, "a")


def test_the_furthest_is_dropped_where_too_much_waits_and_asked_for_later() -> None:
    reader = Reader("a", limits=Limits(reorder_events=3))
    for number in range(2, 8):
        reader.take(frame("a", number, first=1, which="a" * number))
    assert reader.heard == []
    reader.take(frame("a", 1, first=1, which="a"))
    assert reader.heard == [(n, "a") for n in (1, 2, 3, 4)]
    reader.wait()
    assert reader.asked[-1][1] == 5


def test_a_map_that_comes_with_every_frame_is_kept_once() -> None:
    reader = Reader("a")
    for number in range(2, 100):
        reader.take(frame("a", number, first=2, which="a" * (number - 1)))
    assert len(reader.machine._pages) == 1
    reader.take(frame("a", 1, first=1, which="a"))
    assert reader.heard == [(n, "a") for n in range(1, 100)]


def test_a_map_of_what_was_heard_without_it_holds_nobody_up() -> None:
    """Nothing is asked for that is known to be over."""
    reader = Reader("a")
    reader.take(frame("b", first=2, which="aa"))  # set aside: nobody knows of number 1
    reader.take(frame("a", 3), frame("a", 2), frame("a", 1))
    assert reader.heard == [(1, "a"), (2, "a"), (3, "a")] and not reader.machine.behind


@pytest.mark.parametrize(
    "page",
    [
        Page(LOG, 1, (), b"\x00"),
        Page(LOG, 0, ("a",), b"\x00"),
        Page(LOG, 1, ("a",), b"\x00", (1, 2), (raw(1, "a"),)),
    ],
)
def test_a_page_that_makes_no_sense_changes_nothing(page: Page) -> None:
    reader = Reader("a")
    reader.take(page)
    assert isinstance(reader.seen[0], Malformed)
    reader.take(frame("a", 1, first=1, which="a"))
    assert reader.heard == [(1, "a")]


@given(st.data())
def test_any_cut_of_the_order_into_pages_gives_the_order(data: st.DataObject) -> None:
    """Maps that overlap, pages twice, in any order, and the rest by asking."""
    topics = data.draw(st.text("abc", min_size=1, max_size=30))
    count = len(topics)
    pages = []
    for number in data.draw(st.lists(st.integers(1, count), max_size=40)):
        first = data.draw(st.integers(1, count))
        last = data.draw(st.integers(first - 1, count))
        topic = topics[number - 1]
        pages.append(frame(topic, number, first=first, which=topics[first - 1 : last]))
    reader = Reader("a", "b")
    reader.take(*pages)
    reader.known.number = count
    reader.machine.look(0)
    reader.settle()
    for _ in range(2 * count):  # each question brings it further, or is one too many
        if not reader.machine.behind:
            break
        reader.wait()
        _, first, last = reader.asked[-1]
        last = min(last, count)
        here = [n for n in range(first, last + 1) if topics[n - 1] in "ab"]
        events = tuple(raw(n, topics[n - 1]) for n in here)
        answer = frame("a", first=first, which=topics[first - 1 : last])
        reader.take(msgspec.structs.replace(answer, numbers=tuple(here), events=events))
    assert not reader.machine.behind
    expected = [(n, topic) for n, topic in enumerate(topics, 1) if topic in "ab"]
    assert reader.heard == expected
