"""`unisono sim`: run scenarios over one seed or many, and check the guarantees."""

from __future__ import annotations

import argparse
import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput
from unisono.sim.many import Totals, run_totals
from unisono.sim.run import outcome_json, run_scenario, write_outcome
from unisono.sim.scenario import Scenario, load_scenario
from unisono.sim.verdict import INVALID, VALID

_SPARK_SEEDS = 400  # below, starting Spark takes longer than it saves


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
    """All seeds; from a few hundred on as a Spark job on all cores."""
    total = Totals()
    with ui.progress() as progress:
        bar = progress.add_task(scenario.name, total=len(seeds))
        if len(seeds) < _SPARK_SEEDS or find_spec("pyspark") is None:
            for seed in seeds:
                total.add(run_totals(scenario, range(seed, seed + 1)))
                progress.advance(bar)
        else:
            from unisono.pipeline.seeds import run_seeds
            from unisono.pipeline.session import spark_session

            packed = msgspec.json.encode(scenario)

            def work(chunk: range) -> str:
                found = run_totals(msgspec.json.decode(packed, type=Scenario), chunk)
                return msgspec.json.encode(found).decode()

            for chunk, result in run_seeds(spark_session("unisono sim"), seeds, work):
                total.add(msgspec.json.decode(result, type=Totals))
                progress.advance(bar, len(chunk))
    return {
        "scenario": str(path),
        "verdict": INVALID if total.invalid else VALID,
        "seeds": [seeds.start, seeds.stop],
        "verdicts": {VALID: len(seeds) - total.invalid, INVALID: total.invalid},
        "trace_sha256": hashlib.sha256("".join(total.hashes).encode()).hexdigest(),
        "events": total.events,
        "deliveries": total.deliveries,
        "tagged": total.tagged,
        "skipped": total.skipped,
        "checks": total.checks,
        "failures": total.failures,
    }


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
