"""A bench for topic managers alone: their messages arrive in any order a test chooses."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from unisono.core.events import Control, Stamp
from unisono.core.limits import Limits
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.manager import TopicManager
from unisono.qos.total_order.order import Orders, TopicOrder
from unisono.qos.total_order.state import ManagerState


class Bench:
    """All managers of a bus, and the messages on their way. With `lossy`, messages get lost or
    doubled, and whoever waits asks again."""

    def __init__(
        self, topics: Iterable[str], rng: Random, exact: bool = True, lossy: float = 0.0
    ) -> None:
        self.rng = rng
        self.order = TopicOrder(list(topics))
        self.orders = Orders(self.order)
        self.managers = {
            topic: TopicManager(ManagerState(topic), self.orders, exact, Limits())
            for topic in topics
        }
        self.on_the_way: list[Control] = []
        self.stamps: dict[str, Stamp] = {}
        self.related: set[str] = set()
        self.asked: dict[str, msg.ToTopic] = {}  # event or op -> question without an answer
        self._lossy = lossy
        self.events: dict[str, list[str]] = {topic: [] for topic in topics}

    def publish(self, event_id: str, topic: str) -> None:
        """Every topic has one publisher, who says which of its stamps have come."""
        published = self.events[topic]
        done = next((n for n, e in enumerate(published) if e not in self.stamps), len(published))
        published.append(event_id)
        publisher, turn = f"publisher of {topic}", len(published)
        self._ask(event_id, msg.RequestStamp(topic, 0, event_id, publisher, turn, done))

    def before(self) -> dict[str, set[str]]:
        """For each event those that its stamp says come before it: whoever follows a topic has also
        seen what the topic's earlier stamps told."""
        by_number = {
            (topic, self.stamps[event][topic]): event
            for topic, events in self.events.items()
            for event in events
        }
        told: dict[str, dict[str, int]] = {topic: {} for topic in self.events}
        before = {}
        for (topic, number), event in sorted(by_number.items()):
            stamp = self.stamps[event]
            told[topic].update({t: n for t, n in stamp.items() if self.order.above(topic, t)})
            before[event] = {
                by_number[other, n]
                for other, count in {**stamp, **told[topic], topic: number - 1}.items()
                for n in range(1, count + 1)
            }
        return before

    def relate(self, op: str, topics: Iterable[str]) -> None:
        lowest, *above = self.order.upwards(set(topics))
        if not above:  # subscribers ask only when there is something to relate
            self.related.add(op)
            return
        self._ask(op, msg.Relate(lowest, 0, 0, tuple(above), op, "subscriber", False))

    def _ask(self, name: str, message: msg.ToTopic) -> None:
        self.asked[name] = message
        self.on_the_way.append(message)

    def step(self, index: int | None = None) -> None:
        """Deliver one message: any, or the one at `index`."""
        chosen = self.rng.randrange(len(self.on_the_way)) if index is None else index
        message = self.on_the_way.pop(chosen)
        fate = self.rng.random() if self._lossy else 1.0
        if fate < self._lossy:
            return
        if fate < 1.5 * self._lossy:
            self.on_the_way.append(message)
        if isinstance(message, msg.StampReady):
            known = self.stamps.setdefault(message.event_id, message.stamp)
            assert known == message.stamp, "an event was stamped twice, differently"
            self.asked.pop(message.event_id, None)
        elif isinstance(message, msg.Related):
            self.related.add(message.op)
            self.asked.pop(message.op, None)
        else:
            assert isinstance(message, msg.ToTopic)
            letters = self.managers[message.topic].take(message)
            self.on_the_way.extend(letter for _, letter in letters)

    def run(self) -> None:
        while self.on_the_way:
            self.step()
        for _ in range(200):
            if not self.asked:
                return
            self.on_the_way.extend(self.asked.values())
            while self.on_the_way:
                self.step()
