"""A folder with one log: segments of records, and a base in a file that is replaced whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from unisono.errors import BadInput, EnvironmentLacks
from unisono.files import replace, sync_folder
from unisono.segments.records import encode, records

SEGMENT_BYTES = 16 << 20
_ENDING = ".segment"
_BASE = "base"


class Store:
    """The only writer of a folder. Not for several threads at a time."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file: BinaryIO | None = None
        self._size = 0
        self._number = 0  # of the last segment
        self._highest: dict[int, int] = {}  # segment -> the highest index in it
        self.cut_bytes = 0  # of a record that a crash left unfinished

    def load(self) -> tuple[bytes, list[bytes]]:
        """The base and the records; what a crash has left of a last record is cut off."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            base = self._folder / _BASE
            found = records(base.read_bytes(), base) if base.exists() else iter(())
            begin = next(found, None)
            if base.exists() and begin is None:
                raise BadInput(f"{base} is damaged: it ends within its record")
            return begin.data if begin is not None else b"", self._load_segments()
        except OSError as error:
            raise BadInput(f"cannot read the log in {self._folder}: {error}") from None

    def _load_segments(self) -> list[bytes]:
        numbers = []
        for path in self._folder.glob(f"*{_ENDING}"):
            if not path.stem.isdigit():
                raise BadInput(f"{path} is no segment of a log; move it away")
            numbers.append(int(path.stem))
        loaded: list[bytes] = []
        for number in sorted(numbers):
            path = self._path(number)
            content = path.read_bytes()
            end = highest = 0
            for record in records(content, path):
                loaded.append(record.data)
                end, highest = record.end, max(highest, record.highest)
            if end < len(content) and number != max(numbers):
                raise BadInput(f"{path} is damaged at byte {end}: it ends within a record")
            self._highest[number] = highest
            self._number, self._size = number, end
        if numbers:
            path = self._path(self._number)
            self._file = path.open("r+b")
            self.cut_bytes = path.stat().st_size - self._size
            self._file.truncate(self._size)
            self._file.seek(self._size)
        return loaded

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{_ENDING}"

    def append(self, index: int, data: bytes) -> None:
        """Add a record; `sync` makes it durable."""
        try:
            if self._file is None or self._size >= self._segment_bytes:
                self._roll()
            assert self._file is not None
            frame = encode(index, data)
            self._file.write(frame)
        except OSError as error:
            raise self._failed(error) from None
        self._size += len(frame)
        self._highest[self._number] = max(self._highest[self._number], index)

    def sync(self) -> None:
        """What was appended is on the disk when this returns."""
        if self._file is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from None

    def _roll(self) -> None:
        self.sync()
        if self._file is not None:
            self._file.close()
        self._number += 1
        self._file = self._path(self._number).open("xb")
        self._size = 0
        self._highest[self._number] = 0
        sync_folder(self._folder)

    def rebase(self, index: int, base: bytes) -> None:
        """Begin with this base from now on: segments with nothing above `index` go."""
        self.sync()
        try:
            replace(self._folder / _BASE, encode(index, base))
            for number in sorted(self._highest):
                if number == self._number or self._highest[number] > index:
                    break
                self._path(number).unlink()
                del self._highest[number]
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> EnvironmentLacks:
        return EnvironmentLacks(f"the log in {self._folder} cannot be written: {error}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
