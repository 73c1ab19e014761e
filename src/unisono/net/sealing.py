"""Sealed datagrams: what protects them, and one session between two processes. No I/O, no clock.

    data, goodbye    version, kind, session id (4 bytes), counter (8), then the sealed packet
    handshake        version, kind, ...; see `handshake.py`

A session has a key for each direction, derived from the mesh key, from the random ids that both
processes drew when they started, and from the number of the handshake; so nothing recorded earlier
opens under it. The counter is the nonce, and a window of counters lets every datagram in once. A
key seals 2^27 datagrams at most, then the next is derived from it.

Without a mesh key the same datagrams carry a CRC-32 instead of an AEAD tag: no protection at all,
for trying things out.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Hashable
from struct import Struct
from typing import Any, Protocol

from unisono.core.wire import Rejected
from unisono.errors import EnvironmentLacks
from unisono.net.keys import Key

Address = Hashable  # whatever the driver calls a peer; compared, and shown to the cookie by repr
Buffer = bytes | bytearray | memoryview

VERSION = 1
HELLO, ANSWER, CONFIRM, DATA, GOODBYE = range(1, 6)
HEADER = Struct(">BBIQ")
HEADER_BYTES = HEADER.size
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
MAX_DATAGRAM = 1472  # what an Ethernet frame carries over IPv4
WINDOW = 2048  # counters that may come out of order; a power of two
_EPOCH_BITS = 27  # RFC 9001, appendix B: AES-GCM and datagrams of this size; half of what it allows


class Cipher(Protocol):
    """What AESGCM of `cryptography` does."""

    def encrypt(self, nonce: Buffer, data: Buffer, associated_data: Buffer) -> bytes: ...

    def decrypt(self, nonce: Buffer, data: Buffer, associated_data: Buffer) -> bytes: ...


class Suite:
    """The ciphers and keys that follow from a mesh key, or from none."""

    def __init__(self, key: Key | None) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError:
            raise EnvironmentLacks(
                "a mesh needs the package cryptography: pip install 'unisono[mesh]'"
            ) from None
        self._secret = key.secret if key is not None else b"insecure"
        self._cipher: Any = AESGCM if key is not None else _Checksum
        self._hkdf, self._hash = HKDF, SHA256
        self.invalid: tuple[type[Exception], ...] = (InvalidTag, _Damaged)
        self.hello = self.cipher(self.derive(self._secret, b"hello", 32))

    def derive(self, secret: bytes, info: bytes, length: int, salt: bytes = b"") -> bytes:
        info = b"unisono mesh 1 " + info
        return self._hkdf(self._hash(), length, salt, info).derive(secret)

    def cipher(self, key: bytes) -> Cipher:
        made: Cipher = self._cipher(key)
        return made

    def session(self, salt: bytes) -> tuple[int, bytes, bytes]:
        """The id of a session and its keys: from who began it, and to that one."""
        material = self.derive(self._secret, b"session", 68, salt)
        return int.from_bytes(material[64:], "big"), material[:32], material[32:64]


class _Damaged(Exception):
    pass


class _Checksum:
    """A cipher that hides nothing."""

    def __init__(self, key: bytes) -> None:
        self._start = zlib.crc32(key)

    def _sum(self, nonce: Buffer, data: Buffer, associated_data: Buffer) -> bytes:
        found = zlib.crc32(data, zlib.crc32(associated_data, zlib.crc32(nonce, self._start)))
        return found.to_bytes(TAG_BYTES, "big")

    def encrypt(self, nonce: Buffer, data: Buffer, associated_data: Buffer) -> bytes:
        return bytes(data) + self._sum(nonce, data, associated_data)

    def decrypt(self, nonce: Buffer, data: Buffer, associated_data: Buffer) -> bytes:
        body = bytes(data[:-TAG_BYTES])
        if self._sum(nonce, body, associated_data) != data[-TAG_BYTES:]:
            raise _Damaged
        return body


class Session:
    """One end of a session. `mine`: this process began it. `confirmed`: the other end has sent
    something under its keys, so it is alive at this address."""

    __slots__ = (
        "_counter",
        "_newest",
        "_open_keys",
        "_open_secret",
        "_seal_key",
        "_seal_secret",
        "_seen",
        "_suite",
        "address",
        "attempt",
        "boot",
        "confirmed",
        "heard_us",
        "id",
        "mine",
        "since",
        "ticket",
    )

    def __init__(
        self,
        suite: Suite,
        address: Address,
        mine: bool,
        own_boot: bytes,
        boot: bytes,
        attempt: bytes,
        ticket: int,
        now_us: int,
    ) -> None:
        self._suite = suite
        self.address = address
        self.mine = mine
        self.boot = boot
        self.attempt = attempt
        self.ticket = ticket  # of the handshake, counted by the one that answered
        self.since = ticket  # confirmations of our answers up to this one come too late
        self.confirmed = not mine
        self.heard_us = now_us
        boots = own_boot + boot if mine else boot + own_boot
        self.id, one, two = suite.session(boots + attempt + ticket.to_bytes(8, "big"))
        self._seal_secret, self._open_secret = (one, two) if mine else (two, one)
        self._counter = 0
        self._seal_key = self._key(self._seal_secret, 0)
        self._open_keys = {0: self._key(self._open_secret, 0)}
        self._newest = 0
        self._seen = array("Q", bytes(8 * WINDOW))  # the last counter of each place in the window

    def _key(self, secret: bytes, epoch: int) -> Cipher:
        suite = self._suite
        return suite.cipher(suite.derive(secret, b"epoch %d" % epoch, 32))

    def seal(self, packet: Buffer, kind: int = DATA, more: bytes = b"") -> bytes:
        """A datagram; `more` is sent in clear behind the header, and protected with it."""
        counter = self._counter = self._counter + 1
        if not counter & ((1 << _EPOCH_BITS) - 1):
            self._seal_key = self._key(self._seal_secret, counter >> _EPOCH_BITS)
        header = HEADER.pack(VERSION, kind, self.id, counter)
        if not more:
            return header + self._seal_key.encrypt(header[2:], packet, header)
        clear = header + more
        return clear + self._seal_key.encrypt(header[2:], packet, clear)

    def open(self, datagram: memoryview, counter: int, clear: int = HEADER_BYTES) -> bytes:
        """The packet of a datagram with this counter, once, or Rejected."""
        newest = self._newest
        slot = counter & (WINDOW - 1)
        if counter <= newest and (counter <= newest - WINDOW or self._seen[slot] == counter):
            raise Rejected("replayed")
        epoch = counter >> _EPOCH_BITS
        if epoch > (newest >> _EPOCH_BITS) + 1:
            raise Rejected("wrong key")  # nobody is that far; a key of its own would cost more
        key = self._open_keys.get(epoch) or self._key(self._open_secret, epoch)
        try:
            packet = key.decrypt(datagram[2:HEADER_BYTES], datagram[clear:], datagram[:clear])
        except self._suite.invalid:
            raise Rejected("wrong key") from None
        self._seen[slot] = counter
        if counter > newest:
            self._newest = counter
        if epoch not in self._open_keys:
            keep = {old: found for old, found in self._open_keys.items() if old >= epoch - 1}
            self._open_keys = {**keep, epoch: key}
        return packet
