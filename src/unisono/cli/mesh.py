"""`unisono mesh`: several nodes on this machine; what happens when one is killed; keys."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks
from unisono.net.signals import told_to_stop


def arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    up = what.add_parser("up", help="start nodes here and keep them until Ctrl-C")
    up.add_argument("--nodes", type=int, default=10, help="how many (10)")
    up.add_argument("--clusters", type=int, help="in how many clusters (3, if there are as many)")
    up.add_argument("--port", type=int, default=7400, help="of the first, the others follow (7400)")
    kill = what.add_parser("kill", help="kill a node and watch what happens")
    kill.add_argument("node", help="its name, for example n3")
    kill.add_argument("--seconds", type=float, default=8.0, help="how long to watch (8)")
    status = what.add_parser("status", help="clusters, coordinators and members")
    for each in (up, kill, status):
        each.add_argument(
            "--folder", type=Path, default=Path("mesh"), help="where it is kept (mesh)"
        )
    key = what.add_parser("key", help="make the key that all nodes of a mesh share")
    key.add_argument("file", type=Path)
    for each in (up, kill, status, key):
        each.add_argument("--json", action="store_true", default=argparse.SUPPRESS)


def run(args: argparse.Namespace, ui: Ui) -> int:
    try:
        from unisono.net import fleet, watch
        from unisono.net.keys import make_key
    except ImportError:
        raise EnvironmentLacks("the mesh needs pip install 'unisono[mesh]'") from None
    ui.as_json = args.json
    if args.what == "key":
        make_key(args.file)
        ui.emit({"key": str(args.file)})
        ui.show(f"{args.file} is the key; copy it to every node, and show it to nobody")
        return 0
    if args.what == "up":
        return asyncio.run(_up(args, ui))
    nodes = [node for node in fleet.nodes_of(args.folder) if node.pid is not None]
    if not nodes:
        raise BadInput("no node runs any more")
    if args.what == "status":
        clusters = asyncio.run(watch.clusters(nodes, args.folder / fleet.KEY))
        ui.emit({"clusters": clusters})
        ui.show(_picture(clusters))
        return 0
    if not args.seconds > 0:
        raise BadInput("--seconds is a positive number")
    seen = asyncio.run(watch.kill(args.folder, nodes, args.node, args.seconds, ui.remark))
    ui.emit(seen)
    ui.show(
        f"{seen['published']} events were published meanwhile; {seen['lost']} lost, "
        f"{seen['duplicates']} twice, the longest pause at a subscriber {seen['pause_ms']:.0f} ms"
    )
    return 1 if seen["lost"] or seen["duplicates"] else 0


async def _up(args: argparse.Namespace, ui: Ui) -> int:
    from unisono.net.fleet import KEY, Fleet

    stop = told_to_stop()
    clusters = args.clusters if args.clusters is not None else min(3, args.nodes)
    fleet = Fleet(args.folder, args.nodes, clusters, args.port, "127.0.0.1")
    try:
        with ui.progress() as progress:
            task = progress.add_task("starting nodes", total=len(fleet.nodes))
            for node in fleet.nodes:
                await asyncio.to_thread(fleet.start, node)
                progress.advance(task)
                if stop.is_set():
                    return 0
        rows = [{"node": n.name, "address": n.address, "cluster": n.cluster} for n in fleet.nodes]
        ui.emit({"folder": str(args.folder), "nodes": rows})
        table = Table("node", "address", "cluster")
        for node in fleet.nodes:
            table.add_row(node.name, node.address, node.cluster)
        ui.show(table)
        by = ",".join(dict.fromkeys((fleet.nodes[-1].address, fleet.nodes[0].address)))
        url = f"mesh://{by}?key={args.folder / KEY}"  # by either, should one be killed
        folder = "" if args.folder == Path("mesh") else f" --folder {args.folder}"
        ui.show(f'try: unisono sub "{url}" greetings')
        ui.show(f'     unisono pub "{url}" greetings hello')
        ui.show(f"     unisono mesh kill n0{folder}      stop all with Ctrl-C")
        while not stop.is_set():
            for node in fleet.look():
                ui.remark(f"{node.name} has ended")
            try:
                await asyncio.wait_for(stop.wait(), 0.2)
            except TimeoutError:
                continue
    finally:
        await asyncio.to_thread(fleet.stop)
    return 0


def _picture(clusters: list[dict[str, Any]]) -> Table:
    table = Table("cluster", "coordinators, by tree", "backups", "others")
    for one in clusters:
        table.add_row(
            one["site"], *(", ".join(one[part]) for part in ("coordinators", "backups", "others"))
        )
    return table
