"""What probabilistic FIFO promises, and what that may cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unisono.core.events import RECORD_MAX
from unisono.core.layer import Layer
from unisono.core.limits import Limits, check_fields
from unisono.errors import EnvironmentLacks, Unsupported


class Fifo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rules are those of `models/latch.py`; "static" holds `latch_ms` at every gap."""

    violation: Annotated[float, Meta(ge=1e-9, le=0.5)] = 0.05  # of the gaps seen, let go too early
    record: Annotated[int, Meta(ge=0, le=RECORD_MAX)] = 25  # earlier events that each tells of
    rule: Literal["conditional", "paper", "chebyshev", "static"] = "conditional"
    latch_ms: Annotated[float, Meta(ge=0, le=1e6)] | None = None  # of "static"
    window: Annotated[int, Meta(ge=2, le=10_000)] = 25  # differences of delays that count
    first_ms: Annotated[float, Meta(ge=0, le=1e6)] = 250.0  # held before anything is measured
    hold_ms: Annotated[float, Meta(gt=0, le=1e6)] = 2000.0  # no event is held longer
    buffer: Annotated[int, Meta(ge=1, le=1 << 20)] = 4096  # events held of one publisher

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.rule == "static") != (self.latch_ms is not None):
            raise Unsupported('latch_ms and rule="static" belong together')

    def layer(
        self,
        node_id: str,
        covers: Callable[[str], bool] = lambda topic: True,
        limits: Limits | None = None,
        life: int = 0,
    ) -> Layer:
        """The layer that does it, for one node."""
        try:
            from unisono.qos.fifo.layer import ProbabilisticFifo
        except ImportError as error:
            raise EnvironmentLacks(
                f"probabilistic FIFO needs scipy and xxhash ({error}): pip install 'unisono[fifo]'"
            ) from error
        return ProbabilisticFifo(node_id, self, covers=covers, limits=limits, life=life)
