"""Data centres of replicas: in the simulator under every protocol, and over real buses."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.seeds import seed_range, some
from support.servers import NatsServer

from unisono.cases.active_database.simulate import Case, CaseRun, run_case
from unisono.cases.active_database.windows import pair_windows
from unisono.errors import BadInput

SHORT = Case(duration_s=5)
EVERYONE = 9  # a fan-out that misses nobody


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(some(4)))
@pytest.mark.parametrize(
    "case",
    [
        SHORT,
        msgspec.structs.replace(SHORT, sites=3, replicas=4, sets=2, topics=8, shared=1),
        msgspec.structs.replace(SHORT, protocol="sequencer"),
    ],
    ids=["one set", "three centres, two sets", "sequencer"],
)
def test_in_order_and_with_room_nothing_is_rolled_back(case: Case, seed: int) -> None:
    result = run_case(case, seed)
    assert result["events"] > 200
    for measure in ("rollbacks", "tagged", "undone", "lost", "inconsistent", "refused"):
        assert result[measure] == 0, measure
    assert result["equal"] == 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "case",
    [
        msgspec.structs.replace(SHORT, buffer=0, hold_s=None),
        msgspec.structs.replace(
            SHORT, buffer=2, sites=3, replicas=4, sets=2, topics=8, shared=1, rate_per_s=100
        ),
        msgspec.structs.replace(SHORT, stamps="paper", buffer=70),
        msgspec.structs.replace(SHORT, protocol="uec", coalition=2, fanout=EVERYONE),
        msgspec.structs.replace(SHORT, protocol="uec", coalition=3, fanout=EVERYONE, eager=True),
    ],
    ids=[
        "no buffer",
        "two sets, a small buffer",
        "printed stamps",
        "two sequencers",
        "three sequencers",
    ],
)
def test_what_comes_late_is_tagged_and_rolled_back_to_and_all_end_equal(
    case: Case, seed: int
) -> None:
    result = run_case(case, seed)
    assert result["rollbacks"] > 0
    assert result["rollbacks"] == result["tagged"], "the tag says exactly who must roll back"
    assert result["undone"] >= result["rollbacks"]
    assert result["inconsistent"] > 0
    assert result["lost"] == 0 and result["equal"] == 1 and result["refused"] == 0


def test_a_run_is_a_function_of_case_and_seed() -> None:
    case = msgspec.structs.replace(SHORT, protocol="uec", coalition=2, service_ms=2)
    assert run_case(case, 7) == run_case(case, 7)
    assert run_case(case, 7) != run_case(case, 8)


def test_overload_makes_gossip_lose_events() -> None:
    case = msgspec.structs.replace(SHORT, protocol="uec", rate_per_s=100, service_ms=10)
    result = run_case(case, 1)
    assert result["lost"] > 0.1 and result["equal"] == 0


def test_impossible_cases_are_refused() -> None:
    with pytest.raises(BadInput, match="divide"):
        Case(topics=5, sets=2)
    with pytest.raises(BadInput, match="coalition"):
        Case(protocol="uec", coalition=11)


def test_sets_hold_different_categories() -> None:
    case = msgspec.structs.replace(SHORT, sites=3, replicas=4, sets=2, topics=8, shared=1)
    run = CaseRun(case, 1)
    held = {run.set_of[name]: set(run.held(name)) for name in run.names}
    assert [len(topics) for topics in held.values()] == [5, 5]
    assert len(held[0] & held[1]) == 2
    sites = {
        number: {run.site_of[n] for n in run.names if run.set_of[n] == number} for number in held
    }
    assert all(len(found) == 3 for found in sites.values()), "every set is in every centre"


times = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 19), max_size=6)


@given(times, times)
def test_windows_are_what_the_definition_says(one: dict[str, int], other: dict[str, int]) -> None:
    order, end = "abcdef", 20
    found = pair_windows(order, one, other, end)

    def inconsistent(now: int) -> bool:
        have = [{e for e, at in t.items() if at <= now} for t in (one, other)]
        both = have[0] & have[1]
        return any(
            e < y and (e in have[0]) != (e in have[1]) for y in both for e in have[0] | have[1]
        )

    inside = {now for begin, until in found for now in range(begin, until)}
    assert inside == {now for now in range(end) if inconsistent(now)}
    assert all(a[1] < b[0] for a, b in pairwise(found)), "windows are whole"


@pytest.mark.parametrize("kind", ["memory", "nats"])
def test_replicas_over_a_real_bus_end_equal(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = "memory://"
    if kind == "nats":
        server: NatsServer = request.getfixturevalue("nats_server")
        url = server.url
    command = [sys.executable, "-m", "unisono.cases.active_database", url]
    done = subprocess.run(
        [*command, "--replicas", "3", "--transactions", "50", "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "equal: True" in done.stdout and done.stdout.count("150 transactions, 0 rollbacks") == 3
    assert len(list(tmp_path.glob("*.db"))) == 3
    again = subprocess.run(
        [*command, "--folder", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 2 and "new file" in again.stderr
