"""Redundancy that follows the measured loss: what is measured, what follows, and how it is told."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lossy import FIELD, SECOND, Group, arrived, frames, layer

from unisono.core.effects import Record
from unisono.core.events import inbox
from unisono.models.channel import Channel, gains
from unisono.qos.coding.packets import Cut, Layout, Packet, key_of
from unisono.qos.peers import BURST_MAX, Descriptor, Measured
from unisono.qos.reliable.layer import ROUND_TIMER
from unisono.qos.reliable.measure import Habit, Meter
from unisono.qos.reliable.messages import Here, Offer, Repair, Sent
from unisono.qos.reliable.redundancy import SHARE, UNMEASURED, Planner, channel_of

SETTLE, STALE = 2 * SECOND, 10 * SECOND
seeds = st.integers(0, 2**32)
measured = st.builds(Measured, st.integers(0, 10**6), st.integers(100, 100 * BURST_MAX))


def transmission(frame: bytes, redundancy: int, rng: Random, most: int = 6) -> list[Sent]:
    cut = Cut(frame, FIELD, 50, most)
    packets = [*cut.plain(), *cut.coded(redundancy, rng)]
    return [Sent(index, redundancy, packet) for index, packet in enumerate(packets)]


def unknown(key: bytes) -> Layout | None:
    return None


class Line:
    """A Gilbert-Elliott channel, packet by packet; each transmission starts in the steady state."""

    def __init__(self, channel: Channel, rng: Random) -> None:
        self.channel, self.rng = channel, rng

    def through(self, sent: list[Sent]) -> list[Sent]:
        bad = self.rng.random() < self.channel.loss
        came = []
        for one in sent:
            if not bad:
                came.append(one)
            leaves = self.channel.to_good if bad else self.channel.to_bad
            bad ^= self.rng.random() < leaves
        return came


def meter() -> Meter:
    made = Meter(SETTLE, STALE)
    made.listening(("t",), -STALE)
    return made


# What is measured.


@pytest.mark.parametrize(
    ("loss", "burst", "size"),
    [(0.01, 1.5, 280), (0.02, 2, 780), (0.1, 1.2, 280), (0.15, 3, 780), (0.1, 2, 20)],
)
def test_the_estimate_is_that_of_the_channel(loss: float, burst: float, size: int) -> None:
    """On average over subscribers; one alone is off by what a hundred events leave to chance."""
    channel = Channel(loss, burst)
    found = []
    for seed in range(30):
        rng = Random(seed)
        one, line = meter(), Line(channel, rng)
        for index in range(250):
            sent = transmission(rng.randbytes(size), 2, rng, most=16)
            shapes = {sent[0].packet.key: layout(sent)}
            one.learnt(sent[0].packet.key, "t", index)  # by gossip, if not otherwise
            for message in line.through(sent):
                one.came(message)
            one.judge(index + SETTLE, shapes.get)
        assert one.measured is not None
        found.append(one.measured)
    mean_loss = sum(one.loss_ppm for one in found) / len(found) / 1e6
    mean_burst = sum(one.burst_hundredths for one in found) / len(found) / 100
    assert mean_loss == pytest.approx(loss, rel=0.2)
    assert mean_burst == pytest.approx(burst, rel=0.2)
    assert all(loss / 4 < one.loss_ppm / 1e6 < loss * 3 for one in found)


def layout(sent: list[Sent]) -> Layout:
    packet = sent[0].packet
    return Layout(packet.size, len(packet.payload), packet.generations)


@given(seeds, st.integers(0, 900), st.integers(0, 4))
def test_order_and_repetition_do_not_matter(seed: int, size: int, redundancy: int) -> None:
    rng = Random(seed)
    straight, mixed = meter(), meter()
    for index in range(12):
        sent = transmission(rng.randbytes(size), redundancy, rng)
        came = [message for message in sent if rng.random() < 0.7]
        shuffled = [*came, *rng.choices(came, k=3)] if came else []
        rng.shuffle(shuffled)
        for one, order in ((straight, came), (mixed, shuffled)):
            one.learnt(sent[0].packet.key, "t", index)
            for message in order:
                one.came(message)
    for one in (straight, mixed):
        one.judge(SETTLE + 12, unknown)
    assert straight.measured == mixed.measured


@given(st.lists(st.tuples(st.integers(0, 40), st.sets(st.integers(0, 40))), max_size=40))
def test_what_is_told_can_be_told_and_planned_for(events: list[tuple[int, set[int]]]) -> None:
    """Whatever came: within the bounds of the message, and a channel that can be."""
    one = meter()
    for index, (packets, came) in enumerate(events):
        sent = transmission(index.to_bytes(2, "big") * 25 * (packets + 1), 1, Random(index))
        one.learnt(sent[0].packet.key, "t", index)
        for place in came:
            if place < len(sent):
                one.came(sent[place])
    one.judge(SETTLE + len(events), unknown)
    if one.measured is not None:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(one.measured), type=Measured)
        assert again == one.measured
        planner = Planner(16)
        planner.plan([Descriptor("n", 0, (), again)])
        assert 0 <= planner.redundancy <= 16


def test_a_transmission_is_judged_once_it_has_settled_and_only_once() -> None:
    one = meter()
    for index in range(20):
        sent = transmission(b"%d" % index + bytes(280), 2, Random(index))
        one.learnt(sent[0].packet.key, "t", 0)
        for message in sent[:4]:
            one.came(message)
        one.judge(SETTLE - 1, unknown)
        assert one.measured is None
        for message in sent[4:]:
            one.came(message)
    one.judge(SETTLE, unknown)
    assert one.measured is not None
    for message in sent[:1]:  # late: known, and no new transmission
        one.came(message)
    before = one.measured
    one.judge(10 * SETTLE, unknown)
    assert one.measured == before and before.loss_ppm < 2000


def test_memory_is_bounded() -> None:
    one = meter()
    for index in range(10_000):
        one.learnt(key_of(b"%d" % index), "t", index)
    assert len(one._watched) <= 4096
    long = transmission(bytes(50 * 9000), 0, Random(1), most=200)
    one.learnt(long[0].packet.key, "t", 10_000)
    for message in long:
        one.came(message)
    assert one._watched[long[0].packet.key].came.bit_length() <= 4096


def test_what_was_published_before_the_subscription_is_not_lost() -> None:
    def lossless(one: Meter) -> int:
        for index in range(30):
            sent = transmission(b"%d" % index + bytes(280), 2, Random(index))
            one.learnt(sent[0].packet.key, "t", index)
            for message in sent:
                one.came(message)
            one.learnt(key_of(b"%d" % index), "t", index)  # nothing of it comes
        one.judge(SETTLE + 30, unknown)
        assert one.measured is not None
        return one.measured.loss_ppm

    new = Meter(SETTLE, STALE)
    new.listening(("t",), 0)
    assert lossless(new) < 2000
    assert lossless(meter()) > 400_000
    gone = meter()
    gone.learnt(b"k" * 16, "t", 0)
    gone.ignoring(("t",))
    assert not gone._watched


def test_a_habit_is_that_of_the_last_hundred_times() -> None:
    habit = Habit()
    assert habit.percent is None
    habit.add(True)
    assert habit.percent == 100
    for _ in range(500):
        habit.add(False)
    assert habit.percent == 0
    for _ in range(100):
        habit.add(True)
    assert habit.percent is not None and 55 < habit.percent < 70


# What a packet says of its transmission.


@given(st.binary(max_size=900), st.integers(0, 5), seeds)
def test_every_packet_has_one_place(frame: bytes, redundancy: int, seed: int) -> None:
    rng = Random(seed)
    sent = transmission(frame, redundancy, rng)
    assert all(message.fits and message.count == len(sent) for message in sent)
    for message in rng.sample(sent, min(4, len(sent))):
        fitting = [
            index for index in range(len(sent) + 3) if Sent(index, redundancy, message.packet).fits
        ]
        assert message.index in fitting
        assert len(fitting) == (1 if message.packet.place >= 0 else redundancy)


@pytest.mark.parametrize(
    ("changes", "of_packet"),
    [
        ({"index": 2**50}, {}),
        ({"index": 3}, {}),
        ({}, {"place": 4}),
        ({}, {"generation": 7}),
        ({}, {"generation": 2**50}),
        ({}, {"payload": b""}),
        ({}, {"size": 0}),
        ({"redundancy": 0}, {"place": -1, "factors": bytes(6)}),
    ],
)
def test_packets_out_of_place_change_nothing(
    changes: dict[str, object], of_packet: dict[str, object]
) -> None:
    node = layer("b", redundancy="adaptive")
    good = transmission(bytes(280), 2, Random(1))[2]
    packet = msgspec.structs.replace(good.packet, **of_packet)
    bad = msgspec.structs.replace(good, packet=packet, **changes)
    node.notify("t", node._codec.encode("a", bad), 0)
    assert node.counts["reliable: misfit"] == 1
    assert not node._held and node._meter is not None and not node._meter._watched


@pytest.mark.parametrize(
    "bad",
    [
        ["b", 0, ["t"], [-1, 100], None],
        ["b", 0, ["t"], [1_000_001, 100], None],
        ["b", 0, ["t"], [10, 99], None],
        ["b", 0, ["t"], [10, 100 * BURST_MAX + 1], None],
        ["b", 0, ["t"], [10], None],
        ["b", 0, ["t"], [0.5, 100], None],
        ["b", 0, ["t"], "much", None],
        ["b", 0, ["t"], None, 101],
        ["b", 0, ["t"], None, -1],
        ["b", 0, ["t"], None, 1.5],
    ],
)
def test_malformed_descriptors_are_refused(bad: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(bad), type=Descriptor)
    node = layer("a", redundancy="adaptive", partners="likely")

    class Wrong(Here, frozen=True, array_like=True, tag="here"):
        peer: object  # type: ignore[assignment]

    node.notify(inbox("a"), node._codec.encode("b", Wrong(bad)), 0)
    assert node.counts == {"reliable: malformed": 1} and not node.peers.view


def test_descriptors_and_packets_of_before_are_still_understood() -> None:
    old = msgspec.msgpack.encode(["b", 3, ["t"]])
    assert msgspec.msgpack.decode(old, type=Descriptor) == Descriptor("b", 3, ("t",))

    class Old(msgspec.Struct, frozen=True, array_like=True):
        node: str
        age: int
        topics: tuple[str, ...]

    new = msgspec.msgpack.encode(Descriptor("b", 3, ("t",), Measured(10, 200), 90))
    assert msgspec.msgpack.decode(new, type=Old) == Old("b", 3, ("t",))
    node = layer("a")  # by default packets go out as they always did
    for frame in frames(node.publish("t", bytes(280), 0)):
        assert isinstance(node._codec.decode(frame)[1], Packet)


# What follows from it.


def told(*channels: tuple[float, float]) -> list[Descriptor]:
    return [
        Descriptor(f"n{i}", 0, (), Measured(round(loss * 1e6), round(burst * 100)))
        for i, (loss, burst) in enumerate(channels)
    ]


def test_before_anything_is_measured_the_default_is_sent() -> None:
    planner = Planner(16)
    planner.plan([Descriptor("n", 0, ("t",))])
    assert (planner.redundancy, planner.of(3)) == (UNMEASURED, UNMEASURED) and not planner.changed
    assert layer("a", redundancy="adaptive").redundancy == UNMEASURED == layer("a").redundancy


def test_nine_of_ten_subscribers_are_planned_for() -> None:
    planner = Planner(16)
    planner.plan(told(*[(0.0, 1.0)] * 18, (0.5, 20), (0.5, 20)))
    assert planner.redundancy == 0
    planner.plan(told(*[(0.0, 1.0)] * 17, *[(0.5, 20)] * 3))
    assert planner.redundancy == 16
    planner.plan(())  # nobody says anything: as before
    assert planner.redundancy == 16


@given(st.lists(measured, min_size=1, max_size=20), st.integers(1, 30))
def test_the_plan_is_bounded_and_enough(known: list[Measured], packets: int) -> None:
    planner = Planner(packets)
    planner.plan([Descriptor(f"n{i}", 0, (), one) for i, one in enumerate(known)])
    most = max(packets, 8)
    assert planner.channel is not None and 0 <= planner.redundancy <= most
    enough = gains(planner.channel, packets, planner.redundancy)[-1] >= SHARE - 1e-9
    assert enough or planner.redundancy == most
    needs = []
    for one in known:
        alone = Planner(packets)
        alone.plan([Descriptor("n", 0, (), one)])
        needs.append(alone.redundancy)
    assert sum(need <= planner.redundancy for need in needs) >= 0.9 * len(needs)


@given(measured)
def test_every_measurement_is_a_channel_no_better_than_told(one: Measured) -> None:
    channel = channel_of(one)
    assert min(one.loss_ppm, 900_000) / 1e6 <= channel.loss <= max(1.1 * one.loss_ppm, 1) / 1e6
    assert channel.burst >= one.burst_hundredths / 100


def test_a_change_is_on_record_once_it_is_used() -> None:
    node = layer("a", redundancy="adaptive", packets=16)
    node.peers.hear(*told((0.15, 1.2)))
    node.timer(ROUND_TIMER, SECOND)
    assert node.redundancy == 9
    out = list(node.publish("t", bytes(50 * 16), 2 * SECOND))
    assert len(frames(out)) == 16 + 9
    detail = "9: loss 0.1559, burst 1.25"
    row = {"at_us": 2 * SECOND, "node": "a", "kind": "redundancy", "detail": detail}
    assert [e for e in out if isinstance(e, Record)] == [Record("control", row)]
    out = list(node.publish("t", bytes(50), 3 * SECOND))
    assert len(frames(out)) == 1 + 2 and not any(isinstance(e, Record) for e in out)
    assert node.counts["redundancy changed"] == 1


# In a group.


def test_redundancy_follows_the_loss_up_and_down() -> None:
    group = Group(10, 1, loss=0.01, redundancy="adaptive")
    group.rounds(3)
    published: list[bytes] = []
    ends = {}
    for phase, (loss, events) in enumerate(((0.01, 80), (0.15, 120), (0.01, 400))):
        group.loss = loss
        for _ in range(events):
            published.append(b"%d" % len(published) + bytes(290))
            group.publish("n0", published[-1])
            group.rounds(1)
        ends[phase] = group.nodes["n0"].redundancy
    assert ends[0] <= 2 and ends[1] >= 4 and ends[2] <= 2
    group.rounds(15)
    for name in list(group.nodes)[1:]:
        assert sorted(group.got[name]) == sorted(published), name


@pytest.mark.parametrize("gossip", ["none", "pull"])
def test_loss_is_seen_though_events_are_single_packets(gossip: str) -> None:
    """Of such an event nothing comes or all; that it was lost is told by others, or by a second
    packet that is sent for that."""
    group = Group(10, 3, loss=0.002, redundancy="adaptive", gossip=gossip)
    group.rounds(3)
    sent = {}
    for loss, events in ((0.002, 80), (0.2, 150)):
        group.loss = loss
        for index in range(events):
            group.publish("n0", b"%s %d" % (str(loss).encode(), index))
            group.rounds(1)
        sent[loss] = 1 + group.nodes["n0"]._planner.of(1)
    assert sent[0.002] in ((2,) if gossip == "none" else (1, 2))
    assert sent[0.2] >= 3


def test_first_transmissions_are_enough_where_they_are_planned_to_be() -> None:
    """Nothing is repaired here: 99 % of the events come whole by redundancy alone."""
    shares = {}
    for redundancy in (2, "adaptive"):
        group = Group(10, 2, loss=0.1, redundancy=redundancy, gossip="none", ask=False, remind=0)
        group.rounds(3)
        for index in range(300):
            group.publish("n0", b"%d" % index + bytes(290))
            group.rounds(1)
        late = {b"%d" % index + bytes(290) for index in range(150, 300)}
        got = [len(late & set(frames)) for name, frames in group.got.items() if name != "n0"]
        shares[redundancy] = sum(got) / (9 * len(late))
    assert shares[2] < 0.97 and shares["adaptive"] >= 0.985


def test_repairs_and_own_packets_are_not_measured() -> None:
    reader = layer("b", redundancy="adaptive")
    assert reader._meter is not None
    sent = transmission(bytes(290), 2, Random(1))
    for message in sent:
        repair = Repair("t", message.packet)
        reader.notify(inbox("b"), reader._codec.encode("a", repair), 0)
    (watched,) = reader._meter._watched.values()
    assert watched.came == 0 == watched.count  # known, and nothing of it came
    reader.notify("t", reader._codec.encode("a", sent[3]), 1)
    assert watched.came == 0b1000 and watched.count == len(sent)

    writer = layer("w", redundancy="adaptive")
    for frame in frames(writer.publish("t", bytes(290), 0)):
        writer.notify("t", frame, 0)
    assert writer._meter is not None and not writer._meter._watched


def test_an_event_of_which_nothing_came_counts_when_it_is_offered() -> None:
    reader = layer("b", redundancy="adaptive")
    late = 100 * SECOND
    lost = 0
    for index in range(40):
        frame = b"%d" % index + bytes(290)
        if index % 4 == 3:  # as long as any other
            offer = Offer("t", (key_of(frame),))
            reader.notify(inbox("b"), reader._codec.encode("c", offer), late)
            lost += 1
        else:
            for message in transmission(frame, 2, Random(index)):
                reader.notify("t", reader._codec.encode("a", message), late)
    reader.timer(ROUND_TIMER, late + 5 * SECOND)
    known = reader.peers.me().measured
    assert known is not None
    assert known.loss_ppm / 1e6 == pytest.approx(lost / 40, rel=0.15)
    assert known.burst_hundredths > 500
    for index in range(3, 40, 4):  # at last they come: counted already
        for message in transmission(b"%d" % index + bytes(290), 0, Random(index)):
            repair = Repair("t", message.packet)
            reader.notify(inbox("b"), reader._codec.encode("c", repair), late + 6 * SECOND)
    reader.timer(ROUND_TIMER, late + 9 * SECOND)
    assert reader.peers.me().measured == known


def test_who_does_not_measure_understands_all_the_same() -> None:
    reader, writer = layer("b"), layer("a", redundancy="adaptive")
    got: list[bytes] = []
    for frame in frames(writer.publish("t", bytes(700), 0))[1:]:
        got += arrived(reader.notify("t", frame, 0))
    assert got == [bytes(700)]


def test_publishers_that_do_not_say_what_they_sent_are_not_measured() -> None:
    reader, fixed = layer("b", redundancy="adaptive"), layer("a", redundancy=2)
    got: list[bytes] = []
    for index in range(40):
        for frame in frames(fixed.publish("t", b"%d" % index + bytes(290), 0))[1:]:
            got += arrived(reader.notify("t", frame, 100 * SECOND))
    reader.timer(ROUND_TIMER, 110 * SECOND)
    assert len(got) == 40 and reader.peers.me().measured is None
