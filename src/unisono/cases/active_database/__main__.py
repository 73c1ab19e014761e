"""Replicas over a real bus: python -m unisono.cases.active_database [url].

Starts some replicas, each with a connection and a SQLite database of its own, lets all of them
publish transactions at the same time, waits until everybody has everything, and compares.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

from unisono.cases.active_database.database import IN_MEMORY
from unisono.cases.active_database.replica import Replica
from unisono.cases.active_database.transactions import encode
from unisono.cases.active_database.workload import random_transaction
from unisono.errors import UnisonoError
from unisono.net.bus import Bus
from unisono.net.connect import connect

CATEGORIES = ("sport", "wear", "gadgets", "hi-tech", "software")
_PATIENCE_S = 60.0


async def follow(bus: Bus, replica: Replica, total: int) -> None:
    """Apply what the bus notifies, until all transactions are there."""
    async for delivery in bus:
        replica.take(delivery)
        if replica.taken == total:
            return


async def write(bus: Bus, rng: Random, count: int) -> None:
    """The clients of one replica."""
    receipts = [
        await bus.publish(rng.choice(CATEGORIES), encode(random_transaction(rng)))
        for _ in range(count)
    ]
    for receipt in receipts:
        await receipt


async def run(url: str, count: int, transactions: int, folder: Path | None) -> list[Replica]:
    """`count` replicas that publish `transactions` each, and end with all of them."""
    paths = [IN_MEMORY if folder is None else str(folder / f"replica{i}.db") for i in range(count)]
    replicas = [Replica(path) for path in paths]
    async with AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(connect(url, order="total", name=f"replica{index}"))
            for index in range(count)
        ]
        for bus in buses:  # all listen before the first transaction: no replica needs a copy
            await bus.subscribe(*CATEGORIES)
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(
                *(
                    follow(*pair, count * transactions)
                    for pair in zip(buses, replicas, strict=True)
                ),
                *(write(bus, Random(index), transactions) for index, bus in enumerate(buses)),
            )
    return replicas


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m unisono.cases.active_database", description=__doc__.splitlines()[0]
    )
    parser.add_argument("url", nargs="?", default="memory://", help="the bus (memory://)")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--transactions", type=int, default=100, help="per replica")
    parser.add_argument("--folder", type=Path, help="keep the databases here (else in memory)")
    args = parser.parse_args()
    if args.replicas < 1 or args.transactions < 1:
        parser.error("--replicas and --transactions are at least 1")
    try:
        replicas = asyncio.run(run(args.url, args.replicas, args.transactions, args.folder))
    except TimeoutError:
        print(f"error: not everything arrived within {_PATIENCE_S:g} s", file=sys.stderr)
        return 1
    except UnisonoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    digests = [replica.sha256() for replica in replicas]
    for number, (replica, digest) in enumerate(zip(replicas, digests, strict=True)):
        print(
            f"replica {number}: {replica.taken} transactions, {replica.rollbacks} rollbacks, "
            f"contents {digest[:16]}"
        )
        replica.close()
    equal = len(set(digests)) == 1
    print(f"equal: {equal}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
