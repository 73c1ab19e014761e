"""Compiled loops: numba behind a typed decorator, and the arrays they work on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
STEP = np.uint64(0x9E3779B97F4A7C15)  # from one word of SplitMix64 to the next, before `mix`


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays, once for this machine: later processes load it from a cache.

    Compiled code contains the functions it calls. numba looks only at the age of the file with the
    caller, so it would go on using old code after a change elsewhere; here the cache holds as long
    as no file with compiled functions has changed.
    """
    return _compiled(function)


def in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop that changes arrays it is given and makes none.

    Nothing in it counts references to them. With dozens of arrays in one tuple, handed from
    function to function, the counting takes more time than the work.
    """
    return _compiled(function, _nrt=False)


def _compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    dispatcher: Any = njit(cache=True, **options)(function)
    dispatcher._cache._cache_file._source_stamp = _sources()
    return cast(Callable[P, R], dispatcher)


@cache
def _sources() -> str:
    """A digest of all files with compiled functions."""
    digest = blake2b(digest_size=16)
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text = path.read_bytes()
        if b"@compiled" in text or b"@in_place" in text:
            digest.update(text)
    return digest.hexdigest()


@in_place
def mix(word: np.uint64) -> np.uint64:
    """A 64-bit word, stirred (the finaliser of SplitMix64)."""
    word = word + STEP
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
