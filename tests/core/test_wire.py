"""The wire format: decode inverts encode; what is not ours is refused by name."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.core.events import Control, Event
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.core.wire import HEADER_BYTES, MAGIC, VERSION, Codec, Rejected
from unisono.qos.membership import Membership
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.messages import Adopt, ClosedTopics, HandOver
from unisono.qos.views import Alive, View

CONTROLS: tuple[type[Control], ...] = TotalOrder.controls
CODEC = Codec(CONTROLS, 1 << 20)

st.register_type_strategy(int, st.integers(0, 2**53))
PARTED = (HandOver, Adopt, ClosedTopics)  # they count their parts from one
parted = [st.builds(kind, parts=st.integers(1, 99)) for kind in PARTED]
alive = st.builds(Alive, topics=st.dictionaries(st.text(), st.integers(0, 2**53)))
others = [st.from_type(kind) for kind in TotalOrder.controls if kind not in (*PARTED, Alive)]
messages = st.one_of(alive, *parted, *others) | st.builds(
    Event,
    id=st.text(),
    topic=st.text(),
    payload=st.binary(),
    publisher=st.text(),
    seq=st.integers(0, 2**53),
    published_us=st.integers(-(2**63), 2**63 - 1),
    stamp=st.none() | st.dictionaries(st.text(), st.integers(0, 2**53)),
)


@given(st.text(), messages)
def test_decode_inverts_encode(sender: str, message: Event | Control) -> None:
    assert CODEC.decode(CODEC.encode(sender, message)) == (sender, message)


def test_every_control_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in CONTROLS]
    assert len(set(tags)) == len(tags)
    assert all(tags)


def _frame(body: bytes, version: int = VERSION, magic: int = MAGIC) -> bytes:
    return bytes((magic, version)) + zlib.crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "too short"),
        (b"\x55\x01", "too short"),
        (b"hello, this is someone else's message", "not ours"),
        (_frame(b"", version=9), "unknown version"),
        (_frame(b"abc")[:-1] + b"x", "checksum"),
        (_frame(b"abc"), "malformed"),
        (_frame(b"\x92\xa1s\x92\xa5nonesuch\x01"), "malformed"),
        (_frame(b"\x92\xa1\xfe\x92\xa5event\x01"), "malformed"),  # text that is no UTF-8
        (_frame(b"\x00" * (1 << 21)), "too long"),
    ],
)
def test_refused_with_its_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(Rejected) as refused:
        CODEC.decode(frame)
    assert refused.value.reason == reason


@given(st.binary(max_size=200))
def test_random_bytes_never_crash(noise: bytes) -> None:
    for frame in (noise, _frame(noise)):
        with suppress(Rejected):
            CODEC.decode(frame)


@given(st.data(), messages)
def test_one_changed_byte_is_noticed(data: st.DataObject, message: Event | Control) -> None:
    frame = bytearray(CODEC.encode("n", message))
    index = data.draw(st.integers(0, len(frame) - 1))
    frame[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Rejected):
        CODEC.decode(bytes(frame))


@given(st.binary(max_size=100))
def test_a_node_counts_what_it_refuses_and_stays_as_it_was(noise: bytes) -> None:
    limits = Limits()
    layer = TotalOrder("n", Membership("n", limits, initial=View("bus", 1, ("n",))))
    node = Node("n", [layer])
    node.start(0)
    effects = node.frame("t", b"\x00" * HEADER_BYTES + noise, 1)
    assert sum(node.rejected.values()) == 1
    assert [type(effect).__name__ for effect in effects] == ["Record"]
    assert not layer.replicas and not layer.subscriber.subscribed
