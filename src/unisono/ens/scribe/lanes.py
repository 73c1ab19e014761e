"""The two ends of a lane: a stream of messages cut into numbered packets, and put together again.

    packet    8 bytes: its number in the lane << 2 | lane; then a piece of the lane's stream, in
              which each message follows its length (4 bytes, never split between packets)

Small messages share a packet; large ones fill theirs. Every packet is kept until it is acknowledged
and sent again as it is. At the other end it is taken once and in order. What is held there because
something before it is missing, or because the lane is paused, is bounded by a window, of which both
ends keep count in the same way: bytes of packets, and a charge for each.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

HEAD = Struct(">Q")
HEAD_BYTES = HEAD.size
CHARGE = 64  # what keeping a packet costs beyond its bytes; part of the window on both ends
CREDIT = 1 << 16  # of a lane, before the first ack
BITMAP_BYTES = 256
SPAN = 8 * BITMAP_BYTES  # packets of a lane from the first missing one to the last sent
_LENGTH = Struct(">I")


class Malformed(Exception):
    """The other end breaks the rules; the link is broken."""


class Sent:
    __slots__ = ("acked", "bytes", "lane", "messages", "order", "packet", "sent_us", "tries")

    def __init__(self, packet: bytes, lane: Out, messages: int, size: int) -> None:
        self.packet = packet
        self.lane = lane
        self.messages = messages  # that end in it
        self.bytes = size  # of their content in it
        self.order = self.sent_us = self.tries = 0
        self.acked = False


class Out:
    """A lane's sending end."""

    __slots__ = (
        "accepted",
        "acknowledged",
        "at",
        "base",
        "index",
        "limit",
        "lost",
        "next",
        "queue",
        "sacked",
        "sent",
        "used",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.queue: deque[bytes] = deque()
        self.at = -1  # how much of the first message has been cut; -1: not even its length
        self.base = self.next = 0  # first not acknowledged, and first not yet cut
        self.sent: dict[int, Sent] = {}
        self.sacked = 0  # bitmap of what has come after base
        self.lost: deque[Sent] = deque()
        self.limit, self.used = CREDIT, 0
        self.accepted = self.acknowledged = 0  # messages

    def may_cut(self, room: int) -> bool:
        return (
            bool(self.queue)
            and self.used + HEAD_BYTES + room + CHARGE <= self.limit
            and self.next - self.base < SPAN
        )

    def cut(self, room: int) -> Sent:
        """The next packet: as many messages, or as much of one, as there is room for."""
        queue, at = self.queue, self.at
        parts: list[bytes | memoryview] = [HEAD.pack(self.next << 2 | self.index)]
        messages, size = 0, 0
        while True:
            message = queue[0]
            if at < 0:
                parts.append(_LENGTH.pack(len(message)))
                room -= 4
                at = 0
            left = len(message) - at
            if left > room:
                parts.append(memoryview(message)[at : at + room])
                at += room
                size += room
                break
            parts.append(memoryview(message)[at:] if at else message)
            room -= left
            size += left
            messages += 1
            queue.popleft()
            at = -1
            if room < 5 or not queue:
                break
        self.at = at
        packet = b"".join(parts)
        sent = self.sent[self.next] = Sent(packet, self, messages, size)
        self.next += 1
        self.used += len(packet) + CHARGE
        return sent


class In:
    """A lane's receiving end."""

    __slots__ = (
        "bits",
        "held",
        "held_bytes",
        "most",
        "need",
        "next",
        "parts",
        "paused",
        "taken",
        "want",
    )

    def __init__(self, message_bytes: int) -> None:
        self.most = message_bytes
        self.next = 0  # first that has not come
        self.want = 0  # first that has not been taken; behind `next` while paused
        self.bits = 0  # bitmap of what has come after `next`
        self.held: dict[int, bytes] = {}
        self.held_bytes = 0
        self.taken = 0
        self.need = 0  # bytes missing of the message whose parts these are
        self.parts: list[memoryview] = []
        self.paused = False

    def put(self, number: int, packet: bytes, window: int) -> list[bytes]:
        """A packet that cannot be taken at once: kept, with what it makes takeable."""
        ahead = number - self.next
        if ahead < 0 or ahead > SPAN or number in self.held:
            return []
        if self.held_bytes + len(packet) + CHARGE > window:
            return []  # more than was allowed: as if it had not come
        self.held[number] = packet
        self.held_bytes += len(packet) + CHARGE
        if ahead:
            self.bits |= 1 << (ahead - 1)
            return []
        # `next` has come; so have the ones after it, up to the first 0 of the bitmap
        run = (~self.bits & (self.bits + 1)).bit_length()
        self.next += run
        self.bits >>= run
        return self.catch_up()

    def catch_up(self) -> list[bytes]:
        """The messages of what was held and is now in order."""
        messages: list[bytes] = []
        while self.want < self.next and not self.paused:
            packet = self.held.pop(self.want)
            self.held_bytes -= len(packet) + CHARGE
            self.want += 1
            self.take(packet, messages)
        return messages

    def take(self, packet: bytes, messages: list[bytes]) -> None:
        """The next piece of the stream."""
        end = len(packet)
        self.taken += end + CHARGE
        at, need = HEAD_BYTES, self.need
        if need:
            if need > end - at:
                self.parts.append(memoryview(packet)[at:])
                self.need = need - end + at
                return
            self.parts.append(memoryview(packet)[at : at + need])
            messages.append(b"".join(self.parts))
            self.parts = []
            self.need = 0
            at += need
        while at < end:
            if end - at < 4:
                raise Malformed("half a length")
            (length,) = _LENGTH.unpack_from(packet, at)
            at += 4
            if length > self.most:
                raise Malformed(f"a message of {length} bytes")
            if length > end - at:
                self.parts = [memoryview(packet)[at:]]
                self.need = length - end + at
                return
            messages.append(packet[at : at + length])
            at += length
