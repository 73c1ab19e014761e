"""One topic manager: numbers the events of its topic and takes part in the stamps of lower ones.

It is a deterministic machine - messages in, letters out, no clock, no randomness - so copies of it
on other nodes that take the same messages hold the same state (`replica.py`). Messages may be lost,
come twice, late or in any order. Whoever waits asks again: publishers repeat requests, subscribers
repeat their operations, and a manager that is asked again sends again what it still waits for. So
nothing here needs a timer, and nothing waits for a letter that was lost with a crashed host.

Two topics are *related* when a subscription holds both, or when a lower topic is related to both
(the fill). So the sequencing group of every topic - itself and the related topics above it - is a
clique.

Exact stamps. A stamp holds, for the event's own topic, its number; for each topic above, how many
of its events come before; for each related topic below, how many had passed by this manager when
the number was given (predecessor entries; only those that changed since the topic's stamp before,
which whoever follows the topic has seen). *Causal hold*: a manager adds its number only after
everything that the stamp already counts, of topics related to its own, has passed by; events of one
topic never overtake each other. Invariant: `passed[w]` is the highest number of the lower topic w
that this manager has stamped; all smaller ones have passed too, or were numbered before the
relation began (up to the base). The latter are not predecessor entries: some may still be on their
way and end up behind events that this manager numbered since. A subscriber therefore waits for them
itself before it starts (`subscriber.py`).

Epochs. Under a new topic order the group and the relations begin anew, and numbers go on. A closed
epoch gives no more numbers, but its stamps finish their way with its final number; all its events
come before those of the next epoch, whose stamps count them (`Open.lower`).

A stamp is kept here, as it went on, until its publisher has it (`kept`, `own`). What waits here is
bounded by what the publishers have outstanding (`Limits.outstanding` each).

`exact=False` gives the printed stamps: no predecessor entries, no hold, no fill.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from unisono.core.events import LIFE_BITS, Control, Stamp, first_of
from unisono.core.limits import Limits
from unisono.qos.total_order.messages import (
    AskStart,
    Base,
    BaseKnown,
    Close,
    Closing,
    Confirm,
    Drain,
    Drained,
    Entry,
    FillStamp,
    Open,
    Opened,
    Pull,
    Refused,
    Relate,
    Related,
    RelatedTopic,
    RequestStamp,
    StampReady,
    Start,
    ToTopic,
)
from unisono.qos.total_order.order import Orders, TopicOrder
from unisono.qos.total_order.state import Epoch, ManagerState

EPOCH = "_unisono.order"  # the system topic: its entry in a stamp is the epoch (errata V9)
HOST = "host"  # Closing and Opened go to the node that hosts the manager
_PULLED = 32  # steps from one that waits to what it waits for, per request sent again
_KEPT_PRINTED = 4096  # stamps of a lower topic; exact ones are freed without exception
_OLD_EPOCHS = 8  # remembered; by then every live publisher has its stamps


# Which method takes which message: the one that is called as the message's tag.
_HANDLERS = {kind: str(kind.__struct_config__.tag).replace("-", "_") for kind in get_args(Entry)}

Letter = tuple[str | None, Control]  # to a node, to HOST, or None: to the message's topic


class TopicManager:
    """Takes messages, writes letters."""

    def __init__(self, state: ManagerState, orders: Orders, exact: bool, limits: Limits) -> None:
        self.state = state
        self.handled: list[str] = []  # topics whose events were handled; for who wants to count
        self.refused: list[str] = []  # messages that make no sense, by reason
        self._orders = orders
        self._exact = exact
        self._limits = limits
        self._letters: list[Letter] = []

    def take(self, message: ToTopic) -> list[Letter]:
        """A message for this topic; returns the letters that it leads to."""
        if type(message) is FillStamp:
            self.fill_stamp(message)
        elif type(message) is RequestStamp:
            self.request_stamp(message)
        else:
            getattr(self, _HANDLERS[type(message)])(message)
        letters, self._letters = self._letters, []
        return letters

    @property
    def _order(self) -> TopicOrder:
        epoch = self.state.epoch.number
        assert epoch in self._orders, "a copy that knows another order would become another manager"
        return self._orders[epoch]

    def _to_topic(self, message: ToTopic) -> None:
        self._letters.append((None, message))

    def _to_node(self, node: str, message: Control) -> None:
        self._letters.append((node, message))

    def _refuse(self, message: Control, why: str) -> None:
        self.refused.append(f"{type(message).__name__}: {why}")

    # Stamps of this topic.

    def request_stamp(self, message: RequestStamp) -> None:
        """Number the event, in the order in which its publisher asked."""
        state = self.state
        publisher = message.publisher
        if message.done:
            self._confirmed(publisher, message.done)
        last = state.turns.get(publisher, 0)
        if message.turn >> LIFE_BITS > last >> LIFE_BITS:
            last = self._new_life(publisher, message.turn >> LIFE_BITS)
        if message.turn <= last:
            self._stamp_again(publisher, message.turn)
            return
        if publisher not in state.turns and len(state.turns) >= self._limits.publishers:
            reason = f"topic {state.topic!r} has {self._limits.publishers} publishers already"
            self._to_node(publisher, Refused(message.event_id, reason))
            return
        if message.turn > last + 1 or state.epoch.final >= 0:
            state.early.setdefault(publisher, {})[message.turn] = message
            return
        self._create(message)
        if publisher in state.early:
            self._create_early(publisher)

    def _new_life(self, publisher: str, life: int) -> int:
        """It has restarted under its name; numbers it had got stay, for who waits for them."""
        first = first_of(life)
        if publisher in self.state.turns:
            self.state.turns[publisher] = first
            self.state.early.pop(publisher, None)
        return first

    def _create_early(self, publisher: str) -> None:
        """Number what waited for its turn."""
        waiting = self.state.early[publisher]
        while True:
            last = self.state.turns.get(publisher)
            if last is None:
                last = first_of(min(waiting, default=0) >> LIFE_BITS)
            following = waiting.pop(last + 1, None)
            if following is None:
                break
            self._create(following)
        if not waiting:
            del self.state.early[publisher]

    def _create(self, message: RequestStamp) -> None:
        state, epoch = self.state, self.state.epoch
        state.turns[message.publisher] = message.turn
        state.number += 1
        stamp: Stamp = {state.topic: state.number}
        if epoch.news:
            stamp.update(epoch.news)
            epoch.news = {}
        if epoch.number:
            stamp[EPOCH] = epoch.number
        path = tuple(epoch.group)
        partial = FillStamp(
            path[0] if path else "",
            0,
            epoch.number,
            message.event_id,
            state.topic,
            message.publisher,
            stamp,
            path[1:],
            tuple(state.freed),
        )
        state.freed = []
        state.own[state.number] = partial
        state.unfinished.setdefault(message.publisher, {})[message.turn] = state.number
        self.handled.append(state.topic)
        self._forward(partial)

    def _tell_all(self) -> None:
        """Someone will follow this topic from its next stamp on: it has all predecessor entries."""
        epoch = self.state.epoch
        epoch.news = {w: count for w, count in epoch.passed.items() if count > epoch.bases[w]}

    def _forward(self, partial: FillStamp, pulled: int = 0) -> None:
        if not partial.topic:
            self._to_node(partial.publisher, StampReady(partial.event_id, partial.stamp))
        elif pulled:
            self._letters.append((None, msgspec.structs.replace(partial, pulled=pulled)))
        else:
            self._letters.append((None, partial))

    def _stamp_again(self, publisher: str, turn: int) -> None:
        """The publisher still waits: its stamp, or a part of its way, was lost."""
        number = self.state.unfinished.get(publisher, {}).get(turn)
        if number is not None:
            self._forward(self.state.own[number])

    def confirm(self, message: Confirm) -> None:
        self._confirmed(message.publisher, message.done)

    def _confirmed(self, publisher: str, done: int) -> None:
        """The publisher has all its stamps up to this turn: forget them."""
        state = self.state
        unfinished = state.unfinished.get(publisher)
        if unfinished is None:
            return
        turn = done
        while (number := unfinished.pop(turn, None)) is not None:  # they follow each other
            del state.own[number]
            state.freed.append(number)
            turn -= 1
        if not unfinished:
            del state.unfinished[publisher]
        if state.old:
            self._forget_old()

    # Stamps of lower topics.

    def _epoch_of(self, number: int) -> Epoch | None:
        state = self.state
        return state.epoch if number == state.epoch.number else state.old.get(number)

    def fill_stamp(self, message: FillStamp) -> None:
        """Add this topic's number once everything the stamp counts has passed by."""
        state = self.state
        epoch = self._epoch_of(message.epoch)
        if epoch is None:
            return  # all its stamps are with their publishers
        lower = message.event_topic
        number = message.stamp.get(lower)
        if number is None or lower == state.topic:
            self._refuse(message, "impossible stamp")
            return
        passed = epoch.passed.get(lower, -2)  # no number follows what is not related
        if passed < -1 and epoch is state.epoch and not self._order.above(state.topic, lower):
            self._refuse(message, "not from below")
            return
        if message.free:
            self._free(lower, message.free)
        if number == passed + 1 and not epoch.held and self._may_pass(epoch, message):
            self._stamp(epoch, message)
            if state.drains or state.old:
                self._passed_on(epoch)
        elif (kept := epoch.kept.get(lower, {}).get(number)) is not None:
            self._forward(kept, message.pulled)  # asked again
        elif not self._exact:
            self._stamp(epoch, message)
        elif number <= passed:
            return  # a late duplicate
        elif number in epoch.held.get(lower, ()):
            self._pull_for(epoch, message)
        else:
            epoch.held.setdefault(lower, {})[number] = message
            self._release(epoch)

    def _release(self, epoch: Epoch) -> None:
        """Stamp what waits, as long as one becomes free."""
        progress = True
        while progress:
            progress = False
            for lower in list(epoch.held):
                waiting = epoch.held[lower]
                while lower in epoch.passed:
                    message = waiting.get(epoch.passed[lower] + 1)
                    if message is None or not self._may_pass(epoch, message):
                        break
                    del waiting[epoch.passed[lower] + 1]
                    self._stamp(epoch, message)
                    progress = True
                if not waiting:
                    del epoch.held[lower]
        self._passed_on(epoch)

    def _passed_on(self, epoch: Epoch) -> None:
        if self.state.drains and epoch is self.state.epoch:
            self._answer_drains()
        if self.state.old:
            self._forget_old()

    def _may_pass(self, epoch: Epoch, message: FillStamp) -> bool:
        passed, announced = epoch.passed, epoch.announced
        own = message.event_topic
        for topic, count in message.stamp.items():
            if topic != own and (passed.get(topic, count) < count or topic in announced):
                return False
        return True

    def _stamp(self, epoch: Epoch, message: FillStamp) -> None:
        state = self.state
        lower = message.event_topic
        number = message.stamp[lower]
        if self._exact:
            epoch.passed[lower] = epoch.news[lower] = number
        count = state.number if epoch.final < 0 else epoch.final
        path = message.path
        partial = FillStamp(
            path[0] if path else "",
            0,
            epoch.number,
            message.event_id,
            lower,
            message.publisher,
            {**message.stamp, state.topic: count},
            path[1:],
            message.free,
        )
        kept = epoch.kept.setdefault(lower, {})
        kept[number] = partial
        if not self._exact and len(kept) > _KEPT_PRINTED:
            del kept[next(iter(kept))]  # a late duplicate would stay for ever
        self.handled.append(lower)
        self._forward(partial)

    def _free(self, lower: str, numbers: tuple[int, ...]) -> None:
        """These stamps of a lower topic are with their publishers."""
        kept = self.state.epoch.kept.get(lower)
        if kept:
            for number in numbers:
                kept.pop(number, None)
        for epoch in self.state.old.values():
            for number in numbers:
                epoch.kept.get(lower, {}).pop(number, None)

    def _pull_for(self, epoch: Epoch, message: FillStamp) -> None:
        """A stamp that waits here was sent again: ask for the first that it waits for."""
        own, pulled = message.event_topic, message.pulled + 1
        if pulled > _PULLED:
            return
        for topic, count in message.stamp.items():
            last = count - 1 if topic == own else count
            if topic in epoch.announced or (topic == own and own not in epoch.passed):
                self._to_topic(Pull(topic, 0, epoch.number, 0, pulled))
                return
            if epoch.passed.get(topic, last) < last:
                self._to_topic(Pull(topic, 0, epoch.number, epoch.passed[topic] + 1, pulled))
                return

    def pull(self, message: Pull) -> None:
        """A higher manager misses something of this topic."""
        state = self.state
        if message.number in state.own:
            self._forward(state.own[message.number], message.pulled)
        if message.epoch == state.epoch.number and message.pulled < _PULLED:
            self._ask_again()  # not for who was asked again itself: that would go on for ever

    # Relations. Requests go strictly upwards in the topic order, so waiting cannot be circular.

    def _all_above(self, topics: tuple[str, ...]) -> bool:
        return self._order.all_above(topics, self.state.topic)

    def _current(self, epoch: int) -> bool:
        return epoch == self.state.epoch.number and self.state.epoch.final < 0

    def relate(self, message: Relate) -> None:
        if not self._current(message.epoch):
            return  # asked again under the new order
        if not message.group or not self._all_above(message.group):
            self._refuse(message, "topics not above")
            return
        relating = self.state.relating
        if any(known.op == message.op and known.asker == message.asker for known in relating):
            self._ask_again()
            return
        relating.append(message)
        if len(relating) == 1:
            self._next_relation()

    def _next_relation(self) -> None:
        """Begin the first request in line; those that change nothing are answered at once."""
        state = self.state
        while state.relating:
            first = state.relating[0]
            if not first.asker_is_topic:
                state.note(first.group)
            if not self._exact:
                self._relate_printed(first)
                continue
            if state.epoch.group.keys() >= set(first.group):
                self._answer()
                continue
            state.union = self._order.upwards({*state.epoch.group, *first.group})
            state.ops += 1
            state.op = f"{state.topic}#{state.ops}"
            state.telling = False
            state.answers = state.union[:-1]
            self._ask_again()
            if not state.answers:
                self._tell(-1)
            return

    def _ask_again(self) -> None:
        """Send what the first relation waits for, for the first time or once more."""
        state = self.state
        if not state.relating:
            return
        epoch = state.epoch.number
        if state.telling:
            for topic in state.answers:
                self._to_topic(Base(topic, 0, epoch, state.topic, state.base, state.op))
            for topic in state.draining:
                self._to_topic(Drain(topic, 0, epoch, state.topic, state.base, state.op))
            return
        for index, topic in enumerate(state.union[:-1]):
            if topic in state.answers:
                above = tuple(state.union[index + 1 :])
                self._to_topic(Relate(topic, 0, epoch, above, state.op, state.topic, True))

    def _relate_printed(self, message: Relate) -> None:
        """Printed stamps: note the topics above and pass the subscription on, as the paper does."""
        state = self.state
        union = self._order.upwards({*state.epoch.group, *message.group})
        state.epoch.group = dict.fromkeys(union, 0)
        if len(message.group) == 1:
            self._answer()
            return
        state.relating.pop(0)
        above, *rest = self._order.upwards(message.group)
        self._to_topic(msgspec.structs.replace(message, topic=above, group=tuple(rest)))

    def related_topic(self, message: RelatedTopic) -> None:
        """A higher topic is related to all above it; when all are, this topic may join them."""
        state = self.state
        if not self._expects(message.epoch, message.op) or state.telling:
            return
        if message.about in state.answers:
            state.answers.remove(message.about)
            if not state.answers:
                self._tell(-1)

    def _tell(self, base: int) -> None:
        """Announce to the new members of the group that, or from where on, events pass by them."""
        state = self.state
        state.telling = True
        state.base = base
        state.answers = [topic for topic in state.union if topic not in state.epoch.group]
        self._ask_again()
        if not state.answers:  # nobody is new
            self._finish_relation()

    def base(self, message: Base) -> None:
        epoch = self.state.epoch
        lower = message.lower
        if not self._current(message.epoch):
            return
        if not self._order.above(self.state.topic, lower):
            self._refuse(message, "not from below")
            return
        if lower not in epoch.passed:
            if message.base < 0:
                if lower not in epoch.announced:
                    epoch.announced.append(lower)
            else:
                if lower in epoch.announced:
                    epoch.announced.remove(lower)
                epoch.bases[lower] = epoch.passed[lower] = message.base
                self._release(epoch)
        self._to_topic(
            BaseKnown(lower, 0, message.epoch, self.state.topic, message.base, message.op)
        )

    def base_known(self, message: BaseKnown) -> None:
        state = self.state
        if not self._expects(message.epoch, message.op) or not state.telling:
            return
        if message.base != state.base or message.about not in state.answers:
            return
        state.answers.remove(message.about)
        if state.answers:
            return
        if state.base < 0:
            # Everyone waits for the base: from now on new events pass by the whole group. What was
            # numbered before passes by the old members only; the relation holds once it has.
            state.draining = list(state.epoch.group)
            new = state.number
            groups = {topic: state.epoch.group.get(topic, new) for topic in state.union}
            answers = [topic for topic in state.union if topic not in state.epoch.group]
            state.epoch.group = groups
            self._tell_all()
            state.base, state.answers = new, answers
            self._ask_again()
            return
        self._finish_relation()

    def drained(self, message: Drained) -> None:
        state = self.state
        if self._expects(message.epoch, message.op) and message.about in state.draining:
            state.draining.remove(message.about)
            self._finish_relation()

    def _finish_relation(self) -> None:
        if not self.state.answers and not self.state.draining:
            self._answer()
            self._next_relation()

    def drain(self, message: Drain) -> None:
        epoch, lower = self.state.epoch, message.lower
        if not self._current(message.epoch):
            return
        if lower not in epoch.passed:
            self._refuse(message, "not related")
        elif message not in self.state.drains:
            self.state.drains.append(message)
        elif (first := epoch.held.get(lower, {}).get(epoch.passed[lower] + 1)) is not None:
            self._pull_for(epoch, msgspec.structs.replace(first, pulled=_PULLED - 1))
        else:  # asked again: what is to pass was lost, and its publisher may be dead
            self._to_topic(Pull(lower, 0, epoch.number, epoch.passed[lower] + 1, _PULLED))
        self._answer_drains()

    def _answer_drains(self) -> None:
        state = self.state
        for message in [d for d in state.drains if state.epoch.passed[d.lower] >= d.number]:
            state.drains.remove(message)
            self._to_topic(Drained(message.lower, 0, message.epoch, state.topic, message.op))

    def ask_start(self, message: AskStart) -> None:
        self._to_node(message.subscriber, Start(self.state.topic, self.state.number, message.op))
        self._tell_all()

    def _expects(self, epoch: int, op: str) -> bool:
        return self._current(epoch) and bool(self.state.relating) and self.state.op == op

    def _answer(self) -> None:
        done = self.state.relating.pop(0)
        if done.asker_is_topic:
            self._to_topic(RelatedTopic(done.asker, 0, done.epoch, self.state.topic, done.op))
        else:
            self._to_node(done.asker, Related(done.op))

    # A new topic order.

    def close(self, message: Close) -> None:
        """Give no more numbers in this epoch. Relations under way are asked for again later."""
        state, epoch = self.state, self.state.epoch
        if self._current(message.epoch):
            epoch.final = state.number
            state.relating, state.union, state.answers, state.op = [], [], [], ""
            state.draining, state.drains, state.telling = [], [], False
            sets, group = tuple(map(tuple, state.sets)), dict(epoch.group)
            state.closing = Closing(state.topic, epoch.number, epoch.final, sets, group)
            state.sets = []
        if state.closing is not None and state.closing.epoch == message.epoch:
            self._to_node(HOST, state.closing)

    def open(self, message: Open) -> None:
        """Begin the next epoch: all events of the last one come before those of this one."""
        state, ended = self.state, self.state.epoch
        if ended.number == message.epoch and state.untouched:
            self._begin_epoch(message)
        elif ended.number < message.epoch and ended.final >= 0:
            for lower, base in message.passing.items():
                if lower not in ended.passed:  # its word was still on the way
                    ended.bases[lower] = ended.passed[lower] = base
            ended.announced = []
            state.old[ended.number] = ended
            while len(state.old) > _OLD_EPOCHS:
                del state.old[next(iter(state.old))]
            self._begin_epoch(message)
            self._release(ended)
            for publisher in list(state.early):
                self._create_early(publisher)
        self._to_node(HOST, Opened(state.topic, state.epoch.number))

    def _begin_epoch(self, message: Open) -> None:
        lower_ends = dict(message.lower) if self._exact else {}
        self.state.epoch = Epoch(
            number=message.epoch,
            group=dict.fromkeys(message.group, self.state.number),
            bases=dict.fromkeys(lower_ends, -1),
            passed=lower_ends,
        )
        self._tell_all()
        self.state.sets = [list(others) for others in message.sets]

    def _forget_old(self) -> None:
        """Forget closed epochs of which nothing waits or is kept, oldest first."""
        state = self.state
        first = next(iter(state.own.values()), None)  # the oldest: epochs rise with numbers
        needed = state.epoch.number if first is None else first.epoch
        for number in list(state.old):
            epoch = state.old[number]
            if number >= needed or any(epoch.kept.values()) or epoch.held:
                return
            if number >= state.epoch.number - _OLD_EPOCHS // 2 and epoch.passed:
                return  # stamps may still come
            del state.old[number]
