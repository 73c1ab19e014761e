"""Random hops, the work of any event-driven simulator, on three queues.

Tokens hop; the k-th hop that is asked for takes the k-th delay of a list (over and over). All three
carry out the same hops at the same times in the same order, which their checksums show.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from unisono.compiled import Longs, compiled
from unisono.sim.channels import Wan, quantiles_us
from unisono.sim.columnar import calendar as cal
from unisono.sim.world import World
from unisono.trace.memory import MemoryRecorder

TOKENS = 10_000
_CHECK = (1 << 61) - 1


def delays() -> Longs:
    """Wide-area delays: a fifth slow, the rest fast, shuffled."""
    wan = Wan()
    fast = quantiles_us(wan.fast_mean_ms, wan.fast_sd_ms, wan.minimum_ms)
    slow = quantiles_us(wan.slow_mean_ms, wan.slow_sd_ms, wan.minimum_ms)
    mixed = np.array([*fast[::2], *slow[::8]], np.int64)
    np.random.default_rng(1).shuffle(mixed)
    return mixed


def columnar(delay_us: Longs, tokens: int, hops: int) -> int:
    queue = cal.calendar(tokens)
    return int(_columnar(*queue, delay_us, tokens, hops))


@compiled
def _columnar(
    slot: Any, first: Any, last: Any, state: Longs, delay_us: Longs, tokens: int, hops: int
) -> int:
    asked = after = check = 0  # `after` is the place of the next delay
    for token in range(tokens):
        cal.push(slot, first, last, state, delay_us[after], token)
        asked += 1
        after = after + 1 if after + 1 < delay_us.size else 0
    for _ in range(hops):
        now = cal.next_time(slot, first, state)
        token = cal.pop(slot, first, last, state)
        check = (check * 3 + (now ^ token)) & _CHECK
        if asked < hops:
            cal.push(slot, first, last, state, now + delay_us[after], token)
            asked += 1
            after = after + 1 if after + 1 < delay_us.size else 0
    return check


class _Silent:
    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: object) -> None: ...


def objects(delay_us: Longs, tokens: int, hops: int) -> int:
    """The queue of `sim/world.py`, which drives the object nodes."""
    world = World(["a"], Wan(), 1, MemoryRecorder(), _Silent())
    delay = delay_us.tolist()
    size = len(delay)
    asked = check = 0

    def hopping(token: int) -> Callable[[int], None]:
        def hop(now: int) -> None:
            nonlocal asked, check
            check = (check * 3 + (now ^ token)) & _CHECK
            if asked < hops:
                world.at(now + delay[asked % size], hop)
                asked += 1

        return hop

    for token in range(tokens):
        world.at(delay[asked % size], hopping(token))
        asked += 1
    world.run()
    return check


def simpy(delay_us: Longs, tokens: int, hops: int) -> int:
    """SimPy, a process per token."""
    from simpy import Environment

    env = Environment()
    delay = delay_us.tolist()
    size = len(delay)
    asked = check = 0

    def hopping(token: int) -> Generator[Any, Any, None]:
        nonlocal asked, check
        while asked < hops:
            asked += 1
            yield env.timeout(delay[(asked - 1) % size])
            check = (check * 3 + (int(env.now) ^ token)) & _CHECK

    for token in range(tokens):
        env.process(hopping(token))
    env.run()
    return check
