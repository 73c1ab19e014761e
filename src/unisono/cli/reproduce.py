"""`unisono reproduce`: the papers' experiments as Spark sweeps, each claim with its verdict."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable

from unisono.cli.ui import Ui
from unisono.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

    from unisono.experiments.registry import Experiment


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="*", help="experiments, such as fig-3.21, or all")
    parser.add_argument("--list", action="store_true", help="list the experiments and stop")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--out", type=Path, help="folder of the results (runs/reproduce-<time>)")
    parser.add_argument("--master", help="Spark master (this machine)")


def run(args: argparse.Namespace, ui: Ui) -> int:
    from unisono.experiments.registry import NOT_MET, find, registry

    if args.list:
        return _list(ui, list(registry().values()))
    if not args.id:
        raise BadInput("name an experiment, or all; --list shows them")
    wanted = registry().values() if args.id == ["all"] else [find(name) for name in args.id]
    out = args.out or Path("runs") / f"reproduce-{datetime.now():%Y%m%d-%H%M%S}"
    from unisono.pipeline.session import spark_session

    results = []
    swept: dict[object, str] = {}
    with ui.progress() as progress:
        spark = spark_session("unisono reproduce", args.master)
        for experiment in wanted:
            results.append(_reproduce(spark, experiment, out, args.quick, swept, progress))
    ui.emit({"experiments": results, "run": str(out)})
    for result in results:
        _show(ui, result)
    claims = [claim for result in results for claim in result["claims"]]
    return 1 if any(claim["verdict"] == NOT_MET for claim in claims) else 0


def _reproduce(
    spark: SparkSession,
    experiment: Experiment,
    out: Path,
    quick: bool,
    swept: dict[object, str],
    progress: Progress,
) -> dict[str, Any]:
    """Sweep, summarise, judge and draw. `swept` holds the runs so far: some figures share them."""
    import msgspec

    from unisono.pipeline.progress import run_with_progress
    from unisono.pipeline.sweep import summarise, sweep

    seeds = range(experiment.quick_seeds if quick else experiment.seeds)
    folder = out / experiment.id
    same = (experiment.simulate, experiment.settings, experiment.measures, len(seeds))
    if same not in swept:
        swept[same] = str(folder / "runs")
        runs = sweep(spark, experiment, seeds, quick)
        run_with_progress(
            spark,
            experiment.id,
            progress,
            lambda: runs.write.mode("overwrite").parquet(swept[same]),
        )
    summary = summarise(spark.read.parquet(swept[same]), experiment.measures).collect()
    table = {row["setting"]: row.asDict() for row in summary}
    plot = folder / f"{experiment.id}.svg"
    experiment.plot(table, plot)
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "assumed": list(experiment.assumed),
        "runs": len(seeds) * len(experiment.settings),
        "claims": msgspec.to_builtins(experiment.claims(table)),
        "table": [table[setting] for setting in experiment.settings],
        "plot": str(plot),
    }


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
    ui.show(f"plot: {result['plot']}")
