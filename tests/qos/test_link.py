"""Reliable links: over a bad wire, everything arrives once and in order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from unisono.core.effects import Effect, Gone, Receive, Record, Send, SetTimer
from unisono.core.events import EVERYONE, Control
from unisono.core.limits import Limits
from unisono.qos.link import Acknowledged, ReliableLinks, Wrapped


class Note(Control, frozen=True, array_like=True, tag="note"):
    number: int


class Pair:
    """Two ends, a bad wire between them, and virtual time."""

    def __init__(self, seed: int, loss: float) -> None:
        self.rng = Random(seed)
        self.loss = loss
        self.ends = {name: ReliableLinks(name, (Note,), Limits()) for name in "ab"}
        self.queue: list[tuple[int, int, str, str, object]] = []
        self.heard: dict[str, list[int]] = {"a": [], "b": []}
        self.now = 0
        self.tie = 0

    def carry(self, name: str, effects: list[Effect]) -> None:
        other = "b" if name == "a" else "a"
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.put(effect.at_us, name, "timer", effect.key)
            elif isinstance(effect, Receive):
                assert isinstance(effect.message, Note)
                self.heard[name].append(effect.message.number)
            elif isinstance(effect, Send):
                for _ in range(self.rng.choice((0, 1)) + 1):
                    if self.rng.random() >= self.loss:
                        self.put(
                            self.now + self.rng.randrange(100_000), other, "frame", effect.message
                        )

    def put(self, at: int, name: str, kind: str, what: object) -> None:
        self.tie += 1
        self.queue.append((at, self.tie, name, kind, what))

    def run(self) -> None:
        steps = 0
        while self.queue:
            steps += 1
            assert steps < 100_000, "no end"
            entry = min(self.queue)
            self.queue.remove(entry)
            self.now, _, name, kind, what = entry
            end = self.ends[name]
            other = "b" if name == "a" else "a"
            if kind == "timer":
                self.carry(name, list(end.timer(str(what), self.now)))
            else:
                assert isinstance(what, Control)
                self.carry(name, list(end.receive(what, other, self.now)))


@given(st.integers(0, 2**32), st.integers(0, 30), st.sampled_from([0.0, 0.2, 0.6]))
def test_everything_arrives_once_and_in_order(seed: int, count: int, loss: float) -> None:
    pair = Pair(seed, loss)
    for number in range(count):
        pair.carry("a", list(pair.ends["a"].send("b", Note(number), 0)))
        pair.carry("b", list(pair.ends["b"].send("a", Note(-number), 0)))
    pair.run()
    assert pair.heard["b"] == list(range(count))
    assert pair.heard["a"] == [-number for number in range(count)]


def test_broadcasts_pass_untouched() -> None:
    links = ReliableLinks("a", (Note,), Limits())
    assert links.send(EVERYONE, Note(1), 0) == (Send(EVERYONE, Note(1)),)


def test_what_does_not_fit_the_window_waits_for_acknowledgements() -> None:
    links = ReliableLinks("a", (Note,), Limits(link_window=3))
    for number in range(3):
        assert any(isinstance(e, Send) for e in links.send("b", Note(number), 0))
    assert list(links.send("b", Note(3), 0)) == []
    assert not links.idle
    (sent,) = links.receive(Acknowledged(1), "b", 1)
    assert isinstance(sent, Send) and isinstance(sent.message, Wrapped) and sent.message.number == 4
    assert list(links.receive(Acknowledged(4), "b", 2)) == []
    assert links.idle


def test_a_peer_that_has_left_is_forgotten() -> None:
    links = ReliableLinks("a", (Note,), Limits())
    links.send("b", Note(1), 0)
    assert Gone("b") in links.gone("b", 1)
    assert links.idle
    assert list(links.send("b", Note(2), 2)) == []
    assert list(links.timer("resend:b", 3)) == []


def test_a_reconnection_does_not_wait_for_timers() -> None:
    links = ReliableLinks("a", (Note,), Limits())
    links.send("b", Note(1), 0)
    assert any(isinstance(effect, Send) for effect in links.reconnected(1))


def test_a_malformed_message_inside_is_reported() -> None:
    import msgspec

    links = ReliableLinks("a", (Note,), Limits())
    effects = list(links.receive(Wrapped(1, msgspec.Raw(b"\xc1")), "b", 0))
    assert any(isinstance(e, Record) and "malformed" in e.row["kind"] for e in effects)
