"""Files that are there whole, and folders that one process holds at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from unisono.errors import BadInput
from unisono.files import hold, is_held, replace


def test_a_folder_is_held_once(tmp_path: Path) -> None:
    assert not is_held(tmp_path, "lock")
    with hold(tmp_path, "lock", "a thing"):
        assert is_held(tmp_path, "lock")
        with pytest.raises(BadInput, match="another process writes a thing"):
            hold(tmp_path, "lock", "a thing")
    assert not is_held(tmp_path, "lock")


def test_whoever_only_looks_is_not_in_the_way(tmp_path: Path) -> None:
    """To look takes a lock for an instant."""
    hold(tmp_path, "lock", "a thing").close()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_held(tmp_path, "lock")

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(100):
            hold(tmp_path, "lock", "a thing").close()
    finally:
        done.set()
        for looker in lookers:
            looker.join()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"a longer one", b""):
        replace(path, content)
        assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
