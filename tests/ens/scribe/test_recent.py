"""What was heard lately: against a plain set of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.ens.scribe import recent as recent_module
from unisono.ens.scribe.messages import Item
from unisono.ens.scribe.recent import Recent

KEEP = 1000


def item(number: int, source: str = "s") -> Item:
    return Item("t", source, number, b"%d" % number)


@given(st.permutations(range(1, 40)), st.lists(st.integers(1, 39)))
def test_every_number_is_new_once(order: list[int], again: list[int]) -> None:
    recent = Recent(KEEP)
    assert all(recent.add(item(number), 0) for number in order)
    assert not any(recent.add(item(number), 0) for number in again)
    assert recent.missing(0) == []


@given(st.sets(st.integers(1, 60), min_size=1))
def test_gaps_are_missing_after_a_beat(heard: set[int]) -> None:
    recent = Recent(KEEP)
    for number in sorted(heard):
        recent.add(item(number), 0)
    assert recent.missing(0) == []  # they have time to come
    gaps = tuple(number for number in range(1, max(heard)) if number not in heard)
    assert recent.missing(0) == ([("t", "s", gaps)] if gaps else [])


def test_what_others_have_is_missing_and_what_was_before_is_not() -> None:
    recent = Recent(KEEP)
    recent.begin([("t", "s", 7)])
    recent.told("t", "s", 9, 0)
    recent.missing(0)
    assert recent.missing(0) == [("t", "s", (8, 9))]
    assert not recent.add(item(7), 0)
    assert recent.add(item(8), 0) and recent.add(item(9), 0)


@pytest.mark.parametrize("told", [False, True])
def test_a_process_that_has_just_begun_does_not_ask_for_what_was_before(told: bool) -> None:
    young, old = Recent(KEEP), Recent(KEEP)
    young.start(0)
    old.start(-KEEP)
    for recent in (young, old):
        if told:
            recent.told("t", "s", 500, 0)
        else:
            recent.add(item(500), 0)
        recent.told("t", "s", 502, 0)
        recent.add(item(9, "new"), 0)  # of which the first ones may have been lost
        recent.missing(0)
    first = (("t", "new", tuple(range(1, 9))),)
    assert young.missing(0) == [*first, ("t", "s", (501, 502))]
    assert old.missing(0)[1][2][0] < 450
    assert young.add(item(499), 0)  # if it comes nevertheless


def test_what_is_too_old_is_given_up() -> None:
    recent = Recent(KEEP)
    recent.add(item(1), 0)
    recent.add(item(5), 0)
    assert [kept.number for kept in recent.get([("t", "s", (1, 2, 5))])] == [1, 5]
    recent.tidy(KEEP + 1)
    assert recent.get([("t", "s", (1, 5))]) == []
    assert not recent.add(item(3), KEEP + 1)
    assert recent.heads({"t"}, KEEP + 2) == [] and recent.heads({"t"}, KEEP) == [("t", "s", 5)]


def test_what_is_told_again_is_no_news() -> None:
    """Two that tell each other the same forget it in the end, and ask no more."""
    recent = Recent(KEEP)
    recent.told("t", "s", 5, 0)
    for now in range(0, 3 * KEEP, KEEP // 10):
        for topic, source, number in recent.heads({"t"}, now):
            recent.told(topic, source, number, now)
        recent.missing(now - KEEP)
    assert recent.heads({"t"}, 3 * KEEP) == []
    assert recent.missing(2 * KEEP) == []


def test_what_is_told_last_is_named_first() -> None:
    recent = Recent(KEEP)
    recent.add(item(1, "old"), 0)
    recent.add(item(1, "new"), KEEP)
    recent.told("t", "old", 2, 2 * KEEP)
    assert recent.heads({"t"}, 2 * KEEP) == [("t", "old", 2), ("t", "new", 1)]


def test_what_can_be_had_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "STREAMS", 2)
    recent = Recent(KEEP)
    for number in (1, 2, 4):
        recent.add(item(number), 0)
    recent.add(item(7, "other"), KEEP)
    recent.told("t", "s", 9, 0)  # not here
    assert recent.kept("t", 0) == [("t", "s", (1, 2, 4)), ("t", "other", (7,))]
    assert recent.kept("t", 1) == [("t", "other", (7,))]
    recent.tidy(KEEP + 1)
    assert recent.kept("t", 0) == [("t", "other", (7,))]
    assert recent.kept("u", 0) == []
    for source in ("x", "y"):  # the oldest streams are forgotten
        recent.add(item(1, source), KEEP)
    assert recent.kept("t", 0) == [("t", "x", (1,)), ("t", "y", (1,))]


def test_a_new_subscription_hides_nothing_that_is_missing() -> None:
    recent = Recent(KEEP)
    recent.add(item(1), 5 * KEEP)
    recent.told("t", "s", 3, 5 * KEEP)
    recent.begin([("u", "other", 7)])
    recent.missing(4 * KEEP)
    assert recent.missing(4 * KEEP) == [("t", "s", (2, 3))]
    assert recent.heads({"t"}, 5 * KEEP) == [("t", "s", 3)]


@pytest.mark.parametrize("ahead", [1500, 30_000])
def test_a_gap_far_behind_is_asked_for(ahead: int) -> None:
    recent = Recent(KEEP)
    recent.add(item(1), 1)
    for number in range(3, ahead):
        recent.add(item(number), 1)
    recent.missing(0)
    assert recent.missing(0) == [("t", "s", (2,))]


def test_of_many_that_are_missing_the_latest_are_asked_for() -> None:
    recent = Recent(KEEP)
    recent.add(item(1), 1)
    recent.told("t", "s", 5000, 1)
    recent.missing(0)
    ((_, _, numbers),) = recent.missing(0)
    assert numbers == tuple(range(5000 - recent_module.GAP + 1, 5001))


def test_what_is_remembered_behind_a_gap_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "ITEMS", 100)
    recent = Recent(KEEP)
    recent.add(item(1), 1)
    for number in range(3, 1000):
        recent.add(item(number), 1)
        assert len(recent._streams["t", "s"].heard) <= 101
    assert not recent.add(item(2), 1)  # nobody has it any more
    assert recent.add(item(1000), 1)


def test_what_others_see_to_is_followed_until_it_comes_here() -> None:
    recent = Recent(KEEP)
    for number in (5, 300, 299):
        recent.begin([("t", "s", number)])
    recent.add(item(303), 1)
    recent.begin([("t", "s", 302)])  # too late: it is missing here
    recent.missing(0)
    assert recent.missing(0) == [("t", "s", (301, 302))]
