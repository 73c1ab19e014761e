"""The cuts of the work: every subscriber's positions in order, in one partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.bench.traces import SUBSCRIBERS_PER_TOPIC, TOPICS, delivery_columns
from unisono.pipeline import plan
from unisono.pipeline.census import Census
from unisono.pipeline.event_kernel import bucket, bucket_floor

spans = st.tuples(st.integers(0, 40), st.integers(-(2**61), 2**61), st.integers(1, 2**60)).map(
    lambda span: (span[0], span[1], min(span[1] + span[2], 2**61))
)


def census_of(positions: list[tuple[int, int, int]]) -> Census:
    names = tuple(f"s{at:03d}" for at in range(len(positions)))
    return Census(0, 0, {}, names, (), (), (), tuple(positions), None, None, ())


@settings(deadline=None)
@given(st.lists(spans, max_size=12), st.data())
def test_chunks_follow_subscribers_and_positions(
    positions: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "ROWS_PER_CHUNK", 7)
        patch.setattr(plan, "ROWS_PER_PARTITION", 20)
        cut = plan.make_plan(census_of(positions), np.zeros(0, np.int64))
    last = -1
    for who, (_, low, high) in enumerate(positions):
        inner = data.draw(st.lists(st.integers(low, high), max_size=5))
        places = np.array(sorted([low, high, *inner]), np.int64)
        chunks = cut.chunk_of(np.full(places.size, who, np.int32), places)
        assert chunks[0] >= last and (np.diff(chunks) >= 0).all()
        assert chunks[-1] < cut.chunks
        assert len({int(cut.partition_of_chunk[chunk]) for chunk in chunks}) == 1
        last = int(chunks[-1])


@given(st.integers(0, 2**62))
def test_latency_buckets_are_exact_when_small_and_close_when_large(value: int) -> None:
    floor = bucket_floor(bucket(value))
    assert floor <= value
    assert value - floor <= (0 if value < 2048 else value / 1024)


def test_the_benchmark_trace_does_not_depend_on_how_it_is_cut() -> None:
    whole = delivery_columns(np.arange(0, 400))
    halves = [delivery_columns(np.arange(*ends)) for ends in ((0, 250), (250, 400))]
    for name, values in whole.items():
        assert (np.concatenate([half[name] for half in halves]) == values).all()
    assert len(whole["number"]) == 400 * TOPICS * SUBSCRIBERS_PER_TOPIC
