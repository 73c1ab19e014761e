"""The layer: one domain or several, by topic. What a domain asks for goes out under its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from unisono.core.effects import (
    Append,
    CancelTimer,
    Done,
    Effect,
    Publish,
    Rebase,
    Record,
    SetTimer,
    Store,
    Subscribe,
    Trouble,
    Unsubscribe,
)
from unisono.core.events import Control, Event, Status, voter_inbox
from unisono.core.layer import Effects, Layer
from unisono.core.machine import Timer
from unisono.core.observations import Observed
from unisono.qos.total_order.by_log import messages
from unisono.qos.total_order.by_log.domain import Domain, Stored
from unisono.qos.total_order.by_log.messages import CHANNEL, LogMessage, domain_of
from unisono.raft import messages as raft_messages
from unisono.raft.keep import STORE_BALLOT, Ballot, Keep, KeepBase, recovered
from unisono.raft.keep import Record as Kept
from unisono.raft.log import Base
from unisono.raft.messages import RaftMessage

JOIN = "join"
CLOSE = "close"
_STARTED = "started"
_ENCODER = msgspec.msgpack.Encoder()
_BASE = msgspec.msgpack.Decoder(Base)
_KEPT = msgspec.msgpack.Decoder(Kept)
_BALLOT = msgspec.msgpack.Decoder(Ballot)


def load(
    stored: Mapping[str, bytes], domain: str, base: bytes, records: Iterable[bytes]
) -> Stored | None:
    """What a process has on its disk of a domain's log."""
    ballot = stored.get(f"{domain}/{STORE_BALLOT}")
    if ballot is None:
        return None
    begin = _BASE.decode(base) if base else Base()
    log, committed = recovered(begin, (_KEPT.decode(record) for record in records))
    return Stored(log, committed, _BALLOT.decode(ballot))


class LogOrder(Layer):
    """See the package header for the guarantee."""

    name: ClassVar[str] = "log"
    joins: ClassVar[bool] = True
    controls: ClassVar[tuple[type[Control], ...]] = (*messages.MESSAGES, *raft_messages.MESSAGES)

    def __init__(
        self,
        node_id: str,
        domains: Sequence[Domain],
        domain_of_topic: Callable[[str], str | None],
        *,
        votes: bool,
    ) -> None:
        self.id = node_id
        self.domains = {domain.known.domain: domain for domain in domains}
        self._domain_of = domain_of_topic
        self._votes = votes
        self._operations: dict[str, tuple[str | None, dict[str, tuple[str, ...]]]] = {}
        self._parts_left: dict[str, int] = {}  # of an operation: domains that have not begun it
        self._tickets = 0
        self._to_join = len(self.domains)
        self._closing = False

    @property
    def ignored(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for domain in self.domains.values():
            total.update(domain.subscriber.ignored)
        return total

    # Life.

    def start(self, now: int) -> Effects:
        topics = [CHANNEL + name for name in self.domains]
        if self._votes:
            topics.append(voter_inbox(self.id))
        return (Subscribe(tuple(topics), f"{self.name}|{_STARTED}"),)

    def effective(self, ticket: str, now: int) -> Effects:
        if ticket == _STARTED:
            return self._all(lambda domain: domain.start(now), now)
        plain_ticket, parts = self._operations.pop(ticket)
        if plain_ticket is not None:
            self._parts_left[plain_ticket] = len(parts)
        effects: list[Effect] = []
        for name, topics in parts.items():
            domain = self.domains[name]
            domain.subscribe(topics, plain_ticket, now)
            effects += self._of(domain, now)
        return effects

    def close(self, now: int) -> Effects:
        self._closing = True
        return self._all(lambda domain: domain.close(now), now)

    def reconnected(self, now: int) -> Effects:
        return self._all(lambda domain: domain.interrupted(now), now)

    def synced(self, log: str, count: int, now: int) -> Effects:
        domain = self.domains[log]
        domain.written(count, now)
        return self._of(domain, now)

    # The operations.

    def publish(self, event: Event, now: int) -> Effects:
        name = self._domain_of(event.topic)
        if name is None:
            return (Publish(event),)
        domain = self.domains[name]
        domain.publish(event, now)
        return self._of(domain, now)

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        parts = self._split(topics)
        if not parts:
            return (Subscribe(tuple(topics), ticket),)
        self._tickets += 1
        mine = f"subscribe-{self._tickets}"
        self._operations[mine] = (ticket, parts)
        return (Subscribe(tuple(topics), f"{self.name}|{mine}"),)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        effects: list[Effect] = [Unsubscribe(tuple(topics), ticket)]
        for name, mine in self._split(topics).items():
            domain = self.domains[name]
            domain.unsubscribe(mine, now)
            effects += self._of(domain, now)
        return effects

    def _split(self, topics: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The ordered topics, by domain."""
        parts: dict[str, tuple[str, ...]] = {}
        for topic in topics:
            name = self._domain_of(topic)
            if name is not None:
                parts[name] = (*parts.get(name, ()), topic)
        return parts

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if self._domain_of(event.topic) is None:
            return super().notify(event, status, now)
        text = f"{event.id} is left out: {event.publisher} publishes {event.topic!r} without order"
        return (self._row("faults", "without a number", event.id, now), Trouble(text))

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        assert isinstance(message, LogMessage | RaftMessage)
        domain = self.domains.get(domain_of(message.log))
        if domain is None:
            return ()
        domain.receive(message, sender, now)
        return self._of(domain, now)

    def timer(self, key: tuple[str, Timer], now: int) -> Effects:
        name, timer = key
        domain = self.domains[name]
        domain.fire(timer, now)
        return self._of(domain, now)

    # What domains ask for.

    def _all(self, ask: Callable[[Domain], None], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for domain in self.domains.values():
            ask(domain)
            effects += self._of(domain, now)
        return effects

    def _of(self, domain: Domain, now: int) -> list[Effect]:
        """What this domain asks for, under its name."""
        name = domain.known.domain
        effects: list[Effect] = []
        for effect in domain.take(now):
            if isinstance(effect, SetTimer):
                effects.append(SetTimer((name, effect.key), effect.at_us))
            elif isinstance(effect, CancelTimer):
                effects.append(CancelTimer((name, effect.key)))
            elif isinstance(effect, Observed):
                what = effect.observation
                effects.append(self._row(what.table, what.kind, what.sentence, now))
                if what.warns:
                    effects.append(Trouble(what.sentence))
            elif isinstance(effect, Store):
                effects.append(Store(f"{name}/{effect.key}", effect.value))
            elif isinstance(effect, Keep):
                record = _ENCODER.encode(Kept(effect.first, effect.entries, effect.committed))
                last = effect.first + len(effect.entries) - 1
                effects.append(Append(name, record, last))
            elif isinstance(effect, KeepBase):
                effects.append(Rebase(name, _ENCODER.encode(effect.base), effect.base.index))
            elif isinstance(effect, Done) and not self._is_complete(effect):
                pass
            else:
                effects.append(effect)
        if self._closing and all(domain.closed for domain in self.domains.values()):
            self._closing = False
            effects.append(Done(CLOSE))
        return effects

    def _is_complete(self, done: Done) -> bool:
        """Whether all domains have done it."""
        if done.error is not None:
            return True
        if done.ticket == JOIN:
            self._to_join -= 1
            return self._to_join == 0
        left = self._parts_left.get(done.ticket)
        if left is None:
            return True
        if left > 1:
            self._parts_left[done.ticket] = left - 1
            return False
        del self._parts_left[done.ticket]
        return True

    def _row(self, table: str, kind: str, detail: str, now: int) -> Record:
        row = {"at_us": now, "node": self.id, "kind": kind, "detail": detail}
        return Record(table, row)
