"""The version, as installed, and what tells one state of the code from another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable


def unisono_version() -> str:
    try:
        return version("unisono")
    except PackageNotFoundError:
        return "unknown"


@cache
def code_digest() -> str:
    """A digest of the package's source: with another one, runs may give other results."""
    digest = blake2b(digest_size=8)
    for name, text in sorted(_sources(files(__package__))):
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _sources(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Also of a package in a zip file, which is how some clusters get theirs."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name, entry.read_bytes()
