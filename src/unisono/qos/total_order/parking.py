"""Messages that cannot be taken yet: of a view not heard of, or for a manager that has not arrived.

Bounded by `Limits.parked` together; what comes beyond is refused and counted. Whoever sent it asks
again.
"""

from __future__ import annotations

from unisono.core.events import Control
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import ToTopic
from unisono.qos.total_order.post import Post


class Parking:
    """Where messages wait."""

    def __init__(self, post: Post, limits: Limits) -> None:
        self._post = post
        self._bound = limits.parked
        self._ahead: list[tuple[Control, str]] = []  # with their senders
        self._topics: dict[str, list[ToTopic]] = {}
        self._count = 0

    def ahead(self, message: Control, sender: str) -> None:
        """Of a view that this node has not heard of."""
        if self._room(message):
            self._ahead.append((message, sender))

    def for_topic(self, message: ToTopic) -> None:
        """For a manager that does not serve yet, or not in the message's epoch."""
        if self._room(message):
            self._topics.setdefault(message.topic, []).append(message)

    def _room(self, message: Control) -> bool:
        if self._count >= self._bound:
            self._post.refuse(message, "too many wait for a view or a manager to arrive")
            return False
        self._count += 1
        return True

    def new_view(self) -> list[tuple[Control, str]]:
        """Everything, to be looked at again."""
        waiting = self._ahead
        me = self._post.node_id
        waiting += [(message, me) for messages in self._topics.values() for message in messages]
        self._ahead, self._topics, self._count = [], {}, 0
        return waiting

    def release(self, topic: str) -> None:
        """Let the messages of this topic be looked at again."""
        waiting = self._topics.pop(topic, [])
        self._count -= len(waiting)
        self._post.local.extend(waiting)

    @property
    def topics(self) -> list[str]:
        return list(self._topics)
