"""Compiled loops: numba behind a typed decorator, and the arrays they work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays, once for this machine: later processes load it from a cache."""
    return cast(Callable[P, R], njit(cache=True)(function))
