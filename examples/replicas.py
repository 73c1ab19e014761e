"""Two replicas of an account apply deposits and withdrawals from two topics - and end up equal.

    python examples/replicas.py [URL]        memory:// by default; nats://127.0.0.1:4222 for a real
    server

Deposits and interest come on different topics from different publishers. Interest is ten per cent
of the balance at that moment, so the order matters: without total order across the topics the
replicas drift apart.
"""

from __future__ import annotations

import asyncio
import sys

import unisono

ROUNDS = 50
TOPICS = ("account.deposits", "account.interest")


async def replica(bus: unisono.Bus) -> int:
    """Apply every event in the order notified; the balance in cents."""
    balance = 0
    applied = 0
    async for event in bus:
        if event.topic == "account.deposits":
            balance += int(event.payload)
        else:
            balance += balance * int(event.payload) // 100
        applied += 1
        if applied == 2 * ROUNDS:
            break
    return balance


async def publish(bus: unisono.Bus, topic: str, amount: int) -> None:
    for _ in range(ROUNDS):
        await bus.publish(topic, str(amount).encode())
    await bus.flush()


async def main(url: str) -> None:
    async with (
        unisono.connect(url, order="total", name="berlin") as berlin,
        unisono.connect(url, order="total", name="madrid") as madrid,
    ):
        await asyncio.gather(berlin.subscribe(*TOPICS), madrid.subscribe(*TOPICS))
        in_berlin, in_madrid, *_ = await asyncio.gather(
            replica(berlin),
            replica(madrid),
            publish(berlin, "account.deposits", 1000),
            publish(madrid, "account.interest", 10),
        )
    print(f"berlin {in_berlin}  madrid {in_madrid}  equal: {in_berlin == in_madrid}")
    if in_berlin != in_madrid:
        sys.exit(1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
