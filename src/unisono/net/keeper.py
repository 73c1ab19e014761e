"""A process that fills a journal: what to keep comes as JSON on standard input, so that no list of
processes shows credentials; what there is to say goes to standard output."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec

from unisono.errors import UnisonoError
from unisono.net.collect import Wish, keep
from unisono.net.signals import told_to_stop


async def _run(wish: Wish) -> None:
    stop = told_to_stop()

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
