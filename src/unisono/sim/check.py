"""A checker per guarantee, run online while the simulation goes on. None of them calls protocol
code.

Each returns a verdict with the first violation as its witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unisono.core.events import NUMBER, Delivery, Status
from unisono.sim.global_order import GlobalOrderCheck
from unisono.sim.verdict import Check


class TotalOrderCheck(Check):
    """No two subscribers are notified, untagged, of the same two events in different orders.

    Exact: for every pair (s, t), `_furthest[s][t]` is the highest position at t of an event that
    both have; an event that s gets now and t had at a lower position is one that t had before that
    event, and s after.
    """

    _positions: dict[str, dict[str, int]] = {}  # event -> subscriber -> position
    _furthest: dict[tuple[str, str], tuple[int, str]] = {}

    def delivered(self, node: str, delivery: Delivery) -> None:
        if delivery.status in (Status.OUT_OF_ORDER, Status.DUPLICATE):
            return
        holders = self._positions.setdefault(delivery.id, {})
        if node in holders:
            return  # a duplicate: another checker's matter
        for other, position in holders.items():
            furthest, earlier = self._furthest.get((node, other), (-1, ""))
            if position < furthest:
                here = self._positions[earlier][node]
                self.violated(
                    {
                        "subscribers": [node, other],
                        "events": [earlier, delivery.id],
                        "positions": {
                            node: [here, delivery.position],
                            other: [furthest, position],
                        },
                    }
                )
            else:
                self._furthest[node, other] = (position, delivery.id)
            if delivery.position > self._furthest.get((other, node), (-1, ""))[0]:
                self._furthest[other, node] = (delivery.position, delivery.id)
        holders[node] = delivery.position


class FifoCheck(Check):
    """A publisher's events are notified, untagged, in its publishing order; with `by_topic`, those
    on one topic."""

    by_topic: bool = False
    _last: dict[tuple[str, str, str], tuple[int, str]] = {}

    def delivered(self, node: str, delivery: Delivery, seq: int) -> None:
        if delivery.status in (Status.OUT_OF_ORDER, Status.DUPLICATE):
            return
        key = (node, delivery.publisher, delivery.topic if self.by_topic else "")
        last, event = self._last.get(key, (0, ""))
        if seq < last:
            self.violated(
                {
                    "subscriber": node,
                    "publisher": delivery.publisher,
                    "events": [event, delivery.id],
                    "publisher_seqs": [last, seq],
                }
            )
        self._last[key] = (seq, delivery.id)


class NumbersCheck(Check):
    """A number of a log means one event, and what is untagged comes by rising number. `domains`:
    topics go round so many logs."""

    domains: int = 1
    _events: dict[tuple[int, int], str] = {}
    _last: dict[tuple[int, str], int] = {}

    def delivered(self, node: str, delivery: Delivery) -> None:
        number = (delivery.stamp or {}).get(NUMBER)
        if number is None:
            return
        domain = int(delivery.topic[1:]) % self.domains if self.domains > 1 else 0
        other = self._events.setdefault((domain, number), delivery.id)
        if other != delivery.id:
            self.violated({"number": number, "events": [other, delivery.id]})
        if delivery.status is Status.OUT_OF_ORDER:
            return
        last = self._last.get((domain, node), 0)
        if number <= last:
            self.violated({"subscriber": node, "event": delivery.id, "numbers": [last, number]})
        self._last[domain, node] = number


class DeadlineCheck(Check):
    """What comes after the deadline says so, and nothing else does."""

    deadline_us: float | None = None

    def delivered(self, node: str, delivery: Delivery, published_us: int) -> None:
        took = delivery.delivered_us - published_us
        late = self.deadline_us is not None and took > self.deadline_us
        untrue = delivery.status is (Status.IN_ORDER if late else Status.LATE)
        if untrue:
            self.violated({"subscriber": node, "event": delivery.id, "took_us": took})


class ContentCheck(Check):
    """A subscriber with a predicate is notified of exactly the events that match it."""

    _wanted: dict[str, set[str]] = {}  # subscriber -> events

    def wanted(self, node: str, event: str) -> None:
        self._wanted.setdefault(node, set()).add(event)

    def finish(self, delivered: Mapping[str, set[str]], filtered: Iterable[str]) -> None:
        for node in filtered:
            wanted, came = self._wanted.get(node, set()), delivered.get(node, set())
            for event in sorted(wanted ^ came):
                kind = "missing" if event in wanted else "not wanted"
                self.violated({"subscriber": node, "event": event, "kind": kind})


class Checks:
    """All checkers of a run; an observer of the world."""

    def __init__(self, deadline_ms: float | None = None, domains: int = 1) -> None:
        self.deadlines = DeadlineCheck()
        self.deadlines.deadline_us = None if deadline_ms is None else deadline_ms * 1000
        self.total_order = TotalOrderCheck()
        self.global_order = GlobalOrderCheck()
        self.fifo = FifoCheck()
        self.topic_fifo = FifoCheck(by_topic=True)
        self.duplicates = Check()
        self.phantoms = Check()
        self.losses = Check()
        self.numbers = NumbersCheck(domains=domains)
        self.tags = Check()
        self.copies = Check()
        self.views = Check()
        self.stuck = Check()
        self.content = ContentCheck()
        self.events = 0
        self.deliveries = 0
        self.tagged = 0
        self.skipped = 0
        self.delivered_ids: dict[str, set[str]] = {}
        self._published: dict[str, tuple[str, int, int]] = {}  # event -> topic, seq, time

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None:
        self.events += 1
        self._published[event_id] = (topic, seq, now)

    def delivered(self, node: str, delivery: Delivery) -> None:
        self.deliveries += 1
        self.tagged += delivery.status is Status.OUT_OF_ORDER
        self.skipped += delivery.status is Status.GAP_SKIPPED
        mine = self.delivered_ids.setdefault(node, set())
        if delivery.id in mine and delivery.status is not Status.DUPLICATE:
            self.duplicates.violated({"subscriber": node, "event": delivery.id})
        mine.add(delivery.id)
        known = self._published.get(delivery.id)
        if known is None:
            self.phantoms.violated({"subscriber": node, "event": delivery.id})
            return
        if delivery.status in (Status.OUT_OF_ORDER, Status.GAP_SKIPPED):
            self.tags.violated(
                {"subscriber": node, "event": delivery.id, "status": str(delivery.status)}
            )
        self.numbers.delivered(node, delivery)
        self.total_order.delivered(node, delivery)
        self.global_order.delivered(node, delivery)
        self.fifo.delivered(node, delivery, known[1])
        self.topic_fifo.delivered(node, delivery, known[1])
        self.deadlines.delivered(node, delivery, known[2])

    def finish(
        self,
        subscriptions: list[dict[str, Any]],
        stamps: list[dict[str, Any]],
        pending: dict[str, int],
        errors: list[tuple[str, str, str]],
        acknowledged: set[str],
        settle_us: int,
        clocks_us: int = 0,
    ) -> None:
        """At the end of a run: is anything lost or numbered twice, does anything still wait?

        An event that was not acknowledged is not lost but stuck, unless its publisher has crashed.
        Clocks may differ by up to `clocks_us`.
        """
        for row in subscriptions:
            self._find_losses(row, acknowledged, settle_us, clocks_us)
        self.global_order.finish()
        given: dict[tuple[str, int], str] = {}
        for row in stamps:
            other = given.setdefault((row["topic"], row["number"]), row["event_id"])
            if other != row["event_id"]:
                number = f"{row['topic']}:{row['number']}"
                self.numbers.violated({"number": number, "events": [other, row["event_id"]]})
        for ticket, since in pending.items():
            self.stuck.violated({"waits": ticket, "since_us": since})
        for node, ticket, error in errors:
            self.stuck.violated({"node": node, "ticket": ticket, "error": error})

    def compare_views(self, control: Iterable[dict[str, Any]]) -> None:
        """Nodes that follow a view of one number follow the same view."""
        known: dict[str, tuple[str, str]] = {}
        for row in control:
            if row["kind"] == "view":
                number, _, members = row["detail"].partition(": ")
                other, its = known.setdefault(number, (row["node"], members))
                if its != members:
                    self.views.violated({"view": number, "nodes": [other, row["node"]]})

    def compare_copies(self, held: Iterable[tuple[str, str, tuple[int, int], bytes]]) -> None:
        """Copies of a manager that have taken the same messages are the same: node, topic, which
        messages, state."""
        known: dict[tuple[str, tuple[int, int]], tuple[str, bytes]] = {}
        for node, topic, age, state in held:
            other, its = known.setdefault((topic, age), (node, state))
            if its != state:
                self.copies.violated({"topic": topic, "view, index": age, "nodes": [other, node]})

    def _find_losses(
        self, row: dict[str, Any], acknowledged: set[str], settle_us: int, clocks_us: int
    ) -> None:
        node, until = row["subscriber"], row["until_us"]
        mine = self.delivered_ids.get(node, set())
        for event, (topic, _, at) in self._published.items():
            if topic != row["topic"] or event in mine or at < row["from_us"] + clocks_us:
                continue
            if event not in acknowledged:
                continue
            if until is None or at < until - settle_us:
                self.losses.violated({"subscriber": node, "event": event, "published_us": at})

    def results(self) -> dict[str, Check]:
        """By name, in the order in which they are shown."""
        return {
            "total-order": self.total_order,
            "global-order": self.global_order,
            "fifo": self.fifo,
            "topic-fifo": self.topic_fifo,
            "duplicates": self.duplicates,
            "phantoms": self.phantoms,
            "losses": self.losses,
            "numbers": self.numbers,
            "tags": self.tags,
            "copies": self.copies,
            "views": self.views,
            "stuck": self.stuck,
            "deadlines": self.deadlines,
            "content": self.content,
        }
