"""Hashed link delays in compiled loops, and FIFO links: the twin of `sim/channels.py`.

Links are found in an open hash table by (source, target); what belongs to a link - its hash,
whether it is slow, the last arrival on it - is kept there, made on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unisono.compiled import Words, compiled, mix
from unisono.errors import Unsupported
from unisono.sim.channels import QUANTILE_BITS, HashedDelays, Wan, node_key
from unisono.sim.columnar.tables import Matrix, Table

_SHIFT = np.uint64(64 - QUANTILE_BITS)
# `key` is 0 where the table is free.
_LINK = np.dtype(
    [("key", np.int64), ("hash", np.uint64), ("last", np.int64), ("slow", np.int64)], align=True
)
SEED, SLOW_BELOW, USED = range(3)  # places in Links.state


class Links(NamedTuple):
    """The network: what the delays depend on, and the links used so far."""

    link: Table
    key: Words  # by node: its part of the hash
    delay_us: Matrix  # quantiles of the delays of fast and of slow links
    state: Words


def make_links(names: Sequence[str], wan: Wan, seed: int) -> Links:
    if not wan.fifo or wan.draws != "hashed":
        raise Unsupported('the columnar engine needs fifo links and draws = "hashed"')
    delays = HashedDelays(wan, seed)
    return Links(
        np.zeros(1 << 14, _LINK),
        np.array([node_key(name) for name in names], np.uint64),
        np.array([delays.fast_us, delays.slow_us], np.int32),
        np.array([delays.seed_key, delays.slow_below, 0], np.uint64),
    )


def grown(old: Links) -> Links:
    """The same links in a table twice as large."""
    new = old._replace(link=np.zeros(2 * old.link.size, _LINK))
    _move(old.link, new.link)
    return new


@compiled
def _move(old: Table, new: Table) -> None:
    for place in range(old.size):
        if old[place].key:
            new[_find(new, old[place].key)] = old[place]


@compiled
def hashed(seed: np.uint64, source: np.uint64, target: np.uint64) -> np.uint64:
    """What the delays of a link depend on."""
    return mix(mix(seed ^ source) ^ target)


@compiled
def is_slow(seed: np.uint64, below: np.uint64, a: np.uint64, b: np.uint64) -> bool:
    return bool(mix(mix(~seed ^ min(a, b)) ^ max(a, b)) >> np.uint64(11) < below)


@compiled
def _find(link: Table, key: int) -> int:
    """The place of a link in the table, or the free place where it belongs."""
    mask = link.size - 1
    at = np.int64(mix(np.uint64(key)) >> np.uint64(1)) & mask
    while link[at].key != 0 and link[at].key != key:
        at = (at + 1) & mask
    return int(at)


@compiled
def room(link: Table, state: Words) -> int:
    """How many more links fit in before the table is slow."""
    return int(link.size // 2 - np.int64(state[USED]))


@compiled
def arrival_us(
    link: Table, key: Words, delay_us: Matrix, state: Words, source: int, target: int, now: int
) -> int:
    """When a message sent now arrives."""
    if source == target:
        return now
    name = int(source) * key.size + target + 1
    at = _find(link, name)
    if link[at].key == 0:
        link[at].key = name
        state[USED] += np.uint64(1)
        a, b = key[source], key[target]
        link[at].hash = hashed(state[SEED], a, b)
        link[at].slow = is_slow(state[SEED], state[SLOW_BELOW], a, b)
    quantile = np.int64(mix(link[at].hash ^ np.uint64(now)) >> _SHIFT)
    when = max(now + delay_us[link[at].slow, quantile], link[at].last + 1)
    link[at].last = when
    return int(when)
