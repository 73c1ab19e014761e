"""What the compiled loops of the pipeline share: Arrow columns as arrays, rows by key."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.compiled import Bools, Ints, Longs, compiled

__all__ = ["Bools", "Ints", "Longs", "bucket_rows", "compiled", "ints", "longs"]


def longs(column: Any) -> Longs:
    """An Arrow column without nulls as int64."""
    return np.asarray(column.to_numpy(), dtype=np.int64)


def ints(column: Any) -> Ints:
    """An Arrow column without nulls as int32."""
    return np.asarray(column.to_numpy(), dtype=np.int32)


@compiled
def bucket_rows(key: Ints, keys: int) -> tuple[Ints, Ints]:
    """The rows grouped by key, in order: those of key k are rows[start[k]:start[k + 1]]."""
    start = np.zeros(keys + 1, np.int32)
    for row in range(key.size):
        start[key[row] + 1] += 1
    for at in range(keys):
        start[at + 1] += start[at]
    free = start[:-1].copy()
    rows = np.empty(key.size, np.int32)
    for row in range(key.size):
        rows[free[key[row]]] = row
        free[key[row]] += 1
    return start, rows
