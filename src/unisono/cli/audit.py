"""`unisono audit PATH...`: Spark judges traces and says who saw what when a promise was broken."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks

if TYPE_CHECKING:
    from rich.table import Table

    from unisono.pipeline.report import Report

# Up to so many bytes of trace, a Java that starts fast beats one that runs fast.
SMALL_BYTES = 20_000_000

WORST = 10  # topics and links of the breakdown that people see

STYLES = {"valid": "green", "unknown": "yellow", "invalid": "bold red"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a run folder, or a trace folder with publications, deliveries, subscriptions",
    )
    parser.add_argument(
        "--promise",
        metavar="CHECK,...",
        help="the checks that decide the verdict; default: those of run.json, else all possible",
    )
    parser.add_argument("--deadline-ms", type=float, metavar="N", help="from publish to delivery")
    parser.add_argument(
        "--settle-ms",
        type=float,
        metavar="N",
        help="what is published less than this before an unsubscription need not arrive",
    )
    parser.add_argument(
        "--stall-ms",
        type=float,
        metavar="N",
        help="longest silence of a subscriber while something older is on its way",
    )
    parser.add_argument(
        "--breakdown", action="store_true", help="also tell the figures by topic and by link"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master; default: this machine")


def run(args: argparse.Namespace, ui: Ui) -> int:
    given_ms = {
        "--deadline-ms": args.deadline_ms,
        "--settle-ms": args.settle_ms,
        "--stall-ms": args.stall_ms,
    }
    for name, value in given_ms.items():
        if value is not None and not 0 <= value < 1e15:
            raise BadInput(f"{name} {value}: expected a number of milliseconds, not negative")
    try:
        from unisono.pipeline.audit import audit
        from unisono.pipeline.locate import check_folder
        from unisono.pipeline.read import open_trace
        from unisono.pipeline.report import check_names, worst
        from unisono.pipeline.session import spark_session
    except ImportError as error:
        raise EnvironmentLacks(
            f"the audit needs Spark and its companions ({error}): pip install 'unisono[spark]'"
        ) from error
    promises = None
    if args.promise is not None:
        given = [name.strip() for name in args.promise.split(",") if name.strip()]
        promises = check_names(given, "--promise")
        if not promises:
            raise BadInput("--promise names no check")
    size = sum(check_folder(path) for path in args.paths)
    ui.remark("starting Spark ...")
    spark = spark_session("unisono audit", args.master, quick=size <= SMALL_BYTES)
    reports: list[Report] = []
    for path in args.paths:
        with ui.progress() as progress:
            report = audit(
                spark,
                open_trace(spark, path),
                promises,
                deadline_us=_micros(args.deadline_ms),
                settle_us=_micros(args.settle_ms),
                progress=progress,
                stall_us=_micros(args.stall_ms),
                breakdown=args.breakdown,
            )
        reports.append(report)
        for line in _words(path, report):
            ui.show(line)
    verdict = worst([report.verdict for report in reports])
    if len(reports) == 1:
        ui.emit(reports[0].to_json())
    else:
        traces = [
            {"path": str(path), **report.to_json()}
            for path, report in zip(args.paths, reports, strict=True)
        ]
        ui.emit({"verdict": verdict, "traces": traces})
    return 1 if verdict == "invalid" else 0


def _micros(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1000)


def _words(path: Path, report: Report) -> list[Table | str]:
    """One trace for people: the checks, then each witness in a sentence, then the figures."""
    from rich.markup import escape
    from rich.table import Table

    from unisono.pipeline.report import sentence

    table = Table(title=escape(str(path)), title_justify="left", title_style="bold")
    for heading in ("check", "verdict", "violations", "promised"):
        table.add_column(heading, justify="right" if heading == "violations" else "left")
    lines: list[Table | str] = [table]
    for name, check in report.checks.items():
        count = "-" if check.violations is None else f"{check.violations:,}"
        style = STYLES[check.verdict]
        promised = "yes" if check.promised else "no"
        table.add_row(name, f"[{style}]{check.verdict}[/]", count, promised)
        if check.witness is not None:
            lines.append(f"[bold]{name}:[/] {escape(sentence(name, check.witness))}")
        elif check.remark and check.promised:
            lines.append(f"[bold]{name}:[/] {escape(check.remark)}")
    rows = ", ".join(
        f"{count:,} {name}" for name, count in report.rows.items() if count is not None
    )
    lines.append(f"{rows}; {report.tagged:.2%} of deliveries tagged out of order")
    if report.latency["mean"] is not None:
        figures = ", ".join(f"{name} {value:.1f}" for name, value in report.latency.items())
        lines.append(f"latency in ms: {figures}")
    if report.breakdown is not None:
        lines += [
            _worst(kind, report.breakdown[kind])
            for kind in ("topics", "links")
            if report.breakdown[kind]
        ]
    lines.append(f"verdict: [{STYLES[report.verdict]}]{report.verdict}[/]")
    return lines


def _worst(kind: str, shares: list[dict[str, Any]]) -> Table:
    """The slowest topics or links of those that are told, by the 99th percentile."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"slowest {kind}", title_justify="left", title_style="bold")
    names = ("topic",) if kind == "topics" else ("publisher", "subscriber")
    counts = [name for name in ("deliveries", "tagged", "duplicates", "lost") if name in shares[0]]
    for heading in names:
        table.add_column(heading)
    for heading in (*counts, "mean ms", "p50", "p99", "max"):
        table.add_column(heading, justify="right")

    def slowness(share: dict[str, Any]) -> float:
        p99 = share["latency"]["p99"]
        return float("inf") if p99 is None else -p99

    for share in sorted(shares, key=slowness)[:WORST]:
        latency = ["-" if ms is None else f"{ms:.1f}" for ms in share["latency"].values()]
        cells = [escape(share[name]) for name in names]
        table.add_row(*cells, *(f"{share[name]:,}" for name in counts), *latency)
    return table
