"""`unisono pub`: publish events, each a line of standard input, or one given as an argument."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator

from unisono.cli import visitor
from unisono.cli.ui import Ui
from unisono.core.limits import Limits, check_payload
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


async def _given(args: argparse.Namespace) -> AsyncIterator[bytes]:
    for payload in args.payload * args.count:
        yield os.fsencode(payload)


async def _lines() -> AsyncIterator[bytes]:
    """Of standard input, as they come, whatever bytes they are of."""
    held = b""
    number = sys.stdin.fileno()
    while data := await loop.in_thread(lambda: os.read(number, 1 << 16)):
        *whole, held = (held + data).split(b"\n")
        for line in whole:
            yield line
        check_payload(held, Limits())  # it has no end yet, and would be refused
    if held:
        yield held


async def _publish(args: argparse.Namespace, ui: Ui) -> int:
    published = 0
    async with visitor.connect(args, "pub") as bus:
        clock = asyncio.get_running_loop().time
        begun = clock()
        typed = not args.payload and sys.stdin.isatty()
        if typed:
            ui.remark("a line is an event; end with Ctrl-D")
        with ui.progress(disable=typed) as progress:
            total = len(args.payload) * args.count or None
            task = progress.add_task("published", total=total)
            async for payload in _given(args) if args.payload else _lines():
                if args.rate is not None:
                    await asyncio.sleep(max(0.0, begun + published / args.rate - clock()))
                await bus.publish(args.topic, payload)
                published += 1
                progress.advance(task)
        await bus.flush()
        lost = bus.unacknowledged
        ui.emit({"published": published, "unacknowledged": lost, "troubles": bus.troubles})
        ui.show(f"{published} events published on {args.topic}")
        if lost:
            ui.remark(f"{lost} of them were not acknowledged: whether they went out is unknown")
    return 1 if lost else 0
