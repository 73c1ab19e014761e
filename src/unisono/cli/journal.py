"""`unisono journal`: keep what a bus notifies in a journal, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import unisono
from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the bus, for example nats://127.0.0.1:4222")
    parser.add_argument("folder", type=Path, help="where the journal is")
    parser.add_argument("--topics", required=True, metavar="TOPIC,...", help="what to keep")
    parser.add_argument("--where", help="only events that match (docs/content.md)")
    parser.add_argument("--order", default="total", help="none, fifo or total (total)")
    parser.add_argument("--delivery", default="none", help="reliable or none (none)")
    parser.add_argument("--keep-gb", type=float, help="the oldest go when there is more; all stay")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.keep_gb is not None and not args.keep_gb > 0:
        raise BadInput(f"--keep-gb {args.keep_gb}: expected a positive number")
    return asyncio.run(_collect(args, ui))


async def _collect(args: argparse.Namespace, ui: Ui) -> int:
    try:
        from unisono.journal.journal import Journal
        from unisono.net.collect import collect
    except ImportError as error:
        raise EnvironmentLacks(
            f"a journal needs pyarrow ({error}): pip install 'unisono[trace]'"
        ) from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    keep = None if args.keep_gb is None else round(args.keep_gb * 1e9)
    with Journal(args.folder, keep_bytes=keep) as journal:
        begun = journal.next
        if journal.repaired_bytes:
            ui.remark(f"{journal.repaired_bytes} bytes of an unfinished write were cut off")
        connection = unisono.connect(args.url, order=args.order, delivery=args.delivery)
        async with connection as bus:

            def subscribed() -> None:
                ui.remark(f"writing from position {begun} on; stop it with Ctrl-C")

            topics = args.topics.split(",")
            await collect(bus, journal, topics, stop, args.where, subscribed, ui.remark)
        written = journal.next - begun
    ui.emit({"folder": str(args.folder), "first": begun, "next": journal.next})
    ui.show(f"{written} events written, positions {begun} to {journal.next - 1}")
    return 0
