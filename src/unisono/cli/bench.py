"""`unisono bench NAME...`: benchmarks whose figures are ratios against a peer of the same run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks

BENCHMARKS = ("audit",)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", choices=BENCHMARKS, metavar="NAME", help="audit")
    parser.add_argument(
        "--rows", metavar="N,...", help="audit: sizes of the traces; default 5000000,40000000"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="medians of N (3)")
    parser.add_argument("--folder", type=Path, help="where traces are made and removed again")
    parser.add_argument("--master", metavar="URL", help="Spark master; default: this machine")


def run(args: argparse.Namespace, ui: Ui) -> int:
    try:
        from unisono.bench import audit
    except ImportError as error:
        raise EnvironmentLacks(
            f"the benchmark needs Spark and its companions ({error}): pip install 'unisono[spark]'"
        ) from error
    if args.runs < 1:
        raise BadInput(f"--runs {args.runs}: expected at least one")
    if args.folder is not None and not args.folder.is_dir():
        raise BadInput(f"--folder {args.folder}: no such folder")
    sizes = audit.SIZES if args.rows is None else _sizes(args.rows)
    result = audit.run(sizes, args.runs, args.folder, args.master, ui.remark)
    _show(result["audit"], ui)
    ui.emit(result)
    return 0 if result["audit"]["met"] else 1


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        sizes = ()
    if not sizes or sizes[0] < 100:
        raise BadInput(f"--rows {text}: expected numbers of at least 100, separated by commas")
    return sizes


def _show(figures: dict[str, Any], ui: Ui) -> None:
    from rich.table import Table

    table = Table(title="audit against sort and write", title_justify="left")
    for heading in ("rows", "sort and write", "audit", "ratio"):
        table.add_column(heading, justify="right")
    for size in figures["sizes"]:
        table.add_row(
            f"{size['rows']:,}",
            f"{size['sort_write_s']:.1f} s",
            f"{size['audit_s']:.1f} s",
            f"{size['ratio']:.2f}",
        )
    ui.show(table)
    targets = figures["targets"]
    ui.show(
        f"time grew {figures['growth']} times as much as rows; targets: ratio up to "
        f"{targets['ratio_max']}, growth up to {targets['growth_max']}: "
        + ("met" if figures["met"] else "not met")
    )
