"""`unisono audit PATH...`: Spark judges traces and says who saw what when a promise was broken."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks

if TYPE_CHECKING:
    from rich.table import Table

    from unisono.pipeline.growing import Grown
    from unisono.pipeline.report import Report, Verdict

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
        "--incremental",
        action="store_true",
        help="audit only what is new since the last time, and keep a history of verdicts",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="where the history is kept; default: audit/ in PATH",
    )
    parser.add_argument(
        "--horizon-s",
        type=float,
        metavar="N",
        help="how long parts may come late, and losses are not judged; default: 600",
    )
    parser.add_argument(
        "--final", action="store_true", help="the trace has ended: judge its last minutes, too"
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
    _check_incremental(args)
    try:
        from unisono.pipeline.audit import audit
        from unisono.pipeline.growing import HORIZON_US, audit_growing
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
    verdicts: list[Verdict] = []
    told: list[dict[str, Any]] = []
    for path in args.paths:
        with ui.progress() as progress:
            options: dict[str, Any] = {
                "promises": promises,
                "deadline_us": _micros(args.deadline_ms),
                "settle_us": _micros(args.settle_ms),
                "progress": progress,
                "stall_us": _micros(args.stall_ms),
                "breakdown": args.breakdown,
            }
            if args.incremental:
                horizon_us = HORIZON_US if args.horizon_s is None else round(args.horizon_s * 1e6)
                grown = audit_growing(spark, path, args.state, horizon_us, args.final, **options)
                report, lines = grown.report, _growth(grown)
                told.append(grown.to_json())
            else:
                report, lines = audit(spark, open_trace(spark, path), **options), []
                told.append(report.to_json())
        verdicts.append(report.verdict)
        for line in [*_words(path, report), *lines]:
            ui.show(line)
    verdict = worst(verdicts)
    if len(told) == 1:
        ui.emit(told[0])
    else:
        traces = [{"path": str(path), **of} for path, of in zip(args.paths, told, strict=True)]
        ui.emit({"verdict": verdict, "traces": traces})
    return 1 if verdict == "invalid" else 0


def _check_incremental(args: argparse.Namespace) -> None:
    only = {"--state": args.state, "--horizon-s": args.horizon_s, "--final": args.final or None}
    for name, value in only.items():
        if value is not None and not args.incremental:
            raise BadInput(f"{name} is for --incremental audits")
    if args.horizon_s is not None and not 0 <= args.horizon_s < 1e12:
        raise BadInput(f"--horizon-s {args.horizon_s}: expected a number of seconds, not negative")
    if args.state is not None and len(args.paths) > 1:
        raise BadInput("--state is for one trace")


def _growth(grown: Grown) -> list[str]:
    """What is said of a growing trace besides."""
    from rich.markup import escape

    new, total = sum(grown.rows["new"].values()), sum(grown.rows["total"].values())
    lines = [f"audit {grown.audits} of this trace: {new:,} new rows of {total:,}"]
    if grown.whole is not None:
        lines.append(f"the whole trace was audited: {escape(grown.whole)}")
    lines.append(f"all audits so far: [{STYLES[grown.verdict]}]{grown.verdict}[/]")
    return lines


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
