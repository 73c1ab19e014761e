"""`unisono bench NAME...`: benchmarks whose figures are ratios against a peer of the same run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks

BENCHMARKS = ("audit", "coding", "delivery", "fifo", "mesh", "order", "sim", "spark")
# Options that mean something to some benchmarks only.
OPTIONS = dict.fromkeys(("rows", "folder", "master"), ("audit", "spark")) | dict.fromkeys(
    ("bus", "topics", "subscribers"), ("order",)
)


def arguments(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(BENCHMARKS)
    parser.add_argument("names", nargs="+", choices=BENCHMARKS, metavar="NAME", help=names)
    parser.add_argument(
        "--runs", type=int, metavar="N", help="medians of N; default 3, and 5 for order"
    )
    parser.add_argument(
        "--rows", metavar="N,...", help="audit, spark: how many deliveries the audited traces have"
    )
    parser.add_argument("--folder", type=Path, help="audit, spark: for traces, which are removed")
    parser.add_argument("--master", metavar="URL", help="audit, spark: Spark master; this machine")
    parser.add_argument("--bus", metavar="BUS,...", help="order: memory, nats; default both")
    parser.add_argument("--topics", metavar="N,...", help="order: how many; default 1,5,30")
    parser.add_argument("--subscribers", metavar="N,...", help="order: how many; default 1,3,10")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.runs is not None and args.runs < 1:
        raise BadInput(f"--runs {args.runs}: expected at least one")
    for option, having in OPTIONS.items():
        if getattr(args, option) is not None and not set(having) & set(args.names):
            raise BadInput(f"--{option} is an option of the benchmark {' and '.join(having)}")
    result: dict[str, Any] = {}
    benchmarks = {
        "audit": _audit,
        "coding": _coding,
        "delivery": _delivery,
        "fifo": _fifo,
        "mesh": _mesh,
        "order": _order,
        "sim": _sim,
        "spark": _spark,
    }
    for name in dict.fromkeys(args.names):
        try:
            figures = benchmarks[name](args, ui)
        except ImportError as error:
            raise EnvironmentLacks(
                f"bench {name} lacks a package ({error}): pip install 'unisono[spark,dev]'"
            ) from error
        result |= figures | {"machine": result.get("machine", {}) | figures["machine"]}
    ui.emit(result)
    return 1 if any(result[name]["met"] is False for name in args.names) else 0


def _audit(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import audit

    if args.folder is not None and not args.folder.is_dir():
        raise BadInput(f"--folder {args.folder}: no such folder")
    sizes = audit.SIZES if args.rows is None else _numbers("rows", args.rows, 100)
    result = audit.run(sizes, args.runs or audit.RUNS, args.folder, args.master, ui.remark)
    _show_audit(result["audit"], ui)
    return result


def _spark(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import spark

    if args.folder is not None and not args.folder.is_dir():
        raise BadInput(f"--folder {args.folder}: no such folder")
    sizes = spark.SIZES if args.rows is None else _numbers("rows", args.rows, 100)
    result = spark.run(sizes, args.runs or spark.RUNS, args.folder, args.master, ui.remark)
    found = result["spark"]
    source, ordered, grown = found["source"], found["in_order"], found["audit"]
    ui.show(
        f"source: {source['rows_per_s']:,} rows a second, {source['ratio']} of a source that has "
        f"them ready (at least {source['targets']['rows_per_s_min']:,} and "
        f"{source['targets']['ratio_min']})"
    )
    ui.show(
        f"in_order: {ordered['rows_per_s']:,} rows a second, {ordered['ratio']} times passing "
        f"through (at least {ordered['targets']['rows_per_s_min']:,}, at most "
        f"{ordered['targets']['ratio_max']})"
    )
    for size in grown["sizes"]:
        ui.show(
            f"audit of {size['rows']:,}: {size['audit_s']} s, at most {size['peak_gib']['all']} GiB"
        )
    ui.show(f"exponent: {grown['exponent']} (at most {grown['targets']['exponent_max']})")
    ui.show("met" if found["met"] else "not met")
    return result


def _mesh(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import mesh

    result = mesh.run(args.runs or mesh.RUNS, ui.remark)
    figures = result["mesh"]
    batched, least = figures["datagrams"]["batched"], figures["datagrams"]["targets"]
    ui.show(
        f"{batched['datagrams_per_cpu_s']:,} datagrams received and authenticated a second and "
        f"core (at least {least['datagrams_per_cpu_s_min']:,})"
    )
    late = figures["latency"]
    for name in ("mesh", "nats", "zenoh"):
        ui.show(
            f"{late['event_bytes']:,} bytes to {late['subscribers']} subscribers over {name}: p50 "
            f"{late[name]['p50_ms']:g} ms, p99 {late[name]['p99_ms']:g} ms"
        )
    sim = figures["simulator"]
    ui.show(
        f"a tree of {sim['sites']:,} sites: {sim['build_s']} s, one multicast "
        f"{sim['multicast_ms']} ms"
    )
    ui.show("met" if figures["met"] else "not met")
    return result


def _sim(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import sim

    result = sim.run(args.runs or sim.RUNS, ui.remark)
    _show_sim(result["sim"], ui)
    return result


def _delivery(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import delivery

    result = delivery.run(args.runs or delivery.RUNS, ui.remark)
    for name, figures in result["delivery"]["runs"].items():
        ui.show(f"{name}: {figures['s']} s (at most {figures['s_max']:g})")
    return result


def _fifo(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import fifo

    result = fifo.run(args.runs or fifo.RUNS, ui.remark)
    figures = result["fifo"]
    ui.show(
        f"in order: {figures['in_order_us']} us (at most {fifo.IN_ORDER_MAX_US:g}), "
        f"{figures['ratio_in_order']} times a heap; held: {figures['held_us']} us (at most "
        f"{fifo.HELD_MAX_US:g}); "
        f"{figures['bytes_per_publisher']} bytes per publisher"
    )
    nats = figures["nats"]
    if isinstance(nats, str):
        ui.show(nats)
    else:
        ui.show(
            f"{nats['workers']} workers on NATS, {nats['rate_per_s']:g} messages a second: "
            f"{nats['violations_bare']} violations in {nats['messages']} bare, "
            f"{nats['violations']} with the layer, {nats['extra_ms']} ms extra"
        )
    return result


def _coding(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import coding

    result = coding.run(args.runs or coding.RUNS, ui.remark)
    figures = result["coding"]
    _show_coding(figures, ui)
    return result | {work: figures[work] for work in ("encode", "decode")}


def _order(args: argparse.Namespace, ui: Ui) -> dict[str, Any]:
    from unisono.bench import order

    buses = order.BUSES if args.bus is None else tuple(args.bus.split(","))
    for bus in buses:
        if bus not in order.BUSES:
            raise BadInput(f"--bus {bus}: expected {' or '.join(order.BUSES)}")
    topics = order.TOPICS if args.topics is None else _numbers("topics", args.topics, 1)
    many = args.subscribers
    subscribers = order.SUBSCRIBERS if many is None else _numbers("subscribers", many, 1)
    result = order.run(buses, topics, subscribers, args.runs or order.RUNS, ui.remark)
    _show_order(result["order"], tuple(order.COMPARED), ui)
    return result


def _numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < least:
        raise BadInput(
            f"--{option} {text}: expected numbers of at least {least}, separated by commas"
        )
    return numbers


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


def _show_coding(figures: dict[str, Any], ui: Ui) -> None:
    from rich.table import Table

    table = Table(title=f"coding ({figures['kernel']})", title_justify="left")
    table.add_column("")
    for heading in ("encode us", "to ours", "decode us", "to ours"):
        table.add_column(heading, justify="right")
    for name in figures["encode"]["us"]:
        row = []
        for work in ("encode", "decode"):
            taken = figures[work]["us"].get(name)
            ratio = figures[work].get(f"ratio_to_{name.replace('-', '_')}")
            row.append("" if taken is None else f"{taken:.2f}")
            row.append("" if ratio is None else f"{ratio:.2f}")
        table.add_row(name, *row)
    ui.show(table)
    ui.show(f"an event's whole path: {figures['path']['us']} us")
    for target in figures["judged"]:
        limit = f"at least {target['min']:g}" if "min" in target else f"at most {target['max']:g}"
        if not target["applied"]:
            verdict = "not judged, the peer is absent"
        else:
            verdict = f"{target['found']}: " + ("met" if target["met"] else "not met")
        ui.show(f"target: {target['work']}, {target['figure']} {limit}: {verdict}")


def _show_order(figures: dict[str, Any], compared: tuple[str, ...], ui: Ui) -> None:
    from rich.table import Table

    table = Table(title="what ordering costs", title_justify="left")
    headings = ("bus", "topics", "subscribers", "order", "events/s", "p50 ms", "p99 ms", "cpu us")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("bus", "order") else "right")
    for row in figures["settings"]:
        for name in compared:
            found = row[name]
            table.add_row(
                row["bus"], str(row["topics"]), str(row["subscribers"]), name,
                f"{found['events_per_s']:,.0f}", f"{found['p50_ms']:.2f}",
                f"{found['p99_ms']:.2f}", f"{found['cpu_us']:.0f}",
            )  # fmt: skip
    ui.show(table)
    ui.show("cpu us: processor time per event and subscriber, of all of them and the publisher")
    if figures["met"] is not None:
        targets = figures["targets"]
        ui.show(
            f"on the embedded bus with {targets['topics']} topics, order adds up to "
            f"{figures['order_cpu_us']:.0f} us; target: {targets['order_cpu_us_max']:.0f} us: "
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
