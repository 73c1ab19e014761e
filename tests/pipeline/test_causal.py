"""Causal order: the clocks against the transitive closure, and what the audit says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audits import Random_, overtaken, pasts, tabulate
from support.seeds import some

from unisono.pipeline import causes, plan, resolve
from unisono.pipeline.report import Report, sentence
from unisono.trace.schema import STATUSES

Judge = Callable[..., Report]

EVENTS = st.lists(
    st.tuples(st.sampled_from("abcp"), st.integers(0, 5), st.integers(0, 30)), max_size=12
)
# Who hears which events, how long after that is possible, and whether order is claimed.
HEARD = st.lists(
    st.tuples(
        st.sampled_from("abcs"), st.integers(0, 12), st.integers(-1, 6), st.sampled_from(STATUSES)
    ),
    max_size=24,
)


def trace_of(events: list[tuple[str, int, int]], heard: list[tuple[str, int, int, str]]) -> Random_:
    """`a`, `b` and `c` publish and subscribe; event 12 is published by nobody."""
    published = [
        (f"e{at}", "x", who, seq, at_us + at) for at, (who, seq, at_us) in enumerate(events)
    ]
    now = dict.fromkeys("abcs", 0)
    deliveries = []
    for place, (who, event, later_us, status) in enumerate(heard):
        possible_us = published[event][4] if event < len(published) else 0
        now[who] = max(now[who], possible_us) + later_us
        deliveries.append((who, place, f"e{event}", now[who], status))
    return Random_(published, deliveries, [])


def run(trace: Random_, width: int) -> causes.CauseSummary:
    """The passes that causes need, in one partition, with so many columns at once."""
    census, batch = tabulate(trace)
    relays = causes.find_relays(census)
    cut = plan.make_plan(census, np.zeros(0, np.int64))
    terms = resolve.Terms(relays=relays.hears(census))
    assert relays.publisher.size
    blocks = pa.Table.from_batches(resolve._worker(census, cut, terms)(iter([batch])))
    blocks = blocks.filter(
        pa.compute.is_in(
            blocks["kind"],
            pa.array([plan.BY_PUBLISHER, plan.BY_RELAY, plan.BY_CHUNK], pa.int32()),
        )
    ).sort_by([("kind", "descending"), ("key", "ascending")])
    publishers = len(census.publishers)
    columns = [(low, min(width, publishers - low)) for low in range(0, publishers, width)]
    worker = causes._worker(census, relays, columns, terms.record)
    found = []
    for part in range(len(columns)):
        here = blocks.set_column(2, "part", pa.array([part] * len(blocks), pa.int32()))
        (told,) = worker(iter(here.to_batches()))
        found.append(msgspec.msgpack.decode(told["summary"][0].as_py(), type=causes.CauseSummary))
    return causes.merge_causes(found)


@settings(max_examples=some(2000), deadline=None)
@given(EVENTS, HEARD, st.integers(1, 4))
def test_the_clocks_find_what_the_closure_finds(
    events: list[tuple[str, int, int]], heard: list[tuple[str, int, int, str]], width: int
) -> None:
    trace = trace_of(events, heard)
    census, _ = tabulate(trace)
    if not causes.find_relays(census).publisher.size:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "ROWS_PER_CHUNK", 3)
        found = run(trace, width)
    wanted = overtaken(trace)
    assert (found.contradiction is None) == (wanted is not None)
    if wanted is None:
        assert found.contradiction is not None
        publisher, number = found.contradiction.heard
        said = {row[0] for row in trace.publications
                if (row[2], row[3]) == (census.publishers[publisher], number)}  # fmt: skip
        relay = census.publishers[found.contradiction.relay]
        assert any(row[0] == relay and row[2] in said for row in trace.deliveries)
        return
    assert found.overtaken == len(wanted)
    assert (found.witness is None) == (not wanted)
    if found.witness is not None:
        check_witness(found.witness, trace, census, wanted)


def check_witness(witness: causes.Overtaken, trace: Random_, census: Any, wanted: Any) -> None:
    """It is the first one, its earlier event is a real one, and every link of the chain holds."""
    who = census.subscribers[witness.subscriber]
    at = {(row[0], row[1]): row[2] for row in trace.deliveries}
    assert (who, witness.position) == min(wanted)
    cause, later = at[who, witness.position], at[who, witness.earlier_position]
    assert later in wanted[who, witness.position]
    assert witness.earlier_position < witness.position
    said = {row[0]: (census.publishers.index(row[2]), row[3]) for row in trace.publications}
    reached = said[cause]
    for link in witness.through:
        assert link.heard[0] == reached[0] and link.heard[1] >= reached[1]
        relay = census.publishers[link.relay]
        hearing = [r[3] for r in trace.deliveries if r[0] == relay and said.get(r[2]) == link.heard]
        publishing = [r[4] for r in trace.publications if said[r[0]] <= link.published]
        assert link.published[0] == link.relay
        assert min(hearing) < max(publishing)
        reached = link.published
    assert reached[0] == said[later][0] and reached[1] <= said[later][1]
    assert len({link.relay for link in witness.through}) == len(witness.through)


# ann asks, bob answers once he heard it, carl hears the answer first.
QUESTION = [("q", "x", "ann", 1, 1000), ("a", "x", "bob", 1, 3000)]
ANSWERED = [
    ("ann", 1, "q", 1500), ("ann", 2, "a", 3500),
    ("bob", 1, "q", 2000), ("bob", 2, "a", 3600),
]  # fmt: skip
CARL = [("carl", 1, "a", 4000), ("carl", 2, "q", 4100)]


def test_an_answer_before_the_question(judge: Judge) -> None:
    report = judge(QUESTION, ANSWERED + CARL, promises=["causal-order"])
    check = report.checks["causal-order"]
    assert (report.verdict, check.violations) == ("invalid", 1)
    assert check.witness == {
        "subscriber": "carl",
        "events": ["a", "q"],
        "positions": [1, 2],
        "through": [{"relay": "bob", "heard": "q", "published": "a"}],
    }
    assert sentence("causal-order", check.witness) == (
        "carl heard a at position 1 and then q, its cause, at 2; bob heard q before it published a"
    )
    assert report.checks["fifo"].verdict == "valid"  # which sees none of it


@pytest.mark.parametrize("heard_us", [3000, 3001])
def test_what_was_heard_at_the_same_moment_or_later_is_no_cause(
    judge: Judge, heard_us: int
) -> None:
    rows = [("bob", 1, "q", heard_us), *CARL]
    assert judge(QUESTION, rows).checks["causal-order"].verdict == "valid"


def test_a_chain_through_two_relays_and_later_numbers(judge: Judge) -> None:
    published = [
        ("d0", "x", "ann", 1, 0), ("d1", "x", "ann", 2, 10), ("b1", "x", "bob", 1, 30),
        ("b2", "y", "bob", 2, 40), ("c1", "x", "carl", 1, 60),
    ]  # fmt: skip
    rows = [
        ("bob", 1, "d1", 20), ("carl", 1, "b2", 50, ), ("eve", 1, "c1", 70), ("eve", 2, "d0", 80),
        ("eve", 3, "b1", 90),
    ]  # fmt: skip
    check = judge(published, rows, promises=["causal-order"]).checks["causal-order"]
    assert check.violations == 2
    assert check.witness is not None
    assert check.witness["events"] == ["c1", "d0"]
    assert check.witness["through"] == [
        {"relay": "bob", "heard": "d1", "published": "b2"},
        {"relay": "carl", "heard": "b2", "published": "c1"},
    ]


def test_without_relays_only_numbers_count(judge: Judge) -> None:
    published = [(f"e{at}", "x", "p", at, at) for at in range(4)]
    rows = [("ann", at, f"e{event}", 10 + at) for at, event in enumerate((3, 0, 1, 2))]
    check = judge(published, rows).checks["causal-order"]
    assert check.violations == 3  # fifo counts one descent
    assert check.witness == {
        "subscriber": "ann", "events": ["e3", "e0"], "positions": [0, 1], "through": [],
    }  # fmt: skip


def test_a_trace_that_contradicts_itself_is_unknown(judge: Judge) -> None:
    early = [("bob", 1, "a", 2000), *CARL]  # bob hears of his event a before he publishes it
    report = judge(QUESTION, early, promises=["causal-order"])
    assert report.verdict == "unknown"
    remark = report.checks["causal-order"].remark
    assert remark is not None and "bob was notified of number 1 of bob" in remark


def test_beyond_its_bounds_it_is_unknown_or_at_least(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "HEARD_MAX", 1)
    check = judge(QUESTION, ANSWERED + CARL).checks["causal-order"]
    assert check.verdict == "unknown"
    assert check.remark is not None and check.remark.startswith("too large: 4 deliveries")
    more = [*QUESTION, ("q2", "x", "ann", 2, 1001)]
    rows = [*ANSWERED, ("carl", 1, "q2", 4000), ("carl", 2, "q", 4100)]
    check = judge(more, rows).checks["causal-order"]
    assert (check.verdict, check.violations, check.more) == ("invalid", 1, {"at_least": True})


def test_the_reference_knows_a_contradiction() -> None:
    early = [(*row, "in_order") for row in [("bob", 1, "a", 2000), *CARL]]
    assert pasts(Random_(QUESTION, early, [])) is None
