"""`unisono demo`: the main job end to end, on this machine, in about a minute."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from rich.table import Table

from unisono.cli.ui import Ui


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulations (0)")
    parser.add_argument("--out", type=Path, help="folder of this run (runs/demo-<time>)")
    parser.add_argument("--master", help="Spark master (this machine)")


def run(args: argparse.Namespace, ui: Ui) -> int:
    from unisono.experiments.demo import HEAD, run_demo, table_rows

    out = args.out or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    with ui.progress() as progress:
        result = run_demo(out, args.seed, args.master, progress)
    ui.emit(result)
    table = Table(*HEAD, title="Do two subscribers hear the same?")
    for row in table_rows(result["settings"]):
        table.add_row(*row)
    ui.show(table)
    ui.show(f"report: {result['report']}")
    ordered = [setting for setting in result["settings"] if setting["name"] != "bare"]
    broken = any(setting["total_order_violations"] for setting in ordered)
    return 1 if broken or any(setting["audit"] == "invalid" for setting in ordered) else 0
