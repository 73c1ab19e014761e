"""Frames that wait to go to the same place travel as one.

A bundle is the byte 0x42, then for each frame its length (4 bytes, big-endian) and its bytes. A
frame begins with another byte (`core/wire.py`), so one that travels alone needs no wrapping. What
is not exactly a bundle is passed on as it is, and rejected where frames are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

MAGIC = 0x42
BUNDLE_BYTES = 1 << 16  # a larger frame travels alone
_LENGTH = Struct(">I")


def bundles(frames: Iterable[bytes], limit: int | None = None) -> Iterator[bytes]:
    """The frames, in order, in as few as fit into BUNDLE_BYTES or a bus's own limit."""
    most = min(BUNDLE_BYTES, limit or BUNDLE_BYTES)
    waiting: list[bytes] = []
    size = 1
    for frame in frames:
        grown = size + _LENGTH.size + len(frame)
        if grown > most and waiting:
            yield _bundle(waiting)
            waiting, grown = [], 1 + _LENGTH.size + len(frame)
        waiting.append(frame)
        size = grown
    if waiting:
        yield _bundle(waiting)


def _bundle(frames: Sequence[bytes]) -> bytes:
    if len(frames) == 1:
        return frames[0]
    parts = [bytes((MAGIC,))]
    for frame in frames:
        parts += (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def frames_of(received: bytes) -> Sequence[bytes]:
    """What was bundled, or what came if it is not a bundle."""
    if not received or received[0] != MAGIC:
        return (received,)
    frames: list[bytes] = []
    at, end = 1, len(received)
    while at + _LENGTH.size <= end:
        (length,) = _LENGTH.unpack_from(received, at)
        at += _LENGTH.size + length
        if at > end:
            break
        frames.append(received[at - length : at])
    return frames if at == end and frames else (received,)
