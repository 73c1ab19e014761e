"""The journal: stamps give one order, and a late transaction its place in it."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.managers import Bench

from unisono.cases.active_database.journal import Entry, Journal, precedes
from unisono.core.events import NUMBER

TOPICS = ("a", "b", "c", "d", "e")
holdings = st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=4)


@given(holdings, st.lists(st.sampled_from(TOPICS), max_size=15), st.integers(0, 2**32))
def test_exact_stamps_give_one_order_to_every_replica(
    held: list[set[str]], published: list[str], seed: int
) -> None:
    """Whatever order messages take, and whichever topics the replicas hold."""
    bench = Bench(TOPICS, Random(seed))
    for number, topics in enumerate(held):
        bench.relate(str(number), topics)
    bench.run()
    for number, topic in enumerate(published):
        bench.publish(f"e{number}", topic)
        for _ in range(bench.rng.randrange(4)):
            if bench.on_the_way:
                bench.step()
    bench.run()
    entries = [Entry(f"e{n}", topic, bench.stamps[f"e{n}"]) for n, topic in enumerate(published)]
    for topics in held:
        mine = [entry for entry in entries if entry.topic in topics]
        bench.rng.shuffle(mine)
        journal = Journal()
        for entry in mine:
            at = journal.place(entry)
            assert at is not None
            journal.insert(at, entry)
        for e, f in combinations(journal.entries, 2):
            assert precedes(e, f) and not precedes(f, e)


def test_the_thesis_example_of_what_printed_stamps_leave_open_has_an_order() -> None:
    """Section 4.3.2: e' on T' counts n events of T, e is T's n+1st: e' comes first."""
    late = Entry("e'", "T'", {"T": 3, "T'": 1})
    early = Entry("e", "T", {"T": 4})
    assert precedes(late, early) and not precedes(early, late)
    counted = Entry("d", "T", {"T": 3})
    assert precedes(counted, late) and not precedes(late, counted)


@given(st.permutations(range(1, 30)), st.integers(1, 5))
def test_what_is_settled_is_final(order: list[int], keep: int) -> None:
    journal = Journal()
    kept: list[int] = []  # all numbers in the journal, the final ones included
    for number in order:
        at = journal.place(Entry(str(number), "t", {NUMBER: number}))
        if at is None:
            assert number < min(e.stamp[NUMBER] for e in journal.entries)
            continue
        kept.insert(at, number)
        journal.insert(at, Entry(str(number), "t", {NUMBER: number}))
        assert kept == sorted(kept) and len(journal) == len(kept)
        journal.settle(keep)
        assert len(journal.entries) <= keep
        assert [e.stamp[NUMBER] for e in journal.since(journal.final)] == kept[journal.final :]


def test_a_journal_keeps_at_least_one() -> None:
    with pytest.raises(AssertionError):
        Journal().settle(0)
