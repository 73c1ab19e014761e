"""`unisono bench NAME...`: benchmarks whose figures are ratios against a peer of the same run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks

BENCHMARKS = ("audit", "sim")


def arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(BENCHMARKS)
    parser.add_argument("names", nargs="+", choices=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument(
        "--rows", metavar="N,...", help="audit: sizes of the traces; default 5000000,40000000"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="medians of N (3)")
    parser.add_argument("--folder", type=Path, help="audit: where traces are made and removed")
    parser.add_argument(
        "--master", metavar="URL", help="audit: Spark master; default: this machine"
    )


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.runs < 1:
        raise BadInput(f"--runs {args.runs}: expected at least one")
    result: dict[str, Any] = {}
    for name in dict.fromkeys(args.names):
        try:
            found = _audit(args, ui) if name == "audit" else _sim(args, ui)
        except ImportError as error:
            raise EnvironmentLacks(
                f"bench {name} lacks a package ({error}): pip install 'unisono[spark,dev]'"
            ) from error
        result = {**result, **found, "machine": {**result.get("machine", {}), **found["machine"]}}
    ui.emit(result)
    return 0 if all(result[name]["met"] for name in args.names) else 1


def _audit(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import audit

    if args.folder is not None and not args.folder.is_dir():
        raise BadInput(f"--folder {args.folder}: no such folder")
    sizes = audit.SIZES if args.rows is None else _sizes(args.rows)
    result = audit.run(sizes, args.runs, args.folder, args.master, ui.remark)
    _show_audit(result["audit"], ui)
    return result


def _sim(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import sim

    result = sim.run(args.runs, ui.remark)
    _show_sim(result["sim"], ui)
    return result


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        sizes = ()
    if not sizes or sizes[0] < 100:
        raise BadInput(f"--rows {text}: expected numbers of at least 100, separated by commas")
    return sizes


def _show_audit(figures: dict[str, Any], ui: Ui) -> None:
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


def _show_sim(figures: dict[str, Any], ui: Ui) -> None:
    from rich.table import Table

    table = Table(title="random hops", title_justify="left")
    for heading in ("queue", "hops per second", "over SimPy"):
        table.add_column(heading, justify="right")
    for name, speed in figures["hops_per_s"].items():
        ratio = figures.get(f"{name}_over_simpy", 1.0)
        table.add_row(name, f"{speed:,}", f"{ratio:.2f}")
    ui.show(table)
    large, targets = figures["fig_3_18"], figures["targets"]
    ui.show(
        f"figure 3.18: {large['events']:,} events, {large['notifications']:,} notifications in "
        f"{large['process_s']} s and {large['peak_gib']} GiB; targets: "
        f"{targets['columnar_over_simpy_min']:g} and {targets['objects_over_simpy_min']:g} times "
        f"SimPy, {targets['fig_3_18_s_max']:g} s, {targets['fig_3_18_gib_max']:g} GiB: "
        + ("met" if figures["met"] else "not met")
    )
