"""A subscriber alone, whose managers answer at once."""

from __future__ import annotations

from unisono.core.effects import Effect, Notify, Send, Subscribe
from unisono.core.events import Event, Stamp, Status
from unisono.core.limits import Limits
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.order import Orders, TopicOrder
from unisono.qos.total_order.post import Post
from unisono.qos.total_order.subscriber import Subscriber

TOPICS = ("a", "b", "c", "d")
ORDER = TopicOrder(TOPICS)


class Reader:
    """A subscriber whose managers answer at once with the numbers it is given."""

    def __init__(
        self,
        topics: tuple[str, ...],
        *,
        buffer: int | None = None,
        hold_us: int | None = None,
        exact: bool = True,
        starts: dict[str, int] | None = None,
    ) -> None:
        self.starts = starts or {}
        self.post = Post("s")
        self.post.members = ("elsewhere",)
        self.subscriber = Subscriber(
            self.post, Orders(ORDER), Limits(), exact=exact, buffer=buffer, hold_us=hold_us
        )
        self.notified: list[tuple[str, Status]] = []
        self.effects: list[Effect] = []
        self.subscribe(*topics)

    def subscribe(self, *topics: str) -> None:
        self.subscriber.subscribe(topics, None)
        self.answer()

    def answer(self) -> None:
        while sent := self.collect():
            for effect in sent:
                if isinstance(effect.message, msg.Relate):
                    self.subscriber.related(msg.Related(effect.message.op))
                elif isinstance(effect.message, msg.AskStart):
                    ask = effect.message
                    number = self.starts.get(ask.topic, 0)
                    self.subscriber.start(msg.Start(ask.topic, number, ask.op), 0)

    def collect(self) -> list[Send]:
        collected = self.post.collect()
        self.effects.extend(collected)
        for effect in collected:
            if isinstance(effect, Notify):
                self.notified.append((effect.event.id, effect.status))
            elif isinstance(effect, Subscribe) and effect.ticket is not None:
                self.subscriber.effective(effect.ticket.partition("|")[2], 0)
                return self.collect()
        return [effect for effect in collected if isinstance(effect, Send)]

    def arrive(self, event_id: str, topic: str, stamp: Stamp, now: int = 0) -> None:
        self.subscriber.arrive(Event(event_id, topic, b"", "p", 1, 0, stamp), now)
        self.answer()

    @property
    def ids(self) -> list[str]:
        return [event_id for event_id, _ in self.notified]


IN, OUT, GAP = Status.IN_ORDER, Status.OUT_OF_ORDER, Status.GAP_SKIPPED
