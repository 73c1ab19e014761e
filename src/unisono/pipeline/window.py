"""Which rows an audit judges, of those that it reads: the others are there to be compared with.

A delivery is judged if its position is in its subscriber's window, an event is looked for at its
subscribers (losses) if its publishing time is. Windows of consecutive audits follow one another
without gaps, so what concerns one row is counted once. Order is judged over all rows read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unisono.pipeline.kernel import Longs

ALWAYS = 2**62  # beyond every time and position that the census lets pass


@dataclass(frozen=True)
class Window:
    """Half open: from the lower bounds up to and without the upper ones."""

    low: Longs  # by subscriber: positions
    high: Longs
    from_us: int
    until_us: int

    @classmethod
    def whole(cls, subscribers: int) -> Window:
        """Everything is judged."""
        low = np.full(subscribers, -ALWAYS, np.int64)
        return cls(low, -low, -ALWAYS, ALWAYS)
