"""Thesis sections 5.3.2 and 5.4, figures 5.6 to 5.9: why coding helps, and the Markov model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from unisono.core.entropy import stream
from unisono.experiments.lossy_group import Curves, claim, figure, listed, simulator
from unisono.experiments.registry import Claim, Table
from unisono.models.channel import Channel
from unisono.models.markov import Markov

if TYPE_CHECKING:
    from unisono.qos.coding.generation import Decoder

KINDS = ("no coding", "coding")


def _decoder(n: int, held: int) -> Decoder:
    """A decoder that holds the first packets of a generation."""
    from unisono.qos.coding.galois import Field
    from unisono.qos.coding.generation import Decoder
    from unisono.qos.coding.packets import unit

    decoder = Decoder(n, 1, Field("portable"))
    for place in range(held):
        decoder.add(unit(n, place), b"x")
    return decoder


# Figure 5.6: the chance that a packet is useful.

N, Q, DRAWS = 10, 8, 1000
_useful = Curves({kind: {m: f"{kind} m={m}" for m in range(1, N + 1)} for kind in KINDS})


def _simulate_useful(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    kind, _, missing = setting.partition(" m=")
    rng, m, useful = stream(seed, setting), int(missing), 0
    for _ in range(DRAWS // 10 if quick else DRAWS):
        if kind == "coding":
            decoder = _decoder(N, N - m)
            useful += decoder.add(rng.randbytes(N), b"x")
        else:
            useful += rng.randrange(N) < m
    drawn = DRAWS // 10 if quick else DRAWS
    closed = 1 - Q**-m if kind == "coding" else m / N
    return {"success": useful / drawn, "closed": closed}


def _claims_useful(table: Table) -> list[Claim]:
    plain, coded = (_useful.values(table, kind, "success") for kind in KINDS)
    closed = _useful.values(table, "coding", "closed")
    return [
        claim(
            "without coding the chance of a useful packet is m/n",
            "linear",
            f"{listed(plain)} for m = 1 to {N}",
            all(abs(p - m / N) < 0.06 for m, p in enumerate(plain, 1)),
        ),
        claim(
            "with coding it is 1 - q^-m",
            f"{listed(closed)} with q = {Q}",
            f"{listed(coded)} over our field, q = 256",
            all(c >= 1 - 256**-m - 0.02 for m, c in enumerate(coded, 1)),
        ),
    ]


# Section 5.3.2: rounds to collect what is missing, one packet a round.

SIZES = (2, 4, 8, 16, 32, 64)
_rounds = Curves({kind: {m: f"{kind} m={m}" for m in SIZES} for kind in KINDS})


def _simulate_rounds(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    kind, _, size = setting.partition(" m=")
    rng, m, total, times = stream(seed, setting), int(size), 0, 20 if quick else 100
    for _ in range(times):
        if kind == "coding":
            decoder = _decoder(m, 0)
            while not decoder.complete:
                decoder.add(rng.randbytes(m), b"x")
                total += 1
        else:
            missing = set(range(m))
            while missing:
                missing.discard(rng.randrange(m))
                total += 1
    return {"success": total / times}


def _claims_rounds(table: Table) -> list[Claim]:
    plain, coded = (_rounds.values(table, kind, "success") for kind in KINDS)
    per = [p / (m * log(m)) for m, p in zip(SIZES, plain, strict=True)][2:]
    return [
        claim(
            "plain packets take Theta(m log m) rounds",
            "the coupon collector's problem",
            f"{listed(plain, '.1f')} for m = {SIZES}; over m ln m: {listed(per, '.2f')} from 8 on",
            max(per) < 1.6 * min(per),
        ),
        claim(
            "coded packets take Theta(m) rounds",
            "linear",
            listed(coded, ".2f"),
            all(m <= c <= 1.05 * m + 0.2 for m, c in zip(SIZES, coded, strict=True)),
        ),
    ]


# Figures 5.7 to 5.9: the Markov model, PLR 0.2, ABL 2.

_ASSUMED = ("n is not given: 16 packets", "100 subscribers hear the source directly; ABL 2")
REDUNDANCIES = (0, 2, 4, 6, 8, 10, 12)
_seven: dict[str, dict[float, str]] = {
    "model, coding": {a: f"model a={a} coding=1" for a in REDUNDANCIES},
    "model, no coding": {a: f"model a={a} coding=0" for a in REDUNDANCIES},
    "simulated, coding": {a: f"none a={a} tree=100x1" for a in REDUNDANCIES},
    "simulated, no coding": {a: f"none a={a} rd=1 tree=100x1" for a in REDUNDANCIES},
}
_five_seven = Curves(_seven)
_dissemination = simulator({"plr": "0.2", "at": "root", "events": "100"})
ROUNDS = range(7)
_eight: dict[str, dict[float, str]] = {
    f"F = {f}, a = {a}, {kind}": {
        k: f"model a={a} coding={kind == 'coding':d} fanout={f} rounds={k}" for k in ROUNDS
    }
    for f, a in ((1, 0), (2, 2))
    for kind in KINDS
}
_five_eight = Curves(_eight)
FAN_OUTS = (1, 2, 3, 4, 5, 6)
_nine: dict[str, dict[float, str]] = {
    kind: {f: f"model a=0 coding={kind == 'coding':d} fanout={f} rounds=1" for f in FAN_OUTS}
    for kind in KINDS
}
_five_nine = Curves(_nine)


def _simulate_model(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    if not setting.startswith("model"):
        return _dissemination(setting, seed, False)
    words = {name: int(value) for name, _, value in (w.partition("=") for w in setting.split()[1:])}
    chain = Markov(
        packets=16,
        channel=Channel(0.2, 2),
        redundancy=words["a"],
        coding=bool(words["coding"]),
        fanout=words.get("fanout", 1),
    )
    return {"success": chain.success(words.get("rounds", 0))[-1]}


def _claims_seven(table: Table) -> list[Claim]:
    coded, plain, seen, doubled = (_five_seven.values(table, name, "success") for name in _seven)
    return [
        claim(
            "coding improves success far more than duplicates with every redundant packet",
            'coding improves "exponentially"',
            f"coding {listed(coded)}, no coding {listed(plain)} for redundancy {REDUNDANCIES}",
            all(c > p for c, p in zip(coded[1:], plain[1:], strict=True)) and coded[-1] > 0.9,
        ),
        claim(
            "simulation agrees with the model",
            "compared in the figure (judged: within 0.02 with coding)",
            f"simulated: coding {listed(seen)}, random duplicates {listed(doubled)}",
            all(abs(c - s) <= 0.02 for c, s in zip(coded, seen, strict=True)),
        ),
    ]


def _claims_eight(table: Table) -> list[Claim]:
    found = {name: _five_eight.values(table, name, "success") for name in _eight}
    return [
        claim(
            "with coding two rounds fully recover an event",
            "2 rounds (judged: 99 % for F = 2, a = 2)",
            "; ".join(f"{name}: {listed(values)}" for name, values in found.items()),
            found["F = 2, a = 2, coding"][2] >= 0.99,
        ),
        claim(
            "coding recovers faster than no coding",
            "faster",
            "as above, after 1 round and more",
            all(
                c >= p
                for f, a in ((1, 0), (2, 2))
                for p, c in zip(
                    *(found[f"F = {f}, a = {a}, {kind}"] for kind in KINDS), strict=True
                )
            ),
        ),
    ]


def _claims_nine(table: Table) -> list[Claim]:
    found = {kind: _five_nine.values(table, kind, "success") for kind in KINDS}
    return [
        claim(
            "a larger fan-out makes a round more effective",
            "more effective",
            "; ".join(f"{kind}: {listed(v)}" for kind, v in found.items()) + " after one round",
            all(b > a for values in found.values() for a, b in pairwise(values)),
        )
    ]


_model = partial(
    figure, section="thesis section 5.4.3", simulate=_simulate_model, measures=("success",)
)
EXPERIMENTS = (
    figure("fig-5.6", "The chance that a packet is useful", _useful, _claims_useful,
           section="thesis section 5.3.2", simulate=_simulate_useful, x="missing packets",
           y="probability", measures=("success", "closed"),
           assumed=(f"n = {N}; simulated over GF(2^8), the printed curve is for q = {Q}",)),
    figure("sec-5.3.2", "Rounds to collect m packets", _rounds, _claims_rounds,
           section="thesis section 5.3.2", simulate=_simulate_rounds, x="packets", y="rounds",
           measures=("success",),
           assumed=("one random packet, or combination, of a complete node per round; n = m",)),
    _model("fig-5.7", "Success by redundancy, model and simulation", _five_seven, _claims_seven,
           x="redundant packets", assumed=_ASSUMED),
    _model("fig-5.8", "Success by gossip rounds", _five_eight, _claims_eight, x="gossip rounds",
           assumed=(*_ASSUMED, "F and a are not given: (1, 0) and (2, 2); model only")),
    _model("fig-5.9", "Success by fan-out", _five_nine, _claims_nine, x="fan-out",
           assumed=(*_ASSUMED, "after one round, without redundancy; model only")),
)  # fmt: skip
