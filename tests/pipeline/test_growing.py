"""Audits of growing traces: what is found piece by piece is what is found in the whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from unisono.errors import BadInput
from unisono.pipeline import history
from unisono.pipeline.audit import audit
from unisono.pipeline.growing import Grown, audit_growing
from unisono.pipeline.read import open_trace
from unisono.pipeline.report import CHECKS
from unisono.trace.schema import TABLES

MS = 1000
Row = tuple[Any, ...]
Tables = dict[str, list[Row]]


class Growing:
    """A trace to which parts are added."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.parts = spark, path, 0

    def add(self, **tables: list[Row]) -> None:
        """Rows in the schema's order; trailing columns may be left out."""
        self.parts += 1
        for name, rows in tables.items():
            names = [spec.name for spec in TABLES[name]]
            file = self.path / name / f"{self.parts:03d}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist([dict(zip(names, row)) for row in rows]), file)  # noqa: B905

    def audit(self, horizon_ms: int = 100, final: bool = False, **options: Any) -> Grown:
        return audit_growing(
            self.spark, self.path, horizon_us=horizon_ms * MS, final=final, **options
        )


@pytest.fixture
def growing(spark: SparkSession, tmp_path: Path) -> Growing:
    return Growing(spark, tmp_path / "trace")


def broken(grown: Grown) -> dict[str, int | None]:
    checks = grown.report.checks.items()
    return {name: check.violations for name, check in checks if check.verdict == "invalid"}


def random_group(rng: Random, group: str) -> Iterator[tuple[int, str, Row]]:
    """(arrival, table, row) of three subscribers that share events, with every kind of anomaly.

    Times are in microseconds; rows of one writer arrive in order, up to 60 ms after their time.
    """
    disorder = rng.choice((0.0, 0.03, 0.1))
    lag = {who: rng.randrange(60 * MS) for who in "pqrabc"}
    events = []
    for at in range(60):
        event, publisher = f"{group}-{at:02d}", rng.choice("pqpqpqr")
        seq = rng.randrange(60) if publisher == "r" else at  # r is rare and counts badly
        time = 20 * MS * at + rng.randrange(15 * MS)
        events.append((event, time))
        if rng.random() < 0.99:
            row = (event, f"{group}{rng.choice('xy')}", group + publisher, seq, time)
            yield time + lag[publisher], "publications", row
    for who in "abc":
        heard = [pair for pair in events if rng.random() < 0.9]
        for at in range(len(heard) - 2):
            if rng.random() < disorder:
                other = at + rng.randint(1, 2)
                heard[at], heard[other] = heard[other], heard[at]
        for at in range(len(heard) - 3):
            if rng.random() < 0.01:
                heard.insert(at + rng.randint(1, 3), heard[at])
        now = 0
        for place, (event, time) in enumerate(heard):
            now = max(now, time + rng.randrange(30 * MS))
            clock = now - rng.choice((0, 0, 0, 3 * MS))  # it may step back
            status = "in_order" if rng.random() < 0.95 else "out_of_order"
            yield now + lag[who], "deliveries", (group + who, place * 3, event, clock, status)


def parts_of(rows: list[tuple[int, str, Row]], cuts: list[int]) -> Iterator[Tables]:
    for start, end in zip([-1, *cuts], [*cuts, 1 << 60], strict=True):
        tables: Tables = {}
        for arrival, table, row in rows:
            if start < arrival <= end:
                tables.setdefault(table, []).append(row)
        yield tables


def test_piece_by_piece_is_the_whole(growing: Growing, spark: SparkSession) -> None:
    """A dozen independent groups in one trace, cut anywhere: every count is that of the whole."""
    rng = Random(1)
    rows = sorted(row for at in range(12) for row in random_group(rng, f"g{at:02d}"))
    groups = {(row[2][1], row[2][2]) for row in rows if row[1] == "publications"}
    subscriptions = [
        (publisher[:-1] + who, topic, 0, None)
        for topic, publisher in sorted(groups)
        for who in "abc"
    ]
    found: list[Grown] = []
    cuts = sorted(rng.sample(range(100 * MS, 1200 * MS), 2))
    growing.add(subscriptions=subscriptions)
    for at, tables in enumerate(parts_of(rows, cuts)):
        growing.add(**tables)
        found.append(growing.audit(250, final=at == len(cuts), deadline_us=29 * MS))
    assert [grown.whole is None for grown in found] == [False, True, True]
    whole = audit(spark, open_trace(spark, growing.path), deadline_us=29 * MS)
    assert found[-1].rows["total"]["deliveries"] == whole.rows["deliveries"]
    for name, check in whole.checks.items():
        if name in ("gaps", "stalls"):
            assert found[-1].checks[name].verdict == "unknown"
            continue
        assert check.violations, f"{name} was tested in vain"
        assert found[-1].checks[name].verdict == "invalid"
        if name == "causal-order":  # what was overtaken by what is forgotten is counted once
            assert 0 < (found[-1].checks[name].violations or 0) <= check.violations
        elif name != "global-order":
            assert found[-1].checks[name].violations == check.violations, name
    assert sum(len(set(broken(grown)) & {"fifo", "losses"}) for grown in found) > 3
    assert found[-1].rows["carried"]["deliveries"] < whole.rows["deliveries"] / 2


def events(first: int, last: int) -> list[Row]:
    return [(f"e{at}", "x", "p", at, at * 10 * MS) for at in range(first, last)]


def heard(who: str, first: int, last: int) -> list[Row]:
    return [(who, at, f"e{at}", at * 10 * MS + MS) for at in range(first, last)]


def test_what_depends_on_the_future_is_judged_once_when_it_has_come(growing: Growing) -> None:
    growing.add(
        subscriptions=[(who, "x", 0, None) for who in ("ann", "bob")],
        publications=events(0, 19),
        deliveries=heard("ann", 0, 20) + heard("bob", 0, 18),
    )
    first = growing.audit()
    # e18 has not reached bob, and nobody has published e19: both may still come.
    assert first.report.verdict == "valid" and first.whole == "it is the first audit"
    assert first.judged_until_us == 91 * MS
    growing.add(publications=events(19, 25), deliveries=heard("ann", 20, 25) + heard("bob", 19, 25))
    second = growing.audit()
    assert broken(second) == {} and second.whole is None
    assert second.rows["new"] == {"publications": 6, "deliveries": 11}
    assert second.rows["carried"]["deliveries"] < 30
    for file in growing.path.glob("*/00[12].parquet"):  # the old parts are not read again
        if file.parent.name != "subscriptions":
            about = file.stat()
            file.rename(file.with_name(f".{file.name}"))
            file.write_bytes(b"?" * about.st_size)
            os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    duplicate = ("ann", 40, "e24", 400 * MS)
    ghost = ("bob", 50, "ghost", 310 * MS)
    growing.add(
        publications=events(25, 40),
        deliveries=[*heard("ann", 25, 40), duplicate, *heard("bob", 25, 40)],
    )
    third = growing.audit()
    assert broken(third) == {"losses": 1, "duplicates": 1}
    assert third.report.checks["losses"].witness == {
        "subscriber": "bob",
        "event": "e18",
        "published_us": 180 * MS,
    }
    assert third.report.checks["duplicates"].witness == {
        "subscriber": "ann",
        "event": "e24",
        "positions": [24, 40],
    }
    for file in growing.path.glob("*/.00[12].parquet"):
        file.replace(file.with_name(file.name[1:]))
    growing.add(deliveries=[ghost])
    fourth = growing.audit(final=True)
    assert broken(fourth) == {"phantoms": 1} and fourth.whole is None
    assert {name: check.violations for name, check in fourth.checks.items()} == {
        **dict.fromkeys(CHECKS, 0),
        "losses": 1,
        "duplicates": 1,
        "phantoms": 1,
        **dict.fromkeys(("deadline", "gaps", "stalls")),
    }
    growing.add(deliveries=[("bob", 60, "e18", 600 * MS)])  # too late to be seen in the context
    fifth = growing.audit(final=True)
    assert fifth.whole == "there is news of e18, which is older than the horizon"
    assert broken(fifth) == {
        "duplicates": 1, "phantoms": 1, "total-order": 1, "global-order": 1, "fifo": 1,
        "topic-fifo": 1, "causal-order": 1,
    }  # fmt: skip
    assert fifth.checks["losses"].violations == 0  # it was not lost
    told = [json.loads(line) for line in (growing.path / "audit/audits.ndjson").open()]
    assert [(line["audit"], line["verdict"], line["overall"]) for line in told] == [
        (1, "valid", "valid"),
        (2, "valid", "valid"),
        (3, "invalid", "invalid"),
        (4, "invalid", "invalid"),
        (5, "invalid", "invalid"),
    ]


def test_a_killed_audit_is_repeated_and_changed_parts_are_refused(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.add(publications=events(0, 9), deliveries=heard("ann", 0, 9))
    growing.audit(20)
    growing.add(publications=events(9, 20), deliveries=[("ann", 30, "e8", 200 * MS)])
    from unisono.files import replace

    def die(file: Path, content: bytes) -> None:
        if file.name == "state.json":
            raise KeyboardInterrupt
        replace(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(history, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            growing.audit(20)
    again = growing.audit(20)
    assert broken(again) == {"duplicates": 1} and again.audits == 2
    assert len((growing.path / "audit/audits.ndjson").read_text().splitlines()) == 2
    assert len(list((growing.path / "audit").glob("context-*"))) == 1

    file = growing.path / "deliveries" / "001.parquet"
    content, about = file.read_bytes(), file.stat()
    file.write_bytes(content + b" ")
    with pytest.raises(BadInput, match=r"001.parquet: changed since it was audited"):
        growing.audit()
    file.unlink()
    with pytest.raises(BadInput, match=r"001.parquet: audited before, but now it is gone"):
        growing.audit()
    file.write_bytes(content)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    growing.add(publications=[("old", "x", "p", 0, 5 * MS)])
    third = growing.audit(20)
    assert third.whole == "the publication of old came later than the horizon"
    growing.add(deliveries=[("ann", 12, "e9", 200 * MS)])
    fourth = growing.audit(20)
    assert fourth.whole == "ann has a new delivery at position 12, judged before"
    (growing.path / "audit" / "state.json").write_text("{}")
    with pytest.raises(BadInput, match="not the state of an audit"):
        growing.audit()
