"""Events as packets: any size, any order, never a wrong event."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.qos.coding.galois import Field
from unisono.qos.coding.packets import Assembly, Cut, Layout, Misfit, Packet, Polluted, layout

FIELD = Field()
LIMITS = (1 << 20, 1 << 12)  # of an event, of a packet
seeds = st.integers(0, 2**32)
sizes = st.one_of(st.sampled_from([0, 1, 63, 64, 65, 640]), st.integers(0, 3000))


def cut(frame: bytes, packet_bytes: int = 64, most: int = 8) -> Cut:
    return Cut(frame, FIELD, packet_bytes, most)


def assembled(packets: list[Packet]) -> Assembly:
    assembly = Assembly(packets[0], FIELD, *LIMITS)
    for packet in packets:
        assembly.add(packet, "sender")
    return assembly


@given(st.integers(0, 10_000), st.integers(1, 200), st.integers(1, 20))
def test_a_layout_covers_the_frame_without_waste(size: int, packet_bytes: int, most: int) -> None:
    shape = layout(size, packet_bytes, most)
    assert shape.payload <= packet_bytes
    assert 0 <= shape.packets * shape.payload - size < max(1, shape.packets)
    parts = [shape.of(generation) for generation in range(shape.generations)]
    assert sum(parts) == shape.packets == shape.before(shape.generations)
    assert min(parts) >= 1 and max(parts) <= most and max(parts) - min(parts) <= 1


@given(sizes, st.integers(0, 4), seeds)
def test_any_event_comes_out_as_it_went_in(size: int, redundancy: int, seed: int) -> None:
    rng = Random(seed)
    frame = rng.randbytes(size)
    whole = cut(frame)
    packets = [*whole.plain(), *whole.coded(redundancy, rng)]
    rng.shuffle(packets)
    packets += packets[:3]
    assembly = assembled(packets)
    assert assembly.missing == {}
    assert assembly.frame() == frame


@given(st.integers(1, 3000), seeds)
def test_as_many_may_be_lost_as_are_redundant(size: int, seed: int) -> None:
    rng = Random(seed)
    whole = cut(rng.randbytes(size))
    plain = list(whole.plain())
    lost = {rng.randrange(len(plain))}
    kept = [packet for index, packet in enumerate(plain) if index not in lost]
    assembly = assembled([*whole.coded(1, rng), *kept])
    if assembly.missing:  # one in 255 combinations leaves the lost one out
        assembly = assembled([*whole.coded(3, rng), *kept])
    assert assembly.missing == {}


@given(seeds)
def test_recoded_packets_are_as_good(seed: int) -> None:
    rng = Random(seed)
    frame = rng.randbytes(500)
    first = assembled(list(cut(frame).coded(14, rng)))
    assert first.complete
    second = assembled(list(first.recoded(0, 1, rng)))
    while second.missing:
        for generation in second.missing:
            for packet in first.recoded(generation, 1, rng):
                second.add(packet, "sender")
    assert second.frame() == frame


@given(st.integers(1, 2000), seeds, st.sampled_from(["payload", "factors"]))
def test_a_wrong_packet_never_gives_a_wrong_event(size: int, seed: int, where: str) -> None:
    rng = Random(seed)
    frame = rng.randbytes(size)
    whole = cut(frame)
    packets = list(whole.coded(10, rng))
    chosen = rng.randrange(len(packets))
    bad = bytearray(getattr(packets[chosen], where))
    bad[rng.randrange(len(bad))] ^= rng.randrange(1, 256)
    packets[chosen] = msgspec.structs.replace(packets[chosen], **{where: bytes(bad)})
    rng.shuffle(packets)
    assembly = assembled(packets)
    if assembly.missing:
        return
    with suppress(Polluted):
        assert assembly.frame() == frame  # the bad one was not needed


def good() -> Packet:
    return next(cut(bytes(1000)).coded(1, Random(1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 10**9},
        {"size": 0},
        {"size": 10},
        {"generations": 60},
        {"generations": 1, "size": 1 << 20},
        {"payload": bytes(5000)},
        {"payload": b""},
    ],
)
def test_impossible_events_are_refused(changes: dict[str, object]) -> None:
    packet = msgspec.structs.replace(good(), **changes)
    with pytest.raises(Misfit):
        Assembly(packet, FIELD, *LIMITS)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b"another key here"},
        {"size": 999},
        {"generation": 2},
        {"factors": b"12"},
        {"factors": b""},
        {"place": 8, "factors": b""},
        {"place": 0},
        {"payload": bytes(61)},
    ],
)
def test_packets_of_something_else_are_refused(changes: dict[str, object]) -> None:
    assembly = assembled([good()])
    with pytest.raises(Misfit):
        assembly.add(msgspec.structs.replace(good(), **changes), "sender")
    assert assembly.held == 1


def test_an_empty_frame_is_one_empty_packet() -> None:
    packets = list(cut(b"").plain())
    assert len(packets) == 1 and packets[0].payload == b""
    assert assembled(packets).frame() == b""
    assert layout(0, 64, 8) == Layout(0, 0, 1)
