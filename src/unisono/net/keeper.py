"""A process that fills a journal: what to keep comes as JSON on standard input, so that no list of
processes shows credentials; what there is to say goes to standard output."""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import msgspec

from unisono.errors import UnisonoError
from unisono.net.collect import Wish, keep


async def _run(wish: Wish) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def say(text: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", flush=True)

    await keep(wish, stop, say)


def main() -> int:
    wish = msgspec.json.decode(sys.stdin.buffer.read(), type=Wish)
    try:
        asyncio.run(_run(wish))
    except UnisonoError as error:
        print(error, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
