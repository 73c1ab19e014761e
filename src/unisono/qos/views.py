"""Views, and the messages by which nodes agree on them (`membership.py`)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from unisono.core.events import Control, Number

VOTERS = 7


class Past(msgspec.Struct, frozen=True, array_like=True):
    """An earlier view, as far as it still matters."""

    number: Number
    members: tuple[str, ...]
    epoch: Number = 0


class View(msgspec.Struct, frozen=True, array_like=True):
    """A numbered list of members, in order of joining, and the topic order of its epoch."""

    bus: str
    number: Number
    members: tuple[str, ...]
    chain: tuple[Past, ...] = ()  # views whose managers may not all have moved on, oldest first
    replicas: int = 1  # copies of a manager's state
    spread: bool = True  # over all members; else all managers are on the oldest
    epoch: Number = 0  # of the topic order
    order: tuple[str, ...] = ()  # the topics listed in it, highest first
    old_order: tuple[str, ...] = ()  # the one of the epoch before

    @property
    def voters(self) -> tuple[str, ...]:
        return self.members[:VOTERS]


Ballot = tuple[int, str]  # a round and who proposed it
_NO_BALLOT: Ballot = (0, "")


def majority(count: int) -> int:
    return count // 2 + 1


class Hello(Control, frozen=True, array_like=True, tag="hello"):
    """Newcomer -> everyone. All members of a bus must speak the same dialect."""

    manage: bool
    dialect: str


class Known(Control, frozen=True, array_like=True, tag="known"):
    """Member -> newcomer: there is a bus; do you still want to join? Founder -> everyone."""

    bus: str
    token: Number = 0


class Willing(Control, frozen=True, array_like=True, tag="willing"):
    """Newcomer -> member: yes, I am here and want to join."""

    token: Number


class Alive(Control, frozen=True, array_like=True, tag="alive"):
    """Member -> everyone, every period. `ready`: all its managers have arrived in this view."""

    bus: str
    number: Number
    ready: bool
    completed: Number  # the newest view known in which every member was ready
    topics: dict[str, Number] = {}  # managed by the member -> events so far; the busiest
    free: Annotated[int, Meta(ge=0, le=100)] = 100  # per cent of its capacity


class AskView(Control, frozen=True, array_like=True, tag="ask-view"):
    """Node -> member: send me your view."""


class NewView(Control, frozen=True, array_like=True, tag="new-view"):
    """A view that was chosen."""

    view: View


class TurnedAway(Control, frozen=True, array_like=True, tag="turned-away"):
    """Member -> newcomer."""

    reason: str


class Leave(Control, frozen=True, array_like=True, tag="leave"):
    """Member -> members: make a view without me."""


class Goodbye(Control, frozen=True, array_like=True, tag="goodbye"):
    """Node -> everyone: I am gone."""

    completed: Number = 0


class Dissolved(Control, frozen=True, array_like=True, tag="dissolved"):
    """The last member -> everyone."""

    bus: str


class Prepare(Control, frozen=True, array_like=True, tag="prepare"):
    """Proposer -> voters of `view`: I want to choose the next one."""

    view: View
    ballot: Ballot


class Promise(Control, frozen=True, array_like=True, tag="promise"):
    """Voter -> proposer: no smaller ballot any more; this is what was accepted so far."""

    number: Number
    ballot: Ballot
    accepted_in: Ballot
    accepted: View | None


class Accept(Control, frozen=True, array_like=True, tag="accept"):
    """Proposer -> voters: the view after `number`."""

    number: Number
    ballot: Ballot
    view: View


class Accepted(Control, frozen=True, array_like=True, tag="accepted"):
    """Voter -> proposer."""

    number: Number
    ballot: Ballot


class Refuses(Control, frozen=True, array_like=True, tag="refuses"):
    """Voter -> proposer: I have promised this greater ballot."""

    number: Number
    ballot: Ballot


CONTROLS: tuple[type[Control], ...] = (
    Hello,
    Known,
    Willing,
    Alive,
    AskView,
    NewView,
    TurnedAway,
    Leave,
    Goodbye,
    Dissolved,
    Prepare,
    Promise,
    Accept,
    Accepted,
    Refuses,
)


class Vote(msgspec.Struct):
    """What a voter must not forget: its view, and what it promised and accepted for the next."""

    view: View
    promised: Ballot = _NO_BALLOT
    accepted_in: Ballot = _NO_BALLOT
    accepted: View | None = None
