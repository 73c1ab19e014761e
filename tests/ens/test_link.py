"""Links over a channel that loses, doubles and reorders packets, in virtual time."""

from __future__ import annotations

import heapq
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.seeds import seed_range, some

from unisono.core.limits import MeshLimits
from unisono.ens.scribe.lanes import CREDIT, HEAD, SPAN, In, Malformed, Out
from unisono.ens.scribe.link import BULK, URGENT, Link

PACKET = 1442
MS = 1000
SECOND = 1_000_000


class Channel:
    """Two links and what is between them. Everything that arrives is kept per lane: messages say
    theirs in the first byte."""

    def __init__(
        self,
        seed: int = 0,
        loss: float = 0.0,
        double: float = 0.0,
        delay_us: int = 5 * MS,
        jitter_us: int = 0,
        narrow_us: int = 0,
        queue: int = 0,
        limits: MeshLimits | None = None,
        kind: type[Link] = Link,
    ) -> None:
        self.rng = Random(seed)
        self.narrow_us, self.queue = narrow_us, queue  # time per packet, and how many wait for it
        self._free_us = [0, 0]
        self.loss, self.double = loss, double
        self.delay_us, self.jitter_us = delay_us, jitter_us
        self.now = 0
        self.ends = (Link(PACKET, limits), kind(PACKET, limits))
        self.heard: tuple[list[bytes], list[bytes]] = ([], [])
        self.sent = 0
        self._wire: list[tuple[int, int, int, bytes]] = []
        self._order = count()

    def carry(self, end: int) -> None:
        """Everything that one end has to send now."""
        while packets := self.ends[end].packets(self.now):
            for packet in packets:
                self.sent += 1
                copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.double)
                if self.narrow_us:
                    free = max(self._free_us[end], self.now) + self.narrow_us
                    if free - self.now > self.narrow_us * self.queue:
                        continue
                    self._free_us[end] = free
                    due = free + self.delay_us
                    heapq.heappush(self._wire, (due, next(self._order), 1 - end, packet))
                    continue
                for _ in range(copies):
                    due = self.now + self.delay_us + self.rng.randrange(self.jitter_us + 1)
                    heapq.heappush(self._wire, (due, next(self._order), 1 - end, packet))

    def step(self) -> bool:
        """On to the next thing that happens; False if nothing ever will."""
        for end in (0, 1):
            self.carry(end)
        timers = [link.next_timer() for link in self.ends]
        due = min([at for at in timers if at is not None], default=None)
        if self._wire and (due is None or self._wire[0][0] <= due):
            self.now, _, to, packet = heapq.heappop(self._wire)
            self.heard[to].extend(self.ends[to].receive(packet, self.now))
            return True
        if due is None:
            return False
        self.now = max(self.now, due)
        for link in self.ends:
            link.timer(self.now)
        return True

    def run(self, steps: int = 1_000_000) -> None:
        for _ in range(steps):
            if not self.step():
                return
        raise AssertionError("it does not come to rest")


def message(lane: int, number: int, size: int) -> bytes:
    return bytes((lane,)) + number.to_bytes(4, "big") + bytes(size)


def of_lane(messages: list[bytes], lane: int) -> list[bytes]:
    return [one for one in messages if one[0] == lane]


def send_all(channel: Channel, end: int, messages: list[bytes]) -> None:
    """Send as there is room; each lane hears all, once and in order."""
    for one in messages:
        while not channel.ends[end].send(one[0], one, channel.now):
            assert channel.step()


schedules = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1 << 32),
        "loss": st.sampled_from([0.0, 0.01, 0.05, 0.3]),
        "double": st.sampled_from([0.0, 0.1]),
        "delay_us": st.sampled_from([0, 100, 20 * MS]),
        "jitter_us": st.sampled_from([0, 50, 30 * MS]),
    }
)
sizes = st.lists(
    st.tuples(
        st.sampled_from([URGENT, BULK]),
        st.sampled_from([0, 1, 20, 1424, 1425, 1429, 1430, 1431, 1434, 5000, 23_000, 70_000]),
    ),
    max_size=40,
)
SMALL = MeshLimits(queue_messages=16, queue_bytes=100_000, window_bytes=CREDIT, give_up_us=10**12)


def check_schedule(
    options: dict[str, float], one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    channel = Channel(limits=SMALL, **options)  # type: ignore[arg-type]
    wanted = []
    for end, chosen in enumerate((one, two)):
        wanted.append([message(lane, n, size) for n, (lane, size) in enumerate(chosen)])
        send_all(channel, end, wanted[end])
    channel.run()
    for end in (0, 1):
        for lane in (URGENT, BULK):
            assert of_lane(channel.heard[1 - end], lane) == of_lane(wanted[end], lane)
        link = channel.ends[end]
        assert not link.broken and link.passed(link.mark())


@settings(max_examples=some(400))
@given(schedules, sizes, sizes)
def test_every_message_comes_once_and_in_the_order_of_its_lane(
    options: dict[str, float], one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    check_schedule(options, one, two)


@pytest.mark.slow
@settings(max_examples=20_000)
@given(schedules, sizes, sizes)
def test_many_schedules(
    options: dict[str, float], one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    check_schedule(options, one, two)


@pytest.mark.seeded
def test_thousands_of_random_schedules() -> None:
    rng = Random(7)
    for seed in seed_range(2000):
        channel = Channel(
            seed,
            loss=rng.choice((0, 0.05, 0.2)),
            double=rng.choice((0, 0.1)),
            delay_us=rng.choice((10, MS)),
            jitter_us=rng.choice((0, MS, 20 * MS)),
        )
        chosen = [(rng.randrange(2), rng.choice((0, 10, 1430, 4000))) for _ in range(15)]
        wanted = [message(lane, n, size) for n, (lane, size) in enumerate(chosen)]
        send_all(channel, 0, wanted)
        channel.run()
        for lane in (URGENT, BULK):
            assert of_lane(channel.heard[1], lane) == of_lane(wanted, lane), seed


@given(st.lists(st.binary(max_size=4000), min_size=1, max_size=30), st.integers(600, 1442))
def test_putting_together_is_the_inverse_of_cutting(messages: list[bytes], room: int) -> None:
    out, end = Out(BULK), In(1 << 20)
    out.limit = 1 << 40
    out.queue.extend(messages)
    found: list[bytes] = []
    while out.queue:
        assert out.may_cut(room)
        packet = out.cut(room).packet
        assert len(packet) <= room + 8
        end.take(packet, found)
    assert found == messages and not end.need
    assert end.taken == out.used  # both ends count the window alike
    full = sum(len(one) + 4 for one in messages) / (room - 4)
    assert out.next <= full + 1  # packets are filled


def test_what_is_urgent_goes_first() -> None:
    channel = Channel()
    send_all(channel, 0, [message(BULK, n, 10_000) for n in range(200)])
    send_all(channel, 0, [message(URGENT, 0, 10)])
    channel.run()
    assert channel.heard[1].index(message(URGENT, 0, 10)) == 0


def test_a_full_queue_refuses_and_recovers() -> None:
    channel = Channel(limits=MeshLimits(queue_messages=3, queue_bytes=5000))
    link = channel.ends[0]
    assert [link.send(BULK, message(BULK, n, 10), 0) for n in range(4)] == [True, True, True, False]
    channel.run()
    assert link.room() and link.send(BULK, message(BULK, 4, 7000), 0)  # alone it may be larger
    assert not link.room(0)
    channel.run()
    assert len(channel.heard[1]) == 4
    assert not link.send(BULK, bytes((2 << 20) + 1), 0)  # never


def test_a_paused_lane_stops_its_sender_and_not_the_other_lane() -> None:
    limits = MeshLimits(window_bytes=1 << 17, give_up_us=20 * SECOND)
    channel = Channel(limits=limits, loss=0.05, seed=3)
    near, far = channel.ends
    far.pause(BULK)
    wanted = [message(BULK, n, 3000) for n in range(300)]
    send_all(channel, 0, wanted)
    send_all(channel, 0, [message(URGENT, 0, 10)])
    for _ in range(3000):  # many times longer than patience lasts: the other end is alive
        channel.step()
    assert channel.now > 100 * SECOND and not near.broken
    assert channel.heard[1] == [message(URGENT, 0, 10)]
    held = far._in[BULK]
    assert 1 << 16 < held.held_bytes <= 1 << 17
    channel.heard[1].extend(far.resume(BULK, channel.now))
    channel.run()
    assert of_lane(channel.heard[1], BULK) == wanted
    assert not held.held and not held.held_bytes


def test_it_goes_on_when_the_channel_heals() -> None:
    channel = Channel(limits=MeshLimits(give_up_us=60 * SECOND))
    wanted = [message(BULK, n, 5000) for n in range(100)]
    send_all(channel, 0, wanted)
    for _ in range(40):
        channel.step()
    channel.loss = 1.0
    while channel.now < 30 * SECOND:
        channel.step()
    channel.loss = 0.0
    channel.run()
    assert channel.heard[1] == wanted
    assert channel.now < 35 * SECOND  # resent soon after


def test_silence_breaks_the_link_and_what_was_lost_is_counted() -> None:
    channel = Channel(limits=MeshLimits(give_up_us=5 * SECOND))
    send_all(channel, 0, [message(BULK, n, 5000) for n in range(10)])
    channel.run()
    channel.loss = 1.0
    began = channel.now
    send_all(channel, 0, [message(BULK, n, 5000) for n in range(7)])
    channel.run()
    link = channel.ends[0]
    assert link.broken and link.dropped == 7
    assert 5 * SECOND <= channel.now - began < 6 * SECOND
    assert not link.send(BULK, b"", channel.now) and not link.packets(channel.now)
    assert link.next_timer() is None and not link.receive(HEAD.pack(1), channel.now)


def test_an_idle_link_has_no_timer_and_never_breaks() -> None:
    channel = Channel()
    assert channel.ends[0].next_timer() is None
    send_all(channel, 0, [message(BULK, 0, 5)])
    channel.run()
    assert [link.next_timer() for link in channel.ends] == [None, None]


def throughput(**options: float) -> tuple[Channel, float]:
    """Bytes per second of virtual time, 23 KB messages."""
    channel = Channel(**options)  # type: ignore[arg-type]
    wanted = [message(BULK, n, 23_000) for n in range(1000)]
    send_all(channel, 0, wanted)
    channel.run()
    assert channel.heard[1] == wanted
    return channel, 23_000 * 1000 / channel.now * SECOND


def test_five_percent_loss_costs_little() -> None:
    _, clean = throughput(delay_us=10 * MS)
    lossy, rate = throughput(delay_us=10 * MS, loss=0.05, seed=1)
    assert rate > clean / 4
    assert lossy.ends[0].resent < 1.5 * 0.05 * lossy.sent


def test_reordering_is_not_taken_for_loss_for_long() -> None:
    channel, _ = throughput(delay_us=10 * MS, jitter_us=500, seed=1)
    assert channel.ends[0].resent < 0.02 * channel.sent


def test_a_crowded_channel_shrinks_the_window() -> None:
    channel = Channel(seed=5, loss=0.4)
    send_all(channel, 0, [message(BULK, n, 23_000) for n in range(100)])
    channel.run()
    assert channel.ends[0]._cwnd < 64


def test_a_narrow_channel_is_filled_and_not_flooded() -> None:
    channel, rate = throughput(delay_us=5 * MS, narrow_us=100, queue=150)
    assert rate > 0.6 * PACKET / 100e-6
    assert channel.ends[0].resent < 0.25 * channel.ends[0]._order


def test_the_round_trip_is_measured() -> None:
    channel, _ = throughput(delay_us=10 * MS)
    rtt_us = channel.ends[0].rtt_us
    assert rtt_us is not None and 20 * MS <= rtt_us < 24 * MS


def test_acks_are_few() -> None:
    channel = Channel()
    send_all(channel, 0, [message(BULK, n, 23_000) for n in range(100)])
    channel.run()
    data = channel.ends[1]._in[BULK].next
    assert channel.sent - data < data / 10


def test_memory_at_both_ends_is_bounded_whatever_is_lost() -> None:
    """A sender that is far ahead of one lost packet."""
    limits = MeshLimits(window_bytes=1 << 18)
    near, far = Link(PACKET, limits), Link(PACKET, limits)
    for number in range(300):
        assert near.send(BULK, bytes(5000), number)
    first = True
    for now in range(0, 100 * MS, MS):
        for packet in near.packets(now, 1000):
            if first:
                first = False
                continue
            assert far.receive(packet, now) == []
        for packet in far.packets(now):
            near.receive(packet, now)
        near._out[BULK].lost.clear()  # and it is never resent
        lane = far._in[BULK]
        assert len(lane.held) <= SPAN and lane.held_bytes <= 1 << 18
    assert near._out[BULK].queue  # it has stopped


BAD = {
    "no head": b"1234567",
    "half an ack": HEAD.pack(2) + bytes(10),
    "an ack of what was not sent": HEAD.pack(2) + 2 * (bytes(7) + b"\x09" + bytes(10)),
    "a bitmap of what was not sent": HEAD.pack(2) + bytes(16) + b"\0\1\xff" + bytes(18),
    "an ack that is too long": HEAD.pack(2) + bytes(37),
    "half a length": HEAD.pack(0) + b"\0\0\0",
    "a message over the limit": HEAD.pack(0) + b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("packet", BAD.values(), ids=BAD.keys())
def test_an_end_that_breaks_the_rules_breaks_the_link(packet: bytes) -> None:
    link = Link(PACKET)
    link.send(BULK, b"one", 0)
    with pytest.raises(Malformed):
        link.receive(packet, 0)
    assert link.broken and link.dropped == 1


@settings(max_examples=some(1000))
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_no_packet_does_anything_but_break_the_link(packets: list[bytes]) -> None:
    link = Link(PACKET)
    link.send(BULK, b"one", 0)
    link.packets(0)
    for packet in packets:
        try:
            link.receive(packet, 0)
        except Malformed:
            assert link.broken
        link.packets(0)


class AcksTooMuch(Link):
    """Says that it has what it has not."""

    def _ack(self, now: int) -> bytes:
        for lane in self._in:
            if lane.bits:
                lane.next += 1
                lane.bits >>= 1
        return super()._ack(now)


class Forgets(Link):
    """Takes packets again that it had."""

    def _data(self, lane: In, number: int, packet: bytes, now: int) -> list[bytes]:
        if number == lane.next - 1:
            lane.next = lane.want = number
        return super()._data(lane, number, packet, now)


class Hurries(Link):
    """Takes what came, whatever is missing before it."""

    def _data(self, lane: In, number: int, packet: bytes, now: int) -> list[bytes]:
        lane.next = lane.want = max(lane.next, number)
        return super()._data(lane, number, packet, now)


@pytest.mark.parametrize("bug", [AcksTooMuch, Forgets, Hurries])
def test_injected_bugs_are_seen(bug: type[Link]) -> None:
    """The checks above can fail."""
    limits = MeshLimits(give_up_us=5 * SECOND)
    for seed in range(20):
        channel = Channel(seed, loss=0.1, double=0.3, jitter_us=MS, kind=bug, limits=limits)
        wanted = [message(BULK, n, 900) for n in range(30)]
        send_all(channel, 0, wanted)
        try:
            channel.run(20_000)
        except (AssertionError, Malformed, KeyError):
            return
        if channel.heard[1] != wanted or channel.ends[0].broken:
            return
    raise AssertionError("not seen")


def test_a_link_goes_on_by_a_new_way() -> None:
    """Nothing that was sent has come in, and all of it is sent again."""
    near, far = Link(PACKET), Link(PACKET)
    near.send(BULK, b"one", 0)
    near.send(URGENT, b"two", 0)
    assert len(near.packets(0)) == 2
    near.begin(1000)
    packets = near.packets(1000)
    assert [m for p in packets for m in far.receive(p, 1000)] == [b"two", b"one"]
