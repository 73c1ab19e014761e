"""`unisono node`: a process that hosts topic managers on a bus, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import unisono
from unisono.cli.ui import Ui
from unisono.ens.base import public
from unisono.net.signals import told_to_stop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the bus, for example nats://127.0.0.1:4222")
    parser.add_argument("--name", help="a name in the trace; a random suffix keeps it unique")
    parser.add_argument("--disk", type=Path, help="folder that keeps its part over a restart")
    parser.add_argument("--trace", type=Path, help="folder to record what the audit needs")
    parser.add_argument("--replicas", type=int, help="copies of each manager, on a new bus (3)")
    parser.add_argument("--join", action="store_true", help="join a bus, never start one")
    parser.add_argument("--period", type=float, default=0.5, help="seconds between signs of life")


def run(args: argparse.Namespace, ui: Ui) -> int:
    return asyncio.run(_host(args, ui))


async def _host(args: argparse.Namespace, ui: Ui) -> int:
    stop = told_to_stop()
    connection = unisono.connect(
        args.url,
        name=args.name,
        disk=args.disk,
        trace=args.trace,
        replicas=args.replicas,
        period_s=args.period,
        found=not args.join,
    )
    async with connection as bus:
        ui.emit({"node": bus.id, "members": list(bus.overview.members)})
        ui.show(f"{bus.id} hosts topic managers on {public(args.url)}; stop it with Ctrl-C")
        stopping = asyncio.ensure_future(stop.wait())
        failing = asyncio.ensure_future(bus.notify())  # nothing is subscribed: it ends with the bus
        await asyncio.wait((stopping, failing), return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            failing.result()
        failing.cancel()
    return 0
