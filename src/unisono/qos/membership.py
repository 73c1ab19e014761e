"""Who takes part: processes find each other over the bus and agree on numbered views.

Guarantee: every member goes through the same sequence of views; a view is a list of the processes
that host topic managers, in the order of joining. The first one is the coordinator: it alone makes
the next view, and when it leaves it makes the view without itself. Processes that only publish and
subscribe (clients) are told every view but are in none. A newcomer says Hello to everyone. If
nobody answers within the discovery time it founds a bus of its own; two newcomers hear each other,
and the one with the smaller id founds. Two buses that formed unheard of each other are found out
and refused: numbers of one topic from two managers could not be told apart. Crashes are not handled
here yet: a member that dies without leaving stays in the view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from unisono.core.effects import CancelTimer, Done, Effect, Fail, Gone, Send, SetTimer
from unisono.core.events import EVERYONE, Control, Number
from unisono.core.limits import Limits
from unisono.core.node import CLOSE, JOIN

DISCOVERY_TIMER = "discover"
_LATER_VIEWS = 1000  # views kept that overtook an earlier one


class View(msgspec.Struct, frozen=True, array_like=True):
    """A numbered list of members, in order of joining."""

    bus: str
    number: Number
    members: tuple[str, ...]
    previous: tuple[str, ...] = ()  # the members of the view before
    leaving: str = ""  # who left with this view
    clients: tuple[str, ...] = ()  # who else follows the views


class Hello(Control, frozen=True, array_like=True, tag="hello"):
    """Newcomer -> everyone. All members of a bus must speak the same dialect."""

    manage: bool
    dialect: str


class Known(Control, frozen=True, array_like=True, tag="known"):
    """Member -> newcomer: there is a bus, its coordinator will answer. Founder -> everyone."""

    bus: str


class NewView(Control, frozen=True, array_like=True, tag="new-view"):
    """Coordinator -> members and clients."""

    view: View


class TurnedAway(Control, frozen=True, array_like=True, tag="turned-away"):
    """Coordinator -> newcomer."""

    reason: str


class Leave(Control, frozen=True, array_like=True, tag="leave"):
    """Member -> coordinator: make a view without me."""

    node: str


class Goodbye(Control, frozen=True, array_like=True, tag="goodbye"):
    """Node -> everyone: I am gone. Coordinator -> all followers: so is that node."""

    node: str = ""


class Dissolved(Control, frozen=True, array_like=True, tag="dissolved"):
    """The last member -> everyone."""

    bus: str


CONTROLS: tuple[type[Control], ...] = (
    Hello,
    Known,
    NewView,
    TurnedAway,
    Leave,
    Goodbye,
    Dissolved,
)


class Membership:
    """The views of one node. Views to install wait in `fresh`, oldest first."""

    def __init__(
        self,
        node_id: str,
        limits: Limits,
        *,
        manage: bool = True,
        dialect: str = "exact",
        initial: View | None = None,
        discovery_us: int = 500_000,
        patience_us: int = 10_000_000,
    ) -> None:
        self._node_id = node_id
        self._limits = limits
        self._manage = manage
        self._dialect = dialect
        self._initial = initial
        self._discovery_us = discovery_us
        self._patience_us = patience_us
        self._started_us = 0
        self._rivals: set[str] = set()  # newcomers heard of in this round that may found
        self._known: str | None = None  # a bus that exists, though its coordinator is silent
        self._asked_us = 0  # when this round of discovery began
        self._leaving = False
        self._last_word: Control = Goodbye()
        self.dissolving = False  # the last member: it goes when it has served its last view
        self._gone = False  # this node is no one's member any more
        self._later: dict[int, View] = {}  # views that overtook an earlier one
        self._clients: dict[str, None] = {}  # the coordinator's
        self.departed: dict[str, None] = {}  # who has said goodbye, oldest first
        self.view: View | None = None
        self.fresh: deque[View] = deque()

    def start(self, now: int) -> list[Effect]:
        self._started_us = now
        if self._initial is not None:
            self._install(self._initial)
            return [Done(JOIN)]
        return self._hello(now)

    def _hello(self, now: int) -> list[Effect]:
        self._rivals.clear()
        self._asked_us = now
        return [
            Send(EVERYONE, Hello(self._manage, self._dialect)),
            SetTimer(DISCOVERY_TIMER, now + self._discovery_us),
        ]

    def timer(self, now: int) -> list[Effect]:
        """The discovery time is over."""
        if self.view is not None:
            return []
        if self._leaving:
            return self.let_go()
        if now - self._asked_us > 2 * self._discovery_us:
            return self._hello(now)  # this process was busy: answers may still be unread
        founder = self._manage and self._known is None and not self._rivals
        if founder:
            self._install(View(self._node_id, 1, (self._node_id,)))
            return [Done(JOIN), Send(EVERYONE, Known(self._node_id))]
        if now - self._started_us >= self._patience_us:
            if self._known is not None:
                return [Done(JOIN, f"the coordinator of bus {self._known} does not answer")]
            return [
                Done(
                    JOIN,
                    "no process hosts topic managers; connect one with manage=True (the default)",
                )
            ]
        return self._hello(now)

    def leave(self, now: int) -> list[Effect]:
        """Ask to leave. A member goes on until it finds itself `leaving` in a view."""
        self._leaving = True
        view = self.view
        if view is None and self._manage:
            return []  # a coordinator may be adding this node: join first, or hear nothing
        if view is None or self._node_id not in view.members:
            return [CancelTimer(DISCOVERY_TIMER), *self.let_go()]
        if view.members[0] != self._node_id:
            return [Send(view.members[0], Leave(self._node_id))]
        return self._without(self._node_id)

    def let_go(self) -> list[Effect]:
        """Nobody needs this node any more."""
        self._gone = True
        return [Done(CLOSE)]

    def farewell(self) -> list[Effect]:
        """The last words, once everything else has arrived: peers forget this node then."""
        return [Send(EVERYONE, self._last_word)]

    def receive(self, message: Control, sender: str, now: int) -> list[Effect]:
        if isinstance(message, Goodbye):
            return self._forget(message.node or sender)
        if isinstance(message, Dissolved):
            return [*self._forget(sender), *self._dissolved(message.bus)]
        if self._gone:
            return []
        if isinstance(message, Hello):
            return self._greet(message, sender)
        if isinstance(message, Known):
            return self._known_bus(message.bus)
        if isinstance(message, NewView):
            return self._take(message.view, sender, now)
        if isinstance(message, TurnedAway):
            return [Fail(message.reason)]
        if isinstance(message, Leave):
            return self._let_go(message)
        raise AssertionError(f"not a message of the membership: {message}")

    def _dissolved(self, bus: str) -> list[Effect]:
        if self.view is None:
            self._known = None if self._known == bus else self._known
            return []
        if self.view.bus != bus or self._leaving:
            return []
        return [
            Fail(
                "the last process that hosted topic managers has left; connect again with one there"
            )
        ]

    def _forget(self, sender: str) -> list[Effect]:
        followed = sender in self._clients
        self._clients.pop(sender, None)
        self.departed[sender] = None
        if len(self.departed) > self._limits.departed:
            del self.departed[next(iter(self.departed))]
        out: list[Effect] = [Gone(sender)]
        if followed and self.view is not None and self.view.members[0] == self._node_id:
            # Who joined or leaves since may count on it and not have heard it.
            told = dict.fromkeys((*self.view.members, *self._clients))
            out += [Send(node, Goodbye(sender)) for node in told if node != self._node_id]
        return out

    def _greet(self, message: Hello, sender: str) -> list[Effect]:
        view = self.view
        if view is None:
            if message.manage and sender < self._node_id:
                self._rivals.add(sender)
            elif self._manage and sender > self._node_id:
                # It may have come too late to hear this one's.
                return [Send(sender, Hello(True, self._dialect))]
            return []
        if not view.members or view.members[0] != self._node_id:
            return [Send(sender, Known(view.bus))] if self._node_id in view.members else []
        if message.dialect != self._dialect:
            reason = f"this bus uses {self._dialect} stamps, not {message.dialect}; choose alike"
            return [Send(sender, TurnedAway(reason))]
        if sender in view.members or (not message.manage and sender in self._clients):
            return [Send(sender, NewView(view))]
        if len(view.members) + len(self._clients) >= self._limits.members:
            return [
                Send(sender, TurnedAway(f"the bus has {self._limits.members} processes already"))
            ]
        if not message.manage:
            self._clients[sender] = None
            return [Send(sender, NewView(view))]
        return self._announce((*view.members, sender), "")

    def _let_go(self, message: Leave) -> list[Effect]:
        view = self.view
        if view is None or message.node not in view.members:
            return []
        if view.members[0] != self._node_id:
            return [Send(view.members[0], message)]
        if message.node == self._node_id and not self._leaving:
            return []  # nobody else decides that
        return self._without(message.node)

    def _without(self, node: str) -> list[Effect]:
        assert self.view is not None
        rest = tuple(member for member in self.view.members if member != node)
        if not rest:
            self._last_word = Dissolved(self.view.bus)
            self.dissolving = True
            return []
        # Who leaves follows the views like a client until it says goodbye: others that leave
        # meanwhile must not go before it has stopped passing messages on to them.
        self._clients[node] = None
        return self._announce(rest, node)

    def _announce(self, members: Sequence[str], leaving: str) -> list[Effect]:
        old = self.view
        assert old is not None
        clients = tuple(client for client in self._clients if client not in members)
        view = View(old.bus, old.number + 1, tuple(members), old.members, leaving, clients)
        self._install(view)
        told = dict.fromkeys((*old.members, *members, *clients))
        return [Send(node, NewView(view)) for node in told if node != self._node_id]

    def _install(self, view: View) -> None:
        self.view = view
        self._clients = {client: None for client in view.clients if client not in self.departed}
        self.fresh.append(view)

    def _take(self, view: View, sender: str, now: int) -> list[Effect]:
        """Views are followed in their order. A client may begin with any; a member begins with
        the one that adds it, since that is the one with which managers are handed to it."""
        if not view.members or sender not in (*view.members, *view.previous):
            return []
        out: list[Effect] = []
        if self.view is None:
            added = self._node_id in view.members and self._node_id not in view.previous
            if self._manage and not added:
                self._keep_for_later(view)
                return []
            self._install(view)
            out = [CancelTimer(DISCOVERY_TIMER), Done(JOIN)]
            if self._leaving:
                out += self.leave(now)
        elif view.bus != self.view.bus:
            return self._known_bus(view.bus)
        elif view.number > self.view.number:
            self._keep_for_later(view)
        while self.view is not None:
            following = self._later.pop(self.view.number + 1, None)
            if following is None or following.bus != self.view.bus:
                break
            self._install(following)
        return out

    def _keep_for_later(self, view: View) -> None:
        self._later[view.number] = view
        if len(self._later) > _LATER_VIEWS:
            del self._later[max(self._later)]

    def _known_bus(self, bus: str) -> list[Effect]:
        view = self.view
        if view is None:
            self._known = bus
            return []
        if bus == view.bus:
            return []
        return [
            Fail(
                f"two buses formed at the same time ({view.bus} and {bus}): their orders cannot be "
                "joined; close all processes, or start them one discovery time apart"
            )
        ]
