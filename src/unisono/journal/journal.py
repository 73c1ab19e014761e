"""Appending to a journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from unisono.core.events import Delivery
from unisono.core.predicate import Attributes
from unisono.errors import BadInput, EnvironmentLacks
from unisono.files import hold, is_held, replace, sync_folder
from unisono.journal.frames import (
    END,
    SCHEMA,
    encode,
    first_of,
    frames,
    name_of,
    segments,
    tell_end,
)
from unisono.journal.readers import needed_from

SEGMENT_BYTES = 64 << 20
_LOCK = "lock"
_ID = "id"


def identity(folder: Path) -> str:
    """The name that a journal got when it was begun: two are never taken for one another."""
    try:
        return (folder / _ID).read_text()
    except OSError:
        raise BadInput(f"{folder} is not a journal: it has no file {_ID!r}") from None


def written(folder: Path) -> bool:
    """Whether some process writes the journal now."""
    return is_held(folder, _LOCK)


class Journal:
    """One writer of a folder. Not for several threads.

    `keep_bytes`: when there are more, the oldest whole segments go; None: nothing does. A segment
    that is being written stays, and so do those that a registered reader has not done with: then
    the journal is `full`.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, keep_bytes: int | None = None
    ) -> None:
        if segment_bytes < 1 or (keep_bytes is not None and keep_bytes < 1):
            raise BadInput("segment_bytes and keep_bytes are positive numbers of bytes")
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._keep_bytes = keep_bytes
        self._file: Any = None
        self._size = 0
        self._waiting: list[Delivery] = []
        self._lock = hold(folder, _LOCK, "a journal")
        self.repaired_bytes = 0  # of a frame that a crash left unfinished
        if not (folder / _ID).exists():
            replace(folder / _ID, uuid4().hex.encode())
        self.next = self._recover()
        self._end: Any = (folder / END).open("r+b" if (folder / END).exists() else "x+b")
        tell_end(self._end, self.next)
        self.full = False  # by the last flush or `retire`
        self.retire()

    def _recover(self) -> int:
        """The next position; what a crash has left of a frame is cut off."""
        found = segments(self.folder)
        if not found:
            return 0
        path = found[-1]
        self._file = path.open("r+b")
        size = path.stat().st_size
        end, position = 0, int(path.stem)
        for frame in frames(self._file, path, size, check=True):
            end, position = frame.end, frame.next
        if end < size:
            self.repaired_bytes = size - end
            self._file.truncate(end)
        os.fsync(self._file.fileno())  # also what was written whole, and perhaps not synced
        self._file.seek(end)
        self._size = end
        return position

    def append(self, deliveries: Sequence[Delivery]) -> None:
        """Add to what the next flush writes."""
        self._waiting.extend(deliveries)

    def flush(self) -> int:
        """Write what was appended: durable when this returns. The next position.

        If the disk is full nothing of it is written and all of it is kept: flush again later.
        """
        if not self._waiting:
            return self.next
        batch = _batch(self._waiting, self.next)
        frame = encode(batch, self.next)
        try:
            self._write(frame)
        except OSError as error:
            self._undo()
            raise EnvironmentLacks(
                f"the journal {self.folder} cannot be written ({error.strerror}): make room, "
                "nothing is lost until then"
            ) from None
        self.next += batch.num_rows
        self._waiting.clear()
        tell_end(self._end, self.next)
        self.retire()
        return self.next

    def _write(self, frame: bytes) -> None:
        if self._file is None or self._size >= self._segment_bytes:
            self._roll()
        self._file.write(frame)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._size += len(frame)

    def _roll(self) -> None:
        """Begin a segment."""
        fresh = (self.folder / name_of(self.next)).open("xb")
        if self._file is not None:
            self._file.close()
        self._file, self._size = fresh, 0
        sync_folder(self.folder)

    def _undo(self) -> None:
        """Back to the end of the last whole frame."""
        if self._file is not None:
            with suppress(OSError):  # what it had not written yet is what failed
                self._file.close()
            path = segments(self.folder)[-1]
            self._file = path.open("r+b")
            self._file.truncate(self._size)
            self._file.seek(self._size)

    def retire(self) -> None:
        """Let the oldest go if there is too much, as far as its readers allow."""
        if self._keep_bytes is None:
            return
        found = segments(self.folder)
        sizes = [path.stat().st_size for path in found]
        total = sum(sizes)
        self.full = False
        if total <= self._keep_bytes:
            return
        needed = needed_from(self.folder)
        for path, after, size in zip(found, found[1:], sizes, strict=False):
            if total <= self._keep_bytes:
                return
            if needed is not None and needed < first_of(after):
                self.full = True
                return
            path.unlink()
            total -= size

    def close(self) -> None:
        """Flush and let go."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._end.close()
            self._lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _batch(deliveries: Sequence[Delivery], first: int) -> Any:
    """Rows of notifications, at positions from `first` on."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for place, delivery in enumerate(deliveries):
        columns["position"].append(first + place)
        columns["event_id"].append(delivery.id)
        columns["topic"].append(delivery.topic)
        columns["publisher"].append(delivery.publisher)
        columns["payload"].append(delivery.payload)
        columns["attributes"].append(_texts(delivery.attributes))
        columns["published_us"].append(delivery.published_us)
        columns["delivered_us"].append(delivery.delivered_us)
        columns["status"].append(str(delivery.status))
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _texts(attributes: Attributes | None) -> list[tuple[str, str]] | None:
    """One type for all: texts as they are, the rest as JSON writes it."""
    if attributes is None:
        return None
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in attributes.items()
    ]
