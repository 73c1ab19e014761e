"""Key files: made once, read by their owner only, shown to nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unisono.errors import BadInput
from unisono.net.handshake import Sessions
from unisono.net.keys import make_key, read_key


def test_a_key_is_made_and_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one.key", tmp_path / "two.key"
    make_key(one)
    make_key(two)
    assert one.stat().st_mode & 0o777 == 0o600
    assert read_key(one).secret == read_key(one).secret != read_key(two).secret
    assert read_key(one).secret.hex() in one.read_text()


def test_a_key_shows_its_secret_to_nobody(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    key = read_key(tmp_path / "key")
    sessions = Sessions(key, os.urandom)
    for shown in (repr(key), str(key), f"{key}", repr(sessions), repr(vars(sessions))):
        assert key.secret.hex() not in shown and repr(key.secret)[2:-1] not in shown


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(BadInput, match="exists: choose another name"):
        make_key(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before
    with pytest.raises(BadInput, match="cannot write a key"):
        make_key(tmp_path / "nowhere" / "key")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a mesh key of this version"),
        (b"unisono mesh key 2\n" + b"0" * 64, "not a mesh key of this version"),
        (b"\xff\xfe", "not a mesh key of this version"),
        (b"unisono mesh key 1\n" + b"0" * 63, "is damaged"),
        (b"unisono mesh key 1\n" + b"0" * 66, "is damaged"),
        (b"unisono mesh key 1\n" + b"g" * 64, "is damaged"),
    ],
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BadInput, match=says):
        read_key(path)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    (tmp_path / "key").chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        read_key(tmp_path / "key")
    with pytest.raises(BadInput, match="make one with unisono mesh key"):
        read_key(tmp_path / "none")
