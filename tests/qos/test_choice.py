"""The choice of the next view: whatever is lost, doubled, late or restarted, there is one."""

from __future__ import annotations

from random import Random

import pytest
from support.seeds import seed_range

from unisono.core.effects import Effect, Send, Store
from unisono.core.events import Control
from unisono.core.limits import Limits
from unisono.qos.choice import STORE_KEY, Choice
from unisono.qos.membership import Membership
from unisono.qos.views import Accept, Accepted, Prepare, Promise, Refuses, View, Vote

NAMES = ("a", "b", "c", "d", "e")
CHOICE = (Prepare, Promise, Accept, Accepted, Refuses)
PERIOD = 1000


class Voters:
    """Members that each want another view, and the messages between them, in any order."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0
        self.disks: dict[str, bytes] = {}
        self.on_the_way: list[tuple[str, str, Control]] = []
        self.chosen: dict[int, set[View]] = {}
        self.members: dict[str, Membership] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """For the first time, or again with its disk and nothing else."""
        first = View("bus", 1, NAMES)
        self.members[name] = Membership(
            name, Limits(), initial=first, period_us=PERIOD, stored=self.disks.get(name)
        )
        self.carry(name, self.members[name].start(self.now))

    def carry(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store) and effect.key == STORE_KEY:
                assert effect.value is not None
                self.disks[name] = effect.value
            elif isinstance(effect, Send) and isinstance(effect.message, CHOICE):
                self.on_the_way.append((name, effect.to, effect.message))
        view = self.members[name].view
        if view is not None:
            self.chosen.setdefault(view.number, set()).add(view)

    def step(self) -> None:
        rng = self.rng
        fate = rng.random()
        name = rng.choice(NAMES)
        if fate < 0.1:  # wants something of its own, and believes to be the one to propose
            self.now += rng.randrange(3 * PERIOD)
            member = self.members[name]
            member._leavers = {rng.choice(NAMES)}
            member.leader = lambda now: name  # type: ignore[method-assign]
            self.carry(name, member.propose(self.now))
        elif fate < 0.15:
            self.start(name)
        elif self.on_the_way:
            sender, to, message = self.on_the_way.pop(rng.randrange(len(self.on_the_way)))
            if fate < 0.3:  # comes again, later
                self.on_the_way.append((sender, to, message))
            if fate < 0.9:  # else it is lost
                self.carry(to, self.members[to].receive(message, sender, self.now))


def play(seed: int) -> Voters:
    voters = Voters(Random(seed))
    for _ in range(400):
        voters.step()
    return voters


@pytest.mark.seeded
def test_one_view_of_each_number() -> None:
    progress = 0
    for seed in seed_range(300):
        voters = play(seed)
        for number, views in voters.chosen.items():
            assert len(views) == 1, f"seed {seed}: {len(views)} views {number}"
        progress = max(progress, *voters.chosen)
    assert progress > 3  # something was chosen at all


def test_a_voter_that_forgets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    store = Choice._store

    def forgets(self: Choice) -> Effect:
        assert self._vote is not None
        kept, self._vote = self._vote, Vote(self._vote.view)
        effect = store(self)
        self._vote = kept
        return effect

    monkeypatch.setattr(Choice, "_store", forgets)
    views = (views for seed in range(300) for views in play(seed).chosen.values())
    assert any(len(chosen) > 1 for chosen in views)


def test_a_restarted_proposer_takes_a_new_ballot() -> None:
    """With the old one, promises to its first proposal would count for its second."""
    voters = Voters(Random(0))
    member = voters.members["a"]
    member._leavers = {"b"}
    voters.carry("a", member.propose(0))
    ballots = {m.ballot for _, _, m in voters.on_the_way if isinstance(m, Prepare)}
    voters.start("a")
    member = voters.members["a"]
    member._leavers = {"c"}
    voters.on_the_way.clear()
    voters.carry("a", member.propose(0))
    again = {m.ballot for _, _, m in voters.on_the_way if isinstance(m, Prepare)}
    assert len(again) == 1 and not again & ballots
