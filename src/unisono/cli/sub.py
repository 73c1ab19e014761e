"""`unisono sub`: print what is notified, until Ctrl-C or a number of events."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from rich.text import Text

from unisono.cli import visitor
from unisono.cli.ui import Ui
from unisono.core.events import Delivery
from unisono.errors import BadInput
from unisono.net import loop
from unisono.net.signals import told_to_stop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the bus, for example mesh://127.0.0.1:7400")
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--where", help="only events that match (docs/content.md)")
    visitor.arguments(parser)
    parser.add_argument("--count", type=int, help="stop after so many events")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.count is not None and args.count < 1:
        raise BadInput("--count is a positive number")
    return loop.run(_listen(args, ui))


async def _listen(args: argparse.Namespace, ui: Ui) -> int:
    async with visitor.connect(args, "sub") as bus:
        stop = told_to_stop()  # before, Ctrl-C interrupts the joining
        await bus.subscribe(*args.topics, where=args.where)
        ui.remark(f"listening to {', '.join(args.topics)}; stop with Ctrl-C")
        stopping = asyncio.ensure_future(stop.wait())
        heard = 0
        ui.begin_list("events")
        while args.count is None or heard < args.count:
            coming = asyncio.ensure_future(bus.notify())
            await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                break
            heard += 1
            delivery = coming.result()
            ui.emit_item(_row(delivery))
            ui.show(Text(f"{delivery.topic}  {_text(delivery)}  ({delivery.status.value})"))
        stopping.cancel()
        ui.emit({"troubles": bus.troubles})
    return 0


def _text(delivery: Delivery) -> str:
    return delivery.payload.decode(errors="backslashreplace")


def _row(delivery: Delivery) -> dict[str, Any]:
    return {
        "topic": delivery.topic,
        "id": delivery.id,
        "payload": _text(delivery),
        "status": delivery.status.value,
    }
