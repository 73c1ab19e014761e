"""A node of a mesh as a process of its own, for tests that kill it: `python mesh_process.py JSON`.

It subscribes, says so, and stays until SIGTERM; or it publishes numbered events at a steady rate,
and then stays. What the audit needs is recorded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import unisono
from unisono.net.signals import told_to_stop

TOPIC = "flights"


async def main(about: dict[str, Any]) -> None:
    stop = told_to_stop()
    connection = unisono.connect(
        about["url"],
        order="none",
        delivery="reliable",
        trace=about["trace"],
        name=about["name"],
    )
    async with connection as bus:
        if about["publish"]:
            await _say({"node": bus.id})
            await asyncio.to_thread(sys.stdin.readline)  # until told to begin
            await _publish(bus, about["publish"], about["rate"])
            await _say({"published": about["publish"], "troubles": bus.troubles})
        else:
            await bus.subscribe(TOPIC)
            await _say({"node": bus.id})
        heard = 0
        stopping = asyncio.ensure_future(stop.wait())
        while not stopping.done():
            coming = asyncio.ensure_future(bus.notify())
            await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                heard += 1
                if heard % 10 == 0:
                    await _say({"heard": heard})
            else:
                coming.cancel()
        await _say({"heard": heard})


async def _publish(bus: unisono.Bus, count: int, rate: float) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(count):
        await asyncio.sleep(max(0.0, begun + number / rate - loop.time()))
        await bus.publish(TOPIC, b"%d" % number)
    await bus.flush()


async def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
