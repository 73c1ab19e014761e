"""One generation: n packets of one size, and any number of random combinations of them.

A packet is its coefficients (n bytes) and its payload. The first n packets of an encoder are plain:
their coefficients are a row of the identity. Whoever holds some packets can make new combinations
of them (recoding), complete or not.

A decoder takes packets as they come, in any order. It eliminates on the coefficients only, which
tells at once whether a packet is *innovative*; payloads stay as they came until n are there, and
then one product of matrices gives those that did not come plain.
"""

from __future__ import annotations

from random import Random

import numpy as np

from unisono.compiled import compiled
from unisono.qos.coding.galois import INVERSE, PRODUCT, Bytes, Field

PACKETS_MAX = 255  # of a generation: coefficients stay small beside payloads


@compiled
def _insert(echelon: Bytes, pivots: Bytes, row: Bytes, products: Bytes, inverses: Bytes) -> bool:
    """Reduce a row of coefficients by the rows held; keep what is left, if anything is.

    `echelon[p]` is the row whose first coefficient is 1 at p, if `pivots[p]`.
    """
    n = row.size
    for at in range(n):
        factor = row[at]
        if factor == 0:
            continue
        if not pivots[at]:
            scale = products[inverses[factor]]
            for index in range(at, n):
                echelon[at, index] = scale[row[index]]
            pivots[at] = 1
            return True
        times = products[factor]
        for index in range(at, n):
            row[index] ^= times[echelon[at, index]]
    return False


@compiled
def _invert(matrix: Bytes, inverse: Bytes, products: Bytes, inverses: Bytes) -> None:
    """Gauss-Jordan; the matrix has full rank and is used up."""
    n = matrix.shape[0]
    for column in range(n):
        pivot = column
        while matrix[pivot, column] == 0:
            pivot += 1
        if pivot != column:
            for index in range(n):
                matrix[column, index], matrix[pivot, index] = (
                    matrix[pivot, index],
                    matrix[column, index],
                )
                inverse[column, index], inverse[pivot, index] = (
                    inverse[pivot, index],
                    inverse[column, index],
                )
        if matrix[column, column] != 1:
            scale = products[inverses[matrix[column, column]]]
            for index in range(n):
                matrix[column, index] = scale[matrix[column, index]]
                inverse[column, index] = scale[inverse[column, index]]
        for row in range(n):
            factor = matrix[row, column]
            if row == column or factor == 0:
                continue
            times = products[factor]
            for index in range(n):
                matrix[row, index] ^= times[matrix[column, index]]
                inverse[row, index] ^= times[inverse[column, index]]


def random_factors(count: int, n: int, rng: Random) -> Bytes:
    """Coefficients for combinations of n packets; none is all zeros."""
    drawn = np.frombuffer(rng.randbytes(count * n), np.uint8).reshape(count, n).copy()
    drawn[~drawn.any(axis=1), 0] = 1
    return drawn


class Encoder:
    """All packets of a generation, and combinations of them."""

    def __init__(self, packets: Bytes, field: Field) -> None:
        assert 1 <= packets.shape[0] <= PACKETS_MAX
        self.packets = packets
        self._field = field

    def combinations(self, count: int, rng: Random) -> tuple[Bytes, Bytes]:
        """Coefficients and payloads of so many random combinations."""
        factors = random_factors(count, self.packets.shape[0], rng)
        payloads = np.empty((count, self.packets.shape[1]), np.uint8)
        self._field.combine(factors, self.packets, payloads)
        return factors, payloads


class Decoder:
    """The packets of a generation that have come."""

    def __init__(self, n: int, size: int, field: Field) -> None:
        assert 1 <= n <= PACKETS_MAX
        self.n, self.size = n, size
        self.rank = 0
        self._field = field
        self._factors = np.empty((n, n), np.uint8)  # of the innovative packets, as they came
        self._payloads = np.empty((n, size), np.uint8)
        self._echelon = np.zeros((n, n), np.uint8)
        self._pivots = np.zeros(n, np.uint8)
        self._row = np.empty(n, np.uint8)

    @property
    def complete(self) -> bool:
        return self.rank == self.n

    def add(self, factors: bytes, payload: bytes) -> bool:
        """Take a packet; true if it is innovative. Of the wrong size it is a ValueError."""
        if len(factors) != self.n or len(payload) != self.size:
            raise ValueError(f"{len(factors)} coefficients and {len(payload)} bytes")
        if self.complete:
            return False
        coefficients = np.frombuffer(factors, np.uint8)
        self._row[:] = coefficients
        if not _insert(self._echelon, self._pivots, self._row, PRODUCT, INVERSE):
            return False
        self._factors[self.rank] = coefficients
        self._payloads[self.rank] = np.frombuffer(payload, np.uint8)
        self.rank += 1
        return True

    def decode(self) -> Bytes:
        """The packets of the generation, once complete."""
        assert self.complete, f"{self.rank} of {self.n}"
        out = np.empty((self.n, self.size), np.uint8)
        ones = self._factors == 1
        plain = (np.count_nonzero(self._factors, axis=1) == 1) & ones.any(axis=1)
        places = ones[plain].argmax(axis=1)
        out[places] = self._payloads[plain]
        missing = np.ones(self.n, np.bool_)
        missing[places] = False
        if missing.any():
            inverse = np.eye(self.n, dtype=np.uint8)
            _invert(self._factors.copy(), inverse, PRODUCT, INVERSE)
            found = np.empty((int(missing.sum()), self.size), np.uint8)
            wanted = np.ascontiguousarray(inverse[missing])
            self._field.combine(wanted, self._payloads, found)
            out[missing] = found
        return out

    def recode(self, count: int, rng: Random) -> tuple[Bytes, Bytes]:
        """Random combinations of what has come; of nothing, none."""
        if self.rank == 0:
            count = 0
        mix = random_factors(count, self.rank, rng) if count else np.empty((0, 0), np.uint8)
        factors = np.empty((count, self.n), np.uint8)
        payloads = np.empty((count, self.size), np.uint8)
        if count:
            self._field.combine(mix, self._factors[: self.rank], factors)
            self._field.combine(mix, self._payloads[: self.rank], payloads)
        return factors, payloads
