"""A source that is taken down and set up again at any time goes on as if nothing had been."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from unisono.core.events import Event, Past, Status, first_of
from unisono.qos.fifo.options import Fifo
from unisono.qos.fifo.source import PASSED_RANGES, Snapshot, Source

# Number, microseconds since the one before arrived, and since its own departure.
Arrivals = list[tuple[int, int, int]]
arrivals: st.SearchStrategy[Arrivals] = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 30), st.integers(first_of(1), first_of(1) + 5)),
        st.integers(0, 3000),
        st.integers(-2000, 5000),
    ),
    max_size=60,
)
options = st.builds(
    Fifo,
    violation=st.sampled_from([0.5, 0.05]),
    record=st.sampled_from([0, 25]),
    rule=st.sampled_from(["conditional", "paper", "chebyshev"]),
    window=st.sampled_from([2, 5, 25]),
    first_ms=st.sampled_from([0.0, 3.0]),
    hold_ms=st.sampled_from([1.0, 50.0]),
    buffer=st.sampled_from([1, 3, 4096]),
)
Went = list[tuple[int, int, Status | None]]


def again(source: Source, chosen: Fifo) -> Source:
    """Through bytes."""
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(source.snapshot()), type=Snapshot)
    return Source.restore(chosen, kept)


def run(plan: Arrivals, chosen: Fifo, every: int, begin: int | None) -> tuple[Source, Went]:
    """Taken down after every so many arrivals; None stands for a duplicate."""
    source, now, went = Source(chosen), 0, Went()
    if begin is not None:
        source.begin(begin)
    for place, (number, since, delay) in enumerate(plan):
        now += since
        while source.held and (due := source.due_us()) <= now:
            went += [(due, event.seq, status) for event, status in source.release(due)]
        event = Event("", "", b"", "", number, now - delay)
        came = source.arrive(event, Past(number, 0), lambda topic, told: True, now)
        for gone, status in [(event, None)] if came is None else came:
            went.append((now, gone.seq, status))
        if every and place % every == 0:
            source = again(source, chosen)
    return source, went


@given(arrivals, options, st.integers(1, 5), st.sampled_from([None, 0, 3]))
def test_what_is_restored_goes_on_as_before(
    plan: Arrivals, chosen: Fifo, every: int, begin: int | None
) -> None:
    whole, expected = run(plan, chosen, 0, begin)
    parted, went = run(plan, chosen, every, begin)
    assert went == expected
    if plan:
        assert parted.snapshot() == whole.snapshot()


def test_numbers_before_the_beginning_are_out_of_order_once() -> None:
    _, went = run([(5, 0, 0), (3, 1, 0), (3, 1, 0), (6, 1, 0)], Fifo(), 0, begin=5)
    assert went == [
        (0, 5, Status.IN_ORDER),
        (1, 3, Status.OUT_OF_ORDER),
        (2, 3, None),
        (3, 6, Status.IN_ORDER),
    ]


def test_a_snapshot_is_as_bounded_as_its_source() -> None:
    chosen = Fifo(rule="static", latch_ms=0, window=5)
    plan = [(2 * number, 1, 0) for number in range(3 * PASSED_RANGES)]
    source, _ = run(plan, chosen, 0, None)
    kept = source.snapshot()
    assert (len(kept.passed), len(kept.spread.samples), kept.held) == (PASSED_RANGES, 5, [])
    assert len(msgspec.msgpack.encode(kept)) < 12 * PASSED_RANGES


def test_a_shorter_window_takes_the_last_samples() -> None:
    source, _ = run([(number, 10 * number, 0) for number in range(20)], Fifo(window=10), 0, None)
    shorter = again(source, Fifo(window=3))
    assert shorter.spread.snapshot().samples == source.spread.snapshot().samples[-3:]
    shorter.spread.add(7)
    assert len(shorter.spread.snapshot().samples) == 3
