"""`unisono sim`: run scenarios over one seed or many, and check the guarantees."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput
from unisono.sim.run import Outcome, outcome_json, run_scenario, write_outcome
from unisono.sim.scenario import Scenario, load_scenario
from unisono.sim.verdict import INVALID, VALID

_FAILURES_SHOWN = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="+", type=Path, help="scenario files (TOML)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, default=0, help="one seed (0); writes a run folder")
    which.add_argument("--seeds", metavar="A:B", help="seeds A to B-1; checks only, no folder")
    parser.add_argument("--out", type=Path, help="run folder (runs/sim-<scenario>-<seed>)")


def run(args: argparse.Namespace, ui: Ui) -> int:
    scenarios = [(path, load_scenario(path)) for path in args.scenario]
    results: list[dict[str, Any]] = []
    for path, scenario in scenarios:
        if args.seeds is None:
            results.append(_one(path, scenario, args.seed, _folder(args, scenario), ui))
        else:
            results.append(_many(path, scenario, _seeds(args.seeds), ui))
    verdict = INVALID if any(result["verdict"] == INVALID for result in results) else VALID
    if len(results) == 1:
        ui.emit(results[0])
    else:
        ui.emit({"verdict": verdict, "scenarios": results})
    _show(results, ui)
    return 1 if verdict == INVALID else 0


def _folder(args: argparse.Namespace, scenario: Scenario) -> Path:
    name = f"sim-{scenario.name}-{args.seed}"
    if args.out is None:
        return Path("runs") / name
    out: Path = args.out
    return out if len(args.scenario) == 1 else out / name


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    if not colon or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        raise BadInput(f"--seeds wants A:B with A < B, for example 0:2000, not {text!r}")
    return range(int(first), int(last))


def _one(path: Path, scenario: Scenario, seed: int, folder: Path, ui: Ui) -> dict[str, Any]:
    outcome = run_scenario(scenario, seed)
    write_outcome(folder, scenario, outcome)
    return {"scenario": str(path), **outcome_json(outcome), "run": str(folder)}


def _many(path: Path, scenario: Scenario, seeds: range, ui: Ui) -> dict[str, Any]:
    digest = hashlib.sha256()
    totals = {"events": 0, "deliveries": 0, "tagged": 0, "skipped": 0}
    checks: dict[str, dict[str, Any]] = {}
    failures: list[dict[str, Any]] = []
    invalid = 0
    with ui.progress() as progress:
        bar = progress.add_task(scenario.name, total=len(seeds))
        for seed in seeds:
            outcome = run_scenario(scenario, seed)
            digest.update(outcome.trace_sha256.encode())
            for key in totals:
                totals[key] += getattr(outcome, key)
            _add_checks(checks, outcome)
            if outcome.failures:
                invalid += 1
                failures.extend(outcome_json(outcome)["failures"])
            progress.advance(bar)
    return {
        "scenario": str(path),
        "verdict": INVALID if invalid else VALID,
        "seeds": [seeds.start, seeds.stop],
        "verdicts": {VALID: len(seeds) - invalid, INVALID: invalid},
        "trace_sha256": digest.hexdigest(),
        **totals,
        "checks": checks,
        "failures": failures[:_FAILURES_SHOWN],
    }


def _add_checks(checks: dict[str, dict[str, Any]], outcome: Outcome) -> None:
    for name, check in outcome.checks.items():
        known = checks.setdefault(name, {"verdict": VALID, "violations": 0, "witness": None})
        known["violations"] += check.violations
        if check.violations:
            known["verdict"] = INVALID
            known["witness"] = known["witness"] or {"seed": outcome.seed, **(check.witness or {})}


def _show(results: list[dict[str, Any]], ui: Ui) -> None:
    table = Table("scenario", "seeds", "verdict", "events", "deliveries", "tagged", "broken checks")
    for result in results:
        broken = [name for name, check in result["checks"].items() if check["violations"]]
        seeds = result.get("seed", "{}:{}".format(*result.get("seeds", ("", ""))))
        figures = (str(result[key]) for key in ("events", "deliveries", "tagged"))
        verdict = result["verdict"]
        table.add_row(
            Path(result["scenario"]).stem, str(seeds), verdict, *figures, ", ".join(broken) or "-"
        )
    ui.show(table)
    for result in results:
        if "run" in result:
            ui.show(f"run folder: {result['run']}   (audit it: unisono audit {result['run']})")
        for failure in result["failures"][:5]:
            ui.show(f"seed {failure['seed']}: {failure['check']}: {failure['witness']}")
            ui.show(f"  replay: unisono sim {result['scenario']} --seed {failure['seed']}")
