"""One link: whole messages between two processes over packets that may be lost, doubled, reordered.

Two lanes, urgent before bulk. Each delivers every message once and in order, independently of the
other, or the link is broken and says so: when nothing was acknowledged for too long, or the other
end breaks the rules. What is queued, in flight and held is bounded; a lane that is paused holds
what came, and its sender stops. No I/O: `now` comes from outside, packets go out by `packets`.

    data    see `lanes.py`
    ack     8 bytes: delay in us << 2 | 2; then for each lane: the first number that is missing (8),
            how far the sender may go (8), the length of a bitmap (2), and the bitmap of the numbers
            after the first missing one that have come
    ping    8 bytes: 3; asks for an ack

A packet is lost when it was overtaken by enough others, or for long enough; what is enough grows
when that proves wrong. Failing that, it is resent when its time is over (RFC 6298). The congestion
window doubles per round until losses exceed a limit, then shrinks by a part or grows by a part;
losses below the limit, as of a poor radio link, do not shrink it.
"""

from __future__ import annotations

from struct import Struct

from unisono.core.limits import MeshLimits
from unisono.ens.scribe.lanes import CREDIT, HEAD, HEAD_BYTES, In, Malformed, Out, Sent

__all__ = ["BULK", "URGENT", "Link", "Malformed"]

URGENT, BULK = 0, 1
_ACK, _PING = 2, 3
_LANE_ACK = Struct(">QQH")
_PING_PACKET = HEAD.pack(_PING)
MIN_PACKET = 600  # an ack with long bitmaps fits
_ACK_EVERY = 24  # packets in order
_ACK_DELAY_US = 2_000
_RTO_US, _RTO_MIN_US = 200_000, 30_000
_RTO_MAX_US = 300_000  # or two round trips: many tries before patience ends; they are few packets
_OVERTAKEN_US = 1_000
_REORDER, _REORDER_MAX = 3, 1024
_CWND, _CWND_MIN, _CWND_MAX = 32, 16, 1024
_ROUND = 64  # packets, at least, that tell how many are lost
_LOSS_LIMIT = 0.15
_SHRINK, _GROW = 0.7, 1.0625


class Link:
    """One end. `broken` is final; `dropped` then says how many messages were not acknowledged."""

    def __init__(self, packet_bytes: int, limits: MeshLimits | None = None) -> None:
        self._limits = limits or MeshLimits()
        self._room = max(packet_bytes, MIN_PACKET) - HEAD_BYTES
        self._window = max(self._limits.window_bytes, CREDIT)
        self._out = (Out(URGENT), Out(BULK))
        self._in = (In(self._limits.message_bytes), In(self._limits.message_bytes))
        self.broken = False
        self.dropped = self.resent = self.needless = 0
        self._queued = self._queued_bytes = 0  # messages not yet acknowledged
        self._flight: dict[int, Sent] = {}  # by order of sending
        self._order = 0
        self._top = 0  # the last of them that has come
        self._reorder = _REORDER
        self._loss_at: int | None = None
        self._cwnd = float(_CWND)
        self._starting = True
        self._round_end = self._round_acked = self._round_lost = 0
        self._limited = False  # the window was full in this round
        self.rtt_us: int | None = None
        self._rtt_min_us = 1 << 40
        self._rtt_var_us = 0
        self._rto_us = _RTO_US
        self._backoff = 0
        self._waiting_us: int | None = None  # since when nothing was acknowledged
        self._rto_at = 0
        self._ping = False
        self._unacked = 0
        self._ack_now = False
        self._ack_at: int | None = None
        self._newest_us = 0

    # Sending

    def room(self, size: int = 0) -> bool:
        """Whether `send` takes a message of this size now."""
        if self.broken or self._queued >= self._limits.queue_messages:
            return False
        return not self._queued or self._queued_bytes + size <= self._limits.queue_bytes

    def mark(self) -> tuple[int, int]:
        """A point behind everything sent so far, for `passed`."""
        return self._out[0].accepted, self._out[1].accepted

    def passed(self, mark: tuple[int, int]) -> bool:
        """Whether everything before the mark has been acknowledged."""
        return all(lane.acknowledged >= at for lane, at in zip(self._out, mark, strict=True))

    def send(self, lane: int, message: bytes, now: int) -> bool:
        """Queue a message; False if there is no room, or never will be."""
        size = len(message)
        if size > self._limits.message_bytes or not self.room(size):
            return False
        out = self._out[lane]
        out.queue.append(message)
        out.accepted += 1
        self._queued += 1
        self._queued_bytes += size
        if self._waiting_us is None:
            self._wait(now)
        return True

    def packets(self, now: int, most: int = 64) -> list[bytes]:
        """What to send now; as many as `most` mean that there may be more."""
        found: list[bytes] = []
        if self.broken:
            return found
        ack_at = self._ack_at
        if ack_at is not None and (self._ack_now or self._unacked >= _ACK_EVERY or now >= ack_at):
            found.append(self._ack(now))
        if self._ping:
            self._ping = False
            found.append(_PING_PACKET)
        free = min(int(self._cwnd) - len(self._flight), most - len(found))
        if free <= 0:
            self._limited = self._limited or len(self._flight) >= int(self._cwnd)
            return found
        for lane in self._out:
            while lane.lost and free > 0:
                sent = lane.lost.popleft()
                if not sent.acked:
                    self.resent += 1
                    free -= 1
                    found.append(self._transmit(sent, now))
            while free > 0 and lane.may_cut(self._room):
                free -= 1
                found.append(self._transmit(lane.cut(self._room), now))
        self._limited = self._limited or len(self._flight) >= int(self._cwnd)
        return found

    def _transmit(self, sent: Sent, now: int) -> bytes:
        if not self._flight:
            self._arm(now)
        self._order += 1
        sent.order = self._order
        sent.sent_us = now
        sent.tries += 1
        self._flight[self._order] = sent
        return sent.packet

    def _wait(self, now: int) -> None:
        """Something is to be acknowledged from now on."""
        self._waiting_us = now
        self._backoff = 0
        self._arm(now)

    def _arm(self, now: int) -> None:
        most = max(_RTO_MAX_US, 2 * (self.rtt_us or 0))
        self._rto_at = now + min(self._rto_us << self._backoff, most)

    def begin(self, now: int) -> None:
        """The way is open, anew: nothing that was sent so far has come in."""
        self._lose(list(self._flight.values()))
        if self._waiting_us is not None:
            self._wait(now)

    # Receiving

    def receive(self, packet: bytes, now: int) -> list[bytes]:
        """The messages that this packet completes, in order."""
        if self.broken:
            return []
        if len(packet) < HEAD_BYTES:
            raise self._fault("a packet without a head")
        (head,) = HEAD.unpack_from(packet)
        kind = head & 3
        if kind < 2:
            return self._data(self._in[kind], head >> 2, packet, now)
        if kind == _ACK:
            self._acked(packet, head >> 2, now)
        else:
            self._note(now)
            self._ack_now = True
        return []

    def _note(self, now: int) -> None:
        self._newest_us = now
        if self._ack_at is None:
            self._ack_at = now + _ACK_DELAY_US

    def _data(self, lane: In, number: int, packet: bytes, now: int) -> list[bytes]:
        self._unacked += 1
        self._newest_us = now
        if self._ack_at is None:
            self._ack_at = now + _ACK_DELAY_US
        try:
            if number == lane.next and not lane.held and not lane.paused:
                lane.next = lane.want = number + 1
                messages: list[bytes] = []
                lane.take(packet, messages)
                return messages
            self._ack_now = True
            return lane.put(number, packet, self._window)
        except Malformed:
            self._break()
            raise

    def pause(self, lane: int) -> None:
        """Take nothing more from the lane; what comes is held, and then the sender stops."""
        self._in[lane].paused = True

    def resume(self, lane: int, now: int) -> list[bytes]:
        """Take from it again: the messages that were held."""
        self._in[lane].paused = False
        self._note(now)
        self._ack_now = True
        try:
            return self._in[lane].catch_up()
        except Malformed:
            self._break()
            raise

    def _ack(self, now: int) -> bytes:
        parts = [HEAD.pack((now - self._newest_us) << 2 | _ACK)]
        for lane in self._in:
            size = (lane.bits.bit_length() + 7) // 8
            parts.append(_LANE_ACK.pack(lane.next, lane.taken + self._window, size))
            parts.append(lane.bits.to_bytes(size, "little"))
        self._unacked = 0
        self._ack_now = False
        self._ack_at = None
        return b"".join(parts)

    # Acknowledgements

    def _acked(self, packet: bytes, delay_us: int, now: int) -> None:
        at = HEAD_BYTES
        found: list[Sent] = []
        for lane in self._out:
            if at + _LANE_ACK.size > len(packet):
                raise self._fault("half an ack")
            first, limit, size = _LANE_ACK.unpack_from(packet, at)
            at += _LANE_ACK.size
            bits = int.from_bytes(packet[at : at + size], "little")
            at += size
            if first + (bits.bit_length() and bits.bit_length() + 1) > lane.next:
                raise self._fault("an ack of what was not sent")
            lane.limit = max(lane.limit, limit)
            self._lane_acked(lane, first, bits, found)
        if at != len(packet):
            raise self._fault("an ack of another length")
        if found:
            self._progress(found, delay_us, now)
        elif not self._flight and self._waiting_us is not None:
            self._waiting_us = now  # blocked by the receiver, which is alive
        if not self._queued:
            self._waiting_us = None

    def _lane_acked(self, lane: Out, first: int, bits: int, found: list[Sent]) -> None:
        moved = first - lane.base
        if moved > 0:
            for number in range(lane.base, first):
                sent = lane.sent.pop(number)
                lane.acknowledged += sent.messages
                self._queued -= sent.messages
                if not sent.acked:
                    sent.acked = True
                    found.append(sent)
            lane.base = first
            lane.sacked >>= moved
        else:
            bits >>= -moved  # an ack that was overtaken
        fresh = bits & ~lane.sacked
        lane.sacked |= fresh
        while fresh:
            low = fresh & -fresh
            fresh ^= low
            sent = lane.sent[lane.base + low.bit_length()]
            sent.acked = True
            found.append(sent)

    def _progress(self, found: list[Sent], delay_us: int, now: int) -> None:
        newest, top, flight = None, 0, self._flight
        for sent in found:
            self._queued_bytes -= sent.bytes
            order = sent.order
            early = sent.tries > 1 and now - sent.sent_us < self._rtt_min_us // 2
            if flight.pop(order, None) is None or early:
                # taken for lost, but it was not
                self.needless += 1
                self._round_lost -= 1
                self._reorder = min(self._reorder * 2, _REORDER_MAX)
            elif order > top:
                newest, top = sent if sent.tries == 1 else None, order
        if newest is not None:
            self._measure(max(1, now - newest.sent_us - delay_us))
        self._top = max(self._top, top)
        self._detect(now)
        self._adapt(len(found), top)
        self._wait(now)

    def _detect(self, now: int) -> None:
        """Give up packets that others, sent after them, have overtaken by too many or too long."""
        rtt = self.rtt_us or _RTO_US
        slack = min(_OVERTAKEN_US * self._reorder // _REORDER, rtt)
        patience = rtt + max(slack, 4 * self._rtt_var_us, _OVERTAKEN_US)
        self._loss_at = None
        lost = []
        for order, sent in self._flight.items():
            if order >= self._top:
                break
            if order + self._reorder > self._top and now - sent.sent_us < patience:
                self._loss_at = sent.sent_us + patience
                break
            lost.append(sent)
        self._round_lost += len(lost)
        self._lose(lost)

    def _lose(self, lost: list[Sent]) -> None:
        for sent in lost:
            del self._flight[sent.order]
            sent.lane.lost.append(sent)

    def _measure(self, rtt: int) -> None:
        """RFC 6298."""
        self._rtt_min_us = min(self._rtt_min_us, rtt)
        if self.rtt_us is None:
            self.rtt_us, self._rtt_var_us = rtt, rtt // 2
        else:
            self._rtt_var_us += (abs(self.rtt_us - rtt) - self._rtt_var_us) // 4
            self.rtt_us += (rtt - self.rtt_us) // 8
        rto = self.rtt_us + 4 * self._rtt_var_us + _ACK_DELAY_US
        self._rto_us = max(rto, _RTO_MIN_US)

    def _adapt(self, acked: int, top: int) -> None:
        """The congestion window, once per round."""
        self._round_acked += acked
        judged = self._round_acked + self._round_lost
        if top < self._round_end or judged < _ROUND:
            return
        if self._round_lost / judged > _LOSS_LIMIT:
            self._starting = False
            self._cwnd = max(self._cwnd * _SHRINK, _CWND_MIN)
        elif self._limited:
            self._cwnd = min(self._cwnd * (2 if self._starting else _GROW), _CWND_MAX)
        self._reorder = max(self._reorder * 15 // 16, _REORDER)
        self._round_end = self._order
        self._round_acked = self._round_lost = 0
        self._limited = False

    # Time

    def next_timer(self) -> int | None:
        if self.broken:
            return None
        if self._waiting_us is None:
            return self._ack_at
        due = min(self._rto_at, self._waiting_us + self._limits.give_up_us)
        if self._ack_at is not None and self._ack_at < due:
            due = self._ack_at
        return due if self._loss_at is None else min(due, self._loss_at)

    def timer(self, now: int) -> None:
        """Time has come; ask for `packets` afterwards."""
        if self.broken or self._waiting_us is None:
            return
        if now - self._waiting_us >= self._limits.give_up_us:
            held = self._in  # acknowledged: `resume` still has it
            self._break()
            self._in = held
            return
        if self._loss_at is not None and now >= self._loss_at:
            self._detect(now)
        if now >= self._rto_at:
            self._late()
            self._arm(now)

    def _late(self) -> None:
        """Nothing was acknowledged for a while: first try a little again, then everything."""
        flight = self._flight
        if not flight:
            self._ping = True
        elif self._backoff:
            self._cwnd = float(_CWND_MIN)
            self._starting = True
        self._lose(list(flight.values())[: len(flight) if self._backoff else 2])
        self._backoff = min(self._backoff + 1, 6)

    def close(self) -> int:
        """Drop everything; how many messages were not acknowledged."""
        if not self.broken:
            self._break()
        return self.dropped

    def _fault(self, what: str) -> Malformed:
        self._break()
        return Malformed(what)

    def _break(self) -> None:
        self.broken = True
        self.dropped = self._queued
        self._flight = {}
        self._out = (Out(URGENT), Out(BULK))
        self._in = (In(self._limits.message_bytes), In(self._limits.message_bytes))
        self._queued = self._queued_bytes = 0
        self._waiting_us = self._ack_at = None
