"""Who subscribes to what, and who publishes what when: the thesis' models (section 3.5.1).

Power law: topic k of n is drawn with probability proportional to k^-s. The thesis names shapes by
what they do - 0.269: 40 % of the topics get 80 % of the draws, 0.901: 0.5 % do - and no usual
parametrisation gives both, so s is the exponent that meets the stated share for n topics. Where
0.5 % is less than one topic, one topic gets 80 %.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from unisono.compiled import Ints, Longs
from unisono.core.entropy import digest
from unisono.errors import BadInput

Model = Literal["all", "uniform", "power-0.269", "power-0.901"]
Floats = npt.NDArray[np.float64]
SHAPES = {"power-0.269": 0.4, "power-0.901": 0.005}  # -> share of the topics that get MOST
MOST = 0.8


def most_popular(topics: int, share: float) -> int:
    """How many topics that share is: at least one."""
    return max(1, math.ceil(share * topics - 1e-9))


def exponent(topics: int, share: float) -> float:
    """The exponent for which that share of the topics, at least one, gets 80 % of the draws."""
    top = most_popular(topics, share)
    if top / topics >= MOST:
        return 0.0
    ranks = np.arange(1, topics + 1, dtype=np.float64)
    low, high = 0.0, 64.0
    for _ in range(100):
        middle = (low + high) / 2
        weights = ranks**-middle
        if weights[:top].sum() / weights.sum() < MOST:
            low = middle
        else:
            high = middle
    return high


def weights(model: str, topics: int) -> Floats:
    """The chance of each topic, the most popular first."""
    if model == "uniform":
        return np.full(topics, 1 / topics)
    if model not in SHAPES:
        raise BadInput(f"no model {model!r}; there are uniform, {', '.join(SHAPES)}")
    drawn = np.arange(1, topics + 1, dtype=np.float64) ** -exponent(topics, SHAPES[model])
    return np.asarray(drawn / drawn.sum())


def subscriptions(
    nodes: int, topics: int, per_node: int, model: Model, seed: int
) -> tuple[Longs, Ints]:
    """Start of each node's topics, and the topics: distinct, drawn by the model's weights."""
    if model == "all" or per_node >= topics:
        start = np.arange(nodes + 1, dtype=np.int64) * topics
        return start, np.tile(np.arange(topics, dtype=np.int32), nodes)
    rng = np.random.default_rng(digest(seed, "subscriptions"))
    chance = weights(model, topics)
    chosen = np.empty((nodes, per_node), np.int32)
    for begin in range(0, nodes, 1000):  # the earliest of exponential clocks: no topic twice
        rows = min(1000, nodes - begin)
        clocks = rng.standard_exponential((rows, topics)) / chance
        chosen[begin : begin + rows] = np.argpartition(clocks, per_node - 1, axis=1)[:, :per_node]
    chosen.sort(axis=1)
    return np.arange(nodes + 1, dtype=np.int64) * per_node, chosen.ravel()


def publications(
    nodes: int, chance: Floats, rate_per_s: float, duration_s: float, seed: int
) -> tuple[Longs, Ints, Ints]:
    """Times (Poisson), topics and publishers (any node) of all publications."""
    rng = np.random.default_rng(digest(seed, "publications"))
    count = rng.poisson(rate_per_s * duration_s)
    times = np.sort(rng.integers(0, round(duration_s * 1e6), count))
    topics = rng.choice(chance.size, count, p=chance).astype(np.int32)
    return times, topics, rng.integers(0, nodes, count).astype(np.int32)
