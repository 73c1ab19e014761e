"""A bench for topic managers alone: their messages arrive in any order a test chooses."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from unisono.core.events import Control, Stamp
from unisono.core.limits import Limits
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.manager import ManagerState, TopicManager
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.total_order.post import Post


class Bench:
    """All managers of a bus, and the messages on their way."""

    def __init__(self, topics: Iterable[str], rng: Random, exact: bool = True) -> None:
        self.rng = rng
        self.order = TopicOrder(list(topics))
        self.post = Post("bench")
        self.post.members = ("elsewhere",)
        self.managers = {
            topic: TopicManager(ManagerState(topic), self.post, self.order, exact, Limits())
            for topic in topics
        }
        self.on_the_way: list[Control] = []
        self.stamps: dict[str, Stamp] = {}
        self.related: set[str] = set()
        self._turn: dict[str, int] = {}

    def publish(self, event_id: str, topic: str) -> None:
        self._turn[topic] = self._turn.get(topic, 0) + 1
        self.on_the_way.append(
            msg.RequestStamp(topic, 0, event_id, f"publisher of {topic}", self._turn[topic])
        )

    def relate(self, op: str, topics: Iterable[str]) -> None:
        lowest, *above = self.order.upwards(set(topics))
        if not above:  # subscribers ask only when there is something to relate
            self.related.add(op)
            return
        self.on_the_way.append(msg.Relate(lowest, 0, tuple(above), op, "subscriber", False))

    def step(self, index: int | None = None) -> None:
        """Deliver one message: any, or the one at `index`."""
        chosen = self.rng.randrange(len(self.on_the_way)) if index is None else index
        message = self.on_the_way.pop(chosen)
        if isinstance(message, msg.StampReady):
            self.stamps[message.event_id] = message.stamp
        elif isinstance(message, msg.Related):
            self.related.add(message.op)
        else:
            assert isinstance(message, msg.ToTopic)
            self.managers[message.topic].take(message)
        for effect in self.post.collect():
            self.on_the_way.append(effect.message)  # type: ignore[attr-defined]

    def run(self) -> None:
        while self.on_the_way:
            self.step()
