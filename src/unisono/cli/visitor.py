"""What commands on a live bus have in common: how they visit it, and notice that it has ended."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import unisono
from unisono.net.connect import Connection


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--order", default="total", help="none, fifo, total or total:log (total)")
    parser.add_argument("--delivery", default="none", help="reliable or none (none)")


def connect(args: argparse.Namespace, name: str) -> Connection:
    """Without managers of its own: those are for nodes, which stay."""
    return unisono.connect(
        args.url,
        order=args.order,
        delivery=args.delivery,
        name=name,
        manage=not args.order.startswith("total") or args.order == "total:bus",
    )


Failing = asyncio.Future[Any]


def failing(bus: unisono.Bus) -> Failing:
    """Where nothing is subscribed to: it ends with the bus, by an error. To be cancelled."""
    return asyncio.ensure_future(bus.notify())


async def wait(fails: Failing, *others: asyncio.Future[Any], seconds: float | None = None) -> None:
    """So long, or until one of the others comes true; a bus that has ended is an error."""
    ends = (fails, *others)
    await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if fails.done():
        fails.result()
