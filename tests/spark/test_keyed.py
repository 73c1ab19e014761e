"""A key's rows go as a publisher's events do in the FIFO layer, whatever the batches are."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core.effects import CancelTimer, Notify, SetTimer
from unisono.core.events import Event, Past, Status
from unisono.qos.fifo.layer import ProbabilisticFifo
from unisono.qos.fifo.options import Fifo
from unisono.spark.keyed import HIGHEST, Keyed

STATIC = Fifo(rule="static", latch_ms=100, record=0)
MS = 1000

# Number, microseconds since the one before arrived, since its own departure, and whether a batch
# ends after it.
Arrival = tuple[int, int, int, bool]
arrivals: st.SearchStrategy[list[Arrival]] = st.lists(
    st.tuples(st.integers(1, 25), st.integers(0, 3000), st.integers(-2000, 5000), st.booleans()),
    max_size=50,
)
options = st.builds(
    Fifo,
    violation=st.sampled_from([0.5, 0.05, 0.005]),
    record=st.just(0),
    rule=st.sampled_from(["conditional", "paper", "chebyshev"]),
    first_ms=st.sampled_from([0.0, 3.0]),
    hold_ms=st.sampled_from([1.0, 50.0]),
    buffer=st.sampled_from([1, 3, 4096]),
)
Went = list[tuple[int, int, str]]  # when, which row (by place in the plan), status


def by_the_layer(plan: list[Arrival], chosen: Fifo, end_us: int) -> Went:
    """The id of an event is its place in the plan."""
    layer, due, went = ProbabilisticFifo("r", chosen), dict[str, int](), Went()
    layer.subscribe(("t",), None, 0)

    def carry(effects: object, now: int) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Notify):
                went.append((now, int(effect.event.id), effect.status.value))
            elif isinstance(effect, SetTimer):
                due[effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                del due[effect.key]

    def until(now: int) -> None:
        while due and due["p"] <= now:
            at = due.pop("p")
            carry(layer.timer("p", at), at)

    now = 0
    for place, (number, since, delay, _) in enumerate(plan):
        now += since
        until(now)
        event = Event(str(place), "t", b"", "p", number, now - delay, past=Past(number, 0))
        carry(layer.notify(event, Status.IN_ORDER, now), now)
    until(end_us)
    return went


def by_key(
    plan: list[Arrival], chosen: Fifo, end_us: int, first: int | None, behind_us: int = 0
) -> Went:
    """In batches; between two of them there are bytes, and the rows that are held. The watermark
    is so far behind."""
    went, now, kept, there = Went(), 0, None, list[tuple[int, int]]()  # place in the plan, arrived
    keyed = Keyed(chosen, first)
    for place, (number, since, delay, ends) in enumerate(plan):
        now += since
        there.append((place, now))
        keyed.arrive(len(there) - 1, number, now - delay, now)
        if ends or place == len(plan) - 1:
            keyed.until(now - behind_us if place < len(plan) - 1 else end_us)
            for at, status, wait in zip(keyed.places, keyed.statuses, keyed.waits_us, strict=True):
                went.append((there[at][1] + wait, there[at][0], status))
            there = [there[at] for at in keyed.held()]
            kept = keyed.kept()
            keyed = Keyed(chosen, first, None, kept)
    assert there == []
    return went


@given(arrivals, options, st.sampled_from([0, 500, 10**6]))
def test_the_same_rows_go_at_the_same_time_with_the_same_status(
    plan: list[Arrival], chosen: Fifo, behind_us: int
) -> None:
    end_us = 10**9
    went = by_key(plan, chosen, end_us, 1, behind_us)
    duplicates = [place for _, place, status in went if status == "duplicate"]
    assert [one for one in went if one[2] != "duplicate"] == by_the_layer(plan, chosen, end_us)
    assert sorted(place for _, place, _ in went) == list(range(len(plan)))  # each once
    assert len(duplicates) == len(plan) - len({number for number, *_ in plan})


def test_a_machine_that_forgets_what_it_passed_over_is_found_out() -> None:
    """The parity above can fail."""
    plan = [(1, 0, 0, True), (3, 1, 0, True), (2, 300 * MS, 0, True)]
    forgetful = Keyed(STATIC, 1)
    for place, number in enumerate((1, 3)):
        forgetful.arrive(place, number, 0, place)
    forgetful.until(200 * MS)
    assert forgetful._source is not None
    forgetful._source._passed_from.clear()
    forgetful._source._passed_until.clear()
    forgetful.arrive(2, 2, 0, 300 * MS)
    assert forgetful.statuses[-1] == "duplicate"
    assert by_the_layer(plan, STATIC, 10**9)[-1][2] == "out_of_order"


@given(arrivals, options)
def test_marked_if_and_only_if_a_later_one_went_before(plan: list[Arrival], chosen: Fifo) -> None:
    """Whatever the first row is."""
    highest = -1
    for _, place, status in by_key(plan, chosen, 10**9, None):
        number = plan[place][0]
        if status != "duplicate":
            assert (status == "out_of_order") == (number < highest)
            highest = max(highest, number)


def statuses(keyed: Keyed) -> list[tuple[int, str]]:
    return list(zip(keyed.places, keyed.statuses, strict=True))


def test_the_first_row_says_where_numbers_begin() -> None:
    keyed = Keyed(STATIC)
    for place, number in enumerate((70, 68, 71, 68, 0)):
        keyed.arrive(place, number, None, 10)
    assert statuses(keyed) == [
        (0, "in_order"),
        (1, "out_of_order"),
        (2, "in_order"),
        (3, "duplicate"),
        (4, "out_of_order"),
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_or_it_is_said(first: int) -> None:
    keyed = Keyed(STATIC, first)
    keyed.arrive(0, first + 1, None, 10)
    assert keyed.places == []
    keyed.arrive(1, first, None, 20)
    assert statuses(keyed) == [(1, "in_order"), (0, "in_order")]
    assert keyed.waits_us == [0, 10]


def test_what_has_no_number_goes_at_once_and_makes_no_state() -> None:
    keyed = Keyed(STATIC)
    for place, number in enumerate((-1, HIGHEST + 1)):
        keyed.arrive(place, number, None, 10)
    assert Counter(keyed.statuses) == {"out_of_order": 2}
    assert keyed.kept() is None and keyed.wake_us() is None


def test_a_silent_key_is_forgotten_after_its_rows_have_gone() -> None:
    keyed = Keyed(STATIC, None, 500 * MS)
    keyed.arrive(0, 1, None, MS)
    keyed.arrive(1, 3, None, 2 * MS)
    assert keyed.wake_us() == 102 * MS
    keyed.until(102 * MS)
    assert statuses(keyed) == [(0, "in_order"), (1, "gap_skipped")]
    assert keyed.wake_us() == 502 * MS and not keyed.forgotten
    keyed = Keyed(STATIC, None, 500 * MS, keyed.kept())
    keyed.until(502 * MS)
    assert keyed.forgotten and keyed.kept() is None


def test_the_clock_of_a_key_does_not_go_back() -> None:
    keyed = Keyed(STATIC)
    keyed.arrive(0, 1, None, 10)
    keyed.arrive(1, 3, None, 50 * MS)
    keyed.arrive(2, 4, None, 20)  # as if at 50 ms
    keyed.until(150 * MS)
    assert statuses(keyed)[1:] == [(1, "gap_skipped"), (2, "in_order")]
    assert keyed.waits_us == [0, 100 * MS, 100 * MS]
