"""What a checker says: valid, or how often not and a first witness."""

from __future__ import annotations

from typing import Any

import msgspec

VALID = "valid"
INVALID = "invalid"

Witness = dict[str, Any]


class Check(msgspec.Struct):
    """The outcome of one guarantee."""

    violations: int = 0
    witness: Witness | None = None

    @property
    def verdict(self) -> str:
        return INVALID if self.violations else VALID

    def violated(self, witness: Witness) -> None:
        self.violations += 1
        if self.witness is None:
            self.witness = witness
