"""`unisono case`: the live case studies, on a bare bus and with guarantees."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput

CASES = ("port-scan", "trading")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=CASES, help="which one")
    parser.add_argument("--bus", metavar="URL", help="default: a NATS server of its own")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument("--seconds", type=float, help="how long events are published, each time")
    parser.add_argument("--loss", type=float, help="share of frames that a link loses")
    parser.add_argument("--delay-ms", type=float, help="mean delay of frames on a link")
    parser.add_argument(
        "--pcap",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="port-scan: captured packets instead of generated ones, a file for each site",
    )
    parser.add_argument("--scanners", metavar="ADDRESS,...", help="who scans in these files")
    parser.add_argument("--out", type=Path, help="keep journals and results in this folder")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.name != "port-scan" and args.pcap is not None:
        raise BadInput("--pcap is for port-scan")
    if args.scanners is not None and args.pcap is None:
        raise BadInput("--scanners says who scans in captured files: give --pcap")
    if args.seconds is not None and args.pcap is not None:
        raise BadInput("captured packets come at their own pace: leave --seconds out")
    if args.seconds is not None and not 1 <= args.seconds <= 86_400:
        raise BadInput(f"--seconds {args.seconds}: expected 1 to 86400")
    from unisono.pipeline.session import spark_session

    ui.remark("starting Spark ...")
    spark = spark_session("unisono case")
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out if args.out is not None else Path(scratch)
        if args.name == "trading":
            return _trading(spark, out, args, ui)
        return _port_scan(spark, out, args, ui)


def _port_scan(spark: Any, out: Path, args: argparse.Namespace, ui: Ui) -> int:
    from unisono.cases.live import Link
    from unisono.cases.port_scan import traffic
    from unisono.cases.port_scan.pcap import captured
    from unisono.cases.port_scan.run import run as watch

    link = Link(
        loss=0.05 if args.loss is None else args.loss,
        delay_ms=10.0 if args.delay_ms is None else args.delay_ms,
    )
    if args.pcap is not None:
        known = frozenset(args.scanners.split(",")) if args.scanners else None
        packets = captured(args.pcap, known)
    else:
        seconds = {} if args.seconds is None else {"seconds": args.seconds}
        packets = traffic.generate(traffic.Wish(seed=args.seed, **seconds))
    results = watch(spark, out, packets, link, args.seed, args.bus, ui.remark)
    ui.emit(results)
    table = Table("bus", "threshold", "recall", "precision", "detected within", "events arrived")
    for mode, result in results.items():
        arrived = f"{result['arrived']:,} of {result['published']:,}"
        for threshold, figures in result["thresholds"].items():
            shares = (_share(figures[name]) for name in ("recall", "precision"))
            took = figures["detection_s"]
            within = "-" if took is None else f"{took:.1f} s"
            table.add_row(mode, threshold, *shares, within, arrived)
    ui.show(table)
    return 0


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _trading(spark: Any, out: Path, args: argparse.Namespace, ui: Ui) -> int:
    from unisono.cases.live import Link
    from unisono.cases.trading.run import SPEED, Session
    from unisono.cases.trading.run import run as trade

    link = Link(loss=args.loss or 0.0, delay_ms=5.0 if args.delay_ms is None else args.delay_ms)
    seconds = 300.0 if args.seconds is None else args.seconds * SPEED
    session = Session(seed=args.seed, seconds=seconds, link=link)
    results = trade(spark, out, session, args.bus, ui.remark)
    ui.emit(results)
    table = Table(
        "bus", "orders decided alike", "decisions of A", "of B", "prices heard by A", "by B"
    )
    for mode, result in results.items():
        made, heard = result["decisions"], result["heard"]
        table.add_row(
            mode,
            f"{result['identical_decisions']:.1%}",
            *(f"{made[firm]:,}" for firm in made),
            *(f"{heard[firm]:,} of {result['published']:,}" for firm in heard),
        )
    ui.show(table)
    return 0 if results["ordered"]["identical_decisions"] == 1.0 else 1
