"""The total order layer: routes each message to the part it is for, and moves managers between
nodes.

A new view is installed in three steps: every member of the old view sends each member of the new
one the managers that move to it (possibly none); a member serves the view once all of these have
come; only then does it take the next view. So a topic has at most one serving manager at any time,
also one that nobody has used yet. Messages for a topic that arrive meanwhile are parked; those that
reach the wrong node are passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from unisono.core.effects import (
    Effect,
    Publish,
    Record,
    Subscribe,
    Trouble,
    Unsubscribe,
)
from unisono.core.events import Control, Event, Status
from unisono.core.layer import Effects, Layer
from unisono.core.limits import Limits
from unisono.qos import membership as mb
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.manager import ManagerState, TopicManager
from unisono.qos.total_order.order import TopicOrder
from unisono.qos.total_order.post import Post
from unisono.qos.total_order.publisher import PATIENCE_TIMER, Publisher
from unisono.qos.total_order.subscriber import (
    CATCH_UP_TIMER,
    HOLD_TIMER,
    LAYER,
    LOSSES_TIMER,
    Subscriber,
)

_PART_BYTES = 1 << 17  # keeps a hand-over message well below the frame limit of any bus
_VIEWS_AHEAD = 1000
_STATE_ENCODER = msgspec.msgpack.Encoder()
_STATE_DECODER = msgspec.msgpack.Decoder(list[ManagerState])


def _everything(topic: str) -> bool:
    return True


class TotalOrder(Layer):
    """See the package header for the guarantee."""

    name: ClassVar[str] = LAYER
    joins: ClassVar[bool] = True
    controls: ClassVar[tuple[type[Control], ...]] = (*msg.CONTROLS, *mb.CONTROLS)

    def __init__(
        self,
        node_id: str,
        members: mb.Membership,
        *,
        order: TopicOrder | None = None,
        exact: bool = True,
        buffer: int | None = None,
        hold_us: int | None = None,
        catch_up_us: int | None = None,
        patience_us: int | None = None,
        covers: Callable[[str], bool] = _everything,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._order = order or TopicOrder()
        self._exact = exact
        self._covers = covers
        self._members = members
        self._post = Post(node_id)
        self.publisher = Publisher(self._post, self._limits, patience_us)
        self.subscriber = Subscriber(
            self._post,
            self._order,
            self._limits,
            exact=exact,
            buffer=buffer,
            hold_us=hold_us,
            catch_up_us=catch_up_us,
        )
        self.managers: dict[str, TopicManager] = {}
        self._serving = False
        self._parked: list[msg.ToTopic] = []
        self._handed: dict[int, dict[str, list[ManagerState]]] = {}  # view -> sender -> states
        self._parts: dict[tuple[int, str], dict[int, bytes]] = {}
        self._installing: mb.View | None = None
        self._closing = False
        self._leaving_asked = False
        self._following = False  # a view has been served before
        self._left = False  # a view without this node is installed
        self._staying: set[str] = set()  # who may still send us messages while we leave
        self._settled: set[str] = set()  # who has said that it will not

    @property
    def ignored(self) -> Mapping[str, int]:
        return self.subscriber.ignored

    # The four operations, start and close.

    def start(self, now: int) -> Effects:
        return self._after(self._members.start(now), now)

    def publish(self, event: Event, now: int) -> Effects:
        if not self._covers(event.topic):
            return (Publish(event),)
        self.publisher.publish(event, now)
        return self._after((), now)

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        plain = tuple(topic for topic in topics if not self._covers(topic))
        ordered = tuple(topic for topic in topics if self._covers(topic))
        if not ordered:
            return (Subscribe(plain, ticket),)
        self.subscriber.subscribe(ordered, ticket, plain)
        return self._after((), now)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        plain = tuple(topic for topic in topics if not self._covers(topic))
        ordered = tuple(topic for topic in topics if self._covers(topic))
        if not ordered:
            return (Unsubscribe(plain, ticket),)
        self.subscriber.unsubscribe(ordered, ticket, plain)
        return self._after((), now)

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if not self._covers(event.topic):
            return super().notify(event, status, now)
        if event.stamp is None or event.topic not in event.stamp:
            return self._unstamped(event, now)
        self.subscriber.arrive(event, now)
        return self._after((), now)

    def _unstamped(self, event: Event, now: int) -> Effects:
        """Its publisher did not choose total order for the topic: said, not guessed at."""
        kind = "without a stamp"
        self.subscriber.ignored[kind] += 1
        row = {"at_us": now, "node": self._post.node_id, "kind": kind, "detail": event.id}
        text = (
            f"{event.publisher} publishes on {event.topic!r} without order; {event.id} is left out"
        )
        return (Record("faults", row), Trouble(text))

    def effective(self, ticket: str, now: int) -> Effects:
        self.subscriber.effective(ticket)
        return self._after((), now)

    def farewell(self, now: int) -> Effects:
        return self._members.farewell()

    def reconnected(self, now: int) -> Effects:
        self.subscriber.look_for_losses()
        return self._after((), now)

    def close(self, now: int) -> Effects:
        self._closing = True
        return self._after((), now)

    def timer(self, key: str, now: int) -> Effects:
        if key == mb.DISCOVERY_TIMER:
            return self._after(self._members.timer(now), now)
        if key == HOLD_TIMER:
            self.subscriber.timer(now)
        elif key == CATCH_UP_TIMER:
            self.subscriber.catch_up_timer(now)
        elif key == LOSSES_TIMER:
            self.subscriber.losses_timer(now)
        elif key == PATIENCE_TIMER:
            self.publisher.timer(now)
        else:
            raise AssertionError(key)
        return self._after((), now)

    # Messages.

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        effects = self._dispatch(message, sender, now)
        return self._after(effects, now)

    def _dispatch(self, message: Control, sender: str, now: int) -> Sequence[Effect]:
        if isinstance(message, msg.ToTopic):
            self._to_manager(message)
        elif isinstance(message, msg.StampReady):
            self.publisher.stamped(message, now)
        elif isinstance(message, msg.Refused):
            self.publisher.refused(message)
        elif isinstance(message, msg.Related):
            self.subscriber.related(message)
        elif isinstance(message, msg.Start):
            self.subscriber.start(message, now)
        elif isinstance(message, msg.HandOver):
            self._take_over(message, sender)
        elif isinstance(message, msg.Installed):
            self._settled.add(sender)
        else:
            effects = self._members.receive(message, sender, now)
            self._staying -= self._members.departed.keys()
            return effects
        return ()

    def _to_manager(self, message: msg.ToTopic) -> None:
        post = self._post
        if message.view > post.view or not post.members:
            self._park(message)
        elif post.manager_of(message.topic) != post.node_id:
            post.to_topic(message)
        elif not self._serving:
            self._park(message)
        else:
            self._manage(message)

    def _park(self, message: msg.ToTopic) -> None:
        if len(self._parked) >= self._limits.parked:
            self._post.refuse(message, "too many wait for a manager to arrive")
        else:
            self._parked.append(message)

    def _manage(self, message: msg.ToTopic) -> None:
        manager = self.managers.get(message.topic)
        if manager is None:
            manager = self._adopt(ManagerState(message.topic))
        manager.take(message)

    def _adopt(self, state: ManagerState) -> TopicManager:
        assert state.topic not in self.managers
        manager = TopicManager(state, self._post, self._order, self._exact, self._limits)
        self.managers[state.topic] = manager
        return manager

    # After every handler: local messages, views, closing; then all effects go out together.

    def _after(self, effects: Sequence[Effect], now: int) -> list[Effect]:
        out = list(effects)
        post = self._post
        while True:
            if post.local:
                message = post.local.popleft()
                out.extend(self._dispatch(message, post.node_id, now))
            elif not self._advance(now) and not self._leave(now):
                break
        for reason in post.refused:
            row = {"at_us": now, "node": post.node_id, "kind": "refused", "detail": reason}
            out.append(Record("faults", row))
        post.refused.clear()
        out.extend(post.collect())
        return out

    def _advance(self, now: int) -> bool:
        """Install or serve a view if one is due; true if something changed."""
        if self._installing is None:
            if not self._members.fresh:
                return False
            self._install(self._members.fresh.popleft())
            return True
        view = self._installing
        handed = self._handed.get(view.number, {})
        awaited = set(view.previous) - {self._post.node_id}
        if self._post.node_id in view.members and not awaited <= handed.keys():
            return False
        self._serve(view, handed, now)
        return True

    def _install(self, view: mb.View) -> None:
        post = self._post
        post.members = view.members
        post.view = view.number
        self._serving = False
        self._installing = view
        if post.node_id in view.previous:
            self._hand_over(view)
        if view.leaving == post.node_id:
            followers = {*view.members, *view.clients} - {post.node_id}
            self._staying = followers - self._members.departed.keys()
            self._left = True

    def _hand_over(self, view: mb.View) -> None:
        moving: dict[str, list[ManagerState]] = {member: [] for member in view.members}
        for topic in list(self.managers):
            owner = self._post.manager_of(topic)
            if owner != self._post.node_id:
                moving[owner].append(self.managers.pop(topic).state)
        for member, states in moving.items():
            if member == self._post.node_id:
                continue
            packed = _STATE_ENCODER.encode(states)
            parts = [packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES)]
            for index, part in enumerate(parts):
                self._post.to_node(member, msg.HandOver(view.number, index, len(parts), part))

    def _take_over(self, message: msg.HandOver, sender: str) -> None:
        known = self._post.view  # 0 for a newcomer, who may join a bus of any age
        if known and not known <= message.view <= known + _VIEWS_AHEAD:
            self._post.refuse(message, "of a view long gone or far ahead")
            return
        parts = self._parts.setdefault((message.view, sender), {})
        parts[message.part] = message.data
        if len(parts) < message.parts:
            return
        del self._parts[message.view, sender]
        try:
            states = _STATE_DECODER.decode(b"".join(parts[index] for index in sorted(parts)))
        except msgspec.DecodeError:
            self._post.refuse(message, "cannot be unpacked")
            return
        self._handed.setdefault(message.view, {})[sender] = states

    def _serve(self, view: mb.View, handed: dict[str, list[ManagerState]], now: int) -> None:
        self._installing = None
        post = self._post
        if post.node_id in view.members:
            for sender in view.previous:
                for state in handed.get(sender, ()):
                    self._adopt(state)
            self._serving = True
        self._handed = {number: by for number, by in self._handed.items() if number > view.number}
        if view.leaving and view.leaving != post.node_id and self._following:
            post.to_node(view.leaving, msg.Installed(view.number))
        self._following = True  # who begins with this view never knew the one who leaves
        detail = f"{view.number}: {' '.join(view.members)}"
        row = {"at_us": now, "node": post.node_id, "kind": "view", "detail": detail}
        post.do(Record("control", row))
        parked, self._parked = self._parked, []
        unplaced, post.unplaced = post.unplaced, []
        post.local.extend((*parked, *unplaced))

    def _leave(self, now: int) -> bool:
        """Ask to leave, or go, if it is time; true if something changed."""
        if not self._closing or not self.publisher.idle:
            return False
        if not self._leaving_asked:
            self._leaving_asked = True
            for effect in self._members.leave(now):
                self._post.do(effect)
            return True
        free = self._left and self._staying <= self._settled
        alone = self._members.dissolving and not self._members.fresh
        if not (free or alone) or self._installing is not None:
            return False
        self._left = self._members.dissolving = False
        for effect in self._members.let_go():
            self._post.do(effect)
        return True
