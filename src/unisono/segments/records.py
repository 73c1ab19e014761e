"""Records in a segment, one after the other, each with its checksums.

    bytes 0-3    magic "UNL1"
    bytes 4-11   index: the highest of what the log has so far
    bytes 12-15  bytes that follow the header
    bytes 16-19  CRC-32 of bytes 0-15
    bytes 20-23  CRC-32 of what follows
    rest         the record

A file ends with a whole record, or with what a crash left of one that nobody was told of: a header
that is cut short or was never written, or a record that is cut short or fails its checksum at the
very end. Anything else that does not fit is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unisono.errors import BadInput

MAGIC = b"UNL1"
_HEAD = struct.Struct("<4sQI")
_SUMS = struct.Struct("<II")
HEADER_BYTES = _HEAD.size + _SUMS.size
RECORD_BYTES_MAX = 1 << 30


class Record(NamedTuple):
    """One of a segment. `end`: the place behind it."""

    highest: int
    data: bytes
    end: int


def encode(index: int, data: bytes) -> bytes:
    if len(data) > RECORD_BYTES_MAX:
        raise BadInput(f"a record of {len(data)} bytes; at most {RECORD_BYTES_MAX} are kept")
    head = _HEAD.pack(MAGIC, index, len(data))
    return head + _SUMS.pack(zlib.crc32(head), zlib.crc32(data)) + data


def records(content: bytes, path: Path) -> Iterator[Record]:
    """The whole records of a file, up to one that a crash has cut short."""
    at, size = 0, len(content)
    while at + HEADER_BYTES <= size:
        head = content[at : at + _HEAD.size]
        magic, index, length = _HEAD.unpack(head)
        head_sum, data_sum = _SUMS.unpack_from(content, at + _HEAD.size)
        if magic != MAGIC or zlib.crc32(head) != head_sum:
            if not any(content[at:]):
                return  # space that was reserved and never written
            raise BadInput(f"{path} is damaged at byte {at}: no header of a record")
        end = at + HEADER_BYTES + length
        data = content[at + HEADER_BYTES : end]
        if end > size or zlib.crc32(data) != data_sum:
            if end >= size:
                return
            raise BadInput(f"{path} is damaged at byte {at}: the checksum of a record fails")
        yield Record(index, data, end)
        at = end
