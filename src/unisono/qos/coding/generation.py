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

from unisono.compiled import Longs, compiled
from unisono.qos.coding import PACKETS_MAX
from unisono.qos.coding.galois import INVERSE, PRODUCT, Bytes, Field

SEED_BITS = 63  # of coefficients


@compiled
def _take(
    echelon: Bytes,
    pivots: Bytes,
    factors: Bytes,
    payloads: Bytes,
    rank: int,
    coefficients: Bytes,
    payload: Bytes,
    products: Bytes,
    inverses: Bytes,
) -> bool:
    """Keep the packet as number `rank` if its coefficients do not follow from those held.

    `echelon[p]` is a row whose first coefficient is 1 at p, if `pivots[p]`.
    """
    n = coefficients.size
    row = factors[rank]
    row[:] = coefficients
    for at in range(n):
        factor = row[at]
        if factor == 0:
            continue
        if not pivots[at]:
            scale = products[inverses[factor]]
            for index in range(at, n):
                echelon[at, index] = scale[row[index]]
            pivots[at] = 1
            row[:] = coefficients
            payloads[rank] = payload
            return True
        times = products[factor]
        for index in range(at, n):
            row[index] ^= times[echelon[at, index]]
    return False


@compiled
def _solve(factors: Bytes, place: Longs, wanted: Bytes, products: Bytes, inverses: Bytes) -> int:
    """How the packets that did not come plain follow from all that came.

    Fills `place`: first, by packet that came, where it belongs if it is plain, else -1; then the
    packets that are missing. Fills `wanted`: a row of factors for each missing packet. Returns how
    many those are.
    """
    n = factors.shape[0]
    known = np.zeros(n, np.bool_)
    coded = np.empty(n, np.int64)
    count = 0
    for row in range(n):
        entries, at = 0, 0
        for column in range(n):
            if factors[row, column]:
                entries += 1
                at = column
        place[row] = at if entries == 1 and factors[row, at] == 1 else -1
        if place[row] >= 0:
            known[at] = True
        else:
            coded[count] = row
            count += 1
    missing = place[n:]
    found = 0
    for column in range(n):
        if not known[column]:
            missing[found] = column
            found += 1
    matrix = np.empty((count, count), np.uint8)  # of the missing packets, in the coded ones
    inverse = np.zeros((count, count), np.uint8)
    for row in range(count):
        inverse[row, row] = 1
        for column in range(count):
            matrix[row, column] = factors[coded[row], missing[column]]
    _invert(matrix, inverse, products, inverses)
    for row in range(count):
        for column in range(count):
            wanted[row, coded[column]] = inverse[row, column]
        for came in range(n):
            if place[came] < 0:
                continue
            total = 0
            for column in range(count):
                total ^= products[inverse[row, column], factors[coded[column], place[came]]]
            wanted[row, came] = total
    return count


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
                held = matrix[column, index]
                matrix[column, index] = matrix[pivot, index]
                matrix[pivot, index] = held
                held = inverse[column, index]
                inverse[column, index] = inverse[pivot, index]
                inverse[pivot, index] = held
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


@compiled
def _put(out: Bytes, payloads: Bytes, found: Bytes, place: Longs) -> None:
    """Every packet where it belongs."""
    n = payloads.shape[0]
    for came in range(n):
        if place[came] >= 0:
            out[place[came]] = payloads[came]
    for index in range(found.shape[0]):
        out[place[n + index]] = found[index]


def decode_rows(factors: Bytes, payloads: Bytes, field: Field) -> Bytes:
    """The packets of a generation from n independent ones, plain and coded."""
    n, size = payloads.shape
    place = np.empty(2 * n, np.int64)
    wanted = np.empty((n, n), np.uint8)
    count = _solve(factors, place, wanted, PRODUCT, INVERSE)
    found = np.empty((count, size), np.uint8)
    if count:
        field.combine(wanted[:count], payloads, found)
    out = np.empty((n, size), np.uint8)
    _put(out, payloads, found, place)
    return out


class Encoder:
    """All packets of a generation, and combinations of them."""

    def __init__(self, packets: Bytes, field: Field) -> None:
        assert 1 <= packets.shape[0] <= PACKETS_MAX
        self.packets = packets
        self._field = field

    def combinations(self, count: int, rng: Random) -> tuple[Bytes, Bytes]:
        """Coefficients and payloads of so many random combinations."""
        n, size = self.packets.shape
        factors, payloads = np.empty((count, n), np.uint8), np.empty((count, size), np.uint8)
        if count:
            self._field.combine_anew(factors, self.packets, payloads, rng.getrandbits(SEED_BITS))
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

    @property
    def complete(self) -> bool:
        return self.rank == self.n

    def add(self, factors: bytes, payload: bytes) -> bool:
        """Take a packet; true if it is innovative. Of the wrong size it is a ValueError."""
        if len(factors) != self.n or len(payload) != self.size:
            raise ValueError(f"{len(factors)} coefficients and {len(payload)} bytes")
        if self.rank == self.n:
            return False
        innovative = _take(
            self._echelon,
            self._pivots,
            self._factors,
            self._payloads,
            self.rank,
            np.frombuffer(factors, np.uint8),
            np.frombuffer(payload, np.uint8),
            PRODUCT,
            INVERSE,
        )
        self.rank += innovative
        return innovative

    def decode(self) -> Bytes:
        """The packets of the generation, once complete."""
        assert self.complete, f"{self.rank} of {self.n}"
        return decode_rows(self._factors, self._payloads, self._field)

    def absent(self) -> tuple[int, ...]:
        """The places of plain packets that have not come."""
        came = self._factors[: self.rank]
        plain = came[(np.count_nonzero(came, axis=1) == 1) & (came.max(axis=1, initial=0) == 1)]
        there = set(plain.argmax(axis=1).tolist())
        return tuple(place for place in range(self.n) if place not in there)

    def recode(self, count: int, rng: Random) -> tuple[Bytes, Bytes]:
        """Random combinations of what has come; of nothing, none."""
        if self.rank == 0:
            count = 0
        mix = np.empty((count, self.rank), np.uint8)
        factors = np.empty((count, self.n), np.uint8)
        payloads = np.empty((count, self.size), np.uint8)
        if count:
            held, seed = self._payloads[: self.rank], rng.getrandbits(SEED_BITS)
            self._field.combine_anew(mix, held, payloads, seed)
            self._field.combine(mix, self._factors[: self.rank], factors)
        return factors, payloads


def prepare(coding: bool) -> None:
    """Compile what generations need, or load it: seconds that no event shall wait for."""
    field, rng = Field(), Random(0)
    for size in (8, 256):  # short rows have a kernel of their own
        packets = np.arange(3 * size, dtype=np.uint8).reshape(3, size)
        decoder = Decoder(3, size, field)
        if coding:
            decoder.add(bytes((1, 0, 0)), packets[0].tobytes())
            decoder.recode(1, rng)
            for factors, payload in zip(*Encoder(packets, field).combinations(6, rng), strict=True):
                decoder.add(factors.tobytes(), payload.tobytes())
        for place in range(3):
            decoder.add(bytes(place == other for other in range(3)), packets[place].tobytes())
        assert np.array_equal(decoder.decode(), packets)
