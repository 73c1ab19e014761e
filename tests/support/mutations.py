"""Valid inputs, damaged: what parsers of anything from outside are tried with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

Some = TypeVar("Some", bytes, str)

_MOST = 4  # changes of one input
_FAR = (1 << 16) - 1  # places are shares of this, so that an input of any length has them all
# Lengths and counts that are not true, nesting without end, values that end something.
_BYTES = (
    *(size.to_bytes(width, order)
      for size, width in ((0xFF, 1), (0x7FFF, 2), (0xFFFF, 2), (0x7FFFFFFF, 4), (0xFFFFFFFF, 4),
                          (1 << 62, 8), ((1 << 64) - 1, 8), (0, 1), (0, 4), (0, 8))
      for order in ("big", "little")),
    b"\x91" * 3000,  # MessagePack: arrays of one
    b"\xdd\xff\xff\xff\xff",  # arrays and maps of four thousand million
    b"\xdf\xff\xff\xff\xff",
    b"\xc0",
    b"\xc1",
)  # fmt: skip
_NUMBERS = (
    "0", "-1", "1", "1e400", "-1e400", "nan", "inf", "0x10", "1_0", "\u00b2", "\u0663", "9" * 5000,
    str(1 << 63), str(1 << 64), "1e-400", "0.1", "65536", "4294967296",
)  # fmt: skip
# "\udcff": a byte that is no UTF-8, as Python has it in arguments and names of files
_TEXTS = (
    *_NUMBERS, "", "\0", "\n", "\r", " ", '"', "'", "\\", "\ufeff", "\udcff", "\ud800", "\u2028",
    "[" * 3000, "{" * 3000, "(" * 3000, '{"a":' * 3000, "%00", "%", "[", "]", ":", "//", "?", "&",
    "=", "#", "@", ",", ".", "/", "-", "--", "a" * 300, "true", "null", "not ",
)  # fmt: skip
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class Change(NamedTuple):
    """One change: what, where (twice), and with which value."""

    kind: int
    at: int
    to: int
    value: int


_CHANGES = st.lists(
    st.builds(
        Change,
        st.integers(0, 7),
        st.integers(0, _FAR),
        st.integers(0, _FAR),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=_MOST,
)


def mutants(samples: Sequence[Some]) -> st.SearchStrategy[Some]:
    """One of the samples with a few changes: other bits, numbers and lengths, cuts, insertions,
    pieces twice, pieces of another sample."""

    def draw(sample: Some, changes: list[Change]) -> Some:
        for change in changes:
            sample = changed(sample, change, samples)
        return sample

    return st.builds(draw, st.sampled_from(samples), _CHANGES)


def changed(data: Some, change: Change, samples: Sequence[Some]) -> Some:
    at, to = sorted(len(data) * place // _FAR for place in (change.at, change.to))
    value = change.value
    if change.kind == 0:
        return data[:at]
    if change.kind == 1:
        return data[:at] + data[to:]
    if change.kind == 2:  # a piece twice
        return data[:to] + data[at:to] + data[to:]
    if change.kind == 3:  # the rest is another's
        other = samples[value % len(samples)]
        return data[:at] + other[len(other) * change.to // _FAR :]
    odd: Some = _odd(data, value)
    if change.kind == 4:
        return data[:at] + odd + data[at:]
    if change.kind == 5:
        return data[:at] + odd + data[at + len(odd) :]
    if isinstance(data, bytes):
        return _other_byte(data, change.kind == 6, at, value)
    return _other_place(data, change.kind == 6, at, value)


def _odd(data: Some, value: int) -> Some:
    if isinstance(data, bytes):
        return _BYTES[value % len(_BYTES)]
    return _TEXTS[value % len(_TEXTS)]


def _other_byte(data: bytes, one_bit: bool, at: int, value: int) -> bytes:
    new = data[at] ^ 1 << value % 8 if one_bit and at < len(data) else value
    return data[:at] + bytes((new,)) + data[at + 1 :]


def _other_place(data: str, a_number: bool, at: int, value: int) -> str:
    if a_number and (numbers := list(_NUMBER.finditer(data))):
        number = numbers[at % len(numbers)]
        return data[: number.start()] + _NUMBERS[value % len(_NUMBERS)] + data[number.end() :]
    return data[:at] + chr(value) + data[at + 1 :]


def as_file(text: str) -> bytes:
    """A text in a file, its odd characters as bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape" if "\ud800" not in text else "surrogatepass")
