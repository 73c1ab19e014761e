"""Total order by a log, over many seeds with faults; and bugs that must be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.log_bugs import BUGS
from support.raft_bugs import BUGS as RAFT_BUGS
from support.seeds import seed_range, some

from unisono.sim.run import run_scenario
from unisono.sim.scenario import Scenario, load_scenario

FOLDER = Path(__file__).parents[2] / "scenarios" / "log"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
_SEEDS = 2000


def scenario(name: str) -> Scenario:
    return load_scenario(FOLDER / f"{name}.toml")


@pytest.mark.seeded
@pytest.mark.parametrize("name", NAMES)
def test_all_promises_are_kept_and_nothing_is_tagged(name: str) -> None:
    chosen = scenario(name)
    for seed in seed_range(some(90)):
        outcome = run_scenario(chosen, seed)
        assert outcome.failures == []
        assert outcome.tagged == outcome.skipped == 0
        assert outcome.deliveries


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.inject(monkeypatch)
    chosen = scenario(bug.scenario)
    for seed in range(bug.first, bug.first + _SEEDS):
        try:
            if run_scenario(chosen, seed).failures:
                return
        except Exception:  # an assertion of the protocol itself
            return
    raise AssertionError(f"not found in {_SEEDS} seeds")


def test_the_bugs_are_documented() -> None:
    page = (FOLDER.parents[1] / "docs/log.md").read_text()
    told = re.findall(r"^\| (?:Raft|order) \| (.*?) \|", page, re.MULTILINE)
    assert told == [*RAFT_BUGS, *BUGS]
