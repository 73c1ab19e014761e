"""Record what a bus does, to have Spark prove afterwards that its promises were kept.

python examples/audited.py [URL] [FOLDER]
unisono audit FOLDER
"""

from __future__ import annotations

import asyncio
import sys

import unisono

EVENTS = 200


async def main(url: str, folder: str) -> None:
    async with (
        unisono.connect(url, order="total", trace=folder, name="publisher") as publisher,
        unisono.connect(url, order="total", trace=folder, name="reader") as reader,
        unisono.connect(url, order="total", trace=folder, name="auditor") as auditor,
    ):
        await asyncio.gather(reader.subscribe("a", "b", "c"), auditor.subscribe("c", "a"))
        for number in range(EVENTS):
            await publisher.publish("abc"[number % 3], str(number).encode())
        await publisher.flush()
        wanted = {reader: EVENTS, auditor: sum(number % 3 != 1 for number in range(EVENTS))}
        for bus, count in wanted.items():
            for _ in range(count):
                await bus.notify()
    print(f"recorded in {folder}; now run: unisono audit {folder}")


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1] if len(sys.argv) > 1 else "memory://",
            sys.argv[2] if len(sys.argv) > 2 else "runs/audited",
        )
    )
