"""The main job: simulate the four settings, audit their traces in Spark, and report.

simulator -> run folders -> Spark (audit, agreement, latency) -> plots and page. Nobody reaches
back.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.experiments.fig_3_21 import SCENARIO, SETTINGS, scenario
from unisono.report import html, plots
from unisono.sim.run import run_scenario, write_outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

    from unisono.pipeline.report import Report


def run_demo(out: Path, seed: int, master: str | None, progress: Progress) -> dict[str, Any]:
    """Run it all into the folder `out`; the JSON object of `unisono demo`."""
    from unisono.pipeline.session import spark_session

    with ThreadPoolExecutor(1) as background:
        # Spark takes seconds to start; the simulations do not need it.
        starting = background.submit(spark_session, "unisono demo", master)
        folders = _simulate(out, seed, progress)
        waiting = progress.add_task("start Spark", total=1)
        spark = starting.result()
        progress.update(waiting, completed=1)
    reports, agreed, curve = _analyse(spark, folders, progress)
    settings = [_setting(name, reports[name], agreed[name]) for name in SETTINGS]
    page = _report(out, seed, settings, curve)
    return {"settings": settings, "report": str(page), "run": str(out), "seed": seed}


def _simulate(out: Path, seed: int, progress: Progress) -> dict[str, Path]:
    bar = progress.add_task("simulate", total=len(SETTINGS))
    folders = {}
    for name in SETTINGS:
        chosen = scenario(name)
        folders[name] = out / name
        write_outcome(folders[name], chosen, run_scenario(chosen, seed))
        progress.advance(bar)
    return folders


def _analyse(
    spark: SparkSession, folders: Mapping[str, Path], progress: Progress
) -> tuple[dict[str, Report], dict[str, float], dict[str, list[tuple[float, float]]]]:
    from unisono.pipeline import patterns
    from unisono.pipeline.audit import audit
    from unisono.pipeline.progress import run_with_progress
    from unisono.pipeline.read import open_trace

    bar = progress.add_task("audit", total=len(folders))
    reports = {}
    for name, folder in folders.items():
        reports[name] = audit(spark, open_trace(spark, folder))
        progress.advance(bar)
    found = patterns.detections(patterns.read_runs(spark, folders, "control"))
    rows = run_with_progress(
        spark, "agreement", progress, lambda: patterns.agreement(found).collect()
    )
    agreed = {row["run"]: float(row["agreement"]) for row in rows}
    published = patterns.read_runs(spark, folders, "publications")
    delivered = patterns.read_runs(spark, folders, "deliveries")
    points = run_with_progress(
        spark,
        "latency",
        progress,
        lambda: patterns.latency_curve(published, delivered).orderBy("run", "share").collect(),
    )
    curve: dict[str, list[tuple[float, float]]] = {name: [] for name in folders}
    for row in points:
        curve[row["run"]].append((row["latency_ms"], row["share"]))
    return reports, agreed, curve


def _setting(name: str, report: Report, agreed: float) -> dict[str, Any]:
    order = report.checks["total-order"]
    return {
        "name": name,
        "agreement": agreed,
        "total_order_violations": order.violations,
        "tagged": report.tagged,
        "latency_ms": {"mean": report.latency["mean"], "p99": report.latency["p99"]},
        "audit": report.verdict,
        "witness": order.witness,
    }


HEAD = ("setting", "patterns agreed on", "total-order violations", "tagged", "mean ms", "p99 ms")


def table_rows(settings: list[dict[str, Any]]) -> list[list[str]]:
    """The one table of the demonstration, as texts."""
    return [
        [
            setting["name"],
            f"{setting['agreement']:.1%}",
            str(setting["total_order_violations"]),
            f"{setting['tagged']:.1%}",
            f"{setting['latency_ms']['mean']:.0f}",
            f"{setting['latency_ms']['p99']:.0f}",
        ]
        for setting in settings
    ]


def _report(
    out: Path,
    seed: int,
    settings: list[dict[str, Any]],
    curve: dict[str, list[tuple[float, float]]],
) -> Path:
    agreement_svg = out / "plots" / "agreement.svg"
    latency_svg = out / "plots" / "latency.svg"
    tagged_svg = out / "plots" / "tagged.svg"
    shares = {setting["name"]: 100 * setting["agreement"] for setting in settings}
    plots.bars(
        shares, "patterns both detectors agree on (%)", agreement_svg, mark=("thesis, bare", 35)
    )
    tagged = {setting["name"]: 100 * setting["tagged"] for setting in settings}
    plots.bars(tagged, "notifications tagged out of order (%)", tagged_svg)
    plots.curves(curve, "latency (ms)", "share of notifications", latency_svg)
    base = SCENARIO
    about = (
        f"{base.publishers.count} publishers on {base.topics} topics, "
        f"{base.publishers.rate_per_s:g} events/s each, {base.subscribers.count} detectors "
        f"of the pattern e, e', e'' and an event service of {base.nodes} nodes "
        f"with the papers' wide-area delays; {base.duration_s:g} s, "
        f"seed {seed}."
    )
    parts = [
        html.paragraph("Do two subscribers hear the same events in the same order?"),
        html.paragraph(about),
        html.table(HEAD, table_rows(settings)),
        html.figures([agreement_svg, latency_svg, tagged_svg]),
        html.heading("How to read it"),
        html.paragraph(
            "Violations are pairs of subscribers that were notified, untagged, of the same two "
            "events in different orders; Spark counted them in the traces. A tag tells the "
            "application that an event comes too late to be in order. The thesis saw 35 % "
            "agreement on the bare service and 100 % with an unbounded buffer (figure 3.21)."
        ),
    ]
    from unisono.pipeline.report import sentence

    bare = next(setting for setting in settings if setting["name"] == "bare")
    if bare["witness"] is not None:
        parts.append(html.heading("A witness from the bare service"))
        parts.append(html.paragraph(sentence("total-order", bare["witness"]) + "."))
    parts.append(html.paragraph(f"Traces: {out}/<setting>/trace", note=True))
    return html.write_page(out / "report.html", "Unisono: order, measured", parts)
