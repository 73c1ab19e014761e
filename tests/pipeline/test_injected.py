"""One anomaly among many rows of a foreign trace: found, with its witness, and nothing else is.

The trace is that of the benchmark (`bench/traces.py`) as another system would log it: parts without
a status. 20,000 deliveries, and ten million with `make test-slow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from unisono.bench.traces import (
    _HELD,
    LONGEST_US,
    SUBSCRIBERS_PER_TOPIC,
    TOPICS,
    delivery_columns,
    publication_columns,
)
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.pipeline.report import CHECKS

PARTS = 5
WHO = 4  # the subscriber at which things go wrong
FAR = 2**50
Found = dict[str, tuple[int, dict[str, Any]]]  # by check: how many, and the witness


def names(prefix: str, numbers: Any, width: int = 1) -> Any:
    digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def event(number: int) -> str:
    return f"e{number:09d}"


class Foreign:
    """A trace on disk, whose middle part can be changed and to which rows can be added."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        for table in ("publications", "deliveries"):
            (folder / table).mkdir()
        blocks = self.blocks = rows // (TOPICS * SUBSCRIBERS_PER_TOPIC)
        for part, numbers in enumerate(np.array_split(np.arange(blocks), PARTS)):
            sent, heard = publication_columns(numbers), delivery_columns(numbers)
            pq.write_table(self._published(sent), folder / "publications" / f"{part}.parquet")
            table = self._delivered(heard)
            pq.write_table(table, folder / "deliveries" / f"{part}.parquet")
            if part == PARTS // 2:
                self.middle, self.heard = table, heard
                self.topic = dict(zip(sent["number"].tolist(), sent["topic"], strict=True))
        held = [(who, topic) for topic in range(TOPICS) for who in range(10) if _HELD[who, topic]]
        subscriptions = {
            "subscriber": [f"subscriber-{who}" for who, _ in held],
            "topic": [f"topic-{topic}" for _, topic in held],
            "from_us": [-FAR] * len(held),
            "until_us": pa.nulls(len(held), pa.int64()),
        }
        pq.write_table(pa.table(subscriptions), folder / "subscriptions.parquet")
        self.add_published([("a", "x", 1), ("b", "x", 2), ("c", "y", 3)])

    def _published(self, sent: dict[str, Any]) -> Any:
        return pa.table(
            {
                "event_id": names("e", sent["number"], 9),
                "topic": names("topic-", sent["topic"]),
                "publisher": names("p", sent["publisher"]),
                "publisher_seq": sent["number"],
                "published_us": sent["published_us"],
            }
        )

    def _delivered(self, heard: dict[str, Any]) -> Any:
        return pa.table(
            {
                "subscriber": names("subscriber-", heard["subscriber"]),
                "position": heard["position"],
                "event_id": names("e", heard["number"], 9),
                "delivered_us": heard["delivered_us"],
            }
        )

    def add_published(self, events: list[tuple[str, str, int]]) -> None:
        """Events of a publisher and of topics that only one subscriber hears."""
        rows = [
            {"event_id": f"own-{name}", "topic": f"own-{topic}", "publisher": "own",
             "publisher_seq": seq, "published_us": FAR}
            for name, topic, seq in events
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), self.folder / "publications" / "own.parquet")

    def write(self, middle: Any = None, last: str = "own-a own-b own-c", at_us: int = FAR) -> None:
        """The middle part as it is now, and what WHO hears in the end."""
        middle = self.middle if middle is None else middle
        pq.write_table(middle, self.folder / "deliveries" / f"{PARTS // 2}.parquet")
        rows = [
            {"subscriber": f"subscriber-{WHO}", "position": FAR + at, "event_id": name,
             "delivered_us": at_us + at}
            for at, name in enumerate(last.split())
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows), self.folder / "deliveries" / "own.parquet")

    def of(self, who: int) -> tuple[Any, Any]:
        """The rows of a subscriber in the middle part, and their event numbers, in its order."""
        rows = np.flatnonzero(self.heard["subscriber"] == who)
        rows = rows[np.argsort(self.heard["position"][rows])]
        return rows, self.heard["number"][rows]

    def changed(self, column: str, rows: Any, values: Any) -> Any:
        """The middle part with other values in some rows."""
        mask = np.zeros(self.middle.num_rows, bool)
        mask[rows] = True
        order = np.argsort(rows)
        given = pa.array(np.asarray(values)[order].tolist(), self.middle[column].type)
        at = self.middle.column_names.index(column)
        column_ = self.middle[column].combine_chunks()
        return self.middle.set_column(at, column, pc.replace_with_mask(column_, mask, given))


def swapped(trace: Foreign) -> Found:
    """Two neighbours of different publishers change places at WHO: every other one disagrees."""
    rows, numbers = trace.of(WHO)
    publisher = trace.heard["publisher"]
    holders = {n: set(np.flatnonzero(_HELD[:, trace.topic[n]])) for n in numbers.tolist()}
    at = next(
        at
        for at in range(rows.size // 2, rows.size)
        if publisher[rows[at]] != publisher[rows[at + 1]]
        and len(holders[numbers[at]] & holders[numbers[at + 1]]) > 1
    )
    x, y = int(numbers[at]), int(numbers[at + 1])
    pair = rows[at : at + 2]
    trace.write(trace.changed("event_id", pair, [event(y), event(x)]))
    place = int(trace.heard["position"][rows[at]])
    found = []
    others = sorted((holders[x] & holders[y]) - {WHO})
    for other in map(int, others):
        theirs, heard = trace.of(other)
        position = dict(zip(heard.tolist(), trace.heard["position"][theirs].tolist(), strict=True))
        first, second = (position[x], position[y]), (place + 1, place)
        told = (x, y)
        if other > WHO:
            first, second = (place, place + 1), (position[y], position[x])
            told = (y, x)
        span = first[1] - first[0] + second[0] - second[1]
        found.append((span, (min(WHO, other), max(WHO, other)), first, second, told))
    _, (a, b), first, second, told = min(found)
    a_name, b_name = f"subscriber-{a}", f"subscriber-{b}"
    ids = [event(number) for number in told]
    return {
        "total-order": (
            len(others),
            {
                "subscribers": [a_name, b_name],
                "events": ids,
                "positions": {a_name: list(first), b_name: list(second)},
            },
        ),
        "global-order": (
            1,
            {
                "events": ids,
                "cycle": [
                    {"subscriber": a_name, "events": ids, "positions": list(first)},
                    {"subscriber": b_name, "events": ids[::-1], "positions": list(second)[::-1]},
                ],
            },
        ),
    }


def repeated(trace: Foreign) -> Found:
    rows, numbers = trace.of(WHO)
    number, position = int(numbers[7]), int(trace.heard["position"][rows[7]])
    at_us = int(trace.heard["delivered_us"][rows[7]])
    trace.write(last=event(number), at_us=at_us)
    witness = {"subscriber": f"subscriber-{WHO}", "event": event(number)}
    return {"duplicates": (1, {**witness, "positions": [position, FAR]})}


def invented(trace: Foreign) -> Found:
    trace.write(last="own-a ghost own-b own-c")
    witness = {"subscriber": f"subscriber-{WHO}", "event": "ghost", "position": FAR + 1}
    return {"phantoms": (1, witness)}


def lost(trace: Foreign) -> Found:
    rows, numbers = trace.of(WHO)
    keep = np.ones(trace.middle.num_rows, bool)
    keep[rows[11]] = False
    trace.write(trace.middle.filter(pa.array(keep)))
    sent = publication_columns(np.arange(trace.blocks))
    (at,) = np.flatnonzero(sent["number"] == numbers[11])
    topic, publisher = sent["topic"][at], sent["publisher"][at]
    same = sent["number"][(sent["topic"] == topic) & (sent["publisher"] == publisher)]
    witness = {"subscriber": f"subscriber-{WHO}", "event": event(int(numbers[11]))}
    source = {"publisher": f"p{publisher}", "topic": f"topic-{topic}"}
    gap = {"publisher_seq": int(numbers[11]), "between": [int(same.min()), int(same.max())]}
    return {
        "losses": (1, {**witness, "published_us": int(sent["published_us"][at])}),
        "gaps": (1, {**witness, **source, **gap}),
    }


def descent(events: tuple[str, str], topic: str, seqs: list[int], at: int) -> dict[str, Any]:
    return {
        "subscriber": f"subscriber-{WHO}",
        "publisher": "own",
        "topic": f"own-{topic}",
        "events": [f"own-{name}" for name in events],
        "publisher_seqs": seqs,
        "positions": [FAR + at, FAR + at + 1],
    }


def overtaken(witness: dict[str, Any]) -> dict[str, Any]:
    """The same, as a violation of causal order."""
    return {name: witness[name] for name in ("subscriber", "events", "positions")} | {"through": []}


def backwards(trace: Foreign) -> Found:
    trace.write(last="own-b own-a own-c")
    witness = descent(("b", "a"), "x", [2, 1], 0)
    causal = (1, overtaken(witness))
    return {"fifo": (1, witness), "topic-fifo": (1, witness), "causal-order": causal}


def backwards_over_topics(trace: Foreign) -> Found:
    trace.write(last="own-a own-c own-b")
    witness = descent(("c", "b"), "x", [3, 2], 1)
    return {"fifo": (1, witness), "causal-order": (1, overtaken(witness))}


def late(trace: Foreign) -> Found:
    rows, numbers = trace.of(WHO)
    row = rows[13]
    sent = publication_columns(np.array([numbers[13] // TOPICS]))
    at_us = int(sent["published_us"][sent["number"] == numbers[13]][0])
    trace.write(trace.changed("delivered_us", rows[13:14], [at_us + 3 * LONGEST_US]))
    witness = {
        "subscriber": f"subscriber-{WHO}",
        "event": event(int(numbers[13])),
        "position": int(trace.heard["position"][row]),
        "latency_us": 3 * LONGEST_US,
    }
    return {"deadline": (1, witness)}


ANOMALIES: list[Callable[[Foreign], Found]] = [
    swapped, repeated, invented, lost, backwards, backwards_over_topics, late,
]  # fmt: skip


def clean(trace: Foreign) -> Found:
    trace.write()
    return {}


def sizes() -> Iterator[Any]:
    yield 20_000
    yield pytest.param(10_000_000, marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=sizes())
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return Foreign(tmp_path_factory.mktemp("foreign"), request.param)


@pytest.mark.parametrize("inject", [clean, *ANOMALIES])
def test_one_anomaly_is_found_and_nothing_else(
    spark: SparkSession, foreign: Foreign, inject: Callable[[Foreign], Found]
) -> None:
    wanted = inject(foreign)
    report = audit(
        spark,
        open_trace(spark, foreign.folder),
        deadline_us=2 * LONGEST_US,
        stall_us=10 * LONGEST_US,
    )
    for name in CHECKS:
        check = report.checks[name]
        count, witness = wanted.get(name, (0, None))
        assert (check.violations, check.witness) == (count, witness), name
        assert check.verdict == ("invalid" if count else "valid")
