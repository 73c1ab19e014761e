"""Reading a journal by position, also while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unisono.errors import BadInput
from unisono.journal.frames import decode, first_of, frames, segments


def bounds(folder: Path) -> tuple[int, int]:
    """The first position that is kept, and the one that comes next."""
    found = segments(folder)
    if not found:
        return 0, 0
    return first_of(found[0]), _end(found[-1])


def _end(path: Path) -> int:
    position = first_of(path)
    with path.open("rb") as file:
        for frame in frames(file, path, path.stat().st_size, check=False):
            position = frame.next
    return position


def read(folder: Path, start: int, stop: int) -> Iterator[Any]:
    """The rows of positions from `start` to before `stop`, as Arrow record batches."""
    if not 0 <= start <= stop:
        raise BadInput(f"positions {start} to {stop} are no range")
    position = start
    while position < stop:
        path = _segment_of(folder, position)
        before = position
        for batch in _of_segment(path, position, stop):
            position += batch.num_rows
            yield batch
        if position == before:
            raise BadInput(f"the journal {folder} has no position {position} yet")


def _segment_of(folder: Path, position: int) -> Path:
    chosen = None
    for path in segments(folder):
        if first_of(path) > position:
            break
        chosen = path
    if chosen is None:
        first, _ = bounds(folder)
        raise BadInput(
            f"position {position} of the journal {folder} is gone: it begins with {first}; keep "
            "more of it (keep_bytes), or start anew"
        )
    return chosen


def _of_segment(path: Path, start: int, stop: int) -> Iterator[Any]:
    with path.open("rb") as file:
        for frame in frames(file, path, path.stat().st_size, check=False):
            if frame.next <= start:
                continue
            if frame.first >= stop:
                return
            batch = decode(file, path, frame)
            begin = max(start, frame.first)
            yield batch.slice(begin - frame.first, min(stop, frame.next) - begin)
