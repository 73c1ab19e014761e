"""The reliable layer: whatever packets come, no wrong event, nothing twice, memory bounded."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lossy import SECOND, Group, arrived, frames, layer

from unisono.core.effects import Arrive, Effect, Record, SetTimer, Transmit
from unisono.core.events import inbox
from unisono.core.limits import RESERVED
from unisono.errors import BadInput, Unsupported
from unisono.qos.coding.packets import Packet, key_of
from unisono.qos.peers import Descriptor
from unisono.qos.reliable.layer import MAGIC, ROUND_TIMER
from unisono.qos.reliable.messages import Want
from unisono.qos.reliable.options import Reliability

seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("gossip", ["pull", "push", "push-pull"])
@pytest.mark.parametrize("coding", [True, False])
def test_everyone_gets_every_event_once(gossip: str, coding: bool) -> None:
    group = Group(8, 3, loss=0.15, gossip=gossip, coding=coding)
    group.rounds(3)  # they get to know each other
    published = [
        group.rng.randbytes(group.rng.choice((0, 1, 40, 700))) + b"%d" % i for i in range(30)
    ]
    for index, frame in enumerate(published):
        group.publish(f"n{index % 8}", frame)
        group.rounds(1)
    group.rounds(15)
    for name in group.nodes:
        assert sorted(group.got[name]) == sorted(published), name


def test_without_gossip_redundancy_alone_protects() -> None:
    losses = []
    for redundancy in (0, 3):
        group = Group(6, 4, loss=0.05, gossip="none", ask=False, remind=0, redundancy=redundancy)
        for index in range(60):
            group.publish("n0", bytes(300) + b"%d" % index)
        losses.append(sum(60 - len(got) for got in group.got.values()))
    assert losses[0] > 60 > losses[1]


def test_coded_redundancy_beats_duplicates() -> None:
    lost = {}
    for coding in (True, False):
        group = Group(
            6, 5, loss=0.1, gossip="none", ask=False, remind=0, redundancy=3, coding=coding
        )
        for index in range(80):
            group.publish("n0", bytes(300) + b"%d" % index)
        lost[coding] = sum(80 - len(got) for got in group.got.values())
    assert 3 * lost[True] < lost[False]


def test_messages_of_layers_pass_through() -> None:
    node = layer("a")
    frame = b"\x55 a message"
    assert node.publish(f"{RESERVED}inbox.b", frame, 0) == (Transmit(f"{RESERVED}inbox.b", frame),)
    assert node.notify(inbox("a"), frame, 0) == (Arrive(inbox("a"), frame),)


@given(
    seeds,
    st.lists(st.sampled_from(["flip", "cut", "repeat", "foreign", "swap"]), max_size=40),
    st.sampled_from([2, "adaptive"]),
)
def test_whatever_comes_no_wrong_event_is_notified(
    seed: int, harms: list[str], redundancy: object
) -> None:
    """Mutated, truncated, replayed and foreign packets among the good ones."""
    rng = Random(seed)
    sender, receiver = layer("a", redundancy=redundancy), layer("b", redundancy=redundancy)
    events = [b"%d" % i + rng.randbytes(rng.randrange(400)) for i in range(4)]
    packets = [f for event in events for f in frames(sender.publish("t", event, 0))]
    for harm in harms:
        chosen = bytearray(rng.choice(packets))
        if harm == "flip" and chosen:
            chosen[rng.randrange(len(chosen))] ^= 1 << rng.randrange(8)
        elif harm == "cut":
            del chosen[rng.randrange(len(chosen) + 1) :]
        elif harm == "foreign":
            chosen = bytearray([MAGIC]) + rng.randbytes(rng.randrange(80))
        elif harm == "swap":
            half = len(chosen) // 2
            chosen[half:] = rng.choice(packets)[half:]
        packets.append(bytes(chosen))
    rng.shuffle(packets)
    got = [f for packet in packets for f in arrived(receiver.notify("t", packet, 1))]
    for frame in got:  # what is not of the layer is left to who knows its format
        assert frame in events or (frame in packets and frame[:1] != bytes([MAGIC]))
    assert all(got.count(event) <= 1 for event in events)


def test_memory_is_bounded() -> None:
    node = layer("b", keep_bytes=5000)
    sender = layer("a")
    rows: list[Effect] = []
    for index in range(100):
        sent = frames(sender.publish("t", bytes(1000) + b"%d" % index, index))
        rows += node.notify("t", sent[0], index)  # one packet of each: all stay incomplete
    assert len(node._held) <= 5
    given_up = [row for row in rows if isinstance(row, Record) and row.row["kind"] == "given up"]
    assert len(given_up) == node.counts["events given up"] == 100 - len(node._held)


def test_what_stays_incomplete_is_given_up_and_said() -> None:
    node, sender = layer("b", keep_s=2), layer("a")
    node.notify("t", frames(sender.publish("t", bytes(300), 0))[0], 0)
    assert node.counts["events given up"] == 0
    out = node.timer(ROUND_TIMER, 3 * SECOND)
    assert [e.row["kind"] for e in out if isinstance(e, Record)] == ["given up"]
    assert any(isinstance(e, SetTimer) for e in out)


def test_a_polluted_event_is_recovered_from_others_and_the_senders_are_counted() -> None:
    liar, honest, reader = layer("liar"), layer("honest"), layer("reader")
    event = Random(1).randbytes(300)
    good = frames(honest.publish("t", event, 0))
    _, packet = honest._codec.decode(good[0])
    assert isinstance(packet, Packet)
    wrong = msgspec.structs.replace(packet, payload=bytes(len(packet.payload)))
    out = [*reader.notify("t", liar._codec.encode("liar", wrong), 1)]
    for frame in good[1:6]:
        out += reader.notify("t", frame, 2)
    assert arrived(out) == [] and reader.counts["events polluted"] == 1
    assert reader.blamed == {"liar": 1, "honest": 1}
    for frame in good:
        out += reader.notify("t", frame, 3)
    assert arrived(out) == [event]


def test_nodes_with_many_topics_and_events_still_talk() -> None:
    """Messages about much are larger than packets."""
    one, two = layer("one", fan_in=3), layer("two")
    for node in (one, two):
        node.listening(tuple(f"a topic with a rather long name, number {i}" for i in range(60)), 0)
    one.peers.hear(two.peers.me())
    for index in range(600):
        one.publish("t", b"%d" % index, 0)
    sent = frames(one.timer(ROUND_TIMER, 1), inbox("two"))
    answers = [effect for frame in sent for effect in two.notify(inbox("two"), frame, 2)]
    wants = frames(answers, inbox("one"))
    assert two.counts == {} and len(wants) >= 600


def test_what_is_no_longer_subscribed_is_not_given_up() -> None:
    node, sender = layer("b"), layer("a")
    node.notify("t", frames(sender.publish("t", bytes(300), 0))[0], 0)
    node.ignoring(("t",), 1)
    assert node._held == {} and node._bytes == 0
    assert node.counts["events given up"] == 0


def test_a_publisher_hears_its_own_event_even_if_nothing_comes_back() -> None:
    node = layer("a", period_s=1)
    node.publish("t", b"event", 0)
    assert arrived(node.timer(ROUND_TIMER, SECOND // 2)) == []
    assert arrived(node.timer(ROUND_TIMER, SECOND)) == [b"event"]
    assert arrived(node.timer(ROUND_TIMER, 2 * SECOND)) == []
    stranger = layer("b", period_s=1)
    stranger.ignoring(("t",), 0)
    stranger.publish("t", b"event", 0)
    assert arrived(stranger.timer(ROUND_TIMER, 5 * SECOND)) == []


@pytest.mark.parametrize(
    "wrong", [{"gossip": "foo"}, {"fan_out": -3}, {"packets": 0}, {"redundancy": -1}]
)
def test_wrong_options_are_refused_also_from_python(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Reliability(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("coding", [True, False])
@pytest.mark.parametrize("gossip", ["push", "pull"])
def test_spare_packets_come_with_what_is_pushed_or_wanted(coding: bool, gossip: str) -> None:
    node = layer("a", gossip=gossip, coding=coding, spare=3)
    node.peers.hear(Descriptor("b", 0, ("t",)))
    event = Random(1).randbytes(280)  # 6 packets
    sent = frames(node.publish("t", event, 0))
    out = [effect for frame in sent for effect in node.notify("t", frame, 1)]
    if gossip == "pull":
        want = node._codec.encode("b", Want("t", key_of(event), {0: 2}))
        assert not frames(out, inbox("b"))
        out = list(node.notify(inbox("a"), want, 2))
    answered = 2 if gossip == "pull" and coding else 6
    assert len(frames(out, inbox("b"))) == answered + 3


@pytest.mark.parametrize(
    "useless",
    [
        {"pushed": 2},
        {"gossip": "push", "fan_in": 2},
        {"gossip": "push", "pushed": 1, "spare": 1},
        {"redundancy": "adaptive", "coding": False},
        {"partners": "likely", "ask": False},
    ],
)
def test_options_that_would_do_nothing_are_refused(useless: dict[str, object]) -> None:
    with pytest.raises(Unsupported, match="leave"):
        Reliability(**useless)  # type: ignore[arg-type]


@pytest.mark.parametrize("unknown", [{"redundancy": "some"}, {"partners": "near"}])
def test_words_that_are_not_known_are_refused(unknown: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(unknown))):
        Reliability(**unknown)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(unknown, Reliability)
