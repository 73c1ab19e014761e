"""A segment of a journal: frames, one after the other, each with its checksum.

    bytes 0-3    magic "UNJ1"
    bytes 4-7    CRC-32 of everything after it
    bytes 8-15   position of the first row
    bytes 16-19  number of rows
    bytes 20-23  bytes that follow
    rest         an Arrow record batch with the schema below, without the schema

A frame at the end of a file that is cut short, or whose checksum fails, is what a crash has left of
one that nobody was told of: it is not there. Anything else that does not fit is damage, and said.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from unisono.errors import BadInput

SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),  # numbers and bools as JSON
        pa.field("published_us", pa.int64(), nullable=False),
        pa.field("delivered_us", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
    ]
)
MAGIC = b"UNJ1"
_HEAD = struct.Struct("<4sI")
_BODY = struct.Struct("<QII")
HEADER_BYTES = _HEAD.size + _BODY.size
FRAME_BYTES_MAX = 1 << 30
ENDING = ".journal"
END = "end"  # the file that says which position comes next: all before it is synced
_END = struct.Struct("<Q")


class Frame(NamedTuple):
    """Where a frame is, and which positions it has."""

    offset: int
    first: int
    rows: int
    size: int  # of the batch, in bytes

    @property
    def next(self) -> int:
        """The position after its last."""
        return self.first + self.rows

    @property
    def end(self) -> int:
        return self.offset + HEADER_BYTES + self.size


def encode(batch: Any, first: int) -> bytes:
    """A frame of these rows."""
    payload: bytes = batch.serialize().to_pybytes()
    body = _BODY.pack(first, batch.num_rows, len(payload)) + payload
    return _HEAD.pack(MAGIC, zlib.crc32(body)) + body


def segments(folder: Path) -> list[Path]:
    """In order; a segment is named by its first position."""
    found = sorted(folder.glob(f"*{ENDING}"))
    for path in found:
        if not path.stem.isdigit():
            raise BadInput(f"{path} is not a segment of a journal; move it away")
    return found


def first_of(segment: Path) -> int:
    return int(segment.stem)


def name_of(first: int) -> str:
    return f"{first:020d}{ENDING}"


def end_of(folder: Path) -> int:
    """The position that comes next."""
    try:
        (end,) = _END.unpack((folder / END).read_bytes())
    except FileNotFoundError:
        return 0
    except struct.error:
        raise BadInput(
            f"{folder / END} is damaged; the next writer of the journal mends it"
        ) from None
    return int(end)


def tell_end(end: BinaryIO, position: int) -> None:
    """To whoever reads."""
    end.seek(0)
    end.write(_END.pack(position))
    end.flush()


def frames(
    file: BinaryIO,
    path: Path,
    size: int,
    check: bool,
    offset: int = 0,
    expected: int | None = None,
) -> Iterator[Frame]:
    """The frames of a segment up to its end, or to a torn one; `check` reads all and compares
    checksums, else only headers are read. `offset`: where a frame with the position `expected`
    begins."""
    if expected is None:
        expected = first_of(path)
    while offset + HEADER_BYTES <= size:
        file.seek(offset)
        head = file.read(HEADER_BYTES)
        magic, checksum = _HEAD.unpack_from(head)
        first, rows, length = _BODY.unpack_from(head, _HEAD.size)
        if magic != MAGIC or first != expected or length > FRAME_BYTES_MAX:
            if not any(head):
                return  # space that was reserved and never written
            raise BadInput(f"{path} is damaged at byte {offset}: no frame of position {expected}")
        frame = Frame(offset, first, rows, length)
        if frame.end > size:
            return
        if check:
            body = head[_HEAD.size :] + file.read(length)
            if zlib.crc32(body) != checksum:
                if frame.end == size:
                    return
                raise BadInput(f"{path} is damaged at byte {offset}: the checksum fails")
        yield frame
        offset, expected = frame.end, frame.next


def decode(file: BinaryIO, path: Path, frame: Frame) -> Any:
    """The rows of a frame, as an Arrow record batch."""
    file.seek(frame.offset)
    data = file.read(frame.end - frame.offset)
    whole = len(data) == frame.end - frame.offset
    if not whole or zlib.crc32(data[_HEAD.size :]) != _HEAD.unpack_from(data)[1]:
        raise BadInput(f"{path} is damaged at byte {frame.offset}: the checksum fails")
    batch = pa.ipc.read_record_batch(pa.py_buffer(data[HEADER_BYTES:]), SCHEMA)
    if batch.num_rows != frame.rows:
        raise BadInput(f"{path} is damaged at byte {frame.offset}: other rows than it says")
    return batch
