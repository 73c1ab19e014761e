"""`unisono bench coding`: our coding beside other erasure codes of the machine, and memcpy.

The work of the papers: 16 packets of 1472 bytes, 4 coded ones made of them; and 4 of the 16 lost,
recovered from 12 and the 4 coded ones. Peers are measured when they are there (bench/peers.py says
which, and what each call does), and a target counts only if its peer was measured. Figures are
medians of several runs, in which all take turns; the best of a few rounds counts within a run, in
processor time, so that what else the machine does matters little.

Judged is the same work: coefficients and room for the result are there in advance, for us and for
ISA-L called directly. `ours-drawn` draws and allocates them every time, as publishing does; it is
told, not judged. Also the whole path of an event: cut, encode, packets out; packets in, decode,
event out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np

from unisono.bench import peers
from unisono.bench.machine import machine
from unisono.bench.peers import Call, Peer
from unisono.core.wire import Codec
from unisono.qos.coding.galois import Bytes, Field
from unisono.qos.coding.generation import Encoder, decode_rows
from unisono.qos.coding.packets import Assembly, Cut, Packet

N, CODED, SIZE = 16, 4, 1472
EVENT_BYTES = N * SIZE
RUNS = 5
_ROUNDS, _CALLS = 5, 400
_ROUND_S = 0.03  # of a slow call there are fewer in a round
ISAL_MIN, ZFEC_MIN = 1.0, 30.0
PATH_MAX_US = 200.0

Times = Mapping[str, Mapping[str, list[float]]]  # by work and name, in microseconds


class Target(NamedTuple):
    work: str
    figure: str
    least: float


TARGETS = (
    Target("encode", "ratio_to_fastest_isal", ISAL_MIN),
    Target("encode", "ratio_to_zfec", ZFEC_MIN),
    Target("decode", "ratio_to_fastest_isal", ISAL_MIN),
)


def run(runs: int, remark: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything; the JSON object of the command."""
    packets = _packets()
    there, absent = peers.find(packets, CODED)
    for name, reason in absent.items():
        remark(f"without {name}: {reason}")
    works = {
        "encode": _encoders(packets, there),
        "decode": _decoders(packets, there),
        "path": {"ours": _path()},
    }
    found: dict[str, dict[str, list[float]]] = {
        work: {name: [] for name in calls} for work, calls in works.items()
    }
    for turn in range(runs):
        for work, calls in works.items():
            for name, call in calls.items():
                found[work][name].append(_best_us(call))
        told = ", ".join(f"{n} {t[-1]:.2f} us" for n, t in found["encode"].items())
        remark(f"run {turn + 1}, encode: {told}")
    figures = {
        "kernel": Field().kind,
        **summarise(found),
        "peers": {name: peer.version for name, peer in there.items()},
        "absent": absent,
    }
    return {"machine": machine(), "coding": figures}


def summarise(found: Times) -> dict[str, Any]:
    """Medians, ratios of speed to the peers, and the targets that apply."""
    out: dict[str, Any] = {}
    exact: dict[tuple[str, str], float] = {}
    for work in ("encode", "decode"):
        median = {name: statistics.median(times) for name, times in found[work].items()}
        ratios = _ratios(median)
        exact |= {(work, figure): ratio for figure, ratio in ratios.items() if ratio is not None}
        out[work] = {
            "us": {name: round(t, 3) for name, t in median.items()},
            **{figure: r if r is None else round(r, 3) for figure, r in ratios.items()},
        }
    path = statistics.median(found["path"]["ours"])
    out["path"] = {"us": round(path, 1), "bytes": EVENT_BYTES, "packets": N, "lost": CODED}
    out["event_path_us"] = out["path"]["us"]
    out["targets"] = {
        "ratio_to_fastest_isal_min": ISAL_MIN,
        "ratio_to_zfec_min": ZFEC_MIN,
        "event_path_us_max": PATH_MAX_US,
    }
    out["judged"] = [_judge(target, out, exact) for target in TARGETS] + [
        {"work": "path", "figure": "us", "max": PATH_MAX_US, "found": out["path"]["us"],
         "applied": True, "met": path <= PATH_MAX_US}
    ]  # fmt: skip
    out["met"] = all(target["met"] for target in out["judged"] if target["applied"])
    return out


def _ratios(median: Mapping[str, float]) -> dict[str, float | None]:
    """How many times as fast as the others we are; None where there is nothing to compare."""
    ours = median["ours"]
    ratios: dict[str, float | None] = {"ratio_to_fastest_isal": None, "ratio_to_zfec": None}
    for name, taken in median.items():
        if not name.startswith("ours"):
            ratios[f"ratio_to_{name.replace('-', '_')}"] = taken / ours
    isal = [taken for name, taken in median.items() if name.startswith("isal")]
    if isal:
        ratios["ratio_to_fastest_isal"] = min(isal) / ours
        if "ours-drawn" in median:
            ratios["drawn_ratio_to_fastest_isal"] = min(isal) / median["ours-drawn"]
    return ratios


def _judge(
    target: Target, out: Mapping[str, Any], exact: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    """A target applies if its peer was measured."""
    work, figure, least = target
    ratio = exact.get((work, figure))
    return {
        "work": work,
        "figure": figure,
        "min": least,
        "found": out[work][figure],
        "applied": ratio is not None,
        "met": None if ratio is None else ratio >= least,
    }


def _best_us(call: Call) -> float:
    call()
    started = time.process_time()
    call()
    took = time.process_time() - started
    calls = max(2, min(_CALLS, int(_ROUND_S / max(took, 1e-9))))
    best = float("inf")
    for _ in range(_ROUNDS):
        started = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, time.process_time() - started)
    return best * 1e6 / calls


def _packets() -> Bytes:
    return np.frombuffer(Random(1).randbytes(EVENT_BYTES), np.uint8).reshape(N, SIZE).copy()


def _encoders(packets: Bytes, there: Mapping[str, Peer]) -> dict[str, Call]:
    field, rng = Field(), Random(2)
    encoder = Encoder(packets, field)
    factors, out = encoder.combinations(CODED, rng)
    copy = packets.copy()
    ours: dict[str, Call] = {
        "ours": lambda: field.combine(factors, packets, out),
        "ours-drawn": lambda: encoder.combinations(CODED, rng),
        "memcpy": lambda: np.copyto(copy, packets),
    }
    return ours | {name: peer.encode for name, peer in there.items()}


def _decoders(packets: Bytes, there: Mapping[str, Peer]) -> dict[str, Call]:
    field = Field()
    factors, coded = Encoder(packets, field).combinations(CODED, Random(3))
    came = np.concatenate((packets[CODED:], coded))
    rows = np.concatenate((np.eye(N, dtype=np.uint8)[CODED:], factors))
    assert (decode_rows(rows, came, field) == packets).all()
    copy = came.copy()
    ours: dict[str, Call] = {
        "ours": lambda: decode_rows(rows, came, field),
        "memcpy": lambda: np.copyto(copy, came),
    }
    return ours | {name: peer.decode for name, peer in there.items()}


def _path() -> Call:
    """An event out as packets and in again, 4 of them lost on the way."""
    field, rng = Field(), Random(4)
    frame = rng.randbytes(EVENT_BYTES)
    codec = Codec((Packet,), 1 << 16)

    def whole() -> bytes:
        cut = Cut(frame, field, SIZE, N)
        coded = cut.coded(CODED + 1, rng)  # in 1 of 255 cases the last one is needed
        sent = [codec.encode("a", p) for p in (*cut.plain(), *coded)]
        assembly: Assembly | None = None
        for received in sent[CODED:]:
            sender, packet = codec.decode(received)
            assert isinstance(packet, Packet)
            if assembly is None:
                assembly = Assembly(packet, field, 1 << 20, 1 << 12)
            assembly.add(packet, sender)
            if assembly.complete:
                break
        assert assembly is not None
        return assembly.frame()

    assert whole() == frame
    return whole
