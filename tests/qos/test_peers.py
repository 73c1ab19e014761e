"""Peer sampling: views stay small, random, connected and up to date."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from unisono.qos.peers import Descriptor, Peers, Shuffle

SIZE, EXCHANGED = 12, 5


class Crowd:
    """Nodes that exchange descriptors in rounds. Messages to the dead vanish."""

    def __init__(self, count: int, seed: int, topics: int = 1) -> None:
        self.rng = Random(seed)
        self.nodes: dict[str, Peers] = {}
        for _ in range(count):
            self.join({f"t{self.rng.randrange(topics)}"})

    def join(self, topics: set[str]) -> str:
        name = f"n{len(self.nodes)}-{self.rng.randrange(10**6)}"
        peers = Peers(name, Random(self.rng.random()), SIZE, EXCHANGED)
        peers.topics = topics
        if self.nodes:
            self.meet(peers)
        self.nodes[name] = peers
        return name

    def meet(self, peers: Peers) -> None:
        """Who knows nobody meets one node, as the bus would have it."""
        contact = self.nodes[self.rng.choice(sorted(self.nodes))]
        peers.hear(contact.me())
        contact.hear(peers.me())

    def round(self, lossy: float = 0.0) -> None:
        for name in self.rng.sample(sorted(self.nodes), len(self.nodes)):
            asked = self.nodes[name].shuffles()
            if not asked:
                self.meet(self.nodes[name])
            for partner, question in asked:
                if partner not in self.nodes or self.rng.random() < lossy:
                    continue
                answer = self.nodes[partner].receive(question, name)
                assert answer is not None
                if self.rng.random() >= lossy:
                    assert self.nodes[name].receive(answer, partner) is None

    def reached(self) -> set[str]:
        """Who can be reached from the first node along the views."""
        found = {next(iter(self.nodes))}
        fresh = set(found)
        while fresh:
            fresh = {n for name in fresh for n in self.nodes[name].view if n in self.nodes} - found
            found |= fresh
        return found


@given(st.integers(2, 60), st.integers(0, 2**32))
def test_views_are_small_and_never_hold_oneself(count: int, seed: int) -> None:
    crowd = Crowd(count, seed)
    for _ in range(5):
        crowd.round(lossy=0.1)
    for name, peers in crowd.nodes.items():
        assert len(peers.view) <= SIZE
        assert name not in peers.view
        assert all(known.node == node for node, known in peers.view.items())


def test_everyone_stays_connected_under_churn_and_loss() -> None:
    crowd = Crowd(120, 1)
    for turn in range(60):
        crowd.round(lossy=0.05)
        for _ in range(2):
            crowd.join({"t0"})
            if turn > 5:
                del crowd.nodes[crowd.rng.choice(sorted(crowd.nodes))]
    for _ in range(10):
        crowd.round()
    assert crowd.reached() == crowd.nodes.keys()


def test_the_dead_are_forgotten() -> None:
    crowd = Crowd(80, 2)
    for _ in range(20):
        crowd.round()
    dead = set(crowd.rng.sample(sorted(crowd.nodes), 30))
    for name in dead:
        del crowd.nodes[name]
    for _ in range(40):
        crowd.round()
    assert not any(dead & peers.view.keys() for peers in crowd.nodes.values())


def test_partners_are_about_equally_likely() -> None:
    crowd = Crowd(40, 3)
    for _ in range(30):
        crowd.round()
    chosen: Counter[str] = Counter()
    one = next(iter(crowd.nodes.values()))
    for _ in range(600):
        crowd.round()
        chosen.update(one.partners("t0", 2))
    counts = [chosen[name] for name in crowd.nodes if crowd.nodes[name] is not one]
    mean = sum(counts) / len(counts)
    assert min(counts) > mean / 3 and max(counts) < mean * 3


def test_partners_subscribe_the_topic() -> None:
    crowd = Crowd(100, 4, topics=5)
    for _ in range(40):
        crowd.round()
    for peers in crowd.nodes.values():
        (topic,) = peers.topics
        partners = peers.partners(topic, 3)
        assert len(partners) == 3  # peers of the same topic are kept first
        assert all(topic in crowd.nodes[name].topics for name in partners)


def test_an_answer_to_nothing_is_taken_in_without_harm() -> None:
    peers = Peers("me", Random(1), SIZE, EXCHANGED)
    many = tuple(Descriptor(f"n{i}", i, ()) for i in range(50))
    assert peers.receive(Shuffle(many, answer=True), "stranger") is None
    assert len(peers.view) == SIZE
    assert len(peers.shuffles()) == 1
    assert Peers("alone", Random(1)).shuffles() == []


def test_who_hears_from_few_asks_the_bus() -> None:
    peers = Peers("me", Random(1))
    assert all(peers.lonely() for _ in range(10))  # nobody is known
    for index in range(20):
        peers.hear(Descriptor(f"n{index}", 0, ()))
    assert not any(peers.lonely() for _ in range(10))
    for _ in range(11):  # all of these are gone: nobody answers
        peers.shuffles()
    assert peers.lonely()
    peers.hear(Descriptor("n1", 0, ()))
    asked = sum(peers.lonely() for _ in range(1000))
    assert 400 < asked < 600  # half of the time: two nodes know each other
