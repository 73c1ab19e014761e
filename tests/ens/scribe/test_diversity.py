"""Which parents are taken: the sum of paper 004, section 3.4, at its smallest."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from unisono.ens.scribe.diversity import Offer, added, choose, cost, overlap

WAYS = st.frozensets(st.sampled_from("abcdefgh"), max_size=5)
OFFERS = st.lists(
    st.builds(Offer, st.sampled_from("uvwxyz"), WAYS, st.integers(0, 6), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)


def test_ways_that_share_nothing_have_no_overlap() -> None:
    assert overlap([frozenset("ab"), frozenset("cd")]) == 0
    assert overlap([frozenset("abc"), frozenset("bcd")]) == 4  # both orders of the pair


@given(st.lists(WAYS, max_size=5), WAYS)
def test_what_a_child_adds_is_the_difference(
    ways: list[frozenset[str]], child: frozenset[str]
) -> None:
    assert added(ways, child) == overlap([*ways, child]) - overlap(ways)


@given(st.lists(OFFERS, min_size=1, max_size=3))
def test_the_choice_is_the_best_of_all(offers: list[list[Offer]]) -> None:
    assert cost(choose(offers)) == min(cost(parents) for parents in product(*offers))


def test_the_second_parent_is_where_the_first_is_not() -> None:
    """As in figure 6: of two parents in tree B the one behind another router is taken."""
    first = [Offer("C2", frozenset(("r1", "r2")), 0)]
    second = [Offer("C7", frozenset(("r1", "r3")), 0), Offer("C8", frozenset(("r4",)), 1)]
    assert [offer.site for offer in choose([first, second])] == ["C2", "C8"]


def test_long_lists_are_cut() -> None:
    offers = [Offer(f"s{number}", frozenset(), number) for number in range(1000)]
    assert [offer.site for offer in choose([offers, offers, offers])] == ["s0", "s0", "s0"]
