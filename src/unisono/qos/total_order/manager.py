"""One topic manager: numbers the events of its topic and takes part in the stamps of lower ones.

Two topics are *related* when a subscription holds both, or when a lower topic is related to both
(the fill). So the sequencing group of every topic - itself and the related topics above it - is a
clique.

Exact stamps. A stamp holds, for the event's own topic, its number; for each topic above, how many
of its events come before; for each related topic below, how many had passed by this manager when
the number was given (predecessor entries). *Causal hold*: a manager adds its number only after
everything that the stamp already counts, of topics related to its own, has passed by; events of one
topic never overtake each other. Invariant: `passed[w]` is the highest number of the lower topic w
that this manager has stamped; all smaller ones have passed too, or were numbered before the
relation began (up to the base). The latter are not predecessor entries: some may still be on their
way and end up behind events that this manager numbered since. A subscriber therefore waits for them
itself before it starts (`subscriber.py`).

What waits here is bounded by what the publishers have outstanding (`Limits.outstanding` each).

`exact=False` gives the printed stamps: no predecessor entries, no hold, no fill.
"""

from __future__ import annotations

import msgspec

from unisono.core.events import Stamp
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import (
    AskStart,
    Base,
    BaseKnown,
    Drain,
    Drained,
    FillStamp,
    Refused,
    Relate,
    Related,
    RelatedTopic,
    RequestStamp,
    StampReady,
    Start,
    ToTopic,
)
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.total_order.post import Post


class ManagerState(msgspec.Struct):
    """All that moves when a manager is handed over."""

    topic: str
    number: int = 0
    group: list[str] = []  # related topics above, upwards
    bases: dict[str, int] = {}  # related topics below -> numbers above this pass by
    announced: list[str] = []  # related topics below whose base is not known yet
    passed: dict[str, int] = {}  # as bases -> highest number that has passed, or the base
    turns: dict[str, int] = {}  # publisher -> last request taken
    early: dict[str, dict[int, RequestStamp]] = {}  # publisher -> turn -> request before its turn
    held: dict[str, dict[int, FillStamp]] = {}  # lower topic -> number -> stamp that waits
    relating: list[Relate] = []  # one at a time; the first is under way
    union: list[str] = []  # the group that the first one will lead to, upwards
    answers: list[str] = []  # topics whose answer the first one still waits for
    op: str = ""  # the first one's name in what this manager asks
    ops: int = 0
    base: int = -1  # what the first one has told the new members; -1: that they will hear it
    telling: bool = False  # the first one is past relating the topics above
    draining: list[
        str
    ] = []  # old members of the group that the first one's earlier events must pass
    drains: list[Drain] = []  # questions of lower topics that cannot be answered yet


# Which method takes which message.
_HANDLERS: dict[type[ToTopic], str] = {
    RequestStamp: "request",
    FillStamp: "fill",
    Relate: "relate",
    RelatedTopic: "related",
    Base: "base",
    BaseKnown: "base_known",
    Drain: "drain",
    Drained: "drained",
    AskStart: "ask_start",
}


class TopicManager:
    """Messages in, messages out through the post; no clock, no randomness."""

    def __init__(
        self, state: ManagerState, post: Post, order: TopicOrder, exact: bool, limits: Limits
    ) -> None:
        self.state = state
        self._post = post
        self._order = order
        self._exact = exact
        self._limits = limits

    def take(self, message: ToTopic) -> None:
        """A message for this topic."""
        getattr(self, _HANDLERS[type(message)])(message)

    # Stamps.

    def request(self, message: RequestStamp) -> None:
        """Number the event, in the order in which its publisher asked."""
        state = self.state
        last = state.turns.get(message.publisher, 0)
        if message.turn <= last:
            return  # a duplicate
        if last == 0 and len(state.turns) >= self._limits.publishers:
            reason = f"topic {state.topic!r} has {self._limits.publishers} publishers already"
            self._post.to_node(message.publisher, Refused(message.event_id, reason))
            return
        if message.turn > last + 1:
            state.early.setdefault(message.publisher, {})[message.turn] = message
            return
        self._create(message)
        waiting = state.early.get(message.publisher)
        while waiting:
            following = waiting.pop(state.turns[message.publisher] + 1, None)
            if following is None:
                break
            self._create(following)
        if waiting is not None and not waiting:
            del state.early[message.publisher]

    def _create(self, message: RequestStamp) -> None:
        state = self.state
        state.turns[message.publisher] = message.turn
        state.number += 1
        stamp: Stamp = {state.topic: state.number}
        if self._exact:
            bases = state.bases
            stamp.update({w: count for w, count in state.passed.items() if count > bases[w]})
        self._forward(
            message.event_id,
            state.topic,
            message.publisher,
            stamp,
            tuple(state.group),
        )

    def fill(self, message: FillStamp) -> None:
        """Add this topic's number once everything the stamp counts has passed by."""
        state = self.state
        if message.event_topic not in message.stamp or not self._all_above(message.path):
            self._post.refuse(message, "impossible stamp or path")
            return
        if not self._order.above(state.topic, message.event_topic):
            self._post.refuse(message, "not from below")
            return
        if not self._exact:
            self._stamp(message)
            return
        lower = message.event_topic
        number = message.stamp[lower]
        held = state.held.get(lower, {})
        if number <= state.passed.get(lower, -1) or number in held:
            return  # a duplicate
        state.held.setdefault(lower, {})[number] = message
        self._release()

    def _release(self) -> None:
        """Stamp what waits, as long as one becomes free."""
        state = self.state
        progress = True
        while progress:
            progress = False
            for lower in list(state.held):
                waiting = state.held[lower]
                while lower in state.passed:
                    message = waiting.get(state.passed[lower] + 1)
                    if message is None or not self._free(message):
                        break
                    del waiting[state.passed[lower] + 1]
                    self._stamp(message)
                    progress = True
                if not waiting:
                    del state.held[lower]
        if state.drains:
            self._answer_drains()

    def _free(self, message: FillStamp) -> bool:
        passed, announced = self.state.passed, self.state.announced
        own = message.event_topic
        return all(
            passed.get(topic, count) >= count and topic not in announced
            for topic, count in message.stamp.items()
            if topic != own
        )

    def _stamp(self, message: FillStamp) -> None:
        state = self.state
        own = message.event_topic
        if self._exact:
            state.passed[own] = message.stamp[own]
        stamp = {**message.stamp, state.topic: state.number}
        self._forward(message.event_id, own, message.publisher, stamp, message.path)

    def _forward(
        self,
        event_id: str,
        event_topic: str,
        publisher: str,
        stamp: Stamp,
        path: tuple[str, ...],
    ) -> None:
        if not path:
            self._post.to_node(publisher, StampReady(event_id, stamp))
            return
        following = FillStamp(
            path[0], self._post.view, event_id, event_topic, publisher, stamp, path[1:]
        )
        self._post.to_topic(following)

    # Relations. Requests go strictly upwards in the topic order, so waiting cannot be circular.

    def _all_above(self, topics: tuple[str, ...]) -> bool:
        return all(self._order.above(topic, self.state.topic) for topic in topics)

    def relate(self, message: Relate) -> None:
        if not message.group or not self._all_above(message.group):
            self._post.refuse(message, "topics not above")
            return
        self.state.relating.append(message)
        if len(self.state.relating) == 1:
            self._next_relation()

    def _next_relation(self) -> None:
        """Begin the first request in line; those that change nothing are answered at once."""
        state = self.state
        while state.relating:
            first = state.relating[0]
            if not self._exact:
                self._relate_printed(first)
                continue
            if set(first.group) <= set(state.group):
                self._answer()
                continue
            state.union = self._order.upwards({*state.group, *first.group})
            state.ops += 1
            state.op = f"{state.topic}#{state.ops}"
            state.telling = False
            state.answers = state.union[:-1]
            for index, topic in enumerate(state.union[:-1]):
                above = tuple(state.union[index + 1 :])
                self._post.to_topic(
                    Relate(topic, self._post.view, above, state.op, state.topic, True)
                )
            if not state.answers:
                self._tell(-1)
            return

    def _relate_printed(self, message: Relate) -> None:
        """Printed stamps: note the topics above and pass the subscription on, as the paper does."""
        state = self.state
        state.group = self._order.upwards({*state.group, *message.group})
        if len(message.group) == 1:
            self._answer()
            return
        state.relating.pop(0)
        above, *rest = self._order.upwards(message.group)
        self._post.to_topic(msgspec.structs.replace(message, topic=above, group=tuple(rest)))

    def related(self, message: RelatedTopic) -> None:
        """A higher topic is related to all above it; when all are, this topic may join them."""
        state = self.state
        if state.telling or not self._is_current(message.op) or message.about not in state.answers:
            return
        state.answers.remove(message.about)
        if not state.answers:
            self._tell(-1)

    def _tell(self, base: int) -> None:
        """Announce to the new members of the group that, or from where on, events pass by them."""
        state = self.state
        state.telling = True
        state.base = base
        state.answers = [topic for topic in state.union if topic not in state.group]
        for topic in state.answers:
            self._post.to_topic(Base(topic, self._post.view, state.topic, base, state.op))

    def base(self, message: Base) -> None:
        state = self.state
        lower = message.lower
        if not self._order.above(state.topic, lower):
            self._post.refuse(message, "not from below")
            return
        if lower not in state.passed:
            if message.base < 0:
                if lower not in state.announced:
                    state.announced.append(lower)
            else:
                if lower in state.announced:
                    state.announced.remove(lower)
                state.bases[lower] = state.passed[lower] = message.base
                self._release()
        self._post.to_topic(
            BaseKnown(lower, self._post.view, state.topic, message.base, message.op)
        )

    def base_known(self, message: BaseKnown) -> None:
        state = self.state
        current = state.telling and self._is_current(message.op) and message.base == state.base
        if not current or message.about not in state.answers:
            return
        state.answers.remove(message.about)
        if state.answers:
            return
        if state.base < 0:
            # Everyone waits for the base: from now on new events pass by the whole group. What was
            # numbered before passes by the old members only; the relation holds once it has.
            self._tell(state.number)
            state.draining, state.group = state.group, state.union
            for topic in state.draining:
                self._post.to_topic(
                    Drain(topic, self._post.view, state.topic, state.number, state.op)
                )
            return
        self._finish_relation()

    def drained(self, message: Drained) -> None:
        state = self.state
        if self._is_current(message.op) and message.about in state.draining:
            state.draining.remove(message.about)
            self._finish_relation()

    def _finish_relation(self) -> None:
        if not self.state.answers and not self.state.draining:
            self._answer()
            self._next_relation()

    def drain(self, message: Drain) -> None:
        if message.lower not in self.state.passed:
            self._post.refuse(message, "not related")
            return
        self.state.drains.append(message)
        self._answer_drains()

    def _answer_drains(self) -> None:
        state = self.state
        for message in [d for d in state.drains if state.passed[d.lower] >= d.number]:
            state.drains.remove(message)
            self._post.to_topic(Drained(message.lower, self._post.view, state.topic, message.op))

    def ask_start(self, message: AskStart) -> None:
        self._post.to_node(
            message.subscriber, Start(self.state.topic, self.state.number, message.op)
        )

    def _is_current(self, op: str) -> bool:
        return bool(self.state.relating) and self.state.op == op

    def _answer(self) -> None:
        done = self.state.relating.pop(0)
        if done.asker_is_topic:
            self._post.to_topic(
                RelatedTopic(done.asker, self._post.view, self.state.topic, done.op)
            )
        else:
            self._post.to_node(done.asker, Related(done.op))
