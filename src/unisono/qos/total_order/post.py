"""Where the parts of the layer put their messages: addressed to a topic's manager or to a node.

A message to this node itself is not sent but kept for the layer to take in when the current handler
is done, so no part is ever entered twice at a time.
"""

from __future__ import annotations

from collections import deque

import msgspec

from unisono.core.effects import Effect, Record, Send
from unisono.core.events import Control
from unisono.qos.total_order.messages import ToTopic
from unisono.qos.total_order.order import place


class Post:
    """The node's view of who manages what, and its outgoing messages."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.view = 0
        self.members: tuple[str, ...] = ()
        self.spread = True  # managers are spread over the members, or all on the oldest
        self.local: deque[Control] = deque()
        self.unplaced: list[ToTopic] = []  # asked for before the first view is known
        self.refused: list[str] = []  # messages that make no sense, by reason
        self._out: list[Effect] = []

    def refuse(self, message: Control, why: str) -> None:
        """A message that changes nothing because it makes no sense."""
        self.refused.append(f"{type(message).__name__}: {why}")

    def manager_of(self, topic: str) -> str:
        return place(topic, self.members) if self.spread else self.members[0]

    def to_topic(self, message: ToTopic) -> None:
        """For whoever manages `message.topic` by this node's view."""
        if not self.members:
            self.unplaced.append(message)
            return
        node = place(message.topic, self.members) if self.spread else self.members[0]
        if node == self.node_id:
            self.local.append(message)
            return
        if message.view != self.view:  # letters of managers carry none
            message = msgspec.structs.replace(message, view=self.view)
        self._out.append(Send(node, message))

    def to_node(self, node: str, message: Control) -> None:
        if node == self.node_id:
            self.local.append(message)
        else:
            self._out.append(Send(node, message))

    def row(self, table: str, kind: str, detail: str, now: int) -> Record:
        """A row of the trace about this node."""
        row = {"at_us": now, "node": self.node_id, "kind": kind, "detail": detail}
        return Record(table, row)

    def do(self, effect: Effect) -> None:
        """Any other effect, in order with the messages."""
        self._out.append(effect)

    def collect(self) -> list[Effect]:
        """The effects so far; leaves none behind."""
        out, self._out = self._out, []
        return out
