"""`unisono node`: a process that hosts topic managers on a bus until SIGTERM or SIGINT, or with
`--order total:log` may vote in its log; with `--listen` it is a node of a mesh, with no broker."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from urllib.parse import urlencode

from rich.text import Text

import unisono
from unisono.cli import visitor
from unisono.cli.ui import Ui
from unisono.ens.base import public
from unisono.errors import BadInput
from unisono.net import loop
from unisono.net.signals import told_to_stop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", nargs="?", help="the bus, for example nats://127.0.0.1:4222")
    parser.add_argument("--name", help="a name in the trace; a random suffix keeps it unique")
    parser.add_argument("--disk", type=Path, help="folder that keeps its part over a restart")
    parser.add_argument("--trace", type=Path, help="folder to record what the audit needs")
    parser.add_argument("--order", default="total", help="total, or total:log (total)")
    parser.add_argument("--replicas", type=int, help="copies of each manager, on a new bus (3)")
    parser.add_argument("--no-found", action="store_true", help="join a bus, never start one")
    parser.add_argument("--period", type=float, default=0.5, help="seconds between signs of life")
    parser.add_argument("--leash", action="store_true", help="end when standard input does")
    mesh = parser.add_argument_group("a mesh, instead of a bus (docs/mesh.md)")
    mesh.add_argument("--listen", metavar="ADDRESS", help="be a node of a mesh, at 127.0.0.1:7400")
    mesh.add_argument("--join", metavar="ADDRESS", action="append", help="a node that is there")
    mesh.add_argument("--cluster", help="the domain; nodes of one domain form a cluster")
    mesh.add_argument("--advertise", metavar="ADDRESS", help="where others reach it, if elsewhere")
    mesh.add_argument("--key-file", metavar="FILE", help="made by `unisono mesh key FILE`")
    mesh.add_argument("--insecure", action="store_true", help="no key: nothing is protected")
    mesh.add_argument("--trees", type=int, help="active coordinators a cluster, of a new mesh (2)")
    mesh.add_argument("--backups", type=int, help="of each of them, of a new mesh (1)")


def run(args: argparse.Namespace, ui: Ui) -> int:
    return loop.run(_host(args, ui))


def _url(args: argparse.Namespace) -> str:
    mesh = {
        "listen": args.listen,
        "cluster": args.cluster,
        "advertise": args.advertise,
        "key": args.key_file,
        "insecure": 1 if args.insecure else None,
        "trees": args.trees,
        "backups": args.backups,
    }
    given = {name: value for name, value in mesh.items() if value is not None}
    if args.url is not None:
        if given or args.join:
            raise BadInput(
                "a bus, or --listen and what belongs to it; not both. What belongs to a guest of a "
                "mesh stands behind its address: mesh://127.0.0.1:7400?key=FILE"
            )
        return str(args.url)
    if args.listen is None:
        raise BadInput(
            "which bus? name its address, or say --listen HOST:PORT to be a node of a mesh "
            "(port 0 is any)"
        )
    return f"mesh://{','.join(args.join or ())}?{urlencode(given)}"


async def _host(args: argparse.Namespace, ui: Ui) -> int:
    url = _url(args)
    connection = unisono.connect(
        url,
        order=args.order,
        name=args.name,
        disk=args.disk,
        trace=args.trace,
        replicas=args.replicas,
        period_s=args.period,
        found=not args.no_found,
    )
    async with connection as bus:
        stop = told_to_stop(args.leash)  # before, Ctrl-C interrupts the joining
        where = {"address": bus.address} if bus.address else {}
        members = list(bus.overview.members)
        members += sorted({v for log in bus.overview.logs.values() for v in log.voters})
        ui.emit({"node": bus.id, **where, "members": members})
        shown = public(url)
        if bus.address:
            clusters = list(bus.overview.clusters)
            others = f" beside {', '.join(clusters[1:])}" if clusters[1:] else ""
            shown = f"the mesh, at {bus.address}, in the cluster {clusters[0]}{others}"
        does = "may vote" if bus.overview.logs else "hosts topic managers"
        ui.show(Text(f"{bus.id} {does} on {shown}; stop it with Ctrl-C"))
        if args.insecure:
            ui.remark("--insecure: whoever can send to this address is trusted, nothing is sealed")
        fails = visitor.failing(bus)
        await visitor.wait(fails, asyncio.ensure_future(stop.wait()))
        fails.cancel()
    return 0
