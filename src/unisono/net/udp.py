"""Messages between processes over one UDP socket: sealed, in order, resent, bounded.

An `Endpoint` finds or makes a session with whomever it is asked to send to, and takes those of
others that have the mesh key. Per peer and lane every message arrives once and in order, until
`on_gone`: then what was not acknowledged may or may not have arrived, and a later `send` begins
anew. A peer that restarted is a new one. Callbacks are plain functions, called from the loop; they
may call the endpoint.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from unisono.core.limits import MeshLimits
from unisono.ens.scribe.link import BULK, URGENT, Link, Malformed
from unisono.errors import BadInput, BusClosed
from unisono.net.datagrams import BATCH, Datagrams, Sockaddr, parse, text
from unisono.net.handshake import Sessions
from unisono.net.keys import Key
from unisono.net.sealing import MAX_DATAGRAM, OVERHEAD_BYTES, Session

__all__ = ["BULK", "URGENT", "Endpoint"]

_READS = 16  # calls per wake-up, so that timers and others get their turn
_IPV6_HEADER_MORE = 20
_COUNTS = ("datagrams in", "messages in", "dropped", "resent")


def clock_us() -> int:
    return time.monotonic_ns() // 1000


class _Peer:
    """What the endpoint knows of one address."""

    def __init__(self, address: Sockaddr, link: Link) -> None:
        self.address = address
        self.name = text(address)
        self.link = link
        self.session: Session | None = None
        self.paused = False
        self.due_us: int | None = None  # of its entry in the heap of timers
        self.waiting: list[tuple[Callable[[Link], bool], asyncio.Future[bool]]] = []


class Endpoint:
    """One socket and all its peers. Without a key nothing is protected."""

    def __init__(
        self,
        listen: str,
        key: Key | None,
        on_message: Callable[[str, bytes], None],
        on_gone: Callable[[str], None],
        limits: MeshLimits | None = None,
        batched: bool = True,
    ) -> None:
        self._listen = parse(listen)
        self._v6 = ":" in self._listen[0]
        self._on_message, self._on_gone = on_message, on_gone
        self._limits = limits or MeshLimits()
        self._sessions = Sessions(key, os.urandom, self._limits.peers, self._limits.give_up_us)
        datagram = MAX_DATAGRAM - (_IPV6_HEADER_MORE if self._v6 else 0)
        self._packet_bytes = datagram - OVERHEAD_BYTES
        self._batched = batched
        self._socket: Datagrams | None = None
        self._writing = False  # waits until the socket has room
        self._peers: dict[Sockaddr, _Peer] = {}
        self._names: dict[str, _Peer] = {}
        self._ready: dict[_Peer, None] = {}  # that may have packets to send
        self._flushing = False
        self._timers: list[tuple[int, int, _Peer]] = []
        self._numbers = count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._counts = dict.fromkeys(_COUNTS, 0)

    async def open(self) -> None:
        """Bind the socket and begin to serve."""
        self._loop = asyncio.get_running_loop()
        made = self._socket = Datagrams(self._listen, self._batched)
        self.address = made.address
        self._loop.add_reader(made, self._readable)

    async def close(self) -> None:
        """Say goodbye to all and free the socket. What was not acknowledged is dropped."""
        made = self._socket
        if made is None:
            return
        for peer in list(self._peers.values()):
            self._sessions.drop(peer.address)
            self._remove(peer)
        self._settle(clock_us())
        self._socket = None
        self._loop.remove_reader(made)
        self._loop.remove_writer(made)
        if self._alarm is not None:
            self._alarm.cancel()
        made.close()

    def send(self, to: str, message: bytes, lane: int = BULK) -> bool:
        """Queue a message; False if there is no room for it now (`room` waits for that)."""
        if len(message) > self._limits.message_bytes:
            raise BadInput(
                f"a message of {len(message)} bytes is over the limit of "
                f"{self._limits.message_bytes}; split it, or raise MeshLimits.message_bytes"
            )
        now = clock_us()
        peer = self._names.get(to) or self._connect(to, now)
        if peer is None or not peer.link.send(lane, message, now):
            return False
        self._soon(peer)
        return True

    def has_room(self, to: str) -> bool:
        """Whether a message of any size can be sent now."""
        peer = self._names.get(to)
        return peer is None or peer.link.room(self._limits.message_bytes)

    async def room(self, to: str) -> None:
        """Return when a message of any size can be sent, or the peer is gone."""
        largest = self._limits.message_bytes
        await self._until(to, lambda link: link.room(largest))

    async def flushed(self, to: str) -> bool:
        """Whether the peer has acknowledged all that was sent to it so far; waits for that, and
        says False if it is gone before, or is not known."""
        peer = self._names.get(to)
        if peer is None:
            return False
        mark = peer.link.mark()
        return await self._until(to, lambda link: link.passed(mark))

    def pause(self, peer: str) -> None:
        """Take nothing more from the bulk lane of this peer. What its sender had sent is held, and
        then it stops. Messages that came along with the one being handed over still follow."""
        found = self._names.get(peer)
        if found is not None:
            found.paused = True
            found.link.pause(BULK)

    def resume(self, peer: str) -> None:
        """Take from it again."""
        found = self._names.get(peer)
        if found is None or not found.paused:
            return
        found.paused = False
        self._receive(found, clock_us(), None)
        self._soon(found)

    def drop(self, to: str) -> None:
        """Forget a peer and everything for it. `on_gone` is not called."""
        peer = self._names.get(to)
        if peer is not None:
            self._sessions.drop(peer.address)
            self._remove(peer)
            self._settle(clock_us())

    @property
    def peers(self) -> list[str]:
        """Those with whom there is a session."""
        return [peer.name for peer in self._peers.values() if peer.session is not None]

    @property
    def counters(self) -> dict[str, int]:
        """What came and went since the start; what was rejected, by reason."""
        links, made = [peer.link for peer in self._peers.values()], self._socket
        return {
            **self._counts,
            "datagrams out": made.sent if made is not None else 0,
            "socket errors": made.errors if made is not None else 0,
            "resent": self._counts["resent"] + sum(link.resent for link in links),
            **{f"rejected: {name}": n for name, n in self._sessions.rejected.items()},
        }

    # Peers

    def _connect(self, to: str, now: int) -> _Peer | None:
        if self._socket is None:
            raise BusClosed("the endpoint is closed")
        address = parse(to)
        if (":" in address[0]) != self._v6:
            raise BadInput(f"{to} and {self.address} are not of the same kind of IP")
        peer = self._peers.get(address)
        if peer is None:
            if not self._sessions.connect(address, now):
                return None
            peer = self._add(address)
            self._settle(now)
        return peer

    def _add(self, address: Sockaddr) -> _Peer:
        peer = _Peer(address, Link(self._packet_bytes, self._limits))
        self._peers[address] = self._names[peer.name] = peer
        return peer

    def _remove(self, peer: _Peer) -> None:
        del self._peers[peer.address]
        del self._names[peer.name]
        self._ready.pop(peer, None)
        peer.session = None
        self._close_link(peer)

    def _close_link(self, peer: _Peer) -> None:
        self._counts["dropped"] += peer.link.close()
        self._counts["resent"] += peer.link.resent
        self._wake(peer)

    def _hand_over(self, peer: _Peer) -> None:
        """The link ends. What was held back while the peer was paused had been acknowledged."""
        if peer.paused:
            with suppress(Malformed):
                for message in peer.link.resume(BULK, clock_us()):
                    self._on_message(peer.name, message)

    def _gone(self, peer: _Peer) -> None:
        self._hand_over(peer)
        if self._peers.get(peer.address) is peer:  # else whoever took it has dropped the peer
            self._remove(peer)
            self._on_gone(peer.name)

    def _settle(self, now: int) -> None:
        """Carry out what the sessions have decided."""
        changes, self._sessions.changes = self._sessions.changes, []
        for change in changes:
            address: Sockaddr = change.address  # type: ignore[assignment]
            peer = self._peers.get(address)
            if change.session is None:
                if peer is not None:
                    self._gone(peer)
                continue
            if peer is None:
                peer = self._add(address)
            elif not change.resumes:
                self._hand_over(peer)
                self._close_link(peer)
                peer.link = Link(self._packet_bytes, self._limits)
                if peer.paused:
                    peer.link.pause(BULK)
                self._on_gone(peer.name)
            if self._peers.get(address) is peer:  # not dropped by the callback
                peer.session = change.session
                peer.link.begin(now)
                self._soon(peer)
        outbox, self._sessions.outbox = self._sessions.outbox, []
        for to, datagram in outbox:
            self._transmit(to, [datagram])  # type: ignore[arg-type]
        self._set_alarm(now)

    async def _until(self, to: str, reached: Callable[[Link], bool]) -> bool:
        peer = self._names.get(to)
        if peer is None or reached(peer.link):
            return True
        future: asyncio.Future[bool] = self._loop.create_future()
        peer.waiting.append((reached, future))
        return await future

    def _wake(self, peer: _Peer) -> None:
        """Tell those for whom the peer has moved, or is gone."""
        waiting, peer.waiting = peer.waiting, []
        for reached, future in waiting:
            if future.done():
                continue
            if peer.link.broken:
                future.set_result(False)
            elif reached(peer.link):
                future.set_result(True)
            else:
                peer.waiting.append((reached, future))

    # Receiving

    def _readable(self) -> None:
        now = clock_us()
        for _ in range(_READS):
            if self._socket is None:
                return
            received = self._socket.receive()
            if received is None:
                break
            self._take(*received, now)
        if self._ready:
            self._flush()

    def _take(self, view: memoryview, segment: int, address: Sockaddr, now: int) -> None:
        """All datagrams of one call; they come from one address."""
        sessions = self._sessions
        unseal = sessions.open
        counts = self._counts
        for at in range(0, max(len(view), 1), max(segment, 1)):
            counts["datagrams in"] += 1
            opened = unseal(view[at : at + segment], address, now)
            if sessions.changes or sessions.outbox:
                self._settle(now)
            if opened is None:
                continue
            peer = self._peers.get(address)
            if peer is None or peer.session is not opened[0]:
                continue  # dropped by a callback
            if opened[1]:
                self._receive(peer, now, opened[1])

    def _receive(self, peer: _Peer, now: int, packet: bytes | None) -> None:
        """A packet, or what was held while the peer was paused."""
        link = peer.link
        try:
            messages = link.receive(packet, now) if packet else link.resume(BULK, now)
        except Malformed:
            self._sessions.rejected["malformed"] += 1
            self._sessions.drop(peer.address)
            self._gone(peer)
            self._settle(now)
            return
        self._ready[peer] = None  # it may have something to acknowledge, or more room
        self._counts["messages in"] += len(messages)
        for message in messages:
            self._on_message(peer.name, message)

    # Sending

    def _soon(self, peer: _Peer) -> None:
        """Send what the peer has, together with what else comes up until then."""
        self._ready[peer] = None
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        now = clock_us()
        while self._ready and not self._writing and self._socket is not None:
            for peer in list(self._ready):
                if self._writing:
                    break
                self._flush_one(peer, now)
        self._set_alarm(now)

    def _flush_one(self, peer: _Peer, now: int) -> None:
        session, link = peer.session, peer.link
        if session is None:
            self._ready.pop(peer, None)
            return
        packets = link.packets(now, BATCH)
        if len(packets) < BATCH:
            self._ready.pop(peer, None)
        if packets:
            seal = session.seal
            self._transmit(peer.address, [seal(packet) for packet in packets])
        if peer.waiting:
            self._wake(peer)
        due = link.next_timer()
        if due is not None and (peer.due_us is None or due < peer.due_us):
            peer.due_us = due
            heapq.heappush(self._timers, (due, next(self._numbers), peer))

    def _transmit(self, to: Sockaddr, datagrams: list[bytes]) -> None:
        made = self._socket
        assert made is not None
        made.send(to, datagrams)
        if made.full and not self._writing:
            self._writing = True
            self._loop.add_writer(made, self._writable)

    def _writable(self) -> None:
        assert self._socket is not None
        self._socket.drain()
        if not self._socket.full:
            self._writing = False
            self._loop.remove_writer(self._socket)
            self._flush()

    # Time

    def _set_alarm(self, now: int) -> None:
        if self._socket is None:
            return
        due = self._sessions.next_timer()
        if self._timers and (due is None or self._timers[0][0] < due):
            due = self._timers[0][0]
        if due is None or (self._alarm is not None and self._alarm_us <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_us = due
        self._alarm = self._loop.call_later(max(0, due - now) / 1e6, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._readable()  # if we are late, what we wait for may be there already
        if self._socket is None:
            return
        now = clock_us()
        self._sessions.timer(now)
        self._settle(now)
        while self._timers and self._timers[0][0] <= now:
            due, _, peer = heapq.heappop(self._timers)
            if peer.due_us != due:
                continue  # an earlier entry has taken its place
            peer.due_us = None
            if peer.session is None:
                continue
            peer.link.timer(now)
            if peer.link.broken:
                self._sessions.drop(peer.address)
                self._gone(peer)
                self._settle(now)
            else:
                self._ready[peer] = None
        self._flush()
