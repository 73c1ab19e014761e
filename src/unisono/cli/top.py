"""`unisono top`: the live bus - members, topic order and epoch, rates, managers, clusters."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import unisono
from unisono.cli import visitor
from unisono.cli.ui import Ui
from unisono.cli.visitor import Failing
from unisono.net import loop
from unisono.net.bus import Bus, Overview
from unisono.net.signals import told_to_stop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the bus, for example nats://127.0.0.1:4222")
    parser.add_argument("--order", default="total", help="total, or total:log (total)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between looks (2)")
    parser.add_argument("--once", action="store_true", help="two looks, then stop, as with --json")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if not args.every > 0:
        raise unisono.BadInput(f"--every {args.every:g}: expected a positive number of seconds")
    return loop.run(_watch(args, ui))


async def _watch(args: argparse.Namespace, ui: Ui) -> int:
    connection = unisono.connect(args.url, order=args.order, manage=False, name="top")
    async with connection as bus:
        fails = visitor.failing(bus)
        try:
            if args.once or ui.as_json:
                await _look_once(bus, fails, args, ui)
            else:
                await _look(bus, fails, args, ui)
        finally:
            fails.cancel()
    return 0


async def _look_once(bus: Bus, fails: Failing, args: argparse.Namespace, ui: Ui) -> None:
    await visitor.wait(fails, seconds=args.every)
    before = bus.overview
    await visitor.wait(fails, seconds=args.every)
    result = snapshot(before, bus.overview, args.every)
    ui.emit(result)
    ui.show(_picture(result))


async def _look(bus: Bus, fails: Failing, args: argparse.Namespace, ui: Ui) -> None:
    stopping = asyncio.ensure_future(told_to_stop().wait())
    now = bus.overview
    with Live(console=ui.out, auto_refresh=False) as live:
        while not stopping.done():
            before, now = now, bus.overview
            picture = _picture(snapshot(before, now, args.every))
            if ui.out.is_terminal:
                live.update(picture, refresh=True)
            else:  # each of them, as into a file
                ui.show(picture)
            await visitor.wait(fails, stopping, seconds=args.every)


def snapshot(before: Overview, now: Overview, every_s: float) -> dict[str, Any]:
    """What the command prints with --json."""
    topics = []
    for name, topic in sorted(now.topics.items(), key=lambda item: item[1].rank):
        earlier = before.topics.get(name)
        new = topic.events - earlier.events if earlier is not None else 0
        topics.append(
            {
                "topic": name,
                "rank": topic.rank,
                "events": topic.events,
                "events_per_s": round(max(new, 0) / every_s, 1),
                "manager": topic.manager,
            }
        )
    return {
        "view": now.view,
        "members": list(now.members),
        "complete": now.complete,
        "epoch": now.epoch,
        "topics": topics,
        **({"clusters": now.clusters} if now.clusters else {}),
        **({"logs": _logs(before, now, every_s)} if now.logs else {}),
    }


def _logs(before: Overview, now: Overview, every_s: float) -> dict[str, Any]:
    """By domain."""
    found = {}
    for domain, log in now.logs.items():
        earlier = before.logs.get(domain)
        new = log.events - earlier.events if earlier is not None else 0
        found[domain] = {**msgspec.structs.asdict(log), "events_per_s": round(new / every_s, 1)}
    return found


def _log_tables(logs: dict[str, Any]) -> list[Table]:
    table = Table("domain", "leader", "term", "voters", "spares", "events", "events/s")
    for domain, log in logs.items():
        table.add_row(
            Text(domain),
            Text(log["leader"] or "none"),
            str(log["term"]),
            Text(", ".join(log["voters"])),
            Text(", ".join(log["spares"])),
            f"{log['events']:,}",
            f"{log['events_per_s']:,}",
        )
    return [table]


def _picture(result: dict[str, Any]) -> Group:
    if "logs" in result:
        return Group(*_log_tables(result["logs"]))
    state = "complete" if result["complete"] else "changing"
    head = Text(
        f"view {result['view']} ({state}), {len(result['members'])} members, "
        f"topic order {result['epoch']}"
    )
    table = Table("rank", "topic", "events", "events/s", "manager")
    for row in result["topics"]:
        table.add_row(
            str(row["rank"]),
            Text(row["topic"]),
            f"{row['events']:,}",
            f"{row['events_per_s']:,}",
            Text(row["manager"]),
        )
    if "clusters" not in result:
        return Group(head, table)
    clusters = Table("cluster", "coordinators, their backups")
    for name, addresses in result["clusters"].items():
        clusters.add_row(Text(name), Text(", ".join(addresses)))  # [::1] is no markup
    return Group(head, table, clusters)
