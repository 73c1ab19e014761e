"""Other erasure codes, for `unisono bench coding`: all do the same work on the same packets.

Some coded packets are made of the plain ones; then as many plain packets, the first ones, are lost,
and recovered from the rest and the coded ones. What is timed beyond that is each library's way:

    isal                  ISA-L of the system, called as directly as Python can: coefficients are
                          expanded in advance, room for the results is there, only what was lost is
                          computed
    isal-bundled          the newer ISA-L that comes with pyeclib's wheel, called in the same way
    isal-pyeclib          that ISA-L through pyeclib, which copies all packets and adds headers;
    isal-pyeclib-cauchy   with a Vandermonde and with a Cauchy matrix
    zfec                  lists of bytes in and out
    galois                products and inverses of matrices, as its users write them; with one
                          thread, for several mostly wait for each other at this size
    raptorq               a fountain code; its encoder is made anew for every event, and makes the
                          plain packets too

Before anything is timed every peer must give back the packets, from coded ones of its own making.
One that is not installed, does not start or gives back something else is absent, with the reason.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from unisono.qos.coding.galois import POLYNOMIAL, Bytes, draw

Call = Callable[[], Any]


def _factors(rows: int, n: int) -> Bytes:
    drawn = np.empty((rows, n), np.uint8)
    draw(drawn, 5)
    return drawn


@dataclass(frozen=True)
class Peer:
    """A code, ready to work."""

    version: str
    encode: Call  # make the coded packets
    decode: Call  # recover what was lost; the coded packets are from `encode`
    restored: Callable[[Any], bytes]  # all packets, from what `decode` returned


Maker = Callable[[Bytes, int], Peer]


def find(packets: Bytes, coded: int) -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that give back the packets, and why the others are absent."""
    found: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    for name, make in MAKERS.items():
        try:
            peer = make(packets, coded)
            right = peer.restored(peer.decode()) == packets.tobytes()
        except Exception as error:  # whatever is wrong with one, the others are measured
            absent[name] = f"{type(error).__name__}: {error}"
            continue
        if right:
            found[name] = peer
        else:
            absent[name] = "gives back other packets"
    return found, absent


def _system_isal(packets: Bytes, coded: int) -> Peer:
    name = ctypes.util.find_library("isal")
    if name is None:
        raise ImportError("no ISA-L on this system")
    return _isal(name, packets, coded)


def _bundled_isal(packets: Bytes, coded: int) -> Peer:
    for file in metadata.files("pyeclib") or ():
        if file.name.startswith("libisal"):
            return _isal(str(file.locate()), packets, coded)
    raise ImportError("this pyeclib comes without ISA-L")


def _isal(path: str, packets: Bytes, coded: int) -> Peer:
    """Intel's library. It has a field of its own; its results differ from ours."""
    library = ctypes.CDLL(path)
    n, size = packets.shape
    factors = _factors(coded, n)
    made, lost = np.empty((2, coded, size), np.uint8)
    expand_factors, encode = _isal_product(library, factors, packets, made)
    expand_factors()
    encode()
    rows = np.concatenate((np.eye(n, dtype=np.uint8)[coded:], factors))
    came = np.concatenate((packets[coded:], made))
    matrix, inverse = np.empty((2, n, n), np.uint8)
    at_matrix, at_inverse, invert = _at(matrix), _at(inverse), library.gf_invert_matrix
    expand, combine = _isal_product(library, inverse[:coded], came, lost)

    def decode() -> Bytes:
        """Invert, expand, combine: what its users do for every pattern of losses."""
        matrix[:] = rows
        if invert(at_matrix, at_inverse, n):
            raise ArithmeticError("a matrix without an inverse")
        expand()
        combine()
        return lost

    def restored(lost: Bytes) -> bytes:
        return lost.tobytes() + packets[coded:].tobytes()

    return Peer(_isal_version(library, path), encode, decode, restored)


def _isal_product(
    library: ctypes.CDLL, factors: Bytes, rows: Bytes, out: Bytes
) -> tuple[Call, Call]:
    """Two calls: expand the factors into tables; out = factors x rows."""
    count, n = factors.shape
    tables = ctypes.create_string_buffer(32 * n * count)
    at_tables = ctypes.c_void_p(ctypes.addressof(tables))
    expand = functools.partial(library.ec_init_tables, n, count, _at(factors), at_tables)
    sources, targets, size = _at_rows(rows), _at_rows(out), rows.shape[1]
    product = functools.partial(library.ec_encode_data, size, n, count, at_tables, sources, targets)
    keep = (tables, rows, out)  # the library sees their memory only

    def combine() -> object:
        product()
        return keep

    return expand, combine


def _at(array: Bytes) -> ctypes.c_void_p:
    """A pointer that keeps the array."""
    return array.ctypes.data_as(ctypes.c_void_p)


def _at_rows(array: Bytes) -> Any:
    """A pointer to pointers to rows, that does not keep them."""
    first, step = array.ctypes.data, array.strides[0]
    places = np.array([first + step * row for row in range(array.shape[0])], np.uintp)
    return places.ctypes.data_as(ctypes.c_void_p)


def _isal_version(library: ctypes.CDLL, path: str) -> str:
    if not hasattr(library, "isal_get_version_str"):  # before 2.31
        return path
    library.isal_get_version_str.restype = ctypes.c_char_p
    return str(library.isal_get_version_str().decode())


def _pyeclib(kind: str, packets: Bytes, coded: int) -> Peer:
    from pyeclib.ec_iface import ECDriver

    driver = ECDriver(k=packets.shape[0], m=coded, ec_type=kind)
    whole = packets.tobytes()
    came = driver.encode(whole)[coded:]
    return Peer(
        metadata.version("pyeclib"),
        lambda: driver.encode(whole),
        lambda: driver.decode(came),
        bytes,
    )


def _zfec(packets: Bytes, coded: int) -> Peer:
    import zfec

    n = packets.shape[0]
    encoder, decoder = zfec.Encoder(n, n + coded), zfec.Decoder(n, n + coded)
    blocks = [row.tobytes() for row in packets]
    wanted = list(range(n, n + coded))
    came = [*encoder.encode(blocks, wanted), *blocks[coded:]]  # coded ones in the lost ones' places
    numbers = [*wanted, *range(coded, n)]
    return Peer(
        metadata.version("zfec"),
        lambda: encoder.encode(blocks, wanted),
        lambda: decoder.decode(came, numbers),
        b"".join,
    )


def _galois(packets: Bytes, coded: int) -> Peer:
    import galois
    import numba

    n = packets.shape[0]
    field: Any = galois.GF(2**8, irreducible_poly=POLYNOMIAL)

    def product(one: Any, other: Any) -> Any:
        threads = numba.get_num_threads()
        numba.set_num_threads(1)
        try:
            return one @ other
        finally:
            numba.set_num_threads(threads)

    factors, plain = field(_factors(coded, n)), field(packets)
    rows = field(np.concatenate((np.eye(n, dtype=np.uint8)[coded:], factors)))
    came = field(np.concatenate((packets[coded:], product(factors, plain))))
    return Peer(
        metadata.version("galois"),
        lambda: product(factors, plain),
        lambda: product(np.linalg.inv(rows)[:coded], came),
        lambda lost: bytes(lost.tobytes() + packets[coded:].tobytes()),
    )


def _raptorq(packets: Bytes, coded: int) -> Peer:
    from raptorq import Decoder, Encoder

    whole, size = packets.tobytes(), packets.shape[1]

    def encode() -> list[bytes]:
        made: list[bytes] = Encoder.with_defaults(whole, size).get_encoded_packets(coded)
        return made

    came = encode()[coded:]

    def decode() -> bytes:
        decoder = Decoder.with_defaults(len(whole), size)
        for packet in came:
            found: bytes | None = decoder.decode(packet)
            if found is not None:
                return found
        raise ArithmeticError("needs more packets than were lost")

    return Peer(metadata.version("raptorq"), encode, decode, bytes)


MAKERS: Mapping[str, Maker] = {
    "isal": _system_isal,
    "isal-bundled": _bundled_isal,
    "isal-pyeclib": functools.partial(_pyeclib, "isa_l_rs_vand"),
    "isal-pyeclib-cauchy": functools.partial(_pyeclib, "isa_l_rs_cauchy"),
    "zfec": _zfec,
    "galois": _galois,
    "raptorq": _raptorq,
}
