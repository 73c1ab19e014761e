"""The subscriber's part: the notify rule, the reorder buffer, and changing subscriptions.

`clock`    per topic, the highest number that the stamps of untagged notifications counted. It only
grows,
           covers topics not (yet, or any more) subscribed, and never forgets (errata V2, V2b, V6).
`upto`     per subscribed topic, every number up to here was seen: notified, tagged or given up
(B1). Notify rule (errata V1): an event on T is in order iff its own number is above clock[T] and
its entry for every other topic above T is not below the clock. Entries of topics below T
(predecessors, exact stamps only) say what to wait for, not what to compare: they may be older than
what is already known. An event is *ready* when everything its stamp counts on subscribed topics has
been seen. An event that is not ready waits in the buffer until it is, or its time to live ends, or
the buffer overflows; then what it waited for is given up, it is notified as gap_skipped, and what
was given up will be tagged if it comes. Operations of one subscriber are serial (V7); what a
manager does not answer is asked again. An event of an earlier epoch of the topic order than what
was notified is out of order (V9).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from unisono.core.effects import (
    CancelTimer,
    Done,
    Notify,
    Record,
    SetTimer,
    Subscribe,
    Trouble,
    Unsubscribe,
)
from unisono.core.events import Event, Stamp, Status, first_of
from unisono.core.limits import Limits
from unisono.core.stack import SEPARATOR
from unisono.qos.total_order.manager import EPOCH
from unisono.qos.total_order.messages import AskStart, Relate, Related, Start
from unisono.qos.total_order.order import Orders, TopicOrder
from unisono.qos.total_order.post import Post

LAYER = "total-order"
HOLD_TIMER = "hold"
CATCH_UP_TIMER = "catch-up"
LOSSES_TIMER = "losses"
ASK_TIMER = "ask"

# How far a subscribe operation is.
LISTENING = "listening"
RELATING = "relating"
CATCHING_UP = "catching-up"
FINDING_START = "finding-start"
LOOKING = "looking-for-losses"  # not a phase: the question after an interruption


class Operation(msgspec.Struct):
    """A subscribe or unsubscribe in line. `plain` topics are not ordered, only listened to."""

    ticket: str | None
    topics: tuple[str, ...]
    plain: tuple[str, ...]
    subscribe: bool


class Subscriber:
    """Decides what is notified when, and as what."""

    def __init__(
        self,
        post: Post,
        orders: Orders,
        limits: Limits,
        *,
        exact: bool = True,
        buffer: int | None = None,
        hold_us: int | None = None,
        catch_up_us: int | None = None,
        retry_us: int | None = None,
        life: int = 0,
    ) -> None:
        self._post = post
        self._orders = orders
        self._epoch = 0  # of the present view
        self._retry_us = retry_us
        self._limits = limits
        self._exact = exact
        self._bound = limits.reorder_events if buffer is None else buffer
        self._hold_us = hold_us
        self._catch_up_us = hold_us if catch_up_us is None else catch_up_us
        self.ignored: Counter[str] = Counter()  # events not notified, by reason
        self.subscribed: set[str] = set()
        self._known: set[str] = set()  # ever subscribed
        self._clock: dict[str, int] = {}
        self._upto: dict[str, int] = {}
        self._given_up: dict[str, dict[int, None]] = {}  # topic -> numbers, rising
        self._buffer: dict[str, dict[int, Event]] = {}  # topic -> number -> event
        self._waiting: dict[
            str, list[int]
        ] = {}  # heaps of the numbers in the buffer, and older ones
        # (topic, number) -> event, deadline; oldest first
        self._arrivals: dict[tuple[str, int], tuple[Event, int]] = {}
        self._hold_at: int | None = None
        self._operations: deque[Operation] = deque()
        self._early: deque[Event] = deque()  # events of topics whose start is not known yet
        self._op = first_of(life)  # the operation under way, how far it is, and what it waits for
        self._phase = ""
        self._fresh: tuple[str, ...] = ()
        self._numbers: dict[str, int | None] = {}
        self._expected: dict[str, int] = {}  # numbers that must come after an interruption
        self._ahead: deque[Event] = deque()  # events of epochs not heard of yet

    @property
    def _order(self) -> TopicOrder:
        return self._orders[self._epoch]

    # Changing subscriptions.

    def subscribe(
        self, topics: Sequence[str], ticket: str | None, plain: Sequence[str] = ()
    ) -> None:
        self._operations.append(Operation(ticket, tuple(topics), tuple(plain), True))
        if len(self._operations) == 1:
            self._next_operation()

    def unsubscribe(
        self, topics: Sequence[str], ticket: str | None, plain: Sequence[str] = ()
    ) -> None:
        self._operations.append(Operation(ticket, tuple(topics), tuple(plain), False))
        if len(self._operations) == 1:
            self._next_operation()

    def _next_operation(self) -> None:
        while self._operations:
            operation = self._operations[0]
            if operation.subscribe:
                fresh = tuple(t for t in operation.topics if t not in self.subscribed)
                if fresh or operation.plain:
                    self._ask(fresh, operation.plain)
                    return
            else:
                self._forget(operation.topics, operation.plain)
            self._finish()

    def _finish(self) -> None:
        operation = self._operations.popleft()
        if operation.ticket is not None:
            self._post.do(Done(operation.ticket))

    def _ask(self, fresh: tuple[str, ...], plain: tuple[str, ...]) -> None:
        """Listen first: what is numbered after a manager has answered must arrive."""
        self._op += 1
        self._fresh = fresh
        self._phase = LISTENING
        self._post.do(Subscribe((*plain, *fresh), f"{LAYER}{SEPARATOR}{self._op_name}"))

    def effective(self, ticket: str, now: int) -> None:
        """Next, have the managers relate the topics."""
        if ticket != self._op_name or self._phase != LISTENING:
            return
        if not self._fresh:
            self._phase = ""
            self._finish()
            self._next_operation()
            return
        if len({*self.subscribed, *self._fresh}) == 1:
            self._ask_numbers(self._fresh, FINDING_START)
        else:
            self._phase = RELATING
            self._ask_relation()
        if self._retry_us is not None:
            self._post.do(SetTimer(ASK_TIMER, now + self._retry_us))

    def _ask_relation(self) -> None:
        lowest, *above = self._order.upwards({*self.subscribed, *self._fresh})
        group, view, me = tuple(above), self._post.view, self._post.node_id
        self._post.to_topic(Relate(lowest, view, self._epoch, group, self._op_name, me, False))

    def ask_timer(self, now: int) -> None:
        self.ask_again()
        if self._phase and self._retry_us is not None:
            self._post.do(SetTimer(ASK_TIMER, now + self._retry_us))

    def ask_again(self) -> None:
        """What the operation under way waits for may be lost."""
        if self._phase == RELATING:
            self._ask_relation()
        elif self._phase in (CATCHING_UP, FINDING_START):
            self._ask_unanswered()

    def new_view(self, epoch: int, now: int) -> None:
        """Managers may have moved, and the topic order may have changed."""
        self._epoch = epoch
        self.ask_again()
        ahead, self._ahead = self._ahead, deque()
        for event in ahead:
            self.arrive(event, now)

    @property
    def _op_name(self) -> str:
        return f"{self._post.node_id}/{self._op}"

    def related(self, message: Related) -> None:
        """Next, see everything that was numbered on the topics held before the relation began."""
        if message.op != self._op_name or self._phase != RELATING:
            return
        if not self._exact:
            # The start of every topic is merged, as the paper's subscription timestamp was (V2).
            self._ask_numbers((*self._fresh, *sorted(self.subscribed)), FINDING_START)
            return
        held = sorted(self.subscribed, key=self._order.key)
        if held:
            self._ask_numbers(held, CATCHING_UP)
        else:
            self._ask_numbers(self._fresh, FINDING_START)

    def _ask_numbers(self, topics: Sequence[str], phase: str) -> None:
        self._phase = phase
        self._numbers = dict.fromkeys(topics)
        self._ask_unanswered()

    def _ask_unanswered(self) -> None:
        op = f"{self._op_name}/{self._phase}"
        for topic, number in self._numbers.items():
            if number is None:
                self._post.to_topic(AskStart(topic, self._post.view, self._post.node_id, op))

    def look_for_losses(self) -> None:
        """After an interruption, learn how many events there should be."""
        for topic in sorted(self.subscribed):
            self._post.to_topic(AskStart(topic, self._post.view, self._post.node_id, LOOKING))

    def losses_timer(self, now: int) -> None:
        """What should have come by now and has not is given up, and said."""
        for topic, number in self._expected.items():
            missing = number - self._upto[topic] if topic in self.subscribed else 0
            if missing > 0:
                self._let_pass(topic, number)
                kind = "lost in an interruption"
                detail = f"{topic} up to number {number}: {missing} events"
                row = {"at_us": now, "node": self._post.node_id, "kind": kind, "detail": detail}
                self._post.do(Record("faults", row))
                self._post.do(Trouble(f"{kind}: {detail}"))
        self._expected = {}
        self._cascade()
        self._wake()

    def start(self, message: Start, now: int) -> None:
        if message.op == LOOKING:
            if self._catch_up_us is not None and message.topic in self.subscribed:
                if not self._expected:
                    self._post.do(SetTimer(LOSSES_TIMER, now + self._catch_up_us))
                self._expected[message.topic] = message.number
            return
        if message.op != f"{self._op_name}/{self._phase}" or message.topic not in self._numbers:
            return
        if self._numbers[message.topic] is not None:
            return  # asked twice
        self._numbers[message.topic] = message.number
        if self._phase == FINDING_START and None not in self._numbers.values():
            self._activate(now)
            return
        if self._phase == CATCHING_UP and None not in self._numbers.values():
            if self._catch_up_us is not None:
                self._post.do(SetTimer(CATCH_UP_TIMER, now + self._catch_up_us))
            self._catch_up()

    def _catch_up(self) -> None:
        """Go on once everything asked for has been seen."""
        if self._phase != CATCHING_UP:
            return
        if any(n is None or self._upto[t] < n for t, n in self._numbers.items()):
            return
        if self._catch_up_us is not None:
            self._post.do(CancelTimer(CATCH_UP_TIMER))
        for topic, number in self._numbers.items():
            # What was given up and still comes has no entry for the new topics: it is late.
            self._clock[topic] = max(self._clock.get(topic, 0), number or 0)
        self._ask_numbers(self._fresh, FINDING_START)

    def catch_up_timer(self, now: int) -> None:
        """What has not come within the time to live is given up."""
        if self._phase != CATCHING_UP:
            return
        for topic, number in self._numbers.items():
            if number is not None:
                self._let_pass(topic, number)
        self._cascade()
        self._catch_up()
        self._wake()

    def _let_pass(self, topic: str, number: int) -> None:
        """See to it that everything up to the number is seen: notified if here, else given up."""
        while self._upto[topic] < number:
            waiting = self._first_number(topic)
            if waiting is not None and waiting <= number:
                self._force(self._buffer[topic][waiting])
            else:
                self._give_up(topic, number)

    def _activate(self, now: int) -> None:
        starts, self._numbers = self._numbers, {}
        self._phase = ""
        self._fresh = ()
        for topic, number in starts.items():
            assert number is not None
            begin = max(number, self._clock.get(topic, 0))
            if not self._exact:
                self._clock[topic] = begin
            if topic in self.subscribed:
                continue
            self.subscribed.add(topic)
            self._known.add(topic)
            self._upto[topic] = begin
            self._given_up[topic] = {}
        early, self._early = self._early, deque()
        self._finish()
        for event in early:
            self.arrive(event, now)
        self._cascade()
        self._next_operation()

    def _forget(self, topics: tuple[str, ...], plain: tuple[str, ...]) -> None:
        self._post.do(Unsubscribe((*plain, *topics)))
        for topic in topics:
            self.subscribed.discard(topic)
            self._given_up.pop(topic, None)
            self._waiting.pop(topic, None)
            for number in self._buffer.pop(topic, {}):
                del self._arrivals[topic, number]
        self._cascade()
        self._wake()

    # Events.

    def arrive(self, event: Event, now: int) -> None:
        """An event has come from the event service."""
        topic = event.topic
        stamp = event.stamp
        assert stamp is not None
        if stamp.get(EPOCH, 0) > self._epoch:
            self._keep(self._ahead, event, now)
            return
        if topic not in self.subscribed:
            self._keep_early(event, now)
            return
        number = stamp[topic]
        if number <= self._upto[topic] and number not in self._given_up[topic]:
            self.ignored["duplicate or before the subscription"] += 1
            return
        if number in self._buffer.get(topic, ()):
            self.ignored["duplicate"] += 1
            return
        if number in self._given_up[topic]:
            del self._given_up[topic][number]
            self._notify(event, gap=False)
            return
        if self._ready(event):
            self._notify(event, gap=False)
            if self._buffer or self._phase:
                self._cascade()
            return
        deadline = now + self._hold_us if self._hold_us is not None else -1
        self._buffer.setdefault(topic, {})[number] = event
        heapq.heappush(self._waiting.setdefault(topic, []), number)
        self._arrivals[topic, number] = (event, deadline)
        while len(self._arrivals) > self._bound:
            self._force(next(iter(self._arrivals.values()))[0])
        self._wake()

    def timer(self, now: int) -> None:
        """Release what has waited for its time to live."""
        self._hold_at = None
        while self._arrivals:
            event, deadline = next(iter(self._arrivals.values()))
            if deadline > now:
                break
            self._force(event)
        self._wake()

    def _keep_early(self, event: Event, now: int) -> None:
        if event.topic not in self._fresh:
            self.ignored["not subscribed"] += 1
            return
        self._keep(self._early, event, now)

    def _keep(self, queue: deque[Event], event: Event, now: int) -> None:
        queue.append(event)
        if len(queue) > self._limits.early_events:
            lost = queue.popleft()
            self.ignored["too early"] += 1
            row = {"at_us": now, "node": self._post.node_id, "kind": "too early", "detail": lost.id}
            self._post.do(Record("faults", row))

    def _ready(self, event: Event) -> bool:
        upto = self._upto
        stamp = event.stamp
        assert stamp is not None
        for topic, count in stamp.items():
            if topic == event.topic:
                count -= 1
            elif topic not in self.subscribed:
                continue
            if upto[topic] < count:
                return False
        return True

    def _force(self, event: Event) -> None:
        """Let the event go, or a waiting one that precedes it; give up what it awaits."""
        event = self._first_waiting(event)
        stamp = event.stamp
        assert stamp is not None
        for topic, count in stamp.items():
            if topic == event.topic:
                self._give_up(topic, count - 1)
            elif topic in self.subscribed:
                self._give_up(topic, count)
        self._take(event)
        self._notify(event, gap=True)
        self._cascade()

    def _first_waiting(self, event: Event) -> Event:
        """Go down from `event` to a waiting event that no other waiting event precedes."""
        seen: set[tuple[str, int]] = set()  # stamps that count each other would lead in a circle
        while True:
            stamp = event.stamp
            assert stamp is not None
            place = event.topic, stamp[event.topic]
            if place in seen:
                return event
            seen.add(place)
            for topic in self._buffer:
                number = self._first_number(topic)
                earlier = number is not None and number <= stamp.get(topic, -1)
                if number is not None and earlier and self._buffer[topic][number] is not event:
                    event = self._buffer[topic][number]
                    break
            else:
                return event

    def _first_number(self, topic: str) -> int | None:
        """The smallest number of a topic in the buffer."""
        held, waiting = self._buffer.get(topic, {}), self._waiting.get(topic, [])
        while waiting and waiting[0] not in held:
            heapq.heappop(waiting)
        return waiting[0] if waiting else None

    def _give_up(self, topic: str, count: int) -> None:
        upto = self._upto[topic]
        if count <= upto:
            return
        given_up = self._given_up[topic]
        first = max(upto + 1, count + 1 - self._limits.given_up_numbers)
        given_up.update(dict.fromkeys(range(first, count + 1)))
        while len(given_up) > self._limits.given_up_numbers:
            del given_up[next(iter(given_up))]
        self._upto[topic] = count

    def _take(self, event: Event) -> None:
        assert event.stamp is not None
        topic, number = event.topic, event.stamp[event.topic]
        waiting = self._buffer[topic]
        del waiting[number]
        if not waiting:
            del self._buffer[topic]
        del self._arrivals[topic, number]

    def _notify(self, event: Event, gap: bool) -> None:
        stamp = event.stamp
        assert stamp is not None
        topic = event.topic
        if not self._in_order(topic, stamp):
            self._post.do(Notify(event, Status.OUT_OF_ORDER))
        else:
            self._post.do(Notify(event, Status.GAP_SKIPPED if gap else Status.IN_ORDER))
            clock = self._clock
            for other, count in stamp.items():
                if count > clock.get(other, 0):
                    clock[other] = count
        self._upto[topic] = max(self._upto[topic], stamp[topic])

    def _in_order(self, topic: str, stamp: Stamp) -> bool:
        clock = self._clock
        epoch = stamp.get(EPOCH, 0)
        if stamp[topic] <= clock.get(topic, 0) or epoch < clock.get(EPOCH, 0):
            return False
        for other, count in stamp.items():
            behind = count < clock.get(other, 0) and other in self._known
            if behind and self._orders[epoch].above(other, topic):
                return False
        return True

    def _cascade(self) -> None:
        """Notify what has become ready, in as many rounds as it takes."""
        progress = bool(self._buffer)
        while progress:
            progress = False
            for topic in list(self._buffer):
                while topic in self._buffer:
                    event = self._buffer[topic].get(self._upto[topic] + 1)
                    if event is None or not self._ready(event):
                        break
                    self._take(event)
                    self._notify(event, gap=False)
                    progress = True
        self._catch_up()

    def _wake(self) -> None:
        """Keep one timer, at the deadline of the event that has waited longest."""
        if self._hold_us is None:
            return
        wanted = next(iter(self._arrivals.values()))[1] if self._arrivals else None
        if wanted == self._hold_at:
            return
        self._hold_at = wanted
        self._post.do(CancelTimer(HOLD_TIMER) if wanted is None else SetTimer(HOLD_TIMER, wanted))
