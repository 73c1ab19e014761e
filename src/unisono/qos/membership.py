"""Who takes part, and in which topic order: a chain of views, each chosen by the one before.

A view lists the processes that host topic managers (members, in the order of joining) and the topic
order with its epoch. Its voters - the oldest seven members - choose the next view by majority
(single-decree Paxos per view), so there is one chain of views whatever is lost, late, doubled or
down. Members say Alive every period; one that is silent for `_PATIENCE` periods is suspected and
left out of the next view, which the first member that is not suspected proposes. A member left out
by mistake asks to come back. Processes that only publish and subscribe (clients) follow the views
and are in none.

A newcomer says Hello to everyone. If nobody answers within the discovery time it founds a bus; two
newcomers hear each other, and the one with the smaller id founds. Of two buses that formed unheard
of each other, one that is a single process and manages no topic yet gives in and joins the other;
else both are refused: numbers of two managers could not be told apart.

A view is *complete* when every member has all managers that it gives to it. Earlier views do not
matter any more then; `chain` holds those that may.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from unisono.core.effects import CancelTimer, Done, Effect, Fail, Send, SetTimer
from unisono.core.events import EVERYONE, Control
from unisono.core.limits import Limits
from unisono.core.node import CLOSE, JOIN
from unisono.qos.choice import Choice
from unisono.qos.detector import Detector
from unisono.qos.views import (
    Alive,
    AskView,
    Dissolved,
    Goodbye,
    Hello,
    Known,
    Leave,
    NewView,
    Past,
    Prepare,
    TurnedAway,
    View,
    Vote,
    Willing,
)

DISCOVERY_TIMER = "discover"
ALIVE_TIMER = "alive"
TIMERS = (DISCOVERY_TIMER, ALIVE_TIMER)
_PATIENCE = 4  # periods of silence after which a member is suspected
_FRESH_US = 1_000_000  # where there are no periods, all are in one process, which may be slow
_HELLOS = 6  # discovery times after which nobody adds this node for its old word


class Membership:
    """The views of one node. The layer above looks at `view` after every call."""

    def __init__(
        self,
        node_id: str,
        limits: Limits,
        *,
        manage: bool = True,
        found: bool = True,
        dialect: str = "exact",
        initial: View | None = None,
        replicas: int = 1,
        spread: bool = True,
        period_us: int | None = None,
        discovery_us: int = 500_000,
        patience_us: int = 10_000_000,
        stored: bytes | None = None,
    ) -> None:
        self._node_id = node_id
        self._limits = limits
        self._manage = manage
        self._found = found
        self._dialect = dialect
        self._initial = initial
        self._first = View(node_id, 1, (node_id,), replicas=replicas, spread=spread)
        self._period_us = period_us
        self._discovery_us = discovery_us
        self._patience_us = patience_us
        self._started_us = 0
        self._asked_us = 0  # when this round of discovery began
        self._rivals: set[str] = set()  # newcomers heard of in this round that may found
        self._yields_to: str | None = None  # a bus to join, though it has had one view only
        self._known: str | None = None  # a bus that exists, though nobody has let us in
        self._joined = False
        self._leaving = False
        self._gone = False  # this node is no one's member any more
        self._dissolves = False
        self._alone = False
        self._willing_us: int | None = None  # when this node last said that it wants to join
        vote = msgspec.msgpack.decode(stored, type=Vote) if stored is not None else None
        self._choice = Choice(node_id, vote, self._wanted, self._chosen)
        self.view: View | None = vote.view if vote is not None else None
        self._detector = Detector(node_id, period_us)
        self._ready: dict[str, int] = {}  # member -> the newest view in which it is ready
        self._joining: dict[str, int] = {}  # newcomer -> when it last said Hello
        self._leavers: set[str] = set()
        self._alive_at = 0
        self.completed = 0  # the newest view known to be complete
        self.topics: Callable[[], dict[str, int]] = dict  # managed here -> events so far
        self.heard_topics: dict[str, dict[str, int]] = {}  # member -> what it manages
        self.free: Callable[[], int] = lambda: 100  # per cent of this process's capacity
        self.heard_free: dict[str, int] = {}  # as members say
        self.wished_order: tuple[str, ...] | None = None  # the layer's, at whoever may propose it

    def is_ready(self, member: str) -> bool:
        """Whether all managers of this member have arrived in the present view."""
        view = self.view
        return view is not None and self._ready.get(member, 0) >= view.number

    @property
    def complete(self) -> bool:
        """Every member has all that the present view gives it."""
        view = self.view
        return view is not None and all(map(self.is_ready, view.members))

    def leader(self, now: int) -> str:
        """The first member that is not suspected: it alone proposes."""
        view = self.view
        assert view is not None
        return next((m for m in view.members if not self._suspected(m, now)), view.members[0])

    # Coming and going.

    def start(self, now: int) -> list[Effect]:
        self._started_us = now
        out: list[Effect] = []
        if self.view is not None:  # from the disk: this node was only slow
            self._detector.watch(self.view.members, now)
            out = self._join(now)
        elif self._initial is not None:
            out = [*self._install(self._initial, now), *self._join(now)]
        else:
            out = self._hello(now)
        return [*out, *self._next_alive(now)]

    def _join(self, now: int) -> list[Effect]:
        if self._joined:
            return []
        self._joined = True
        return [Done(JOIN)]

    def _hello(self, now: int) -> list[Effect]:
        self._rivals.clear()
        self._asked_us = now
        return [
            Send(EVERYONE, Hello(self._manage, self._dialect)),
            SetTimer(DISCOVERY_TIMER, now + self._discovery_us),
        ]

    def timer(self, key: str, now: int) -> list[Effect]:
        return self._discovered(now) if key == DISCOVERY_TIMER else self._tick(now)

    def _discovered(self, now: int) -> list[Effect]:
        """The discovery time is over."""
        view = self.view
        if view is not None:
            if self._manage and not self._leaving and self._node_id not in view.members:
                return self._hello(now)  # left out by mistake
            return []
        if self._leaving:
            return self.let_go()
        if now - self._asked_us > 2 * self._discovery_us:
            self._discovery_us *= 2  # this process is slow: answers may still be unread
            return self._hello(now)
        if self._manage and self._found and self._known is None and not self._rivals:
            return [
                *self._install(self._first, now),
                *self._join(now),
                Send(EVERYONE, Known(self._node_id)),
            ]
        if now - self._started_us >= self._patience_us:
            if self._known is not None:
                return [Done(JOIN, f"bus {self._known} does not let this process in")]
            return [
                Done(
                    JOIN,
                    "no process hosts topic managers; connect one with manage=True (the default)",
                )
            ]
        return self._hello(now)

    def leave(self, now: int) -> list[Effect]:
        """Ask to leave; `left` says when a member may go."""
        self._leaving = True
        view = self.view
        if view is None or self._node_id not in view.members:
            return []  # someone may be adding this node: join first, or hear nothing
        if view.members == (self._node_id,):
            self._dissolves = True
            return []
        self._leavers.add(self._node_id)
        return [*self._ask_to_leave(view), *self.propose(now)]

    def _ask_to_leave(self, view: View) -> list[Effect]:
        return [Send(member, Leave()) for member in view.members if member != self._node_id]

    @property
    def left(self) -> bool:
        """Nobody needs this node any more, after `leave`."""
        view = self.view
        if self._gone or view is None:
            return False
        if not self._manage or self._alone or view.members == (self._node_id,):
            return True
        if self._willing_us is not None:  # an answer to it may be under way
            return False
        return self._node_id not in view.members and self.complete

    def let_go(self) -> list[Effect]:
        """Go."""
        self._gone = True
        return [CancelTimer(DISCOVERY_TIMER), CancelTimer(ALIVE_TIMER), Done(CLOSE)]

    def farewell(self) -> list[Effect]:
        """The last words, once everything else has been said."""
        view = self.view
        if self._dissolves and view is not None:
            return [Send(EVERYONE, Dissolved(view.bus))]
        return [Send(EVERYONE, Goodbye(self.completed))]

    # Periods.

    def _next_alive(self, now: int) -> list[Effect]:
        if self._period_us is None:
            return []
        self._alive_at = now + self._period_us
        return [SetTimer(ALIVE_TIMER, self._alive_at)]

    def _tick(self, now: int) -> list[Effect]:
        assert self._period_us is not None
        if self._gone:
            return []
        if now > self._alive_at + 2 * self._period_us:  # this process slept: it cannot judge others
            self._detector.slept(now)
        out = self._next_alive(now)
        asked = self._willing_us
        if asked is not None and now - asked > _HELLOS * self._discovery_us:
            self._willing_us = None
        view = self.view
        if view is not None and self._node_id in view.members:
            out += self._say_alive(view)
            if self._leaving and self._node_id in self._leavers:
                out += self._ask_to_leave(view)
            out += self.propose(now)
        return out

    def _say_alive(self, view: View) -> list[Effect]:
        ready = self.is_ready(self._node_id)
        topics = self.heard_topics[self._node_id] = self.topics()
        free = self.heard_free[self._node_id] = self.free()
        return [Send(EVERYONE, Alive(view.bus, view.number, ready, self.completed, topics, free))]

    def set_ready(self, now: int) -> list[Effect]:
        """All managers that the present view gives to this node have arrived."""
        view = self.view
        assert view is not None
        if self.is_ready(self._node_id):
            return []
        self._ready[self._node_id] = view.number
        self._see_completion()
        return [*self._say_alive(view), *self.propose(now)]

    def _see_completion(self) -> None:
        view = self.view
        if view is not None and self.complete:
            self.completed = max(self.completed, view.number)

    def _suspected(self, member: str, now: int) -> bool:
        return self._detector.silent(member, now, _PATIENCE)

    # Messages.

    def receive(self, message: Control, sender: str, now: int) -> list[Effect]:
        if isinstance(message, Goodbye):
            self.completed = max(self.completed, message.completed)
            return self._forget(sender, now)
        if isinstance(message, Dissolved):
            return [*self._forget(sender, now), *self._dissolved(message.bus)]
        if self._gone:
            return []
        self._detector.hear(sender, now)
        if isinstance(message, Hello):
            return self._greet(message, sender, now)
        if isinstance(message, Known):
            known = self._other_bus(message.bus, self._period_us is not None, sender, now)
            return [*known, *self._answer_known(message, sender, now)]
        if isinstance(message, Willing):
            return self._add(message, sender, now)
        if isinstance(message, Alive):
            return self._alive(message, sender, now)
        if isinstance(message, AskView):
            return [Send(sender, NewView(self.view))] if self.view is not None else []
        if isinstance(message, NewView):
            return self._take(message.view, now)
        if isinstance(message, TurnedAway):
            return [] if self._joined else [Fail(message.reason)]
        if isinstance(message, Leave):
            self._leavers.add(sender)
            return self.propose(now)
        return self._consent(message, sender, now)

    def _alive(self, message: Alive, sender: str, now: int) -> list[Effect]:
        view = self.view
        if view is None:
            self._known = message.bus
            return []
        if message.bus != view.bus:
            idle = message.number == 1 and not message.topics
            return self._other_bus(message.bus, idle, sender, now)
        if message.ready:
            self._ready[sender] = max(self._ready.get(sender, 0), message.number)
        elif message.number == view.number:
            self._ready.pop(sender, None)  # it has restarted
        self.completed = max(self.completed, message.completed)
        self._see_completion()
        if message.number == view.number and sender in view.members:
            self.heard_topics[sender], self.heard_free[sender] = message.topics, message.free
        if message.number > view.number:
            return [Send(sender, AskView())]
        if message.number < view.number:
            return [Send(sender, NewView(view))]
        return self.propose(now) if self._period_us is None else []

    def _dissolved(self, bus: str) -> list[Effect]:
        if self.view is None:
            self._known = None if self._known == bus else self._known
            return []
        if self.view.bus != bus:
            return []
        if self._leaving:
            self._alone = True  # nobody is left to hand over to
            return []
        return [
            Fail(
                "the last process that hosted topic managers has left; connect again with one there"
            )
        ]

    def _forget(self, sender: str, now: int) -> list[Effect]:
        self._joining.pop(sender, None)
        view = self.view
        if view is not None and sender in view.members:  # it gave up waiting for its successor
            self._leavers.add(sender)
            return self.propose(now)
        return []

    def _greet(self, message: Hello, sender: str, now: int) -> list[Effect]:
        view = self.view
        if view is None:
            if message.manage and sender < self._node_id:
                self._rivals.add(sender)
            elif self._manage and sender > self._node_id:
                # It may have come too late to hear this one's.
                return [Send(sender, Hello(True, self._dialect))]
            return []
        if self._node_id not in view.members:
            return []
        if message.dialect != self._dialect:
            reason = f"this bus uses {self._dialect} stamps, not {message.dialect}; choose alike"
            return [Send(sender, TurnedAway(reason))]
        if not message.manage or sender in view.members:
            return [Send(sender, NewView(view))]
        if len(view.members) + len(self._joining) >= self._limits.members:
            full = f"the bus has {self._limits.members} processes already"
            return [Send(sender, TurnedAway(full))]
        return [Send(sender, Known(view.bus, max(now, 1)))]

    def _add(self, message: Willing, sender: str, now: int) -> list[Effect]:
        """A newcomer that is alive: a Hello alone may be an echo of one that is gone."""
        fresh = 0 <= now - message.token <= self._fresh_us
        if self.view is not None and sender not in self.view.members and fresh:
            self._joining[sender] = now
        return self.propose(now)

    @property
    def _fresh_us(self) -> int:  # how long a newcomer counts as alive after its word
        if self._period_us is not None:
            return 2 * self._period_us
        return max(self._discovery_us, _FRESH_US)

    def _answer_known(self, message: Known, sender: str, now: int) -> list[Effect]:
        inside = self.view is not None and self._node_id in self.view.members
        if not message.token or not self._manage or self._leaving or inside:
            return []
        self._willing_us = now
        return [Send(sender, Willing(message.token))]

    @property
    def _idle(self) -> bool:
        """Whether this bus is nobody but this process, and has put nothing in order."""
        view = self.view
        return view is not None and view == self._first and not self.topics()

    def reconnected(self) -> list[Effect]:
        """Others may be heard now that were not before."""
        return [Send(EVERYONE, Hello(True, self._dialect))] if self._idle else []

    def _other_bus(self, bus: str, idle: bool, sender: str, now: int) -> list[Effect]:
        """There is a bus. `idle`: it has put nothing in order, or its signs of life will tell."""
        view = self.view
        if view is None:
            self._known = bus
            return []
        if bus == view.bus:
            return []
        if self._idle:
            if not idle or bus < view.bus:
                self._yields_to = bus
            return [Send(sender, AskView())]
        if not idle:
            return [self._two_buses(bus)]
        if self._period_us is not None and all(self._suspected(m, now) for m in view.members):
            return [
                Fail(
                    "all processes that hosted topic managers are gone, and another bus has begun; "
                    "connect again"
                )
            ]
        return []

    def _two_buses(self, bus: str) -> Effect:
        assert self.view is not None
        return Fail(
            f"two buses formed unheard of each other ({self.view.bus} and {bus}): their orders "
            "cannot be joined; close all processes of one, or of both if unsure, and connect again"
        )

    # Views.

    def _take(self, view: View, now: int) -> list[Effect]:
        """A view that was chosen; newer ones replace older ones."""
        known = self.view
        if not view.members:
            return []
        gives_in = False
        if known is not None and view.bus != known.bus:
            gives_in = self._idle and (view.number > 1 or view.bus == self._yields_to)
            if not gives_in:
                young = view.number == 1 and self._period_us is not None
                return [] if young else [self._two_buses(view.bus)]  # its signs of life will tell
        if known is not None and view.number <= known.number and not gives_in:
            return []
        if known is None and self._manage and self._node_id not in view.members:
            self._known = view.bus
            return []
        out = self._install(view, now)
        out += self._join(now)
        if self._node_id in view.members:
            self._willing_us = None
            if known is None:
                out.append(CancelTimer(DISCOVERY_TIMER))
            if self._leaving:
                out += self.leave(now)
            out += self.propose(now)
        elif known is not None and self._node_id in known.members and not self._leaving:
            out += self._hello(now)  # left out by mistake
        return out

    def _install(self, view: View, now: int) -> list[Effect]:
        self.view = view
        self._detector.watch(view.members, now)
        self._joining = {n: at for n, at in self._joining.items() if n not in view.members}
        self._leavers &= set(view.members)
        self._ready = {m: self._ready[m] for m in view.members if m in self._ready}
        self.heard_topics.clear()
        if self.wished_order is not None and view.order == self.wished_order:
            self.wished_order = None
        return self._choice.install(view)

    def _wanted(self, now: int) -> View | None:
        """The view that should follow, if any should."""
        view = self.view
        assert view is not None
        stay = [m for m in view.members if m not in self._leavers and not self._suspected(m, now)]
        if self._leavers and any(self._detector.silent(member, now, 2) for member in stay):
            return None  # do not leave everything to one that may be dead
        fresh = [
            newcomer
            for newcomer, at in self._joining.items()
            if newcomer not in view.members and now - at <= self._fresh_us
        ]
        members = (*stay, *fresh)
        if not members:
            if not self._leavers >= set(view.members):
                return None  # the others are only silent
            members = (self._node_id,)  # the last one turns off the light
        chain = [*view.chain, Past(view.number, view.members, view.epoch)]
        past = tuple(earlier for earlier in chain if earlier.number >= self.completed)
        base = msgspec.structs.replace(view, number=view.number + 1, chain=past)
        if members != view.members:
            return msgspec.structs.replace(base, members=members)
        wish = self.wished_order
        if wish is None or wish == view.order or not self.complete:
            return None
        return msgspec.structs.replace(base, epoch=view.epoch + 1, order=wish, old_order=view.order)

    # Choosing the next view.

    def propose(self, now: int) -> list[Effect]:
        """Begin or repeat a choice, if one is due and it is this node's turn."""
        view = self.view
        if view is None or self._node_id not in view.members or self._gone:
            return []
        if self.leader(now) != self._node_id or self._wanted(now) is None:
            return []
        return self._choice.begin(now, self._period_us)

    def _consent(self, message: Control, sender: str, now: int) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(message, Prepare) and sender != self._node_id:
            out = self._take(message.view, now)
        return [*out, *self._choice.receive(message, sender, now)]

    def _chosen(self, chosen: View, now: int) -> list[Effect]:
        """A majority has agreed on it."""
        assert self.view is not None
        told = dict.fromkeys((*self.view.members, *chosen.members))
        out: list[Effect] = [Send(node, NewView(chosen)) for node in told if node != self._node_id]
        out.append(Send(EVERYONE, Alive(chosen.bus, chosen.number, False, self.completed)))
        return [*out, *self._take(chosen, now)]
