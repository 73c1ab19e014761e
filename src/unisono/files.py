"""Small files that are there whole or as before, and folders that one process writes at a time."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from unisono.errors import BadInput

_TRIES = 20
_WAIT_S = 0.01


def replace(path: Path, content: bytes) -> None:
    """Write a file: after a crash it has this content, or what it had before."""
    fresh = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with fresh.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Names in it survive a crash."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def hold(folder: Path, name: str, what: str) -> BinaryIO:
    """Make the folder and hold it until the file that is returned is closed; BadInput if another
    process does. `what`: that is kept there, for the error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / name, "ab")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"cannot keep {what} in {folder}: {error}") from None
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            time.sleep(_WAIT_S)  # whoever only looks has it for an instant
    file.close()
    raise BadInput(f"another process writes {what} in {folder}")


def is_held(folder: Path, name: str) -> bool:
    """Whether some process holds the folder now."""
    try:
        with open(folder / name, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
