"""Whom a node asks for what it lacks: rather those that may have it (`partners="likely"`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from zlib import crc32

import pytest
from support.lossy import FIELD, Group, frames, layer

from unisono.core.effects import Effect, Transmit
from unisono.core.events import inbox
from unisono.qos.coding.packets import Cut, key_of
from unisono.qos.peers import Descriptor, Peers
from unisono.qos.reliable.layer import ROUND_TIMER
from unisono.qos.reliable.messages import Offer, Repair, Want

Shares = dict[str, float]


class Site(Group):
    """Most nodes are behind one bad link: what it loses, it loses for all of them. Messages from
    node to node are rarely lost."""

    def __init__(self, seed: int, **options: object) -> None:
        self.wants: Counter[str] = Counter()  # by who is asked
        super().__init__(12, seed, loss=0.02, **options)
        self.behind = {f"n{index}" for index in range(4, 12)}

    def carry(self, name: str, effects: Iterable[Effect], lossy: bool = True) -> None:
        kept = list(effects)
        for effect in kept:
            if isinstance(effect, Transmit):
                _, message = self.nodes[name]._codec.decode(effect.frame)
                self.wants[effect.topic] += isinstance(message, Want)
        super().carry(name, kept, lossy)

    def lost(self, to: str, effect: Transmit) -> bool:
        if effect.topic == "t" and to in self.behind:
            return crc32(effect.frame) % 100 < 35
        return super().lost(to, effect)


def recovery(seed: int, **options: object) -> tuple[int, int, float]:
    """Wants, rounds that nodes waited for events, and the largest share of one node's wants."""
    group = Site(seed, **options)
    content = Random(seed)
    group.rounds(6)
    for _ in range(10):  # all find out how they fare
        group.publish("n0", content.randbytes(280))
        group.rounds(1)
    group.rounds(10)
    group.wants.clear()
    before = sum(map(len, group.got.values()))
    waited = 0
    for index in range(1, 16):
        group.publish("n0", content.randbytes(280))
        for _ in range(6):
            group.rounds(1)
            waited += before + 12 * index - sum(map(len, group.got.values()))
    wants = group.wants.total()
    return wants, waited, max(group.wants.values()) / wants


@pytest.mark.parametrize("coding", [True, False])
def test_asking_who_may_have_it_takes_fewer_questions_and_rounds(coding: bool) -> None:
    """Where asking is all there is. With offers before it, less is left to gain."""
    found = {}
    for partners in ("random", "likely"):
        runs = [
            recovery(s, partners=partners, gossip="none", coding=coding, remind=0) for s in range(8)
        ]
        found[partners] = [sum(column) / len(runs) for column in zip(*runs, strict=True)]
    (wants, waited, most), (fewer, shorter, not_more) = found["random"], found["likely"]
    assert fewer < 0.9 * wants and shorter < 0.9 * waited
    assert not_more <= most + 0.1  # the publisher's, in both cases


def asked(
    peers: Peers, offered: tuple[str, ...] = (), source: str = "", times: int = 4000
) -> Shares:
    chosen = [name for _ in range(times) for name in peers.likely("t", offered, source)]
    return {name: chosen.count(name) / times for name in set(chosen)}


def test_who_may_have_it_is_asked_more_often_and_nobody_always() -> None:
    peers = Peers("me", Random(1))
    assert peers.likely("t", (), "") == []
    for name, percent in (("good", 100), ("fair", 50), ("poor", 0), ("new", None)):
        peers.hear(Descriptor(name, 0, ("t",), alone_percent=percent))
    peers.hear(Descriptor("other", 0, ("u",), alone_percent=100))
    shares = asked(peers)
    assert shares.keys() == {"good", "fair", "poor", "new"}
    assert shares["good"] == pytest.approx(4 * shares["fair"], rel=0.2)
    assert shares["new"] == pytest.approx(shares["fair"], rel=0.2)  # as the mean of the others
    assert 0.01 < shares["poor"] < 0.05
    shares = asked(peers, source="source")
    assert shares["source"] == pytest.approx(1 / 4, rel=0.1)
    shares = asked(peers, ("one", "two"), "source")
    assert shares["one"] == pytest.approx(1 / 4, rel=0.1) == shares["two"]
    assert shares["source"] == pytest.approx(1 / 8, rel=0.15)
    assert asked(Peers("me", Random(1)), source="source") == {"source": 1.0}
    assert asked(Peers("me", Random(1)), ("one",)) == {"one": 1.0}


def test_who_offered_an_event_is_remembered() -> None:
    for partners, kept in (("likely", 8), ("random", 1)):
        node = layer("b", partners=partners)
        key = key_of(b"event")
        for index in range(20):
            offer = node._codec.encode(f"n{index}", Offer("t", (key,)))
            node.notify(inbox("b"), offer, index)
        assert node._held[key].offerers == tuple(f"n{i}" for i in range(20))[20 - kept :]


@pytest.mark.parametrize("others", [0, 3])
def test_who_offered_an_event_is_asked_again_while_nothing_has_come(others: int) -> None:
    """Also if it is no partner, as a publisher that does not subscribe its topic."""
    node = layer("b")
    node.notify(inbox("b"), node._codec.encode("a", Offer("t", (key_of(b"event"),))), 0)
    asked: Counter[str] = Counter()
    for turn in range(1, 17):
        for index in range(others):
            node.peers.hear(Descriptor(f"n{index}", 0, ("t",)))
        for effect in node.timer(ROUND_TIMER, turn * 500_000):
            if isinstance(effect, Transmit):
                _, message = node._codec.decode(effect.frame)
                asked[effect.topic] += isinstance(message, Want)
    assert asked.total() == 16
    least, most = (1, 7) if others else (16, 16)
    assert least <= asked[inbox("a")] <= most


def test_only_who_needed_no_help_says_so() -> None:
    node = layer("b", partners="likely")
    whole = frames(layer("a").publish("t", bytes(280), 0))
    for frame in whole:
        node.notify("t", frame, 0)
    node.timer(ROUND_TIMER, 1)
    assert node.peers.me().alone_percent == 100
    for packet in Cut(bytes(270), FIELD, 50, 6).plain():
        node.notify(inbox("b"), node._codec.encode("a", Repair("t", packet)), 1)
    node.timer(ROUND_TIMER, 2)
    assert node.peers.me().alone_percent == 50
    assert node.peers.me().measured is None
    default = layer("c")
    for frame in whole:
        default.notify("t", frame, 0)
    default.timer(ROUND_TIMER, 1)
    assert default.peers.me() == Descriptor("c", 0, ("t",))
