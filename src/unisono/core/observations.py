"""What a machine noticed, as a value: for the log, the trace and counters, never for the protocol.

A room declares its observations beside its machines. The class says where one goes; whoever drives
the machine carries it there. Texts are made only when somebody reads them.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from unisono.core.effects import RANK_RECORD, Effect


class Observation(msgspec.Struct, frozen=True, gc=False):
    """Base of observations."""

    table: ClassVar[str] = "control"  # of the trace: "control" or "faults"
    kind: ClassVar[str]  # as it stands in the row
    warns: ClassVar[bool] = False  # the application should know

    @property
    def sentence(self) -> str:
        """For people, and the detail of the row."""
        raise NotImplementedError


class Observed(Effect, frozen=True):
    """Tell of something noticed."""

    rank: ClassVar[int] = RANK_RECORD
    observation: Observation
