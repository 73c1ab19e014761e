"""Messages that are reordered for real: a fan-in of parallel workers on NATS.

Events are published in one space of a server; worker processes take them from a queue group, work
for a while - how long varies, as with matching - and pass the frames on into another space, where
two subscribers listen: a bare one, and one with probabilistic FIFO. No delay is simulated.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from unisono.bench.server import NatsServer
from unisono.core.events import Delivery, Status
from unisono.errors import EnvironmentLacks
from unisono.net.bus import Bus
from unisono.net.connect import connect
from unisono.qos.fifo.options import Fifo

TAKEN, GIVEN = "before", "after"
WORKERS = 4
MESSAGES, RATE_PER_S = 4000, 800.0
_ROUNDS = 1500  # of hashing, on average
_WAIT_S = 60


def measure(messages: int = MESSAGES, rate_per_s: float = RATE_PER_S) -> dict[str, Any]:
    """How many violations there are without and with the layer, and what it costs."""
    server = NatsServer()
    server.start()
    command = [sys.executable, "-m", "unisono.bench.reordering", server.url]
    workers = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE) for seed in range(WORKERS)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline() != b"ready\n":
                raise EnvironmentLacks("a worker of the benchmark did not start")
        bare, held = asyncio.run(_listen(server.url, messages, rate_per_s))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        server.kill()
    without, extra = _violations(bare), _mean_ms(held) - _mean_ms(bare)
    left = sum(event.status is Status.OUT_OF_ORDER for event in held)
    assert left == _violations(held)
    return {
        "messages": messages,
        "rate_per_s": rate_per_s,
        "workers": WORKERS,
        "violations_bare": without,
        "violations": left,
        "gone": round(1 - left / without, 4) if without else None,
        "latency_bare_ms": round(_mean_ms(bare), 2),
        "extra_ms": round(extra, 2),
    }


async def _listen(
    url: str, messages: int, rate_per_s: float
) -> tuple[list[Delivery], list[Delivery]]:
    there, here = f"{url}/{TAKEN}", f"{url}/{GIVEN}"
    async with (
        connect(here, order="none") as bare,
        connect(here, order="fifo", fifo=Fifo()) as held,
        connect(there, order="fifo", fifo=Fifo()) as publisher,
    ):
        await bare.subscribe("t")
        await held.subscribe("t")

        async def take(bus: Bus) -> list[Delivery]:
            return [await bus.notify() for _ in range(messages)]

        async def publish() -> None:
            begun = time.monotonic()
            for number in range(messages):
                await publisher.publish("t", b"%d" % number)
                await asyncio.sleep(max(0.0, begun + number / rate_per_s - time.monotonic()))

        async with asyncio.timeout(_WAIT_S + messages / rate_per_s):
            found = await asyncio.gather(take(bare), take(held), publish())
        return found[0], found[1]


def _violations(events: list[Delivery]) -> int:
    highest, count = -1, 0
    for event in events:
        number = int(event.payload)
        count += number < highest
        highest = max(highest, number)
    return count


def _mean_ms(events: list[Delivery]) -> float:
    return sum(event.latency_us for event in events) / len(events) / 1000


async def _work(url: str, seed: int, ready: Callable[[], None]) -> None:
    """Take, hash for a while, pass on; until killed."""
    import nats

    client = await nats.connect(url)
    rng = Random(seed)

    async def on_message(message: Any) -> None:
        rounds = round(rng.expovariate(1 / _ROUNDS))
        hashlib.pbkdf2_hmac("sha256", message.data[:16], b"", max(1, rounds))
        await client.publish(message.subject.replace(TAKEN, GIVEN, 1), message.data)

    await client.subscribe(f"{TAKEN}.>", queue="workers", cb=on_message)
    await client.flush()
    ready()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], int(sys.argv[2]), lambda: print("ready", flush=True)))
