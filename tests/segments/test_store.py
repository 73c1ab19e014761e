"""Logs on disk: what was synced is there; a torn end is cut, other damage is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from unisono.errors import BadInput, EnvironmentLacks
from unisono.segments.records import HEADER_BYTES, encode, records
from unisono.segments.store import Store


def filled(folder: Path, count: int = 20, segment_bytes: int = 200) -> list[bytes]:
    """A log of some segments; what is in it."""
    store = Store(folder, segment_bytes)
    assert store.load() == (b"", [])
    written = [b"record %d" % n * (n % 5) for n in range(1, count + 1)]
    for index, data in enumerate(written, 1):
        store.append(index, data)
        if index % 3 == 0:
            store.sync()
    store.sync()
    store.close()
    return written


def reload(folder: Path) -> tuple[bytes, list[bytes]]:
    store = Store(folder)
    loaded = store.load()
    store.close()
    return loaded


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    written = filled(tmp_path / "log")
    assert len(list((tmp_path / "log").glob("*.segment"))) > 3
    assert reload(tmp_path / "log") == (b"", written)


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    written = filled(tmp_path)
    store = Store(tmp_path, 200)
    store.load()
    store.append(21, b"more")
    store.sync()
    store.close()
    assert reload(tmp_path)[1] == [*written, b"more"]


def test_a_base_takes_the_place_of_whole_segments_below(tmp_path: Path) -> None:
    written = filled(tmp_path)
    before = sorted(tmp_path.glob("*.segment"))
    store = Store(tmp_path, 200)
    store.load()
    store.rebase(10, b"state")
    store.append(21, b"more")
    store.sync()
    store.close()
    after = sorted(tmp_path.glob("*.segment"))
    assert before[0] not in after and before[-1] in after
    base, loaded = reload(tmp_path)
    assert base == b"state" and [*written, b"more"][10:] == loaded[-11:]


def test_what_a_crash_left_of_the_last_record_is_cut(tmp_path: Path) -> None:
    """Whatever the last write was cut to, all records before are there and it goes on."""
    folder = tmp_path / "log"
    written = filled(folder)
    last = max(folder.glob("*.segment"))
    whole = last.read_bytes()
    ends = [record.end for record in records(whole, last)]
    for size in range(ends[-2] if len(ends) > 1 else 0, len(whole)):
        last.write_bytes(whole[:size])
        store = Store(folder)
        assert store.load() == (b"", written[:-1])
        store.append(20, written[-1])
        store.sync()
        store.close()
        assert reload(folder)[1] == written
    last.write_bytes(whole + bytes(100))  # reserved, never written
    assert reload(folder)[1] == written


def test_any_other_damage_is_refused_with_its_place(tmp_path: Path) -> None:
    """Every single flipped bit but those of the last record."""
    folder = tmp_path / "log"
    filled(folder, 12)
    last = max(folder.glob("*.segment"))
    for path in sorted(folder.glob("*.segment")):
        whole = path.read_bytes()
        ends = [0, *(record.end for record in records(whole, path))]
        for at in range(ends[-2] if path == last else len(whole)):
            broken = bytearray(whole)
            broken[at] ^= 1 << Random(at).randrange(8)
            path.write_bytes(bytes(broken))
            with pytest.raises(BadInput, match=r"damaged at byte \d+"):
                reload(folder)
        path.write_bytes(whole)
    (folder / "base").write_bytes(encode(1, b"state")[:-1])
    with pytest.raises(BadInput, match="base is damaged"):
        reload(folder)
    (folder / "base").unlink()
    (folder / "x.segment").write_bytes(b"")
    with pytest.raises(BadInput, match="no segment"):
        reload(folder)


def test_a_header_that_lies_about_its_length_is_no_torn_end(tmp_path: Path) -> None:
    """The checksum of the header tells: what is behind is not cut."""
    filled(tmp_path, 3, segment_bytes=1 << 20)
    (path,) = tmp_path.glob("*.segment")
    content = bytearray(path.read_bytes())
    content[13] ^= 0x40  # the length of the first record is now beyond the end of the file
    path.write_bytes(bytes(content))
    with pytest.raises(BadInput, match="no header of a record"):
        reload(tmp_path)
    assert HEADER_BYTES == 24


def test_a_disk_that_fails_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path, 1)
    store.load()
    store.append(1, b"x")
    (tmp_path / f"{2:012d}.segment").mkdir()
    with pytest.raises(EnvironmentLacks, match="cannot be written"):
        store.append(2, b"y")
    store.close()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput, match="cannot read the log"):
        Store(tmp_path / "file" / "log").load()
