"""The wire format: one frame per message, checked before anything in it is believed.

    byte 0      magic 0x55
    byte 1      version of the format
    bytes 2-5   CRC-32 of the rest
    rest        MessagePack of [sender, message]; the message is a tagged msgspec struct

Decoding is the inverse of encoding. A frame that is not one of ours is rejected with a named
reason; the node counts it and changes nothing else.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Union

import msgspec

from unisono.core.events import Control, Event
from unisono.errors import UNDECODABLE

MAGIC = 0x55
VERSION = 2
_HEADER = struct.Struct(">BBI")
HEADER_BYTES = _HEADER.size


class Rejected(Exception):
    """A frame that is not decoded; `reason` is one of a few fixed words for counting."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class Codec:
    """Encodes and decodes events and the controls of one stack, or of a frame layer: its frames
    begin with a byte of its own."""

    def __init__(
        self, controls: tuple[type[Control], ...], max_frame_bytes: int, magic: int = MAGIC
    ) -> None:
        messages: Any = Union.__getitem__((Event, *controls))
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(tuple[str, messages])
        self._encoder = msgspec.msgpack.Encoder()
        self._max_frame_bytes = max_frame_bytes
        self._magic = magic

    def encode(self, sender: str, message: Event | Control) -> bytes:
        body = self._encoder.encode((sender, message))
        return _HEADER.pack(self._magic, VERSION, zlib.crc32(body)) + body

    def decode(self, frame: bytes) -> tuple[str, Event | Control]:
        """The sender and the message, or Rejected."""
        if len(frame) < HEADER_BYTES:
            raise Rejected("too short", f"{len(frame)} bytes")
        if len(frame) > self._max_frame_bytes:
            raise Rejected("too long", f"{len(frame)} bytes")
        magic, version, checksum = _HEADER.unpack_from(frame)
        if magic != self._magic:
            raise Rejected("not ours", f"first byte {magic:#04x}")
        if version != VERSION:
            raise Rejected("unknown version", f"{version}")
        body = memoryview(frame)[HEADER_BYTES:]
        if zlib.crc32(body) != checksum:
            raise Rejected("checksum")
        try:
            sender, message = self._decoder.decode(body)
        except UNDECODABLE as error:
            raise Rejected("malformed", str(error)) from None
        return sender, message
