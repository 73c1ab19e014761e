"""Reliable links: point-to-point messages arrive once and in order, as long as both ends live.

Each message to a peer is numbered and kept until the peer acknowledges it; what is not acknowledged
in time is sent again; what comes twice or early is dropped or set aside. The thesis assumes such
links ("reliable communication substrate, FIFO"); buses lose what is in flight when a server
restarts. Broadcasts pass untouched.
"""

from __future__ import annotations

from typing import Any, ClassVar, Union

import msgspec

from unisono.core.effects import CancelTimer, Effect, Gone, Receive, Record, Send, SetTimer
from unisono.core.events import EVERYONE, Control, Number
from unisono.core.layer import Effects, Layer
from unisono.core.limits import Limits

RESEND = "resend:"
ACK = "ack:"
_BACKOFF_MAX = 5


class Wrapped(Control, frozen=True, array_like=True, tag="wrapped"):
    """A message of a layer above, numbered from 1 per direction of a pair."""

    number: Number
    body: msgspec.Raw


class Acknowledged(Control, frozen=True, array_like=True, tag="acknowledged"):
    """Everything up to this number has come."""

    upto: Number


class _Peer(msgspec.Struct):
    sent: int = 0  # number of the last message sent
    unacknowledged: dict[int, bytes] = {}  # at most a window of them
    waiting: dict[int, bytes] = {}  # beyond the window; as many as publishers have outstanding
    tries: int = 0  # since the last progress
    received: int = 0  # all up to here were handed up
    early: dict[int, bytes] = {}
    owes_ack: bool = False


class ReliableLinks(Layer):
    """Goes below the layers whose controls it wraps."""

    name: ClassVar[str] = "links"
    controls: ClassVar[tuple[type[Control], ...]] = (Wrapped, Acknowledged)

    def __init__(
        self,
        node_id: str,
        wrapped: tuple[type[Control], ...],
        limits: Limits,
        *,
        resend_us: int = 300_000,
        ack_us: int = 20_000,
    ) -> None:
        self._node_id = node_id
        self._limits = limits
        self._resend_us = resend_us
        self._ack_us = min(ack_us, resend_us // 4)
        self._peers: dict[str, _Peer] = {}
        self._departed: dict[str, None] = {}  # oldest first
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            Union.__getitem__(wrapped)
        )

    def send(self, to: str, message: Control, now: int) -> Effects:
        if to == EVERYONE:
            return (Send(to, message),)
        if to in self._departed:
            return ()
        peer = self._peers.setdefault(to, _Peer())
        peer.sent += 1
        peer.waiting[peer.sent] = self._encoder.encode(message)
        return self._send_waiting(to, peer, now)

    def _send_waiting(self, to: str, peer: _Peer, now: int) -> list[Effect]:
        """Send what the window has room for."""
        out: list[Effect] = []
        if not peer.unacknowledged and peer.waiting:
            peer.tries = 0
            out.append(SetTimer(RESEND + to, now + self._resend_us))
        while peer.waiting and len(peer.unacknowledged) < self._limits.link_window:
            number = next(iter(peer.waiting))
            body = peer.unacknowledged[number] = peer.waiting.pop(number)
            out.append(Send(to, Wrapped(number, msgspec.Raw(body))))
        return out

    def gone(self, peer: str, now: int) -> Effects:
        """Nobody is left to acknowledge, or to wait for."""
        self._departed[peer] = None
        if len(self._departed) > self._limits.departed:
            del self._departed[next(iter(self._departed))]
        if self._peers.pop(peer, None) is None:
            return (Gone(peer),)
        return (CancelTimer(RESEND + peer), CancelTimer(ACK + peer), Gone(peer))

    @property
    def idle(self) -> bool:
        return not any(peer.unacknowledged or peer.waiting for peer in self._peers.values())

    def reconnected(self, now: int) -> Effects:
        """Do not wait for the timers: what was in flight may be lost."""
        out: list[Effect] = []
        for name, peer in self._peers.items():
            peer.tries = 0
            out.extend(self._again(name, peer, now))
        return out

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        if sender in self._departed:
            return ()  # a late copy
        peer = self._peers.setdefault(sender, _Peer())
        if isinstance(message, Acknowledged):
            return self._acknowledged(sender, peer, message.upto, now)
        assert isinstance(message, Wrapped)
        out: list[Effect] = []
        if not peer.owes_ack:
            peer.owes_ack = True
            out.append(SetTimer(ACK + sender, now + self._ack_us))
        if message.number <= peer.received or message.number in peer.early:
            return out
        if message.number > peer.received + self._limits.link_window:
            return out  # beyond the window of any honest sender
        peer.early[message.number] = bytes(message.body)
        while (body := peer.early.pop(peer.received + 1, None)) is not None:
            peer.received += 1
            out.extend(self._unwrap(body, sender, now))
        return out

    def _unwrap(self, body: bytes, sender: str, now: int) -> Effects:
        try:
            return (Receive(self._decoder.decode(body), sender),)
        except msgspec.DecodeError as error:
            row = {
                "at_us": now,
                "node": self._node_id,
                "kind": "malformed message",
                "detail": f"{sender}: {error}",
            }
            return (Record("faults", row),)

    def _acknowledged(self, name: str, peer: _Peer, upto: int, now: int) -> Effects:
        for number in [n for n in peer.unacknowledged if n <= upto]:
            del peer.unacknowledged[number]
            peer.tries = 0
        return self._send_waiting(name, peer, now)

    def timer(self, key: str, now: int) -> Effects:
        if key.startswith(ACK):
            name = key[len(ACK) :]
            peer = self._peers.get(name)
            if peer is None:
                return ()
            peer.owes_ack = False
            return (Send(name, Acknowledged(peer.received)),)
        name = key[len(RESEND) :]
        peer = self._peers.get(name)
        if peer is None:
            return ()
        peer.tries += 1
        return self._again(name, peer, now)

    def _again(self, name: str, peer: _Peer, now: int) -> list[Effect]:
        """Send all that is not acknowledged once more."""
        if not peer.unacknowledged:
            return []
        wait = self._resend_us << min(peer.tries, _BACKOFF_MAX)
        out: list[Effect] = [SetTimer(RESEND + name, now + wait)]
        out.extend(
            Send(name, Wrapped(number, msgspec.Raw(body)))
            for number, body in peer.unacknowledged.items()
        )
        return out
