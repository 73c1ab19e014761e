"""A new topic order, at one member: close the epoch of every topic, tell each other how they ended,
open the next one.

A view with a new order closes the epoch of every topic managed here (`Close`: no more numbers).
When all have closed, the member tells all members how (`ClosedTopics`): final numbers, who shares
subscriptions with whom, and by whom events passed. With everyone's word each member works out the
sequencing groups under the new order and opens its topics (`Open`). Stamps of the old epoch finish
their way meanwhile. Each step is an entry that a majority of the copies has, so a crash in the
middle is taken up by the next view, which asks everyone anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from unisono.core.effects import Effect, Send
from unisono.qos.total_order.messages import Close, ClosedTopics, Closing, Open, Opened, ToTopic
from unisono.qos.total_order.order import Orders, TopicOrder, close_relation, relation_above
from unisono.qos.total_order.post import Post
from unisono.qos.total_order.replica import Replica
from unisono.qos.views import View

_TOPICS_A_PART = 200


class EpochChange:
    """The change to the present view's epoch, as far as it is here."""

    def __init__(self, post: Post, orders: Orders, exact: bool) -> None:
        self._post = post
        self._orders = orders
        self._exact = exact
        self._view: View | None = None
        self.needed = False
        self._asked: set[str] = set()  # topics told to close in this view
        self._opening: set[str] = set()
        self._closings: dict[str, Closing] = {}  # of topics managed here
        self._parts: dict[str, dict[int, ClosedTopics]] = {}
        self._heard: dict[str, tuple[Closing, ...]] = {}  # member -> its topics
        self._reported: list[Effect] = []

    def new_view(self, view: View) -> None:
        self._view = view
        settled = len(view.chain) == 1 and view.chain[0].epoch == view.epoch
        self.needed = view.epoch > 0 and not settled
        self._asked, self._opening = set(), set()
        self._closings, self._parts, self._heard = {}, {}, {}
        self._reported = []

    def next_entries(self, led: Mapping[str, Replica]) -> Iterable[tuple[str, ToTopic]]:
        """What to tell the managers now."""
        view = self._view
        assert view is not None
        for topic, replica in led.items():
            if topic not in self._asked and self._concerns(replica):
                self._asked.add(topic)
                yield topic, Close(topic, view.number, view.epoch - 1)
        if self._heard.keys() >= set(view.members):
            yield from self._open(led, view)

    def _concerns(self, replica: Replica) -> bool:
        """Whether the topic was there in the epoch before."""
        assert self._view is not None
        state, before = replica.held.state, self._view.epoch - 1
        return state.epoch.number == before or (
            state.closing is not None and state.closing.epoch == before
        )

    @property
    def mentioned(self) -> frozenset[str]:
        """Every topic of a subscription, once all members have told; some may be unused so far."""
        assert self._view is not None
        if not self._heard.keys() >= set(self._view.members):
            return frozenset()
        return frozenset().union(*self._sets())

    def _sets(self) -> set[frozenset[str]]:
        closings = (closing for topics in self._heard.values() for closing in topics)
        return {frozenset((c.topic, *rest)) for c in closings for rest in c.sets}

    def _open(self, led: Mapping[str, Replica], view: View) -> Iterable[tuple[str, ToTopic]]:
        ended = {c.topic: c for topics in self._heard.values() for c in topics}
        sets = self._sets()
        order = self._orders[view.epoch]
        groups = close_relation(sets, order) if self._exact else relation_above(sets, order)
        lower: dict[str, dict[str, int]] = {}
        for topic, group in groups.items():
            for above in group:
                final = ended[topic].final if topic in ended else 0
                lower.setdefault(above, {})[topic] = final
        for topic, replica in led.items():
            state = replica.held.state
            new = state.untouched and topic in groups
            if topic in self._opening or (state.epoch.number >= view.epoch and not new):
                continue
            self._opening.add(topic)
            passing = {c.topic: c.group[topic] for c in ended.values() if topic in c.group}
            yield (
                topic,
                Open(
                    topic,
                    view.number,
                    view.epoch,
                    tuple(groups.get(topic, ())),
                    lower.get(topic, {}),
                    passing,
                    self._lowest_in(sets, topic, order),
                ),
            )

    @staticmethod
    def _lowest_in(
        sets: Iterable[frozenset[str]], topic: str, order: TopicOrder
    ) -> tuple[tuple[str, ...], ...]:
        """The subscriptions of which this topic is the lowest now, without it."""
        mine = [sorted(s - {topic}) for s in sets if order.upwards(s)[0] == topic]
        return tuple(map(tuple, sorted(mine)))

    def closed(self, letter: Closing) -> None:
        if self._view is not None and letter.epoch == self._view.epoch - 1:
            self._closings[letter.topic] = letter

    def opened(self, letter: Opened) -> None:
        self._opening.discard(letter.topic)

    def report(self, led: Mapping[str, Replica]) -> list[Effect]:
        """Once all topics managed here have closed, tell everyone how."""
        view, me = self._view, self._post.node_id
        assert view is not None
        if me in self._heard:
            return []
        concerned = [topic for topic, replica in led.items() if self._concerns(replica)]
        if not self._closings.keys() >= set(concerned):
            return []
        mine = tuple(self._closings[topic] for topic in concerned)
        self._heard[me] = mine
        parts = [mine[at : at + _TOPICS_A_PART] for at in range(0, len(mine), _TOPICS_A_PART)]
        parts = parts or [()]
        self._reported = [
            Send(member, ClosedTopics(view.number, index, len(parts), part))
            for member in view.members
            if member != me
            for index, part in enumerate(parts)
        ]
        return self._reported

    def take(self, message: ClosedTopics, sender: str) -> None:
        parts = self._parts.setdefault(sender, {})
        parts[message.part] = message
        if len(parts) == message.parts:
            self._heard[sender] = tuple(c for part in parts.values() for c in part.topics)

    def done(self, led: Mapping[str, Replica]) -> bool:
        """Every topic managed here is in the epoch of the view, and everyone knows how."""
        view = self._view
        assert view is not None
        if not self._heard.keys() >= set(view.members) or self._opening:
            return False
        return all(replica.held.state.epoch.number >= view.epoch for replica in led.values())

    def again(self, is_ready: Callable[[str], bool]) -> list[Effect]:
        """Repeat the report to those who may not have it."""
        return [e for e in self._reported if isinstance(e, Send) and not is_ready(e.to)]
