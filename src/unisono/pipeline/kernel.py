"""Compiled loops: numba behind a typed decorator, and the arrays they work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays, once for this machine: later processes load it from a cache."""
    return cast(Callable[P, R], njit(cache=True)(function))


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
