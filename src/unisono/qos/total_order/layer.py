"""The total order layer: routes each message to the part it is for, and lets the managers hosted
here follow the views.

With each new view every holder of copies tells the new managers what it has; a manager serves once
a majority of the holders of every view that may matter has spoken and a majority of its copies has
its state (`replica.py`). Messages for a topic that arrive meanwhile are parked; those that reach
the wrong node are passed on. A view with a new topic order closes the epoch first (`epochs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import ClassVar

import msgspec

from unisono.core.effects import Effect, Publish, Send, Subscribe, Trouble, Unsubscribe
from unisono.core.events import Control, Event, Status
from unisono.core.layer import Effects, Layer
from unisono.core.limits import Limits
from unisono.errors import UNDECODABLE
from unisono.qos import membership as mb
from unisono.qos import views
from unisono.qos.total_order import messages as msg
from unisono.qos.total_order.adapt import Adapt, Popularity
from unisono.qos.total_order.epochs import EpochChange
from unisono.qos.total_order.manager import HOST, TopicManager
from unisono.qos.total_order.order import Orders, TopicOrder
from unisono.qos.total_order.parking import Parking
from unisono.qos.total_order.post import Post
from unisono.qos.total_order.publisher import PATIENCE_TIMER, RETRY_TIMER, Publisher
from unisono.qos.total_order.replica import (
    HELD_DECODER,
    HELD_LIST_DECODER,
    Held,
    Parts,
    Replica,
    load_held,
    parts_of,
)
from unisono.qos.total_order.state import Epoch, ManagerState
from unisono.qos.total_order.subscriber import (
    ASK_TIMER,
    CATCH_UP_TIMER,
    HOLD_TIMER,
    LAYER,
    LOSSES_TIMER,
    Subscriber,
)
from unisono.qos.total_order.survey import Survey
from unisono.qos.views import View

_ENCODER = msgspec.msgpack.Encoder()
_TOLD_TOPICS = 100


class TotalOrder(Layer):
    """See the package header for the guarantee."""

    name: ClassVar[str] = LAYER
    joins: ClassVar[bool] = True
    controls: ClassVar[tuple[type[Control], ...]] = (*msg.CONTROLS, *views.CONTROLS)

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
        retry_us: int | None = None,
        covers: Callable[[str], bool] = lambda topic: True,
        limits: Limits | None = None,
        adapt: Adapt | None = None,
        stored: Mapping[str, bytes] | None = None,
        life: int = 0,
    ) -> None:
        self._limits = limits or Limits()
        self._orders = Orders(order or TopicOrder())
        self._exact = exact
        self._covers = covers
        self.members = members
        members.topics = self._managed
        self._post = Post(node_id)
        self.publisher = Publisher(self._post, self._limits, patience_us, retry_us, life)
        self.subscriber = Subscriber(
            self._post,
            self._orders,
            self._limits,
            exact=exact,
            buffer=buffer,
            hold_us=hold_us,
            catch_up_us=catch_up_us,
            retry_us=retry_us,
            life=life,
        )
        self._timers: dict[str, Callable[[int], None]] = {
            HOLD_TIMER: self.subscriber.timer,
            CATCH_UP_TIMER: self.subscriber.catch_up_timer,
            LOSSES_TIMER: self.subscriber.losses_timer,
            ASK_TIMER: self.subscriber.ask_timer,
            PATIENCE_TIMER: self.publisher.timer,
            RETRY_TIMER: self.publisher.retry_timer,
        }
        self._durable = stored is not None
        self.replicas: dict[str, Replica] = {}  # every topic held here, as its manager or a copy
        self.led: dict[str, Replica] = {}  # those managed here in the present view
        self._unled: dict[str, Held] = {}  # to be managed here: the newest state heard of so far
        self._survey = Survey(View("", 0, ()))  # who has told what it holds, in this view
        self._owed: dict[str, list[Effect]] = {}  # hand-overs, to send again to who is not ready
        self._view: View | None = None
        self._completed = 0  # the newest complete view that was taken into account
        self._parking = Parking(self._post, self._limits)
        self._parts = Parts()
        self._epochs = EpochChange(self._post, self._orders, exact)
        self._popularity = Popularity(adapt) if adapt is not None else None
        self._batch = max(1, adapt.window // 16) if adapt is not None else 64  # events counted
        self._closing = False
        self._leaving_asked = False
        if members.view is not None:  # from the disk
            self._orders.follow(members.view)
        for held, entries in load_held(stored or {}):
            if held.state.epoch.number not in self._orders:
                continue  # others hold the topic: an epoch opens when all topics are in the last
            replica = self.replicas[held.state.topic] = self._replica(held)
            replica.load(entries)

    @property
    def ignored(self) -> Mapping[str, int]:
        return self.subscriber.ignored

    @property
    def topic_order(self) -> tuple[int, TopicOrder]:
        """The present epoch and its order."""
        epoch = self._view.epoch if self._view is not None else 0
        return epoch, self._orders[epoch]

    def _managed(self) -> dict[str, int]:
        """The busiest topics managed here, and how many events they have had."""
        numbers = ((replica.held.state.number, topic) for topic, replica in self.led.items())
        return {topic: number for number, topic in nlargest(_TOLD_TOPICS, numbers)}

    # The four operations, start and close.

    def start(self, now: int) -> Effects:
        return self._after(self.members.start(now), now)

    def publish(self, event: Event, now: int) -> Effects:
        if not self._covers(event.topic):
            return (Publish(event),)
        self.publisher.publish(event, now)
        return self._after((), now)

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        plain, ordered = self._split(topics)
        if not ordered:
            return (Subscribe(plain, ticket),)
        self.subscriber.subscribe(ordered, ticket, plain)
        return self._after((), now)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        plain, ordered = self._split(topics)
        if not ordered:
            return (Unsubscribe(plain, ticket),)
        self.subscriber.unsubscribe(ordered, ticket, plain)
        return self._after((), now)

    def _split(self, topics: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        ordered = tuple(topic for topic in topics if self._covers(topic))
        return tuple(topic for topic in topics if topic not in ordered), ordered

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if not self._covers(event.topic):
            return super().notify(event, status, now)
        if event.stamp is None or event.topic not in event.stamp:
            return self._unstamped(event, now)
        self.subscriber.arrive(event, now)
        return self._after((), now)

    def _unstamped(self, event: Event, now: int) -> Effects:
        """Its publisher did not choose total order for the topic: said, not guessed at."""
        self.subscriber.ignored["without a stamp"] += 1
        text = f"{event.id} is left out: {event.publisher} publishes {event.topic!r} without order"
        return (self._post.row("faults", "without a stamp", event.id, now), Trouble(text))

    def effective(self, ticket: str, now: int) -> Effects:
        self.subscriber.effective(ticket, now)
        return self._after((), now)

    def farewell(self, now: int) -> Effects:
        return self.members.farewell()

    def reconnected(self, now: int) -> Effects:
        self.subscriber.look_for_losses()
        self.subscriber.ask_again()
        self.publisher.ask_again(now)
        return self._after([*self.members.reconnected(), *self._send_again()], now)

    def close(self, now: int) -> Effects:
        self._closing = True
        return self._after((), now)

    def timer(self, key: str, now: int) -> Effects:
        effects: list[Effect] = []
        if key in mb.TIMERS:
            effects = self.members.timer(key, now)
            if key == mb.ALIVE_TIMER:
                effects += self._send_again()
        else:
            self._timers[key](now)
        return self._after(effects, now)

    # Messages.

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        return self._after(self._dispatch(message, sender, now), now)

    def _dispatch(self, message: Control, sender: str, now: int) -> Sequence[Effect]:
        post = self._post
        if isinstance(message, msg.ToTopic):
            return self._to_manager(message, sender)
        if isinstance(message, msg.Look):
            return [*self._change_epoch(now), *self.members.propose(now)]
        if isinstance(message, msg.StampReady):
            self.publisher.stamped(message)
        elif isinstance(message, msg.Refused):
            self.publisher.refused(message)
        elif isinstance(message, msg.Related):
            self.subscriber.related(message)
        elif isinstance(message, msg.Start):
            self.subscriber.start(message, now)
        elif isinstance(message, msg.Swap):
            self._swap(message, now)
        elif isinstance(
            message,
            msg.Copy | msg.Copied | msg.Behind | msg.HandOver | msg.Adopt | msg.ClosedTopics,
        ):
            if message.view > post.view:
                self._parking.ahead(message, sender)
            elif message.view == post.view:
                return self._of_this_view(message, sender, now)
        else:
            return self.members.receive(message, sender, now)
        return ()

    def _of_this_view(self, message: Control, sender: str, now: int) -> Sequence[Effect]:
        if isinstance(message, msg.Copy):
            return self._copy(message, sender)
        if isinstance(message, msg.Copied):
            return self._copied(message, sender)
        if isinstance(message, msg.Behind):
            replica = self.led.get(message.topic)
            return replica.send_whole(sender) if replica is not None else ()
        if isinstance(message, msg.Adopt):
            return self._adopt(message, sender)
        if isinstance(message, msg.HandOver):
            return self._take_report(message, sender, now)
        assert isinstance(message, msg.ClosedTopics)
        self._epochs.take(message, sender)
        return self._change_epoch(now)

    def _to_manager(self, message: msg.ToTopic, sender: str) -> Sequence[Effect]:
        post = self._post
        topic = message.topic
        if message.view > post.view or not post.members:
            self._parking.ahead(message, sender)
            return ()
        replica = self.led.get(topic)
        if replica is None:
            if post.manager_of(topic) != post.node_id:
                post.to_topic(message)
                return ()
            replica = self._begin_fresh(topic)
        epoch = getattr(message, "epoch", 0)
        if replica is None or not replica.serving or epoch > replica.held.state.epoch.number:
            self._parking.for_topic(message)
            return ()
        if replica.full:  # whoever waits asks again
            post.refuse(message, "no majority of the copies answers")
            return ()
        effects = replica.take(message)
        self._mail(replica)
        return effects

    def _submit(self, replica: Replica, message: msg.ToTopic) -> Sequence[Effect]:
        effects = replica.take(message)
        self._mail(replica)
        return effects

    def _mail(self, replica: Replica) -> None:
        """Send the letters of a manager that a majority knows of."""
        post = self._post
        for to, letter in replica.told():
            if to is None:
                assert isinstance(letter, msg.ToTopic)
                post.to_topic(letter)
            elif to == HOST and isinstance(letter, msg.Closing | msg.Opened):
                self._host(letter)
            else:
                post.to_node(to, letter)
        manager = replica.manager
        if manager.refused:
            post.refused.extend(manager.refused)
            manager.refused.clear()
        if len(manager.handled) >= self._batch:
            self._count(replica)

    # After every handler: local messages, views, closing; then all effects go out together.

    def _after(self, effects: Iterable[Effect], now: int) -> list[Effect]:
        post, members = self._post, self.members
        quiet = members.view is self._view and members.completed == self._completed
        if quiet and not post.local and not post.refused and not self._closing:
            return [*effects, *post.collect()] if effects else post.collect()
        out = list(effects)
        while True:
            if post.local:
                out.extend(self._dispatch(post.local.popleft(), post.node_id, now))
            elif self.members.view is not self._view:
                out.extend(self._follow(now))
            elif self.members.completed > self._completed:
                self._completed = self._survey.completed = self.members.completed
                out.extend(self._recover(now))
            elif not self._closing or not self._leave(now, out):
                break
        for reason in post.refused:
            out.append(post.row("faults", "refused", reason, now))
        post.refused.clear()
        out.extend(post.collect())
        return out

    def _leave(self, now: int, out: list[Effect]) -> bool:
        """Ask to leave, or go, if it is time; true if something changed."""
        if not self.publisher.idle:
            return False
        if not self._leaving_asked:
            self._leaving_asked = True
            self.publisher.close()
            out.extend(self.members.leave(now))
            return True
        if not self.members.left:
            return False
        out.extend(self.members.let_go())
        return True

    # Views.

    def _follow(self, now: int) -> list[Effect]:
        """Install the newest view."""
        view = self.members.view
        assert view is not None
        self._view = view
        post = self._post
        post.members, post.view, post.spread = view.members, view.number, view.spread
        self._orders.follow(view)
        self.led, self._unled = {}, {}
        self._survey = Survey(view)
        self._survey.completed = self._completed
        self._owed, self._parts = {}, Parts()
        for replica in self.replicas.values():
            replica.retire()
        self._epochs.new_view(view)
        detail = f"{view.number}: {' '.join(view.members)}"
        out: list[Effect] = [post.row("control", "view", detail, now)]
        if view.epoch and view.old_order != view.order:
            detail = f"{view.epoch}: {' '.join(view.order)}"
            out.append(post.row("control", "topic order", detail, now))
        out += self._hand_over(view)
        for message, sender in self._parking.new_view():
            out.extend(self._dispatch(message, sender, now))
        post.local.extend(post.unplaced)
        post.unplaced.clear()
        self.publisher.ask_again(now)
        self.subscriber.new_view(view.epoch, now)
        return [*out, *self._recover(now)]

    def _hand_over(self, view: View) -> list[Effect]:
        """Tell every member what is held here of the topics that it manages now."""
        post = self._post
        moving: dict[str, list[Held]] = {member: [] for member in view.members}
        for topic, replica in self.replicas.items():
            moving[post.manager_of(topic)].append(replica.held)
        if post.node_id in view.members:
            self._survey.reports.add(post.node_id)
            self._hear(moving.pop(post.node_id))
        if not any(post.node_id in past.members for past in view.chain):
            return []
        out: list[Effect] = []
        for member, held in moving.items():
            parts = parts_of(_ENCODER.encode(held))
            self._owed[member] = [
                Send(member, msg.HandOver(view.number, index, len(parts), part))
                for index, part in enumerate(parts)
            ]
            out += self._owed[member]
        return out

    def _take_report(self, message: msg.HandOver, sender: str, now: int) -> list[Effect]:
        data = self._parts.whole(sender, message)
        if data is None or sender in self._survey.reports:
            return []
        try:
            reported = HELD_LIST_DECODER.decode(data)
        except UNDECODABLE:
            self._post.refuse(message, "cannot be unpacked")
            return []
        self._survey.reports.add(sender)
        self._hear(reported)
        return self._recover(now)

    def _hear(self, reported: Iterable[Held]) -> None:
        for held in reported:
            topic = held.state.topic
            if self._post.manager_of(topic) != self._post.node_id or topic in self.led:
                continue
            known = self._unled.get(topic)
            if known is None or held.age > known.age:
                self._unled[topic] = held

    def _recover(self, now: int) -> list[Effect]:
        """Begin to manage the topics of which enough is known."""
        out: list[Effect] = []
        view = self._view
        if view is None or self._post.node_id not in view.members:
            return out
        for topic in [topic for topic in self._unled if self._survey.knows(topic)]:
            held = self._unled.pop(topic)
            replica = self.replicas.get(topic)
            if replica is None or replica.held is not held:
                replica = self.replicas[topic] = self._replica(held)
            self.led[topic] = replica
            copies = self._survey.holders(topic, view.members)[1:]
            out += replica.lead(view.number, copies)
            self._served(replica)
        for topic in self._parking.topics:  # of topics nobody has used yet
            if topic not in self.led and self._survey.knows(topic):
                self._parking.release(topic)
        out += self._change_epoch(now)
        return out

    def _replica(self, held: Held) -> Replica:
        manager = TopicManager(held.state, self._orders, self._exact, self._limits)
        return Replica(held, manager, self._durable)

    def _begin_fresh(self, topic: str) -> Replica | None:
        """A topic that nobody has used, or None if someone may have."""
        view = self._view
        assert view is not None
        if topic in self._unled or not self._survey.knows(topic):
            return None
        if self._epochs.needed and not (
            self.members.is_ready(self._post.node_id) or topic in self._epochs.mentioned
        ):
            return None  # a subscription of the old epoch may name it
        replica = self.replicas[topic] = self._fresh(topic, view)
        self.led[topic] = replica
        replica.lead_fresh(self._survey.holders(topic, view.members)[1:])
        return replica

    def _fresh(self, topic: str, view: View) -> Replica:
        state = ManagerState(topic, epoch=Epoch(number=view.epoch))
        return self._replica(Held(view.number, 0, state))

    def _served(self, replica: Replica) -> None:
        if replica.serving:
            self._mail(replica)
            self._parking.release(replica.topic)

    # Copies.

    def _copy(self, message: msg.Copy, sender: str) -> list[Effect]:
        view = self._view
        assert view is not None
        if sender != self._post.manager_of(message.topic):
            return []
        replica = self.replicas.get(message.topic)
        if replica is None or replica.held.view != view.number:
            if message.index != 1:
                return [Send(sender, msg.Behind(view.number, message.topic))]
            replica = self.replicas[message.topic] = self._fresh(message.topic, view)
        followed = replica.follow(message)
        if followed is None:
            return [Send(sender, msg.Behind(view.number, message.topic))]
        return [*followed, Send(sender, replica.confirmation())]

    def _copied(self, message: msg.Copied, sender: str) -> Sequence[Effect]:
        replica = self.led.get(message.topic)
        if replica is None:
            return ()
        served = replica.serving
        effects = replica.copied(sender, message.index)
        self._mail(replica)
        if replica.serving and not served:
            self._served(replica)
            self._post.local.append(msg.Look())
        return effects

    def _adopt(self, message: msg.Adopt, sender: str) -> list[Effect]:
        topic = message.topic
        data = self._parts.whole(sender, message)
        if data is None or sender != self._post.manager_of(topic):
            return []
        try:
            held = HELD_DECODER.decode(data)
        except UNDECODABLE:
            self._post.refuse(message, "cannot be unpacked")
            return []
        known = self.replicas.get(topic)
        if held.view != message.view or held.state.topic != topic:
            self._post.refuse(message, "not what it says")
            return []
        if known is not None and known.held.age >= held.age:
            return [Send(sender, known.confirmation())]
        replica = self.replicas[topic] = self._replica(held)
        return [*replica.store_whole(), Send(sender, replica.confirmation())]

    def _send_again(self) -> list[Effect]:
        """A period has passed: what was not answered may be lost."""
        out: list[Effect] = []
        for replica in self.led.values():
            out += replica.again()
        for member, messages in self._owed.items():
            if not self.members.is_ready(member):
                out += messages
        out += self._epochs.again(self.members.is_ready)
        return out

    # The topic order.

    def _change_epoch(self, now: int) -> list[Effect]:
        """Close, report, open: as far as it can go now. Then this node is ready in the view."""
        view = self._view
        assert view is not None
        if self._post.node_id not in view.members or self.members.is_ready(self._post.node_id):
            return []
        everyone_serves = not self._unled and all(r.serving for r in self.led.values())
        if not self._survey.knows_all or not everyone_serves:
            return []
        out: list[Effect] = []
        if self._epochs.needed:
            for _ in range(2):  # the report may be the last word that the opening waits for
                for topic in sorted(self._epochs.mentioned - self.led.keys()):
                    if self._post.manager_of(topic) == self._post.node_id:
                        self._begin_fresh(topic)
                for topic, entry in self._epochs.next_entries(self.led):
                    out += self._submit(self.led[topic], entry)
                out += self._epochs.report(self.led)
            if not self._epochs.done(self.led):
                return out
        out += self.members.set_ready(now)
        for topic in self._parking.topics:  # of topics nobody has used yet
            self._parking.release(topic)
        return out

    def _host(self, letter: msg.Closing | msg.Opened) -> None:
        """A letter of a manager to the node that hosts it."""
        if isinstance(letter, msg.Closing):
            self._epochs.closed(letter)
        else:
            self._epochs.opened(letter)
            self._parking.release(letter.topic)
        self._post.local.append(msg.Look())

    def _count(self, replica: Replica) -> None:
        """Who is popular? If a lower topic is much more so, its place should be this one's."""
        events, replica.manager.handled = replica.manager.handled, []
        epoch = replica.held.state.epoch.number
        if self._popularity is None or self._view is None or epoch != self._view.epoch:
            return
        lower = self._popularity.handled(replica.topic, events, epoch, self._free)
        if lower is not None:
            self._post.local.append(msg.Swap(epoch, replica.topic, lower))

    def _free(self, topic: str) -> int:
        return self.members.heard_free.get(self._post.manager_of(topic), 100)

    def _swap(self, message: msg.Swap, now: int) -> None:
        view = self._view
        if view is None or message.epoch != view.epoch or self._popularity is None:
            return
        leader = self.members.leader(now)
        if leader != self._post.node_id:
            if message.upper in self.led:  # pass it on once, not in circles
                self._post.to_node(leader, message)
            return
        if not self._popularity.may_change(now) or self.members.wished_order is not None:
            return
        events = {t: n for topics in self.members.heard_topics.values() for t, n in topics.items()}
        events |= self._managed()
        order = self._orders[view.epoch]
        wish = self._popularity.change(order, message, events, self._free, now)
        if wish is not None and wish != order.listed:
            self.members.wished_order = wish
            self._post.local.append(msg.Look())
