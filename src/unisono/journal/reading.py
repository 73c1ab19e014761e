"""Reading a journal by position, also while it is written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from unisono.errors import BadInput
from unisono.journal.frames import decode, end_of, first_of, frames, segments

INDEXED = 1 << 20  # bytes between places that an index remembers
PLACES_MAX = 1 << 16  # the older half is forgotten then; it can still be searched for


def bounds(folder: Path) -> tuple[int, int]:
    """The first position that is kept, and the one that comes next: all before it is on disk."""
    found = segments(folder)
    return (first_of(found[0]) if found else 0), end_of(folder)


class Place(NamedTuple):
    """A frame that can be gone to at once: its segment, by first position, and where it is there,
    with its own first position."""

    segment: int
    offset: int
    first: int


class Index:
    """Remembers where positions are, so that a segment is not searched from its beginning for
    every one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: list[Place] = []  # every INDEXED bytes or so, rising
        self._end: Place | None = None  # looked at up to here

    def place(self, position: int) -> Place | None:
        """Where to begin to look for a position; None: at the beginning of its segment."""
        end = self._end
        for path in segments(self._folder):
            segment = first_of(path)
            if segment > position:
                break
            if end is None or segment > end.segment:
                end = Place(segment, 0, segment)
            if segment == end.segment and end.first <= position:
                end = self._look(path, end, position)
        self._end = end
        at = bisect_right(self._places, position, key=lambda place: place.first) - 1
        return self._places[at] if at >= 0 else None

    def _look(self, path: Path, end: Place, position: int) -> Place:
        with path.open("rb") as file:
            for frame in frames(file, path, path.stat().st_size, False, end.offset, end.first):
                self._remember(end)
                if frame.next > position:
                    break
                end = Place(end.segment, frame.end, frame.next)
        return end

    def _remember(self, place: Place) -> None:
        if self._places:
            last = self._places[-1]
            if place.segment == last.segment and place.offset - last.offset < INDEXED:
                return
        self._places.append(place)
        if len(self._places) > PLACES_MAX:
            del self._places[: PLACES_MAX // 2]


def read(folder: Path, start: int, stop: int, place: Place | None = None) -> Iterator[Any]:
    """The rows of positions from `start` to before `stop`, as Arrow record batches.

    `place`: a frame at or before `start`, if it is known.
    """
    if not 0 <= start <= stop:
        raise BadInput(f"positions {start} to {stop} are no range")
    position = start
    while position < stop:
        path = _segment_of(folder, position)
        before = position
        begin = place if place is not None and place.segment == first_of(path) else None
        for batch in _of_segment(path, position, stop, begin):
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


def _of_segment(path: Path, start: int, stop: int, place: Place | None) -> Iterator[Any]:
    offset, first = (0, first_of(path)) if place is None else (place.offset, place.first)
    with path.open("rb") as file:
        for frame in frames(file, path, path.stat().st_size, False, offset, first):
            if frame.next <= start:
                continue
            if frame.first >= stop:
                return
            batch = decode(file, path, frame)
            begin = max(start, frame.first)
            yield batch.slice(begin - frame.first, min(stop, frame.next) - begin)
