"""Frames that travel together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from unisono.core import wire
from unisono.net import bundle
from unisono.net.bundle import BUNDLE_BYTES, bundles, frames_of

frames = st.lists(st.binary(max_size=40).map(lambda rest: bytes((wire.MAGIC,)) + rest), max_size=20)


@given(frames, st.sampled_from([None, 1, 50, 100]))
def test_what_is_bundled_comes_out_in_order(sent: list[bytes], limit: int | None) -> None:
    travelling = list(bundles(sent, limit))
    assert [frame for one in travelling for frame in frames_of(one)] == sent
    for one in travelling:  # only a frame that is too large by itself exceeds the limit
        assert limit is None or len(one) <= limit or len(frames_of(one)) == 1


def test_bundles_stay_small() -> None:
    sent = [bytes((wire.MAGIC,)) * 1000] * 200
    travelling = list(bundles(sent))
    assert len(travelling) == 4
    assert all(len(one) <= BUNDLE_BYTES for one in travelling)


@given(st.binary(max_size=60))
def test_what_is_no_bundle_is_passed_on_as_it_is(rest: bytes) -> None:
    received = bytes((bundle.MAGIC,)) + rest
    taken = frames_of(received)
    if taken != (received,):
        assert sum(4 + len(frame) for frame in taken) == len(rest)


def test_a_frame_is_never_taken_for_a_bundle() -> None:
    assert wire.MAGIC != bundle.MAGIC
    assert frames_of(b"") == (b"",)
