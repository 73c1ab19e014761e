"""The entries that a voter keeps, and the log put together from its disk."""

from __future__ import annotations

import pytest

from unisono.errors import BadInput
from unisono.raft.keep import Record, recovered
from unisono.raft.log import ENTRY_BYTES, Base, Log, change, makes_sense
from unisono.raft.messages import Configuration, Entry, Kind


def entries(*terms: int) -> tuple[Entry, ...]:
    return tuple(Entry(term, Kind.DATA, b"%d" % term) for term in terms)


def terms(log: Log) -> list[int | None]:
    return [log.term_at(index) for index in range(log.base.index, log.last + 2)]


def test_terms_by_index() -> None:
    log = Log(Base(3, 1), entries(1, 2, 2))
    assert (log.first, log.last, log.last_term) == (4, 6, 2)
    assert terms(log) == [1, 1, 2, 2, None] and log.term_at(2) is None


def test_a_configuration_counts_while_it_is_in_the_log() -> None:
    log = Log(Base(configuration=Configuration(("a",))))
    log.append((*entries(1), change(1, Configuration(("b",))), *entries(1)))
    assert log.configuration == Configuration(("b",)) and log.configured_at == 2
    log.truncate(2)
    assert log.configuration == Configuration(("a",)) and log.configured_at == 0
    log.append((change(2, Configuration(("c",))),))
    log.forget(2, b"state")
    assert log.base == Base(2, 2, Configuration(("c",)), b"state")
    assert log.configuration == Configuration(("c",))


def test_bytes_are_those_of_the_entries() -> None:
    log = Log(Base(), entries(1, 22, 333))
    assert log.bytes == 6 + 3 * ENTRY_BYTES
    log.truncate(3)
    log.forget(1, b"")
    assert log.bytes == 2 + ENTRY_BYTES


def test_a_batch_has_an_entry_and_no_more_than_fits() -> None:
    log = Log(Base(), (Entry(1, Kind.DATA, b"x" * 100), *entries(1, 1, 1)))
    assert len(log.batch(1, 10, 50)) == 1
    assert len(log.batch(2, 2, 1000)) == 2
    assert len(log.batch(1, 10, 1000)) == 4
    assert log.batch(5, 10, 1000) == ()


def test_an_installed_base_keeps_what_fits_behind_it() -> None:
    log = Log(Base(), entries(1, 1, 2, 2))
    log.install(Base(3, 2, state=b"state"))
    assert terms(log) == [2, 2, None]
    log.install(Base(4, 3))
    assert terms(log) == [3, None]


def test_entries_that_no_leader_writes() -> None:
    assert makes_sense(1, entries(1, 2, 3), 3)
    assert not makes_sense(1, entries(2, 1), 3)
    assert not makes_sense(1, entries(2, 4), 3)
    assert not makes_sense(1, (Entry(2, Kind.CONFIGURATION, b"\xc1"),), 3)
    assert not makes_sense(1, (change(2, Configuration()),), 3)


def test_the_log_from_records() -> None:
    records = [Record(1, entries(1, 1, 1), 0), Record(3, entries(2), 2), Record(3, (), 2)]
    log, committed = recovered(Base(), records)
    assert terms(log) == [0, 1, 1, None] and committed == 2
    log, committed = recovered(Base(1, 1), [Record(1, entries(1, 1), 0), Record(3, entries(2), 3)])
    assert terms(log) == [1, 1, 2, None] and committed == 3
    with pytest.raises(BadInput, match="entries 2 to 4 are missing"):
        recovered(Base(1, 1), [Record(5, entries(2), 0)])
