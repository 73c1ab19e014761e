"""Seeds of stories: the first ones in the suite, others in `make fuzz`.

A test that draws them is marked `seeded`, so that fuzzing finds it.
"""

from __future__ import annotations

import os


def seed_range(stop: int, start: int = 0) -> range:
    base = int(os.environ.get("UNISONO_SEED", "0"))
    return range(base + start, base + stop)
