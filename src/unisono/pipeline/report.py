"""What an audit says: a verdict per check with a witness, and the figures beside them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from unisono.errors import BadInput
from unisono.trace.schema import GLOBAL_ORDER

Verdict = Literal["valid", "unknown", "invalid"]

CHECKS = (
    "total-order",
    GLOBAL_ORDER,
    "fifo",
    "topic-fifo",
    "causal-order",
    "duplicates",
    "phantoms",
    "losses",
    "gaps",
    "deadline",
    "stalls",
)


class Check(msgspec.Struct, frozen=True):
    """One check. `violations` is null when it could not be judged; `remark` says why."""

    verdict: Verdict
    violations: int | None
    witness: dict[str, Any] | None
    promised: bool
    remark: str | None = None
    more: dict[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        known = {
            "verdict": self.verdict,
            "violations": self.violations,
            "witness": self.witness,
            "promised": self.promised,
        }
        return known | ({"remark": self.remark} if self.remark else {}) | self.more


class Report(msgspec.Struct, frozen=True):
    """The result of auditing one trace."""

    checks: dict[str, Check]
    rows: dict[str, int | None]
    statuses: dict[str, int]
    tagged: float  # share of deliveries that say that they are out of order
    latency: dict[str, float | None]  # in milliseconds; percentiles to 0.1 %
    breakdown: dict[str, Any] | None = None  # by topic and by link; percentiles to 1.6 %

    @property
    def verdict(self) -> Verdict:
        """Invalid if a promised check is, else unknown if a promised check is, else valid."""
        return worst([check.verdict for check in self.checks.values() if check.promised])

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "checks": {name: check.to_json() for name, check in self.checks.items()},
            "rows": self.rows,
            "statuses": self.statuses,
            "tagged": self.tagged,
            "latency": self.latency,
            **(self.breakdown or {}),
        }


def worst(verdicts: list[Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("invalid", "unknown", "valid")
    return next((verdict for verdict in order if verdict in verdicts), "valid")


def judged(violations: int, witness: dict[str, Any] | None, promised: bool, **more: Any) -> Check:
    """A check that could be judged."""
    verdict: Verdict = "invalid" if violations else "valid"
    return Check(verdict, violations, witness if violations else None, promised, more=more)


def unknown(remark: str, promised: bool) -> Check:
    """A check that could not be judged."""
    return Check("unknown", None, None, promised, remark)


def check_names(names: list[str], where: str) -> tuple[str, ...]:
    """The names as given, after refusing one that is no check."""
    for name in names:
        if name not in CHECKS:
            raise BadInput(f"{where}: no check named {name!r}; there are {', '.join(CHECKS)}")
    return tuple(dict.fromkeys(names))


def sentence(check: str, witness: dict[str, Any]) -> str:
    """A witness in words."""
    if check == "total-order":
        a, b = witness["subscribers"]
        x, y = witness["events"]
        (ax, ay), (bx, by) = witness["positions"][a], witness["positions"][b]
        return (
            f"{a} heard {x} before {y} (positions {ax}, {ay}), "
            f"{b} heard {y} before {x} (positions {by}, {bx})"
        )
    if check == GLOBAL_ORDER:
        return ", ".join(
            f"{step['subscriber']} heard {step['events'][0]} before {step['events'][1]} "
            f"(positions {step['positions'][0]}, {step['positions'][1]})"
            for step in witness["cycle"]
        )
    who = witness["subscriber"]
    if check in ("fifo", "topic-fifo"):
        x, y = witness["events"]
        (m, n), (at, then) = witness["publisher_seqs"], witness["positions"]
        return (
            f"{who} heard {x} (number {m}) at position {at} and then {y} (number {n}) at position "
            f"{then}, both from {witness['publisher']}"
        )
    if check == "causal-order":
        x, y = witness["events"]
        at, then = witness["positions"]
        links = "".join(
            f"; {link['relay']} heard {link['heard']} before it published {link['published']}"
            for link in witness["through"]
        )
        return f"{who} heard {x} at position {at} and then {y}, its cause, at {then}{links}"
    event = witness["event"]
    if check == "gaps":
        low, high = witness["between"]
        return (
            f"{who} got numbers {low} to {high} of {witness['publisher']} on {witness['topic']}, "
            f"but not {event} (number {witness['publisher_seq']})"
        )
    if check == "stalls":
        at, then = witness["positions"]
        silent_ms = witness["silence_us"] / 1000
        return (
            f"{who} heard nothing for {silent_ms:.1f} ms between positions {at} and {then}, where "
            f"it got {event}, published {witness['latency_us'] / 1000:.1f} ms before"
        )
    if check == "duplicates":
        at, then = witness["positions"]
        return f"{who} was given {event} at position {at} and again at position {then}"
    if check == "phantoms":
        return f"{who} was given {event} at position {witness['position']}; nobody published it"
    if check == "losses":
        return f"{who} never got {event}, published at {witness['published_us']} us"
    late_ms = witness["latency_us"] / 1000
    return (
        f"{who} got {event} at position {witness['position']}, {late_ms:.1f} ms after publication"
    )
