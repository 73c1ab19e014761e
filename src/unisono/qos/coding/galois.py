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
from typing import Any, cast

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, models, register_model

from unisono.compiled import STEP, compiled, mix

Bytes = npt.NDArray[np.uint8]
Kernel = Callable[[Bytes, Bytes, Bytes], None]
Drawing = Callable[[Bytes, Bytes, Bytes, int], None]

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
    """So many bytes in a register."""

    def __init__(self, width: int) -> None:
        super().__init__(f"Vector{width}")
        self.width = width


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, _register(vector.width))  # type: ignore[no-untyped-call]


def _register(width: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(8), width)


def _operations(kind: str) -> tuple[int, Any, Any, Any, Any, Any]:
    """The width of a vector, and load, store, zero, coefficient, multiply-and-add."""
    width = 64 if kind == "gfni-512" else 32
    vector, register = Vector(width), _register(width)
    pair: Any = types.UniTuple(vector, 2)  # type: ignore[no-untyped-call]
    byte, word = ir.IntType(8), ir.IntType(32)

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], register.as_pointer()))
            value.align = 1
            return value

        return vector(types.intp), code

    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            stored = builder.store(args[1], builder.inttoptr(args[0], register.as_pointer()))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(types.intp, vector), code

    @intrinsic
    def zero(typing: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return ir.Constant(register, [0] * width)

        return vector(), code

    @intrinsic
    def coefficient(typing: Any, tables: Any, factor: Any) -> Any:
        """What to multiply with: the factor in every byte, or its two tables."""

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if kind == "shuffle":
                offset = builder.mul(
                    builder.zext(args[1], args[0].type), ir.Constant(args[0].type, 2 * width)
                )
                at = builder.inttoptr(
                    builder.add(args[0], offset), ir.ArrayType(register, 2).as_pointer()
                )
                low, high = (
                    builder.load(builder.gep(at, [ir.Constant(word, 0), ir.Constant(word, index)]))
                    for index in (0, 1)
                )
                low.align = high.align = 1
            else:
                nothing = ir.Constant(register, ir.Undefined)
                one = builder.insert_element(nothing, args[1], ir.Constant(word, 0))
                everywhere = ir.Constant(ir.VectorType(word, width), [0] * width)
                low = high = builder.shuffle_vector(one, nothing, everywhere)
            return context.make_tuple(builder, pair, (low, high))

        return pair(types.intp, types.uint8), code

    @intrinsic
    def multiply_add(typing: Any, total: Any, value: Any, factor: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            low = builder.extract_value(args[2], 0)
            binary = ir.FunctionType(register, [register, register])
            if kind != "shuffle":
                name = f"llvm.x86.vgf2p8mulb.{8 * width}"
                multiply = builder.module.declare_intrinsic(name, (), binary)
                return builder.xor(args[0], builder.call(multiply, [args[1], low]))
            high = builder.extract_value(args[2], 1)
            shuffle = builder.module.declare_intrinsic("llvm.x86.avx2.pshuf.b", (), binary)
            mask = ir.Constant(register, [ir.Constant(byte, 15)] * width)
            four = ir.Constant(register, [ir.Constant(byte, 4)] * width)
            upper = builder.and_(builder.lshr(args[1], four), mask)
            product = builder.xor(
                builder.call(shuffle, [low, builder.and_(args[1], mask)]),
                builder.call(shuffle, [high, upper]),
            )
            return builder.xor(args[0], product)

        return vector(vector, vector, pair), code

    return width, load, store, zero, coefficient, multiply_add


def _vector_kernel(kind: str) -> Kernel:
    width, load, store, zero, coefficient, multiply_add = _operations(kind)

    def kernel(out: Bytes, factors: Bytes, rows: Bytes) -> None:
        count, length = rows.shape
        source, step = rows.ctypes.data, rows.strides[0]
        target, stride = out.ctypes.data, out.strides[0]
        tables = NIBBLES.ctypes.data
        row = 0
        while row + 4 <= factors.shape[0]:
            at = 0
            while at < length:
                at = min(at, length - width)  # the last vector may overlap the one before
                a, b, c, d = zero(), zero(), zero(), zero()
                if at + 2 * width <= length:
                    e, f, g, h = zero(), zero(), zero(), zero()
                    for index in range(count):
                        value = load(source + index * step + at)
                        other = load(source + index * step + at + width)
                        factor = coefficient(tables, factors[row, index])
                        a, e = multiply_add(a, value, factor), multiply_add(e, other, factor)
                        factor = coefficient(tables, factors[row + 1, index])
                        b, f = multiply_add(b, value, factor), multiply_add(f, other, factor)
                        factor = coefficient(tables, factors[row + 2, index])
                        c, g = multiply_add(c, value, factor), multiply_add(g, other, factor)
                        factor = coefficient(tables, factors[row + 3, index])
                        d, h = multiply_add(d, value, factor), multiply_add(h, other, factor)
                    store(target + row * stride + at + width, e)
                    store(target + (row + 1) * stride + at + width, f)
                    store(target + (row + 2) * stride + at + width, g)
                    store(target + (row + 3) * stride + at + width, h)
                else:
                    for index in range(count):
                        value = load(source + index * step + at)
                        a = multiply_add(a, value, coefficient(tables, factors[row, index]))
                        b = multiply_add(b, value, coefficient(tables, factors[row + 1, index]))
                        c = multiply_add(c, value, coefficient(tables, factors[row + 2, index]))
                        d = multiply_add(d, value, coefficient(tables, factors[row + 3, index]))
                store(target + row * stride + at, a)
                store(target + (row + 1) * stride + at, b)
                store(target + (row + 2) * stride + at, c)
                store(target + (row + 3) * stride + at, d)
                at += 2 * width if at + 2 * width <= length else width
            row += 4
        while row < factors.shape[0]:
            at = 0
            while at < length:
                at = min(at, length - width)
                a = zero()
                for index in range(count):
                    value = load(source + index * step + at)
                    a = multiply_add(a, value, coefficient(tables, factors[row, index]))
                store(target + row * stride + at, a)
                at += width
            row += 1

    return cast(Kernel, njit(kernel))  # half a second; numba cannot keep such functions


@compiled
def _portable(out: Bytes, factors: Bytes, rows: Bytes) -> None:
    out[:] = 0
    for row in range(factors.shape[0]):
        for index in range(rows.shape[0]):
            table = PRODUCT[factors[row, index]]
            for at in range(rows.shape[1]):
                out[row, at] ^= table[rows[index, at]]


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
    """The product of matrices, without checks."""
    return _portable if kind == "portable" else _vector_kernel(kind)


@cache
def _drawing(kind: str) -> Drawing:
    """Draw coefficients, then the product, in one call."""
    product = kernel(kind)

    def drawing(out: Bytes, factors: Bytes, rows: Bytes, seed: int) -> None:
        draw(factors, seed)
        product(out, factors, rows)

    return cast(Drawing, njit(drawing))


_VECTOR = 64  # shorter rows are for the portable kernel


class Field:
    """Products with one kernel."""

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind or available()[0]
        self._kernel = kernel(self.kind)
        self._short = kernel("portable")
        self._drawing = _drawing(self.kind)

    def combine(self, factors: Bytes, rows: Bytes, out: Bytes) -> None:
        """out = factors x rows. Rows of all three lie in one piece each."""
        run = self._kernel if rows.shape[1] >= _VECTOR else self._short
        run(out, factors, rows)

    def combine_anew(self, factors: Bytes, rows: Bytes, out: Bytes, seed: int) -> None:
        """Draw the factors from a seed of 63 bits, then combine."""
        if rows.shape[1] >= _VECTOR:
            self._drawing(out, factors, rows, seed)
        else:
            draw(factors, seed)
            self._short(out, factors, rows)
