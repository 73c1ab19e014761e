"""`unisono reproduce`: the papers' experiments as Spark sweeps, each claim with its verdict.

Runs are kept in the results folder as they end. The same command with the same folder goes on
where an earlier one was interrupted.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table as RichTable

from unisono.cli.ui import Ui
from unisono.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.experiments.registry import Experiment
    from unisono.pipeline.runs import Runs
    from unisono.pipeline.sweep import Done, Known, Run


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="*", help="experiments, such as fig-3.21, or all")
    parser.add_argument("--list", action="store_true", help="list the experiments and stop")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of the results (runs/reproduce-<time>); runs that it holds are not repeated",
    )
    parser.add_argument("--master", help="Spark master (this machine)")
    parser.add_argument("--setting", help="with --seed: this run only, here, without Spark")
    parser.add_argument("--seed", type=int, help="with --setting: this run only")


def run(args: argparse.Namespace, ui: Ui) -> int:
    from unisono.experiments import registry

    known = registry.registry()
    if args.list:
        return _list(ui, list(known.values()))
    if not args.id:
        raise BadInput("name an experiment, or all; --list shows them")
    wanted = list(known.values()) if args.id == ["all"] else [registry.find(n) for n in args.id]
    if args.setting is not None or args.seed is not None:
        return _replay(args, wanted, ui)
    from unisono.pipeline.runs import Runs, summarise
    from unisono.pipeline.session import spark_session
    from unisono.pipeline.sweep import owners, runs_of

    out = args.out or Path("runs") / f"reproduce-{datetime.now():%Y%m%d-%H%M%S}"
    owner = owners(known)
    spark = spark_session("unisono reproduce", args.master)
    with Runs(out, args.quick) as runs:
        needed = runs_of(wanted, owner, args.quick)
        left = [one for one in needed if one not in runs.done]
        if len(left) < len(needed):
            ui.remark(f"{len(needed) - len(left)} of {len(needed)} runs taken over from {out}")
        try:
            failed = _sweep(spark, runs, needed, left, args.quick, registry.registry, ui)
        except KeyboardInterrupt:
            ui.remark(f"to go on: {_command(args, out)}")
            raise
        tables = summarise(spark, runs.runs, wanted, owner, args.quick)
    results = [_judge(experiment, tables[experiment.id], out) for experiment in wanted]
    failures = [_failure(done, wanted, owner, args.quick) for done in failed]
    ui.emit(
        {
            "experiments": results,
            "run": str(out),
            "runs": {"needed": len(needed), "taken_over": len(needed) - len(left)},
            "failures": failures,
        }
    )
    for result in results:
        _show(ui, result)
    for failure in failures:
        ui.show(f"failed: {failure['experiment']}, {failure['setting']}, seed {failure['seed']}")
        ui.show(f"  {escape(failure['error'].splitlines()[-1])}")
        ui.show(f"  replay: {failure['replay']}")
    claims = [claim for result in results for claim in result["claims"]]
    return 1 if failed or any(claim["verdict"] == registry.NOT_MET for claim in claims) else 0


def _sweep(
    spark: SparkSession,
    runs: Runs,
    needed: list[Run],
    left: list[Run],
    quick: bool,
    known: Known,
    ui: Ui,
) -> list[Done]:
    """Run what is left and keep it; returns what failed."""
    from unisono.pipeline.sweep import sweep

    failed = []
    with ui.progress() as progress, closing(sweep(spark, left, quick, known)) as results:
        bar = progress.add_task("runs", total=len(needed), completed=len(needed) - len(left))
        for done in results:
            runs.add(done)
            failed += [one for one in done if one.error is not None]
            progress.update(bar, advance=len(done), description=done[-1].run.experiment)
    return failed


def _judge(experiment: Experiment, table: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """The claims and the plot of an experiment, if every setting has at least one run."""
    import msgspec

    from unisono.experiments.registry import UNKNOWN, Claim

    missing = [setting for setting in experiment.settings if setting not in table]
    plot = out / experiment.id / f"{experiment.id}.svg"
    if missing:
        reason = f"no run of {', '.join(missing)}"
        claims = [Claim(experiment.title, experiment.source, reason, UNKNOWN)]
    else:
        claims = experiment.claims(table)
        experiment.plot(table, plot)
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "assumed": list(experiment.assumed),
        "runs": sum(row["runs"] for row in table.values()),
        "claims": msgspec.to_builtins(claims),
        "table": list(table.values()),
        "plot": None if missing else str(plot),
    }


def _failure(
    done: Done, wanted: list[Experiment], owner: Mapping[str, str], quick: bool
) -> dict[str, Any]:
    """What is told of a failed run. Its experiment is the one that the table has it under."""
    run = done.run
    name = next(
        experiment.id
        for experiment in wanted
        if owner[experiment.id] == run.experiment and run.setting in experiment.settings
    )
    command = ["unisono", "reproduce", name, *(["--quick"] if quick else [])]
    command += ["--setting", run.setting, "--seed", str(run.seed)]
    return {**run._asdict(), "error": done.error, "replay": shlex.join(command)}


def _command(args: argparse.Namespace, out: Path) -> str:
    """The command that goes on with the sweep in this folder."""
    command = ["unisono", "reproduce", *args.id, *(["--quick"] if args.quick else [])]
    command += ["--master", args.master] if args.master else []
    return shlex.join([*command, "--out", str(out)])


def _replay(args: argparse.Namespace, wanted: list[Experiment], ui: Ui) -> int:
    """One run in this process; what it raises is not caught."""
    if len(wanted) != 1 or args.setting is None or args.seed is None:
        raise BadInput("--setting and --seed go together, with one experiment")
    (experiment,) = wanted
    if args.setting not in experiment.settings:
        known = ", ".join(experiment.settings)
        raise BadInput(f"{experiment.id} has no setting {args.setting!r}; there are: {known}")
    measures = dict(experiment.simulate(args.setting, args.seed, args.quick))
    ui.emit({"id": experiment.id, "setting": args.setting, "seed": args.seed, "measures": measures})
    table = RichTable("measure", "value", title=f"{experiment.id}: {args.setting}, {args.seed}")
    for measure, value in measures.items():
        table.add_row(measure, f"{value:g}")
    ui.show(table)
    return 0


def _list(ui: Ui, experiments: list[Experiment]) -> int:
    ui.emit(
        {"experiments": [{"id": e.id, "title": e.title, "source": e.source} for e in experiments]}
    )
    table = RichTable("id", "what", "where")
    for experiment in experiments:
        table.add_row(experiment.id, experiment.title, experiment.source)
    ui.show(table)
    return 0


def _show(ui: Ui, result: dict[str, Any]) -> None:
    table = RichTable(
        "claim", "paper", "measured", "verdict", title=f"{result['id']}: {result['title']}"
    )
    for claim in result["claims"]:
        table.add_row(claim["claim"], claim["paper"], claim["measured"], claim["verdict"])
    ui.show(table)
    for text in result["assumed"]:
        ui.show(f"assumed: {text}")
    if result["plot"] is not None:
        ui.show(f"plot: {result['plot']}")
