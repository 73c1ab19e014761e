"""The journal: what is flushed stays, whatever happens; what is not there is said."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.core.events import Delivery, Status
from unisono.errors import BadInput, EnvironmentLacks
from unisono.journal.frames import HEADER_BYTES, segments
from unisono.journal.journal import Journal
from unisono.journal.reading import bounds, read


def delivery(number: int, size: int = 10) -> Delivery:
    return Delivery(
        topic=f"t{number % 3}",
        payload=bytes([number % 256]) * size,
        status=Status.IN_ORDER,
        id=f"p-{number}",
        publisher="p",
        position=number,
        published_us=number * 10,
        delivered_us=number * 10 + 5,
        attributes={"n": number, "even": number % 2 == 0, "name": "ü"} if number % 5 else None,
    )


def write(folder: Path, numbers: range, each: int = 7, **options: Any) -> None:
    with Journal(folder, **options) as journal:
        for number in numbers:
            journal.append([delivery(number)])
            if number % each == 0:
                journal.flush()


def ids(folder: Path, start: int, stop: int) -> list[str]:
    return [one for batch in read(folder, start, stop) for one in batch["event_id"].to_pylist()]


def test_what_was_written_is_read_by_position(tmp_path: Path) -> None:
    write(tmp_path, range(100))
    assert bounds(tmp_path) == (0, 100)
    rows = [row for batch in read(tmp_path, 0, 100) for row in batch.to_pylist()]
    assert [row["position"] for row in rows] == list(range(100))
    assert rows[42]["payload"] == bytes([42]) * 10
    assert dict(rows[42]["attributes"]) == {"n": "42", "even": "true", "name": "ü"}
    assert rows[40]["attributes"] is None
    assert rows[42]["status"] == "in_order"


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 2000))
@settings(max_examples=30)
def test_any_range_gives_the_same_rows_each_time(
    tmp_path_factory: pytest.TempPathFactory, one: int, other: int, segment_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write(folder, range(60), segment_bytes=segment_bytes)
    start, stop = min(one, other), max(one, other)
    expected = [f"p-{number}" for number in range(start, stop)]
    assert ids(folder, start, stop) == expected == ids(folder, start, stop)


def test_positions_go_on_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    write(tmp_path, range(10, 25), segment_bytes=500)
    assert ids(tmp_path, 0, 25) == [f"p-{number}" for number in range(25)]


def test_a_torn_tail_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    """A crash in the middle of a frame: the frames before stay, the rest was never promised."""
    write(tmp_path / "whole", range(20), each=5)
    (path,) = segments(tmp_path / "whole")
    data = path.read_bytes()
    ends = [n for n in range(len(data)) if data[n : n + 4] == b"UNJ1"] + [len(data)]
    for cut in range(0, len(data), 97):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / path.name).write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends[1:])
        with Journal(folder) as journal:
            assert journal.repaired_bytes == cut - ends[whole]
            kept = journal.next
            assert bounds(folder) == (0, kept)
            journal.append([delivery(99)])
        assert ids(folder, 0, kept + 1) == [f"p-{n}" for n in range(kept)] + ["p-99"]


def test_a_last_frame_with_a_wrong_checksum_is_a_torn_one(tmp_path: Path) -> None:
    write(tmp_path, range(20), each=5)
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with Journal(tmp_path) as journal:
        assert journal.repaired_bytes > 0
        assert journal.next == 16


@pytest.mark.parametrize("at", [0, 5, HEADER_BYTES + 3])
def test_damage_elsewhere_is_said_and_nothing_is_cut(tmp_path: Path, at: int) -> None:
    write(tmp_path, range(20), each=5)
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match="damaged at byte 0"):
        Journal(tmp_path)
    with pytest.raises(BadInput, match="damaged at byte 0"):
        list(read(tmp_path, 0, 20))
    assert path.read_bytes() == data


def test_the_oldest_segments_go_when_there_is_too_much(tmp_path: Path) -> None:
    write(tmp_path, range(200), segment_bytes=1000, keep_bytes=6000)
    first, after = bounds(tmp_path)
    assert 0 < first < after == 200
    assert sum(path.stat().st_size for path in segments(tmp_path)) < 8000
    assert ids(tmp_path, first, 200) == [f"p-{number}" for number in range(first, 200)]
    with pytest.raises(BadInput, match=f"begins with {first}"):
        list(read(tmp_path, first - 1, 200))


def test_what_is_not_there_yet_is_said(tmp_path: Path) -> None:
    write(tmp_path, range(5))
    with pytest.raises(BadInput, match="no position 5"):
        list(read(tmp_path, 0, 6))
    assert list(read(tmp_path, 5, 5)) == []
    with pytest.raises(BadInput, match="no range"):
        list(read(tmp_path, 3, 2))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(BadInput, match="another process"):
        Journal(tmp_path)
    write(tmp_path, range(3))


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal(tmp_path) as journal:
        journal.append([delivery(number) for number in range(5)])
        journal.flush()
        journal.append([delivery(number) for number in range(5, 9)])

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(EnvironmentLacks, match="No space left"):
                journal.flush()
        assert bounds(tmp_path) == (0, 5)
        assert journal.flush() == 9
    assert ids(tmp_path, 0, 9) == [f"p-{number}" for number in range(9)]


def test_readers_see_whole_frames_while_it_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path, segment_bytes=700) as journal:
        for number in range(50):
            journal.append([delivery(number)])
            assert bounds(tmp_path)[1] == number
            journal.flush()
            assert ids(tmp_path, number, number + 1) == [f"p-{number}"]


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.journal").write_bytes(b"")
    with pytest.raises(BadInput, match="not a segment"):
        Journal(tmp_path)
