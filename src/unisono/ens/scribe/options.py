"""The shape of a mesh. All its processes must agree on the number of trees."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.limits import check_fields

SECOND = 1_000_000

# all: whoever misses something asks for it, what the root did not confirm is sent again, and what
# came over one tree is passed on in all. paper: each tree is fed from its root alone; a child that
# got an event over the other tree tells its parent, which fetches it and re-joins (004, 3.4).
# none: plain Scribe.
Recover = Literal["all", "paper", "none"]

MOST_TREES = 8
Trees = Annotated[int, Meta(ge=1, le=MOST_TREES)]
Backups = Annotated[int, Meta(ge=0, le=8)]
Beats = Annotated[int, Meta(ge=1000)]
Silence = Annotated[int, Meta(ge=2, le=1000)]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    trees: Trees = 2  # p: coordinators active at once, one tree each
    backups: Backups = 1  # k: of each active coordinator
    leaves: Annotated[int, Meta(ge=1, le=64)] = 8  # of the leaf set, on either side
    beat_us: Beats = SECOND // 2  # between signs of life
    silence: Silence = 4  # beats without a word: it is gone
    keep_us: Annotated[int, Meta(ge=1000)] = 30 * SECOND  # events are kept so long for others
    diverse: bool = True  # parents by the paths to them; False: whom the route meets first
    recover: Recover = "all"

    def __post_init__(self) -> None:
        check_fields(self)
