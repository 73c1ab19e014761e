"""GF(2^8), polynomial x^8 + x^4 + x^3 + x + 1: the product of a matrix and rows of bytes.

`combine(coefficients, rows, out)` is all that coding needs. There are several kernels with the same
results; the best that this CPU can run is chosen once:

    gfni-512, gfni-256   the instruction that multiplies 64 or 32 bytes at once (x86 GFNI)
    shuffle              16-byte table look-ups by nibbles (x86 AVX2)
    portable             a table of products, byte by byte

The vector kernels are written for numba with intrinsics of our own: a vector is a value like any
other, held in a register, and four output rows are worked on at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from unisono.compiled import STEP, compiled, mix

Bytes = npt.NDArray[np.uint8]
Kernel = Callable[[Bytes, Bytes, Bytes, int], None]

POLYNOMIAL = 0x11B
KINDS = ("gfni-512", "gfni-256", "shuffle", "portable")  # the best first


def _products() -> Bytes:
    """The product of every two bytes."""
    table = np.zeros((256, 256), np.uint8)
    for one in range(1, 256):
        power = one  # one, times x for every bit of the other
        for bit in range(8):
            table[one, 1 << bit] = power
            power = power << 1 ^ (POLYNOMIAL if power & 0x80 else 0)
        for other in range(1, 256):
            lowest = other & -other
            table[one, other] = table[one, other ^ lowest] ^ table[one, lowest]
    return table


PRODUCT = _products()
INVERSE = np.concatenate(([0], np.argmax(PRODUCT[1:] == 1, axis=1))).astype(np.uint8)
# By coefficient: its products with the low and the high nibbles, twice each for 32-byte vectors.
NIBBLES = np.ascontiguousarray(
    np.stack((np.tile(PRODUCT[:, :16], 2), np.tile(PRODUCT[:, ::16], 2)), axis=1)
)


class Vector(types.Type):
    """As many bytes as a kernel holds in a register."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"Vector({kind})")
        self.kind = kind


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        register = ir.VectorType(ir.IntType(8), _width(vector.kind))
        super().__init__(manager, vector, register)  # type: ignore[no-untyped-call]


def _width(kind: str) -> int:
    return 64 if kind == "gfni-512" else 32


# What kernels do with vectors. These are functions of the module, and a kernel's own values are
# literals: else numba could not keep what it compiles for the next process.


@intrinsic(prefer_literal=True)
def _zeros(typing: Any, kind: Any) -> Any:
    vector = Vector(kind.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_value_type(vector)([0] * _width(vector.kind))

    return vector(kind), code


@intrinsic
def _load(typing: Any, like: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[1], args[0].type.as_pointer()))
        value.align = 1
        return value

    return like(like, types.intp), code


@intrinsic
def _store(typing: Any, address: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stored = builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()))
        stored.align = 1
        return context.get_dummy_value()

    return types.void(types.intp, value), code


@intrinsic
def _add(typing: Any, total: Any, value: Any, tables: Any, factor: Any) -> Any:
    """total + value x factor; `tables` is where `NIBBLES` are."""

    def by_instruction(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, value, _, factor = args
        register, word = value.type, ir.IntType(32)
        nothing = register(ir.Undefined)
        one = builder.insert_element(nothing, factor, word(0))
        everywhere = ir.VectorType(word, register.count)([0] * register.count)
        factors = builder.shuffle_vector(one, nothing, everywhere)
        name = f"llvm.x86.vgf2p8mulb.{8 * register.count}"
        kind = ir.FunctionType(register, [register, register])
        multiply = builder.module.declare_intrinsic(name, (), kind)
        return builder.xor(total, builder.call(multiply, [value, factors]))

    def by_nibbles(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, value, tables, factor = args
        register, byte, size = value.type, ir.IntType(8), value.type.count
        kind = ir.FunctionType(register, [register, register])
        shuffle = builder.module.declare_intrinsic("llvm.x86.avx2.pshuf.b", (), kind)
        at = builder.add(
            tables, builder.mul(builder.zext(factor, tables.type), tables.type(2 * size))
        )
        mask, four = register([byte(15)] * size), register([byte(4)] * size)
        nibbles = builder.and_(value, mask), builder.and_(builder.lshr(value, four), mask)
        for index, nibble in enumerate(nibbles):
            address = builder.add(at, tables.type(index * size))
            table = builder.load(builder.inttoptr(address, register.as_pointer()))
            table.align = 1
            total = builder.xor(total, builder.call(shuffle, [table, nibble]))
        return total

    code = by_nibbles if total.kind == "shuffle" else by_instruction
    return total(total, total, types.intp, types.uint8), code


@compiled
def draw(factors: Bytes, seed: int) -> None:
    """Random coefficients, a pure function of the seed. No row is all zeros."""
    rows, n = factors.shape
    word = np.uint64(0)
    for row in range(rows):
        some = np.uint8(0)
        for index in range(n):
            at = row * n + index
            if at % 8 == 0:
                word = mix(np.uint64(seed) + np.uint64(at // 8) * STEP)
            factors[row, index] = np.uint8((word >> np.uint64(8 * (at % 8))) & np.uint64(255))
            some |= factors[row, index]
        if some == 0:
            factors[row, 0] = 1


def _vector_kernel(kind: str) -> Kernel:
    width = _width(kind)

    def kernel(out: Bytes, factors: Bytes, rows: Bytes, seed: int) -> None:
        if seed >= 0:
            draw(factors, seed)
        count, length = rows.shape
        source, step = rows.ctypes.data, rows.strides[0]
        target, stride = out.ctypes.data, out.strides[0]
        tables = NIBBLES.ctypes.data
        zeros: Any = _zeros(kind)  # type: ignore[call-arg]
        row = 0
        while row + 4 <= factors.shape[0]:
            at = 0
            while at < length:
                at = min(at, length - width)  # the last vector may overlap the one before
                a = b = c = d = zeros
                if at + 2 * width <= length:
                    e = f = g = h = zeros
                    for index in range(count):
                        value = _load(zeros, source + index * step + at)
                        other = _load(zeros, source + index * step + at + width)
                        factor = factors[row, index]
                        a, e = _add(a, value, tables, factor), _add(e, other, tables, factor)
                        factor = factors[row + 1, index]
                        b, f = _add(b, value, tables, factor), _add(f, other, tables, factor)
                        factor = factors[row + 2, index]
                        c, g = _add(c, value, tables, factor), _add(g, other, tables, factor)
                        factor = factors[row + 3, index]
                        d, h = _add(d, value, tables, factor), _add(h, other, tables, factor)
                    _store(target + row * stride + at + width, e)
                    _store(target + (row + 1) * stride + at + width, f)
                    _store(target + (row + 2) * stride + at + width, g)
                    _store(target + (row + 3) * stride + at + width, h)
                else:
                    for index in range(count):
                        value = _load(zeros, source + index * step + at)
                        a = _add(a, value, tables, factors[row, index])
                        b = _add(b, value, tables, factors[row + 1, index])
                        c = _add(c, value, tables, factors[row + 2, index])
                        d = _add(d, value, tables, factors[row + 3, index])
                _store(target + row * stride + at, a)
                _store(target + (row + 1) * stride + at, b)
                _store(target + (row + 2) * stride + at, c)
                _store(target + (row + 3) * stride + at, d)
                at += 2 * width if at + 2 * width <= length else width
            row += 4
        while row < factors.shape[0]:
            at = 0
            while at < length:
                at = min(at, length - width)
                a = zeros
                for index in range(count):
                    value = _load(zeros, source + index * step + at)
                    a = _add(a, value, tables, factors[row, index])
                _store(target + row * stride + at, a)
                at += width
            row += 1

    return compiled(kernel)


@compiled
def _portable(out: Bytes, factors: Bytes, rows: Bytes, seed: int) -> None:
    if seed >= 0:
        draw(factors, seed)
    out[:] = 0
    for row in range(factors.shape[0]):
        for index in range(rows.shape[0]):
            table = PRODUCT[factors[row, index]]
            for at in range(rows.shape[1]):
                out[row, at] ^= table[rows[index, at]]


@cache
def available() -> tuple[str, ...]:
    """The kernels that this CPU can run, the best first."""
    has = llvm.get_host_cpu_features()
    wanted = {
        "gfni-512": ("gfni", "avx512f", "avx512bw"),
        "gfni-256": ("gfni", "avx2"),
        "shuffle": ("avx2",),
        "portable": (),
    }
    return tuple(kind for kind in KINDS if all(has.get(name, False) for name in wanted[kind]))


@cache
def kernel(kind: str) -> Kernel:
    """The product of matrices, without checks; a seed of 0 or more draws the factors first."""
    return _portable if kind == "portable" else _vector_kernel(kind)


_VECTOR = 64  # shorter rows are for the portable kernel
_AS_GIVEN = -1


class Field:
    """Products with one kernel."""

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind or available()[0]
        self._kernel = kernel(self.kind)
        self._short = kernel("portable")

    def combine(self, factors: Bytes, rows: Bytes, out: Bytes) -> None:
        """out = factors x rows. Rows of all three lie in one piece each."""
        self.combine_anew(factors, rows, out, _AS_GIVEN)

    def combine_anew(self, factors: Bytes, rows: Bytes, out: Bytes, seed: int) -> None:
        """Draw the factors from a seed of 63 bits, then combine."""
        run = self._kernel if rows.shape[1] >= _VECTOR else self._short
        run(out, factors, rows, seed)
