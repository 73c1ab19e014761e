"""Key files of a mesh: 32 random bytes that all its nodes share and nobody else has.

A file is made once, for its owner alone, and never written over. One that others can read is
refused. The secret is in no text that a key or an error shows.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from unisono.errors import BadInput

SECRET_BYTES = 32
_VERSION = "unisono mesh key 1"
_OTHERS = 0o077  # the bits of a file mode that let anyone but the owner in


class Key:
    """The secret of a mesh."""

    __slots__ = ("secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise BadInput(f"a mesh key has {SECRET_BYTES} bytes, not {len(secret)}")
        self.secret = secret

    def __repr__(self) -> str:
        return "Key(hidden)"


def make_key(path: Path) -> None:
    """Write a new key to a new file that only its owner can read; on disk when this returns."""
    text = f"{_VERSION}\n{secrets.token_hex(SECRET_BYTES)}\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput(
            f"{path} exists: choose another name, or remove it if no node uses that key"
        ) from None
    except OSError as error:
        raise BadInput(f"cannot write a key to {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)  # half a key is none
        raise BadInput(f"cannot write a key to {path}: {error.strerror}") from None


def read_key(path: Path) -> Key:
    """The key of a file that `make_key` wrote, or BadInput that says what to do."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(1024)
    except FileNotFoundError:
        raise BadInput(f"there is no key at {path}: make one with unisono mesh key") from None
    except OSError as error:
        raise BadInput(f"cannot read the key {path}: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"{str(path)!r} is no path of a key: it has a null character") from None
    if os.name == "posix" and mode & _OTHERS:
        raise BadInput(f"others can read the key {path}: run chmod 600 on it, or make a new one")
    version, _, rest = content.decode("ascii", "replace").partition("\n")
    if version != _VERSION:
        raise BadInput(f"{path} is not a mesh key of this version: its first line is another")
    if not re.fullmatch(r"[0-9a-f]{64}\n?", rest):
        raise BadInput(f"the key {path} is damaged: copy it again from another node")
    return Key(bytes.fromhex(rest.strip()))
