"""`unisono pub`: publish events, each a line of standard input, or one given as an argument."""

from __future__ import annotations

import argparse
import asyncio
import sys

from unisono.cli import visitor
from unisono.cli.ui import Ui
from unisono.errors import BadInput
from unisono.net import loop


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="the bus, for example mesh://127.0.0.1:7400")
    parser.add_argument("topic")
    parser.add_argument("payload", nargs="*", help="events; none: the lines of standard input")
    visitor.arguments(parser)
    parser.add_argument("--count", type=int, default=1, help="times that all are published (1)")
    parser.add_argument("--rate", type=float, help="events a second, at most")


def run(args: argparse.Namespace, ui: Ui) -> int:
    if args.count < 1 or (args.rate is not None and not args.rate > 0):
        raise BadInput("--count and --rate are positive numbers")
    if not args.payload and args.count > 1:
        raise BadInput("--count is for events given as arguments")
    return loop.run(_publish(args, ui))


async def _publish(args: argparse.Namespace, ui: Ui) -> int:
    published = 0
    async with visitor.connect(args, "pub") as bus:
        clock = asyncio.get_running_loop().time
        begun = clock()
        lines = iter(args.payload * args.count) if args.payload else None
        with ui.progress() as progress:
            total = len(args.payload) * args.count or None
            task = progress.add_task("published", total=total)
            while True:
                if lines is not None:
                    text = next(lines, None)
                else:
                    line = await asyncio.to_thread(sys.stdin.readline)
                    text = line.rstrip("\n") if line else None
                if text is None:
                    break
                if args.rate is not None:
                    await asyncio.sleep(max(0.0, begun + published / args.rate - clock()))
                await bus.publish(args.topic, text.encode())
                published += 1
                progress.advance(task)
        await bus.flush()
        lost = bus.unacknowledged
        ui.emit({"published": published, "unacknowledged": lost, "troubles": bus.troubles})
        ui.show(f"{published} events published on {args.topic}")
        if lost:
            ui.remark(f"{lost} of them were not acknowledged: whether they went out is unknown")
    return 1 if lost else 0
