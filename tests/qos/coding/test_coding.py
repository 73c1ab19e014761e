"""The field, every kernel of it, and generations of packets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.qos.coding import galois
from unisono.qos.coding.galois import INVERSE, PRODUCT, Bytes, Field
from unisono.qos.coding.generation import Decoder, Encoder

BEST = Field()
seeds = st.integers(0, 2**32)


def multiply(one: int, other: int) -> int:
    """By the definition: polynomials, one bit at a time."""
    product = 0
    for bit in range(8):
        if other >> bit & 1:
            product ^= one << bit
    for bit in range(15, 7, -1):
        if product >> bit & 1:
            product ^= galois.POLYNOMIAL << (bit - 8)
    return product


def test_the_table_of_products_is_that_of_the_definition() -> None:
    assert all(PRODUCT[a, b] == multiply(a, b) for a in range(256) for b in range(256))
    assert all(PRODUCT[a, INVERSE[a]] == 1 for a in range(1, 256))


def by_table(factors: Bytes, rows: Bytes) -> Bytes:
    out = np.zeros((factors.shape[0], rows.shape[1]), np.uint8)
    for row in range(factors.shape[0]):
        for index in range(rows.shape[0]):
            out[row] ^= PRODUCT[factors[row, index]][rows[index]]
    return out


@pytest.mark.parametrize("kind", galois.available())
@settings(max_examples=60)
@given(st.integers(0, 9), st.integers(1, 20), st.integers(0, 300), seeds)
def test_every_kernel_gives_the_same(kind: str, m: int, n: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, 256, (m, n), dtype=np.uint8)
    rows = rng.integers(0, 256, (n, length), dtype=np.uint8)
    guard = rng.integers(0, 256, (m + 2, length), dtype=np.uint8)
    out = guard.copy()
    Field(kind).combine(factors, rows, out[1 : m + 1])
    assert (out[1 : m + 1] == by_table(factors, rows)).all()
    assert (out[[0, -1]] == guard[[0, -1]]).all()  # nothing is written beside it


def test_the_portable_kernel_runs_everywhere() -> None:
    assert galois.available()[-1] == "portable"


def test_what_was_compiled_is_kept_for_the_next_process(tmp_path: Path) -> None:
    """Of every kernel, and of all that is called on the way of an event."""
    code = """if True:
        from numba.core.dispatcher import Dispatcher
        from unisono.qos.coding import galois, generation
        generation.prepare(coding=True)
        kept = [*vars(galois).values(), *vars(generation).values(), galois.Field()._kernel]
        for function in {id(one): one for one in kept if isinstance(one, Dispatcher)}.values():
            print(sum(function.stats.cache_hits.values()), len(function.stats.cache_misses))
        """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for hits in (False, True):
        run = [sys.executable, "-c", code]
        out = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
        counts = [tuple(map(int, line.split())) for line in out.stdout.splitlines()]
        assert any(hit > 0 for hit, _ in counts) == hits
        assert any(miss > 0 for _, miss in counts) != hits


def packets(n: int, size: int, rng: Random) -> Bytes:
    return np.frombuffer(rng.randbytes(n * size), np.uint8).reshape(n, size)


@given(st.integers(1, 20), st.integers(0, 200), seeds)
def test_any_n_innovative_packets_give_the_event(n: int, size: int, seed: int) -> None:
    """Plain and coded ones, shuffled, doubled, and some lost."""
    rng = Random(seed)
    encoder = Encoder(packets(n, size, rng), BEST)
    factors, payloads = encoder.combinations(n, rng)
    sent = [(bytes(np.eye(n, dtype=np.uint8)[i]), bytes(encoder.packets[i])) for i in range(n)]
    sent += [(bytes(factors[i]), bytes(payloads[i])) for i in range(n)]
    sent += sent[: n // 2]
    rng.shuffle(sent)
    decoder = Decoder(n, size, BEST)
    for coefficients, payload in sent:
        before = decoder.rank
        assert decoder.add(coefficients, payload) == (decoder.rank == before + 1)
    assert decoder.complete  # all plain packets came
    assert (decoder.decode() == encoder.packets).all()
    assert not decoder.add(*sent[0])


@given(st.integers(1, 12), st.integers(1, 100), st.integers(1, 4), seeds)
def test_recoding_at_every_hop_loses_nothing(n: int, size: int, hops: int, seed: int) -> None:
    rng = Random(seed)
    encoder = Encoder(packets(n, size, rng), BEST)
    held = Decoder(n, size, BEST)
    for coefficients, payload in zip(*encoder.combinations(3 * n, rng), strict=True):
        held.add(bytes(coefficients), bytes(payload))
    for _ in range(hops):
        following = Decoder(n, size, BEST)
        for coefficients, payload in zip(*held.recode(3 * n, rng), strict=True):
            following.add(bytes(coefficients), bytes(payload))
        held = following
    assert held.complete
    assert (held.decode() == encoder.packets).all()


@given(st.integers(2, 12), seeds)
def test_recoding_from_a_part_gives_that_part(n: int, seed: int) -> None:
    rng = Random(seed)
    encoder = Encoder(packets(n, 30, rng), BEST)
    some = Decoder(n, 30, BEST)
    factors, payloads = encoder.combinations(n // 2, rng)
    for coefficients, payload in zip(factors, payloads, strict=True):
        some.add(bytes(coefficients), bytes(payload))
    other = Decoder(n, 30, BEST)
    for coefficients, payload in zip(*some.recode(4 * n, rng), strict=True):
        other.add(bytes(coefficients), bytes(payload))
        assert (by_table(coefficients[None], encoder.packets)[0] == payload).all()
    assert other.rank == some.rank < n


def test_nothing_cannot_be_recoded() -> None:
    factors, payloads = Decoder(4, 10, BEST).recode(3, Random(1))
    assert factors.shape == (0, 4) and payloads.shape == (0, 10)


def test_random_packets_are_hardly_ever_dependent() -> None:
    rng = Random(5)
    dependent = 0
    for _ in range(300):
        decoder = Decoder(16, 1, BEST)
        drawn, _ = Encoder(np.zeros((16, 1), np.uint8), BEST).combinations(16, rng)
        for factors in drawn:
            dependent += not decoder.add(bytes(factors), b"x")
    assert dependent < 10  # one in 255 of the last ones


@pytest.mark.parametrize(("factors", "payload"), [(b"ab", b"123"), (b"abc", b"12")])
def test_packets_of_the_wrong_size_are_refused(factors: bytes, payload: bytes) -> None:
    with pytest.raises(ValueError, match="coefficients"):
        Decoder(3, 3, BEST).add(factors, payload)
