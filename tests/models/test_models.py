"""The models against closed forms, against each other, and against simulation."""

from __future__ import annotations

from itertools import pairwise, product
from math import comb, prod
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import BadInput
from unisono.models.channel import Channel, gains, lost, needed
from unisono.models.markov import Markov
from unisono.models.tree import Tree

CHANNEL = Channel(0.1, 2)
channels = st.builds(Channel, st.floats(0, 0.5), st.floats(1, 8))  # all of them are possible


def by_enumeration(channel: Channel, packets: int) -> list[float]:
    """Over all sequences of states."""
    steps = {
        (False, False): 1 - channel.to_bad,
        (False, True): channel.to_bad,
        (True, False): channel.to_good,
        (True, True): 1 - channel.to_good,
    }
    chances = [0.0] * (packets + 1)
    for states in product((False, True), repeat=packets):
        first = channel.loss if states[0] else 1 - channel.loss
        chances[sum(states)] += first * prod(steps[pair] for pair in pairwise(states))
    return chances


@given(channels, st.integers(1, 9))
def test_losses_are_those_of_all_sequences(channel: Channel, packets: int) -> None:
    assert lost(channel, packets) == pytest.approx(by_enumeration(channel, packets), abs=1e-12)


@given(channels, st.integers(0, 60))
def test_losses_are_probabilities_with_the_right_mean(channel: Channel, packets: int) -> None:
    chances = lost(channel, packets)
    assert sum(chances) == pytest.approx(1)
    assert min(chances) >= 0
    mean = sum(count * chance for count, chance in enumerate(chances))
    assert mean == pytest.approx(packets * channel.loss)


@given(st.floats(0, 0.9), st.integers(0, 40))
def test_without_memory_losses_are_binomial(loss: float, packets: int) -> None:
    channel = Channel(loss, 1 / (1 - loss))  # then each packet is lost whatever happened before
    binomial = [
        comb(packets, k) * loss**k * (1 - loss) ** (packets - k) for k in range(packets + 1)
    ]
    assert lost(channel, packets) == pytest.approx(binomial, abs=1e-12)


def test_a_channel_that_loses_everything_or_nothing() -> None:
    assert lost(Channel(1.0, 5), 3) == (0, 0, 0, 1)
    assert lost(Channel(0.0, 5), 3) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("loss", "burst", "said"),
    [
        (-0.1, 2, "not a share"),
        (1.1, 2, "not a share"),
        (float("nan"), 2, "not a share"),
        (0.1, 0.5, "below 1"),
        (0.1, float("nan"), "below 1"),
        (0.9, 2, "at least 9"),
    ],
)
def test_impossible_channels_are_refused(loss: float, burst: float, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Channel(loss, burst)


trees = st.builds(
    Tree,
    degree=st.integers(1, 4),
    depth=st.integers(1, 5),
    packets=st.integers(1, 8),
    channel=channels,
    redundancy=st.integers(0, 4),
    alpha=st.floats(0, 1),
)


@given(trees)
def test_before_any_round_the_tree_has_a_closed_form(tree: Tree) -> None:
    assert tree.success(0) == [pytest.approx(tree.closed_form())]


@given(trees)
def test_rounds_and_useful_contacts_only_help(tree: Tree) -> None:
    success = tree.success(4)
    assert all(0 <= share <= 1 + 1e-9 for share in success)
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(success))
    for row in tree.gossiped(tree.disseminated()):
        assert sum(row) == pytest.approx(1)


@given(trees, st.integers(0, 3))
def test_redundancy_only_helps(tree: Tree, more: int) -> None:
    richer = msgspec.structs.replace(tree, redundancy=tree.redundancy + more)
    assert richer.success(0)[0] >= tree.success(0)[0] - 1e-12


@given(st.integers(1, 8), channels, st.integers(0, 4))
def test_a_tree_of_one_level_is_the_markov_chain(n: int, channel: Channel, rounds: int) -> None:
    """Without redundancy in gossip, that is; the thesis' model has none."""
    flat = Tree(degree=3, depth=1, packets=n, channel=channel)
    chain = Markov(packets=n, channel=channel)
    assert flat.success(rounds) == pytest.approx(chain.success(rounds))


def simulated(markov: Markov, rounds: int, nodes: int, rng: Random) -> list[float]:
    """A population of nodes that do what section 5.4 says, with sets of packets."""

    def survivors(count: int) -> list[bool]:
        bad = rng.random() < markov.channel.loss
        kept = []
        for _ in range(count):
            kept.append(not bad)
            bad = rng.random() < (1 - markov.channel.to_good if bad else markov.channel.to_bad)
        return kept

    n, a = markov.packets, markov.redundancy
    have: list[set[int]] = []
    for _ in range(nodes):
        sent = [*range(n), *(range(n, n + a) if markov.coding else rng.sample(range(n), a))]
        rng.shuffle(sent)
        got = {packet for packet, kept in zip(sent, survivors(n + a), strict=True) if kept}
        have.append(set(sorted(got)[:n]) if markov.coding else got)
    success = [sum(len(one) == n for one in have) / nodes]
    for _ in range(rounds):
        before = [set(one) for one in have]
        for index in range(nodes):
            for _ in range(markov.fanout):
                other = before[rng.randrange(nodes)]
                if markov.coding:  # any packet is new until there are n
                    useful = min(len(other), n - len(have[index]))
                    new = sum(survivors(useful))
                    have[index] |= {1000 * len(have[index]) + i + n + a for i in range(new)}
                else:
                    wanted = sorted(other - have[index])
                    kept = survivors(len(wanted))
                    have[index] |= {p for p, k in zip(wanted, kept, strict=True) if k}
        success.append(sum(len(one) == n for one in have) / nodes)
    return success


@pytest.mark.parametrize("coding", [True, False])
@pytest.mark.parametrize("fanout", [1, 2])
def test_the_markov_chain_agrees_with_simulation(coding: bool, fanout: int) -> None:
    markov = Markov(packets=6, redundancy=2, channel=Channel(0.2, 2), fanout=fanout, coding=coding)
    measured = simulated(markov, 3, 20_000, Random(1))
    assert markov.success(3) == pytest.approx(measured, abs=0.012)


@given(st.integers(1, 8), channels, st.integers(0, 4), st.integers(1, 3), st.booleans())
def test_chains_hold_probabilities(
    n: int, channel: Channel, a: int, fanout: int, coding: bool
) -> None:
    chain = Markov(packets=n, redundancy=min(a, n), channel=channel, fanout=fanout, coding=coding)
    row = chain.disseminated()
    assert sum(row) == pytest.approx(1)
    assert sum(chain._contact(row, row)) == pytest.approx(1)


def test_coding_needs_fewer_rounds() -> None:
    coded, plain = (
        Markov(packets=10, channel=Channel(0.2, 2), redundancy=2, coding=coding).success(6)
        for coding in (True, False)
    )
    assert all(one >= other for one, other in zip(coded, plain, strict=True))
    assert coded[2] > 0.95 > plain[2]


def test_gains_saturate() -> None:
    assert gains(CHANNEL, 0, 5) == (1.0,)
    assert gains(CHANNEL, 3, 2)[-1] == pytest.approx(sum(lost(CHANNEL, 5)[:3]))


@given(channels, st.integers(1, 24), st.floats(0.5, 0.999), st.integers(0, 20))
def test_what_is_needed_is_the_least_that_is_enough(
    channel: Channel, useful: int, share: float, most: int
) -> None:
    def enough(redundancy: int) -> float:
        return gains(channel, useful, redundancy)[-1]

    found = needed(channel, useful, share, most)
    assert 0 <= found <= most
    assert found == most or enough(found) >= share - 1e-9
    assert found == 0 or enough(found - 1) < share + 1e-9


def test_nothing_helps_where_everything_is_lost_and_nothing_is_needed_where_nothing_is() -> None:
    assert needed(Channel(1.0, 5), 4, 0.99, 7) == 7
    assert needed(Channel(0.0, 5), 4, 1.0, 7) == 0
    for useful, share, most in ((0, 0.9, 1), (1, 1.1, 1), (1, float("nan"), 1), (1, 0.9, -1)):
        with pytest.raises(BadInput, match="packets"):
            needed(CHANNEL, useful, share, most)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"packets": 0}, "packets = 0"),
        ({"redundancy": -1}, "redundancy = -1"),
        ({"degree": 0}, "degree = 0"),
        ({"depth": 0}, "depth = 0"),
        ({"alpha": 1.5}, "alpha = 1.5"),
    ],
)
def test_impossible_trees_are_refused(changes: dict[str, float], said: str) -> None:
    known = {"degree": 2, "depth": 2, "packets": 4, "channel": CHANNEL}
    with pytest.raises(BadInput, match=said):
        Tree(**{**known, **changes})  # type: ignore[arg-type]


def test_impossible_chains_are_refused() -> None:
    with pytest.raises(BadInput, match="fanout = 0"):
        Markov(packets=4, channel=CHANNEL, fanout=0)
    with pytest.raises(BadInput, match="at most once"):
        Markov(packets=4, channel=CHANNEL, redundancy=5, coding=False)
    with pytest.raises(BadInput, match="rounds = -1"):
        Markov(packets=4, channel=CHANNEL).success(-1)
