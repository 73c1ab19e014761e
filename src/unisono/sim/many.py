"""What the runs of many seeds come to."""

from __future__ import annotations

from typing import Any

import msgspec

from unisono.sim.run import outcome_json, run_scenario
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
        told = outcome_json(outcome)
        figures = {name: told[name] for name in ("events", "deliveries", "tagged", "skipped")}
        checks = {name: _with_seed(check, seed) for name, check in told["checks"].items()}
        total.add(
            Totals(
                **figures,
                invalid=bool(outcome.failures),
                hashes=[outcome.trace_sha256],
                checks=checks,
                failures=told["failures"],
            )
        )
    return total


def _broken(seed: int, error: AssertionError) -> Totals:
    """An invariant inside the protocol stopped the run."""
    witness = {"seed": seed, "error": str(error) or "an assertion without a text"}
    check = {"verdict": INVALID, "violations": 1, "witness": witness}
    failure = {"seed": seed, "check": INVARIANT, "witness": witness}
    return Totals(invalid=1, hashes=[INVARIANT], checks={INVARIANT: check}, failures=[failure])


def _with_seed(check: dict[str, Any], seed: int) -> dict[str, Any]:
    """A witness of many seeds says which one it is of."""
    witness = check["witness"]
    return check if witness is None else check | {"witness": {"seed": seed, **witness}}
