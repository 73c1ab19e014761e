"""The publisher's part: requests are repeated, topic by topic."""

from __future__ import annotations

from unisono.core.effects import Effect, Send
from unisono.core.events import Event, first_of
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import RequestStamp, StampReady
from unisono.qos.total_order.post import Post
from unisono.qos.total_order.publisher import Publisher

SECOND = 1_000_000


def publisher(life: int = 0) -> tuple[Post, Publisher]:
    post = Post("p")
    post.members = ("x",)
    return post, Publisher(post, Limits(), 10 * SECOND, SECOND, life)


def requests(effects: list[Effect]) -> list[RequestStamp]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [message for message in sent if isinstance(message, RequestStamp)]


def event(number: int, topic: str) -> Event:
    return Event(f"p-{number}", topic, b"", "p", number, 0)


def test_a_topic_that_does_not_answer_does_not_silence_others() -> None:
    post, asking = publisher()
    for number in range(300):
        asking.publish(event(number, "dead"), 0)
    asking.publish(event(300, "alive"), 0)
    asking.timer(20 * SECOND)  # all are overdue
    post.collect()
    asking.retry_timer(21 * SECOND)
    repeated = [message.topic for message in requests(post.collect())]
    assert repeated.count("alive") == 1 and repeated.count("dead") == 256


def test_turns_of_a_new_life_begin_above_those_of_the_last() -> None:
    post, asking = publisher(life=2)
    asking.publish(event(1, "t"), 0)
    asking.publish(event(2, "t"), 0)
    asking.stamped(StampReady("p-1", {"t": 1}))
    asking.publish(event(3, "t"), 0)
    first = first_of(2)
    assert [(m.turn - first, m.done - first) for m in requests(post.collect())] == [
        (1, 0),
        (2, 0),
        (3, 1),
    ]
