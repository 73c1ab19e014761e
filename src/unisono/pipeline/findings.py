"""From what the partitions found to a report: sums, smallest witnesses, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from unisono.pipeline.breakdown import Shares, by_name
from unisono.pipeline.causes import CauseSummary, Overtaken, Said
from unisono.pipeline.census import Census
from unisono.pipeline.cycles import EVENTS_MAX, HELD_MAX, Step
from unisono.pipeline.event_kernel import HISTOGRAM, bucket_floor
from unisono.pipeline.gaps import PAIRS_MAX, GapSummary
from unisono.pipeline.order import GroupSummary
from unisono.pipeline.replay import Descent, StreamSummary
from unisono.pipeline.report import CHECKS, Check, Report, judged, unknown
from unisono.pipeline.resolve import EventSummary, Missed, Terms
from unisono.pipeline.stalls import Stall
from unisono.trace.schema import (
    DELIVERIES,
    GAP_SKIPPED,
    GLOBAL_ORDER,
    OUT_OF_ORDER,
    PUBLICATIONS,
    SUBSCRIPTIONS,
)

Place = tuple[int, int]  # a subscriber's number and a position


class GlobalOrder(msgspec.Struct, frozen=True):
    """What is known of one order over all subscribers."""

    knots: int = 0
    complete: bool = True  # there are no more knots than these
    cycle: list[Step] = []
    too_many: int = 0  # so many events were not looked at


@dataclass(frozen=True)
class Findings:
    """What all passes found."""

    events: EventSummary
    streams: StreamSummary
    orders: GroupSummary
    whole: GlobalOrder
    causes: CauseSummary
    untraced: str | None  # why `causes` is only what the streams show, if it is
    gaps: GapSummary | None  # None: not looked for
    shares: Shares | None

    def places(self) -> set[Place]:
        """Where the witnesses' events were delivered: their names are still to be looked up."""
        places: set[Place] = set()
        for descent in self.streams.witnesses.values():
            places.add((descent.subscriber, descent.earlier_position))
            places.add((descent.subscriber, descent.position))
        if (order := self.orders.witness) is not None:
            places.update((order.subscribers[0], at) for at in order.first)
        places.update((step.subscriber, at) for step in self.whole.cycle for at in step.positions)
        if (late := self.causes.witness) is not None:
            places.update(
                {(late.subscriber, late.earlier_position), (late.subscriber, late.position)}
            )
        if (stall := self.streams.longest_stall) is not None:
            places.add((stall.subscriber, stall.position))
        return places

    def said(self) -> set[Said]:
        """Events of which only publisher and number are known."""
        links = self.causes.witness.through if self.causes.witness is not None else []
        return {said for link in links for said in (link.heard, link.published)}


def merge_events(found: Sequence[EventSummary]) -> EventSummary:
    """Sums, and for every check the smallest witness."""
    buckets: Counter[int] = Counter()
    witnesses: dict[str, Missed] = {}
    for summary in found:
        buckets.update(summary.latency_buckets)
        for name, missed in summary.witnesses.items():
            if name not in witnesses or missed.key < witnesses[name].key:
                witnesses[name] = missed
    twice = [s.published_twice for s in found if s.published_twice is not None]
    return EventSummary(
        events={part: count for s in found for part, count in s.events.items()},
        published_twice=min(twice, default=None),
        duplicates=sum(s.duplicates for s in found),
        phantoms=sum(s.phantoms for s in found),
        deadline_misses=sum(s.deadline_misses for s in found),
        expected=sum(s.expected for s in found),
        lost=sum(s.lost for s in found),
        unsettled=sum(s.unsettled for s in found),
        latencies=sum(s.latencies for s in found),
        latency_sum_us=sum(s.latency_sum_us for s in found),
        latency_max_us=max((s.latency_max_us for s in found if s.latencies), default=0),
        latency_buckets=dict(buckets),
        witnesses=witnesses,
    )


def merge_streams(found: Sequence[StreamSummary]) -> StreamSummary:
    """Sums, smallest witnesses, furthest reaches."""
    descents: Counter[str] = Counter()
    witnesses: dict[str, Descent] = {}
    reach: dict[int, int] = {}
    for summary in found:
        descents.update(summary.descents)
        for name, descent in summary.witnesses.items():
            witnesses[name] = min(descent, witnesses.get(name, descent))
        for cell, far in summary.reach.items():
            reach[cell] = max(far, reach.get(cell, -1))
    twice = [s.repeated_position for s in found if s.repeated_position is not None]
    return StreamSummary(
        repeated_position=min(twice, default=None),
        descents=dict(descents),
        witnesses=witnesses,
        overtaken=sum(s.overtaken for s in found),
        first_overtaken=min((s.first_overtaken for s in found if s.first_overtaken), default=None),
        stalls=sum(s.stalls for s in found),
        longest_stall=min((s.longest_stall for s in found if s.longest_stall), default=None),
        inversions=sum(s.inversions for s in found),
        reach=reach,
    )


def merge_groups(found: Sequence[GroupSummary]) -> GroupSummary:
    """All pairs of subscribers that disagree, each once, and the closest disagreement."""
    return GroupSummary(
        pairs=sorted({pair for summary in found for pair in summary.pairs}),
        witness=min((s.witness for s in found if s.witness is not None), default=None),
    )


def build_report(
    census: Census,
    found: Findings,
    names: Mapping[Place, str],
    said: Mapping[Said, str],
    promises: Sequence[str],
    terms: Terms,
) -> Report:
    """Put every finding into words and numbers."""
    events, streams, orders = found.events, found.streams, found.orders
    checks: dict[str, Check] = {}
    for name in CHECKS:
        promised = name in promises
        if name == "total-order":
            witness = _order_witness(census, orders, names)
            checks[name] = judged(len(orders.pairs), witness, promised)
        elif name == GLOBAL_ORDER:
            checks[name] = _global_check(census, found.whole, names, promised)
        elif name == "causal-order":
            checks[name] = _causal_check(census, found, names, said, promised)
        elif name in ("fifo", "topic-fifo"):
            witness = _descent_witness(census, streams.witnesses.get(name), names)
            checks[name] = judged(streams.descents.get(name, 0), witness, promised)
        elif name == "losses" and census.intervals is None:
            checks[name] = unknown(f"the trace has no table {SUBSCRIPTIONS}", promised)
        elif name == "gaps":
            checks[name] = _gaps_check(census, found.gaps, promised)
        elif name == "deadline" and terms.deadline_us is None:
            checks[name] = unknown("no deadline was given", promised)
        elif name == "stalls" and terms.stall_us is None:
            checks[name] = unknown("no stall time was given", promised)
        elif name == "stalls":
            witness = _stall_witness(census, streams.longest_stall, names)
            checks[name] = judged(streams.stalls, witness, promised, stall_us=terms.stall_us)
        else:
            checks[name] = _event_check(name, events, promised, terms.deadline_us)
    return Report(
        checks=checks,
        rows={
            PUBLICATIONS: census.publications,
            DELIVERIES: census.deliveries,
            SUBSCRIPTIONS: census.subscriptions,
        },
        statuses=census.statuses,
        tagged=census.statuses[OUT_OF_ORDER] / census.deliveries if census.deliveries else 0.0,
        latency=latency_ms(events),
        breakdown=None if found.shares is None else by_name(census, found.shares),
    )


def _event_check(name: str, events: EventSummary, promised: bool, deadline_us: int | None) -> Check:
    witness = _missed_witness(events.witnesses.get(name))
    if name == "duplicates":
        return judged(events.duplicates, witness, promised)
    if name == "phantoms":
        return judged(events.phantoms, witness, promised)
    if name == "losses":
        more = {"expected": events.expected, "unsettled": events.unsettled}
        return judged(events.lost, witness, promised, **more)
    return judged(events.deadline_misses, witness, promised, deadline_us=deadline_us)


def _missed_witness(missed: Missed | None) -> dict[str, Any] | None:
    if missed is None:
        return None
    numbers: dict[str, Any] = dict(missed.numbers)
    if "again" in numbers:
        numbers = {"positions": [numbers["first"], numbers["again"]]}
    return {"subscriber": missed.subscriber, "event": missed.event_id, **numbers}


def _descent_witness(
    census: Census, descent: Descent | None, names: Mapping[Place, str]
) -> dict[str, Any] | None:
    if descent is None:
        return None
    positions = [descent.earlier_position, descent.position]
    publisher, topic = census.sources[descent.source]
    return {
        "subscriber": census.subscribers[descent.subscriber],
        "publisher": publisher,
        "topic": topic,
        "events": [names[descent.subscriber, at] for at in positions],
        "publisher_seqs": [descent.earlier_seq, descent.seq],
        "positions": positions,
    }


def _order_witness(
    census: Census, orders: GroupSummary, names: Mapping[Place, str]
) -> dict[str, Any] | None:
    witness = orders.witness
    if witness is None:
        return None
    a, b = (census.subscribers[who] for who in witness.subscribers)
    return {
        "subscribers": [a, b],
        "events": [names[witness.subscribers[0], at] for at in witness.first],
        "positions": {a: list(witness.first), b: list(witness.second)},
    }


def _global_check(
    census: Census, whole: GlobalOrder, names: Mapping[Place, str], promised: bool
) -> Check:
    if whole.too_many:
        return unknown(
            f"too large: {whole.too_many:,} events; one order is looked for over {EVENTS_MAX:,}",
            promised,
        )
    if not whole.complete and not whole.knots:
        return unknown(
            f"too large: more than {HELD_MAX:,} deliveries wait for one another", promised
        )
    cycle = [
        {
            "subscriber": census.subscribers[step.subscriber],
            "events": [names[step.subscriber, at] for at in step.positions],
            "positions": list(step.positions),
        }
        for step in whole.cycle
    ]
    witness = {"events": [step["events"][0] for step in cycle], "cycle": cycle}
    more = {} if whole.complete else {"at_least": True}
    return judged(whole.knots, witness, promised, **more)


def _causal_check(
    census: Census,
    found: Findings,
    names: Mapping[Place, str],
    said: Mapping[Said, str],
    promised: bool,
) -> Check:
    if found.untraced and not found.causes.overtaken:
        return unknown(found.untraced, promised)
    witness = _overtaken_witness(census, found.causes.witness, names, said)
    more = {"at_least": True} if found.untraced else {}
    return judged(found.causes.overtaken, witness, promised, **more)


def _overtaken_witness(
    census: Census,
    overtaken: Overtaken | None,
    names: Mapping[Place, str],
    said: Mapping[Said, str],
) -> dict[str, Any] | None:
    if overtaken is None:
        return None
    positions = [overtaken.earlier_position, overtaken.position]
    return {
        "subscriber": census.subscribers[overtaken.subscriber],
        "events": [names[overtaken.subscriber, at] for at in positions],
        "positions": positions,
        "through": [
            {
                "relay": census.publishers[link.relay],
                "heard": said[link.heard],
                "published": said[link.published],
            }
            for link in overtaken.through
        ],
    }


def _gaps_check(census: Census, gaps: GapSummary | None, promised: bool) -> Check:
    if gaps is None:
        return unknown("only an audit of the whole trace can tell", promised)
    if gaps.too_many:
        return unknown(
            f"too large: more than {PAIRS_MAX:,} pairs of a subscriber and a source that it did "
            "not get all of",
            promised,
        )
    witness = None
    if (gap := gaps.witness) is not None:
        witness = {
            "subscriber": gap.subscriber,
            "publisher": gap.publisher,
            "topic": gap.topic,
            "event": gap.event_id,
            "publisher_seq": gap.publisher_seq,
            "between": [gap.low, gap.high],
        }
    return judged(gaps.missing, witness, promised, declared=census.statuses[GAP_SKIPPED])


def _stall_witness(
    census: Census, stall: Stall | None, names: Mapping[Place, str]
) -> dict[str, Any] | None:
    if stall is None:
        return None
    return {
        "subscriber": census.subscribers[stall.subscriber],
        "event": names[stall.subscriber, stall.position],
        "positions": [stall.earlier_position, stall.position],
        "silence_us": -stall.minus_silence_us,
        "latency_us": stall.latency_us,
    }


def latency_ms(events: EventSummary) -> dict[str, float | None]:
    """Mean, percentiles (nearest rank) and maximum; percentiles to 0.1 %."""
    if not events.latencies:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    values = sorted(
        (bucket_floor(at) if at < HISTOGRAM else -bucket_floor(at - HISTOGRAM), count)
        for at, count in events.latency_buckets.items()
    )

    def percentile(share: float) -> float:
        rank, seen = share * events.latencies, 0
        for value_us, count in values:
            seen += count
            if seen >= rank:
                return value_us / 1000
        return values[-1][0] / 1000

    return {
        "mean": events.latency_sum_us / events.latencies / 1000,
        "p50": percentile(0.50),
        "p95": percentile(0.95),
        "p99": percentile(0.99),
        "max": events.latency_max_us / 1000,
    }
