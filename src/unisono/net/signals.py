"""How processes of ours are told to end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys


def told_to_stop(leash: bool = False) -> asyncio.Event:
    """Set by SIGTERM and SIGINT, from now on; in a running loop. With a leash also when standard
    input ends, as it does when whoever holds its other end is killed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def read() -> None:
        if not os.read(held, 4096):
            loop.remove_reader(held)
            stop.set()

    if leash:
        held = sys.stdin.fileno()
        loop.add_reader(held, read)
    return stop
