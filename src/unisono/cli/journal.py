"""`unisono journal`: keep what a bus notifies in a journal, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks
from unisono.net.signals import told_to_stop


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
        from unisono.net.collect import Wish, keep
    except ImportError as error:
        raise EnvironmentLacks(
            f"a journal needs pyarrow ({error}): pip install 'unisono[trace]'"
        ) from error
    stop = told_to_stop()
    wish = Wish(
        url=args.url,
        folder=str(args.folder),
        topics=tuple(args.topics.split(",")),
        order=args.order,
        delivery=args.delivery,
        where=args.where,
        keep_bytes=None if args.keep_gb is None else round(args.keep_gb * 1e9),
    )
    begun, after = await keep(wish, stop, ui.remark)
    ui.emit({"folder": wish.folder, "first": begun, "next": after})
    ui.show(f"{after - begun} events written, positions {begun} to {after - 1}")
    return 0
