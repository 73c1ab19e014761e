"""What the runs of many seeds come to."""

from __future__ import annotations

from typing import Any

import msgspec

from unisono.sim.run import Outcome, outcome_json, run_scenario
from unisono.sim.scenario import Scenario
from unisono.sim.verdict import INVALID, VALID

FAILURES_KEPT = 100
INVARIANT = "invariant"  # the name of a check that fails when the protocol's own assertions do


class Totals(msgspec.Struct):
    """What the runs of some seeds came to."""

    events: int = 0
    deliveries: int = 0
    tagged: int = 0
    skipped: int = 0
    invalid: int = 0
    hashes: list[str] = []  # of the traces, in the order of the seeds
    checks: dict[str, dict[str, Any]] = {}
    failures: list[dict[str, Any]] = []

    def add(self, other: Totals) -> None:
        for name in ("events", "deliveries", "tagged", "skipped", "invalid"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hashes += other.hashes
        self.failures += other.failures[: FAILURES_KEPT - len(self.failures)]
        for name, check in other.checks.items():
            known = self.checks.setdefault(
                name, {"verdict": VALID, "violations": 0, "witness": None}
            )
            known["violations"] += check["violations"]
            known["verdict"] = INVALID if known["violations"] else VALID
            known["witness"] = known["witness"] or check["witness"]


def run_totals(scenario: Scenario, seeds: range) -> Totals:
    """Run these seeds."""
    total = Totals()
    for seed in seeds:
        try:
            outcome = run_scenario(scenario, seed)
        except AssertionError as error:
            total.add(_broken(seed, error))
            continue
        one = Totals(invalid=bool(outcome.failures), hashes=[outcome.trace_sha256])
        for name in ("events", "deliveries", "tagged", "skipped"):
            setattr(one, name, getattr(outcome, name))
        _add_checks(one.checks, outcome)
        if outcome.failures:
            one.failures = outcome_json(outcome)["failures"]
        total.add(one)
    return total


def _broken(seed: int, error: AssertionError) -> Totals:
    """An invariant inside the protocol stopped the run."""
    witness = {"seed": seed, "error": str(error) or "an assertion without a text"}
    check = {"verdict": INVALID, "violations": 1, "witness": witness}
    failure = {"seed": seed, "check": INVARIANT, "witness": witness}
    return Totals(invalid=1, hashes=[INVARIANT], checks={INVARIANT: check}, failures=[failure])


def _add_checks(checks: dict[str, dict[str, Any]], outcome: Outcome) -> None:
    for name, check in outcome.checks.items():
        known = checks.setdefault(name, {"verdict": VALID, "violations": 0, "witness": None})
        known["violations"] += check.violations
        if check.violations:
            known["verdict"] = INVALID
            known["witness"] = known["witness"] or {"seed": outcome.seed, **(check.witness or {})}
