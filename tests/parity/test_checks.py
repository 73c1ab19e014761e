"""Online checks = Spark audits: on clean runs and on runs of the injected bugs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from support.bugs import BUGS, PARTIAL, SMALL_BUFFER
from support.global_order import one_order

from unisono.experiments.fig_3_21 import SCENARIO, run_agreement, scenario
from unisono.pipeline import patterns
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace
from unisono.sim.check import TotalOrderCheck
from unisono.sim.run import Outcome, run_scenario, write_outcome
from unisono.sim.scenario import Scenario, load_scenario

SHARED = ("total-order", "fifo", "topic-fifo", "duplicates", "phantoms", "losses")
AUDITED = ("never tags", "takes requests as they come", "delivers twice", "makes events up")


def compare(spark: SparkSession, folder: Path, chosen: Scenario, outcome: Outcome) -> set[str]:
    """Assert that both sides say the same of a run; the checks that are broken."""
    write_outcome(folder, chosen, outcome)
    report = audit(spark, open_trace(spark, folder))
    broken = {name for name in SHARED if outcome.checks[name].violations}
    assert {name for name in SHARED if report.checks[name].violations} == broken
    assert report.rows["deliveries"] == outcome.deliveries
    assert round(report.tagged * outcome.deliveries) == outcome.tagged
    for name in ("duplicates", "phantoms", "losses"):
        assert report.checks[name].violations == outcome.checks[name].violations
    assert report.checks["global-order"].violations == one_order(outcome, gaps=False).violations
    return broken


def test_clean_runs_are_valid_for_both(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("two-topics", "changing-subscriptions"):
        chosen = load_scenario(Path(__file__).parents[2] / "scenarios" / f"{name}.toml")
        found = compare(spark, tmp_path / name, chosen, run_scenario(chosen, 5))
        assert found <= {"fifo"}  # over several topics, total order does not promise it
    small = run_scenario(SMALL_BUFFER, 5)
    assert compare(spark, tmp_path / "small", SMALL_BUFFER, small) <= {"fifo"}


def test_fifo_runs_are_valid_for_both(spark: SparkSession, tmp_path: Path) -> None:
    chosen = load_scenario(Path(__file__).parents[2] / "scenarios" / "fifo" / "reordered.toml")
    outcome = run_scenario(chosen, 5)
    assert outcome.verdict == "valid" and outcome.tagged
    assert "fifo" not in compare(spark, tmp_path, chosen, outcome)


def test_disorder_is_found_by_both(spark: SparkSession, tmp_path: Path) -> None:
    bare = msgspec.structs.replace(PARTIAL, order="none")
    outcome = run_scenario(bare, 2)
    assert "total-order" in compare(spark, tmp_path, bare, outcome)
    assert one_order(outcome).violations > 0


@pytest.mark.parametrize("name", AUDITED)
def test_bugs_are_found_by_both(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = BUGS[name]
    bug.inject(monkeypatch)
    for seed in range(60):
        outcome = run_scenario(bug.scenario, seed)
        if any(outcome.checks[check].violations for check in bug.caught_by):
            assert bug.caught_by & compare(spark, tmp_path, bug.scenario, outcome)
            return
    raise AssertionError("the bug did not show")


def test_agreement_is_the_same_in_python_and_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    outcomes = {}
    for name in ("bare", "buffer-0", "unbounded"):
        chosen = msgspec.structs.replace(scenario(name), duration_s=20)
        outcomes[name] = run_scenario(chosen, 4)
        write_outcome(tmp_path / name, chosen, outcomes[name])
    folders = {name: tmp_path / name for name in outcomes}
    found = patterns.detections(patterns.read_runs(spark, folders, "control"))
    rows = {row["run"]: row["agreement"] for row in patterns.agreement(found).collect()}
    for name, outcome in outcomes.items():
        assert rows[name] == pytest.approx(run_agreement(outcome))


def test_the_scenario_file_is_the_experiments_scenario() -> None:
    path = Path(__file__).parents[2] / "scenarios" / "pattern-detection.toml"
    assert load_scenario(path) == SCENARIO


def test_the_online_check_finds_the_smallest_disagreement() -> None:
    from unisono.core.events import Delivery, Status

    check = TotalOrderCheck()

    def deliver(node: str, event: str, position: int, status: Status = Status.IN_ORDER) -> None:
        check.delivered(node, Delivery("t", b"", status, event, "p", position, 0, 0))

    deliver("s", "e", 0)
    deliver("t", "f", 0)
    deliver("s", "f", 1)
    assert check.verdict == "valid"
    deliver("t", "e", 1, Status.OUT_OF_ORDER)
    assert check.verdict == "valid"
    deliver("t", "e", 2)
    assert check.verdict == "invalid"
    assert check.witness == {
        "subscribers": ["t", "s"],
        "events": ["f", "e"],
        "positions": {"t": [0, 2], "s": [1, 0]},
    }
