"""One database: transactions, triggers, undoing. One replica: late ones find their place."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.cases.active_database.database import Database
from unisono.cases.active_database.replica import Replica
from unisono.cases.active_database.transactions import (
    Order,
    Restock,
    Stocktake,
    Transaction,
    decode,
    encode,
    statements,
)
from unisono.cases.active_database.workload import random_transaction
from unisono.core.events import NUMBER, Delivery, Status
from unisono.errors import BadInput

names = st.from_regex(r"[A-Za-z0-9_-]{1,3}", fullmatch=True)
quantities = st.integers(1, 30)
transactions: st.SearchStrategy[Transaction] = st.one_of(
    st.builds(Order, st.sampled_from("xy"), names, quantities),
    st.builds(Restock, st.sampled_from("xy"), quantities),
    st.builds(Stocktake, st.sampled_from("xy"), st.integers(0, 30)),
)
history = st.lists(st.tuples(st.sampled_from(["sport", "wear"]), transactions), max_size=25)


def apply(database: Database, number: int, category: str, what: Transaction) -> None:
    event = f"e{number}"
    database.apply(event, statements(event, category, what))


def delivery(number: int, topic: str, payload: bytes) -> Delivery:
    return Delivery(topic, payload, Status.IN_ORDER, f"e{number}", "p", 0, 0, 0, {NUMBER: number})


def test_triggers_react() -> None:
    database = Database()
    apply(database, 1, "sport", Restock("ball", 20))
    apply(database, 2, "sport", Order("ball", "ann", 15))
    apply(database, 3, "sport", Order("ball", "bob", 15))
    assert database.rows("stock") == [("sport", "ball", 5)]
    assert [row[0] for row in database.rows("orders") if row[5]] == ["e2"]
    assert database.rows("customers") == [("ann", 15, 0), ("bob", 0, 1)]
    assert database.rows("audit") == [(1, "sport", "ball", 0, 20), (2, "sport", "ball", 20, 5)]
    assert database.rows("alerts") == [("sport", "ball", 2)]
    apply(database, 4, "sport", Stocktake("ball", 12))
    assert database.rows("alerts") == []


@given(history, st.data())
def test_undoing_gives_back_what_was_there(
    done: list[tuple[str, Transaction]], data: st.DataObject
) -> None:
    database = Database()
    digests = [database.sha256()]
    for number, (category, what) in enumerate(done):
        apply(database, number, category, what)
        digests.append(database.sha256())
    count = data.draw(st.integers(0, len(done)))
    database.undo(count)
    assert database.sha256() == digests[len(done) - count]
    for number, (category, what) in list(enumerate(done))[len(done) - count :]:
        apply(database, number, category, what)
    assert database.sha256() == digests[-1]
    database.close()


@given(history, st.randoms(use_true_random=False), st.booleans())
def test_any_order_of_arrival_ends_in_the_same_contents(
    done: list[tuple[str, Transaction]], rng: Random, eager: bool
) -> None:
    arrivals = [
        delivery(number, category, encode(what)) for number, (category, what) in enumerate(done, 1)
    ]
    orderly, shuffled = Replica(), Replica(eager=eager)
    for each in arrivals:
        assert orderly.take(each) == 0
    rng.shuffle(arrivals)
    depths = [shuffled.take(each) for each in arrivals]
    assert shuffled.sha256() == orderly.sha256()
    for category in ("sport", "wear"):
        assert shuffled.sha256(category) == orderly.sha256(category)
    assert shuffled.undone == sum(depths)
    assert shuffled.rollbacks == sum(depth > 0 for depth in depths)
    if eager:
        assert shuffled.database.undone == shuffled.undone
    orderly.close()
    shuffled.close()


def test_the_order_across_categories_matters() -> None:
    done = [("sport", Restock("x", 5)), ("wear", Restock("x", 5))]
    one, other = Replica(), Replica()
    for number, (category, what) in enumerate(done, 1):
        one.take(delivery(number, category, encode(what)))
        other.take(delivery(3 - number, category, encode(what)))
    assert one.sha256() != other.sha256()
    assert one.sha256("sport") == other.sha256("sport")


def test_the_undo_log_is_bounded_and_what_comes_too_late_is_said() -> None:
    replica = Replica(horizon=10)
    rng = Random(1)
    for number in [*range(2, 11), *range(12, 101)]:
        replica.take(delivery(number, "sport", encode(random_transaction(rng))))
        assert replica.database.log_rows <= 20 * 6, "20 transactions of a few rows each"
    assert replica.taken == 98
    replica.take(delivery(11, "sport", encode(Restock("x", 1))))
    assert replica.refused == {"before the horizon": 1}
    before = replica.taken
    assert replica.take(delivery(99 - 1, "wear", encode(Restock("x", 1)))) > 0
    assert replica.taken == before + 1


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"DROP TABLE stock",
        b'{"type":"drop"}',
        b'{"type":"order","item":"x\'; DROP TABLE stock; --","customer":"c","quantity":1}',
        b'{"type":"restock","item":"x","quantity":-1}',
        b'{"type":"restock","item":"x","quantity":1,"extra":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_not_a_transaction_is_refused_and_changes_nothing(payload: bytes) -> None:
    with pytest.raises(BadInput, match="not a transaction"):
        decode(payload)
    replica = Replica()
    before = replica.sha256()
    assert replica.take(delivery(1, "sport", payload)) == 0
    assert replica.refused == {"not a transaction": 1}
    assert replica.sha256() == before


def test_an_event_without_a_place_is_refused() -> None:
    bare = Delivery("sport", encode(Restock("x", 1)), Status.IN_ORDER, "e", "p", 0, 0, 0)
    with pytest.raises(BadInput, match="ordered bus"):
        Replica().take(bare)


def test_a_file_holds_the_same_as_memory_and_must_be_new(tmp_path: Path) -> None:
    path = str(tmp_path / "replica.db")
    on_disk, in_memory = Replica(path), Replica()
    rng = Random(2)
    for number in (1, 2, 5, 4, 3, 6):
        each = delivery(number, "sport", encode(random_transaction(rng)))
        on_disk.take(each)
        in_memory.take(each)
    assert on_disk.sha256() == in_memory.sha256()
    on_disk.close()
    with pytest.raises(BadInput, match="new file"):
        Replica(path)
    with pytest.raises(BadInput, match="cannot open"):
        Replica(str(tmp_path / "no" / "such" / "folder.db"))


def test_a_failing_statement_leaves_no_trace() -> None:
    database = Database()
    apply(database, 1, "sport", Restock("x", 1))
    before = database.sha256()
    with pytest.raises(Exception, match="no such table"):
        database.apply("bad", [("DELETE FROM stock", ()), ("DELETE FROM absent", ())])
    assert database.sha256() == before and database.applied == 1
