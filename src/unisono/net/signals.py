"""How processes of ours are told to end."""

from __future__ import annotations

import asyncio
import signal


def told_to_stop() -> asyncio.Event:
    """Set by SIGTERM and SIGINT, from now on; in a running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
