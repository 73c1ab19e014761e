"""Readers of a journal who must not lose anything: how far each has come.

A file per reader under `readers/` holds the position before which it needs nothing any more.
Retention keeps what one of them still needs, and a writer whose space is full waits for them. The
time of the file says when the reader was last seen.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from unisono.errors import BadInput
from unisono.files import replace

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class Reader:
    """One reader of a journal, by name."""

    def __init__(self, folder: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name for a reader: letters, digits and . _ -")
        self._path = folder / "readers" / name
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def commit(self, position: int) -> None:
        """Everything before this position is done with. The first time registers the reader."""
        replace(self._path, b"%d" % position)

    def seen(self) -> None:
        """Still here; the next commit registers again who was removed."""
        with suppress(FileNotFoundError):
            os.utime(self._path)


def needed_from(folder: Path) -> int | None:
    """The first position that some reader still needs; None if there is no reader."""
    found = [_position(path) for path in _files(folder)]
    return min(found, default=None)


def last_seen(folder: Path) -> float | None:
    """When a reader was last seen, in seconds since 1970."""
    return max((path.stat().st_mtime for path in _files(folder)), default=None)


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / "readers").glob("*") if not path.name.startswith(".")]


def _position(path: Path) -> int:
    text = path.read_text()
    if not text.isdigit():
        raise BadInput(f"{path} holds no position; remove it if its reader is gone for good")
    return int(text)
