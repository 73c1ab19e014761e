"""What `unisono pub` and `unisono sub` have in common: they visit a bus, and leave again."""

from __future__ import annotations

import argparse

import unisono
from unisono.net.connect import Connection


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--order", default="total", help="none, fifo or total (total)")
    parser.add_argument("--delivery", default="none", help="reliable or none (none)")


def connect(args: argparse.Namespace, name: str) -> Connection:
    """Without managers of its own: those are for nodes, which stay."""
    return unisono.connect(
        args.url,
        order=args.order,
        delivery=args.delivery,
        name=name,
        manage=args.order != "total",
    )
