"""Lost packets and hashed delays in compiled loops: the twin of `sim/losses.py`.

A link's place in its train is kept with whoever sends: `time`, what the draws depend on, how many
packets it has had, whether the last one was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unisono.compiled import Longs, Words, in_place, mix
from unisono.sim.channels import QUANTILE_BITS, HashedDelays, Wan, node_key
from unisono.sim.columnar.bits import ones
from unisono.sim.columnar.links import hashed, is_slow
from unisono.sim.columnar.tables import Matrix, Table
from unisono.sim.losses import DRAW_BITS, Loss, Losses

TRAIN = np.dtype(
    [
        ("time", np.int64),
        ("base", np.uint64),
        ("target", np.int32),
        ("count", np.int32),
        ("bad", np.int64),
    ],
    align=True,
)
TREE, DIRECT = 0, 1
_SEED, _SHARED, _DELAYS, _SLOW_BELOW = range(4)
_SHIFT = np.uint64(64 - DRAW_BITS)
_QUANTILE_SHIFT = np.uint64(64 - QUANTILE_BITS)


class Channels(NamedTuple):
    """What delays and losses depend on."""

    words: Words
    key: Words  # by node
    delay_us: Matrix  # quantiles of the delays of fast and of slow links, or the one delay of all
    conditions: Longs  # rows of `Loss.conditions`


def make_channels(names: Sequence[str], wan: Wan, loss: Loss, seed: int) -> Channels:
    delays, losses = HashedDelays(wan, seed), Losses(loss, seed)
    alike = wan.slow_share == 0 and wan.fast_sd_ms == 0
    return Channels(
        np.array(
            [losses.seed_key, losses.shared_below, delays.seed_key, delays.slow_below], np.uint64
        ),
        np.array([node_key(name) for name in names], np.uint64),
        np.array([[delays.fast_us[0]]] if alike else [delays.fast_us, delays.slow_us], np.int32),
        np.array(loss.conditions, np.int64),
    )


@in_place
def delay(words: Words, key: Words, delay_us: Matrix, source: int, target: int, now: int) -> int:
    """How long a packet sent now is on its way."""
    if source == target:
        return 0
    if delay_us.shape[1] == 1:
        return int(delay_us[0, 0])
    a, b = key[source], key[target]
    slow = int(is_slow(words[_DELAYS], words[_SLOW_BELOW], a, b))
    drawn = mix(hashed(words[_DELAYS], a, b) ^ np.uint64(now)) >> _QUANTILE_SHIFT
    return int(delay_us[slow, np.int64(drawn)])


@in_place
def condition(conditions: Longs, now: int) -> int:
    """Which row of the conditions holds now."""
    at: int = conditions.shape[0] - 1
    while conditions[at, 0] > now:
        at -= 1
    return at


@in_place
def come(
    train: Table,
    at: int,
    words: Words,
    key: Words,
    limits: Longs,
    source: int,
    target: int,
    lane: int,
    now: int,
    packets: int,
) -> np.uint64:
    """Send so many packets on a link: a bit for each that comes. `limits`: what holds now."""
    if source == target:
        return ones(packets)
    if train[at].time != now or train[at].target != target:
        link = hashed(words[_SEED], key[source], key[target] ^ np.uint64(lane))
        base = mix(link ^ np.uint64(now))
        if mix(~base) >> _SHIFT < words[_SHARED]:
            base = mix(words[_SEED] ^ np.uint64(now))
        train[at].time = now
        train[at].target = target
        train[at].base = base
        train[at].count = 0
        train[at].bad = 0
    base = train[at].base
    count = np.uint64(train[at].count)
    bad = train[at].bad
    found = np.uint64(0)
    for index in range(packets):
        limit = limits[1] if count == np.uint64(0) else limits[3] if bad else limits[2]
        bad = 1 if mix(base + count) >> _SHIFT < np.uint64(limit) else 0
        count += np.uint64(1)
        if not bad:
            found |= np.uint64(1) << np.uint64(index)
    train[at].count = np.int32(count)
    train[at].bad = bad
    return found
