"""Seeds of stories and numbers of examples: some in the suite, all in `make test-slow`, others in
`make fuzz`.

The suite draws the same each time, so what it has found once it finds with fewer, too. A test that
draws seeds is marked `seeded`, so that the other commands find it.
"""

from __future__ import annotations

import os

SHARE = 6  # the suite draws one in so many


def some(count: int) -> int:
    """So many examples or seeds; a share of them in the suite."""
    in_suite = os.environ.get("UNISONO_PROFILE", "suite") == "suite"
    return max(1, count // SHARE) if in_suite else count


def seed_range(stop: int, start: int = 0) -> range:
    base = int(os.environ.get("UNISONO_SEED", "0"))
    return range(base + start, base + stop)
